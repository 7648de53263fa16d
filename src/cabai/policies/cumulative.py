"""C-tracking: pull so that the money spent follows the sum of all shares computed so far."""

from __future__ import annotations

import math

import numpy as np

from cabai.core.shares import allocate

#: The sum of an arm's shares; the first pulls, one of each arm, count as equal shares.
TRACKED = {"tracked": 1.0}


def furthest_behind(arms, run):
    """argmax J W_a / W - C_a, W_a the sum of the shares of a and W that of all: argmax W_a - N_a if costs are equal."""
    total = 0.0
    for a in range(len(arms)):
        total += arms[a].tracked
    chosen, largest = -1, -np.inf
    for a in range(len(arms)):
        behind = run.counted * (arms[a].tracked / total) - arms[a].costs
        if behind > largest:
            chosen, largest = a, behind
    return chosen


def track_sums(arms, run, rules):
    """C-tracking: add up the shares, each raised to at least 1/(2 sqrt(K² + t)) and the others lowered alike."""
    allocate(arms, run, rules)
    least = 0.5 / math.sqrt(len(arms) ** 2 + run.t)
    count, lowered = len(arms) + 1, -np.inf
    while True:
        above, now = len(arms) * least - 1.0, 0
        for a in range(len(arms)):
            if arms[a].share - lowered > least:
                above += arms[a].share - least
                now += 1
        if now >= count:
            break
        count, lowered = now, above / now
    for a in range(len(arms)):
        arms[a].tracked += max(arms[a].share - lowered, least)
    return furthest_behind(arms, run)
