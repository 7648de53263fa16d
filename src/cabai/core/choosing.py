"""The two arms of top-two, found by comparing all arms: with an epsilon, and for tests that estimate variances."""

from __future__ import annotations

import math

import numpy as np

from cabai.core.within import evidence_within
from cabai.families.base import upper_end
from cabai.support.specialise import slot


def find_highest(arms, run, rules):
    """The arm with the best mean, unless another arm's upper end is higher by more than epsilon."""
    level = math.log(run.t)
    highest, end = 0, -np.inf
    for a in range(len(arms)):
        own = end_of(rules, arms[a], level)
        if a != run.leader:
            own -= rules.epsilon
        if own > end:
            highest, end = a, own
    return highest


@slot
def end_of(rules, arm, level):
    """The upper end of an arm: the largest mean that its rewards allow, up to this much evidence against it."""
    return upper_end(rules, arm.mean, level / arm.pulls)


def find_challenger(arms, run, rules, l):  # noqa: E741
    """The arm with the least evidence that the leader l is at most epsilon worse than it."""
    challenger, least = -1, np.inf
    for a in range(len(arms)):
        if a != l:
            own = margin_of(rules, arms[l], arms[a])
            if challenger < 0 or own < least:
                challenger, least = a, own
    return challenger


@slot
def margin_of(rules, l, a):  # noqa: E741
    """That evidence, minus the price of the arm."""
    return evidence_within(rules, l, a) - a.price
