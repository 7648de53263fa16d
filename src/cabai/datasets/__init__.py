"""Arms on shared items: races, and what they would have cost on scores that are known."""
