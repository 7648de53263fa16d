"""What policies that spend a budget share: they drop arms on the way, and promise nothing but to spend it."""

import numpy as np

from cabai.core.observe import find_leader


def least_pulled(arms, run, rules):
    """The arm in play with the fewest pulls."""
    chosen = -1
    for a in range(len(arms)):
        if arms[a].in_play and (chosen < 0 or arms[a].pulls < arms[chosen].pulls):
            chosen = a
    return chosen


def worst(arms):
    """The arm in play with the smallest mean, the last of tied ones."""
    found, least = -1, np.inf
    for a in range(len(arms)):
        if arms[a].in_play and (found < 0 or arms[a].mean <= least):
            found, least = a, arms[a].mean
    return found


def drop(arms, run, a):
    arms[a].in_play = 0
    run.left -= 1
    if a == run.leader:
        run.second = np.inf  # look through all arms
        find_leader(arms, run, a)


def harmonic(first, last):
    """1/first + ... + 1/last."""
    total = 0.0
    for i in range(first, last + 1):
        total += 1.0 / i
    return total
