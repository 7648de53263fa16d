"""What all families, thresholds and policies share: the state, the evidence of a pair, observing, stopping, shares, and
how plain functions are bound together and compiled."""
