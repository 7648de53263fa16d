"""Cost-aware top-two with an epsilon: an arm within epsilon of the best is good enough."""

from __future__ import annotations

import math

import numpy as np

from cabai.core.within import evidence_within, parts_within
from cabai.families.base import upper_end


def find_highest(arms, run, rules):
    """The arm with the best mean, unless another arm's upper end is higher by more than epsilon."""
    level = math.log(run.t)
    highest, end = -1, -np.inf
    for a in range(len(arms)):
        own = upper_end(rules, arms[a].mean, level / arms[a].pulls)
        if a != run.leader:
            own -= rules.epsilon
        if own > end:
            highest, end = a, own
    return highest


def find_challenger(arms, run, rules, l):  # noqa: E741
    """The arm with the least evidence that the leader l is at most epsilon worse than it."""
    challenger, least = -1, np.inf
    for a in range(len(arms)):
        if a != l:
            margin = evidence_within(rules, arms[l], arms[a]) - arms[a].price
            if challenger < 0 or margin < least:
                challenger, least = a, margin
    return challenger


def coin(rules, leader, challenger):
    """h_l and h_c, with sum 1, from the two parts of the evidence that the leader is at most epsilon worse."""
    n_l, n_c = leader.pulls, challenger.pulls
    price = leader.cost / challenger.cost
    part_l, part_c = parts_within(rules, n_l, leader.mean, n_c, challenger.mean)
    if part_l > 0.0 and part_c > 0.0:
        h_l = part_l / (part_l + part_c * price)
    else:
        h_l = n_c / (n_c + n_l * price)
    return h_l, 1.0 - h_l


functions = find_highest, find_challenger, coin
