"""Shared by all families, thresholds and policies: the state, evidence, observing, stopping, shares, and how plain
functions are bound together and compiled."""
