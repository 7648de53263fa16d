"""Continuous Rejects (Wang, Tzeng, Proutiere 2023): drop an arm as soon as its gap is large enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.families.slots import variance_at
from cabai.policies.base import Policy
from cabai.policies.rejecting import drop, harmonic, least_pulled, worst
from cabai.support.specialise import required_slot


def stop(arms, run, rules):
    """Drop the worst arm if more than two are left, it has more pulls than every dropped arm, and its gap exceeds
    G = 1/sqrt(β) - 1, β = L(s) (money on the s arms in play)/(budget - money on dropped arms), L(s) = 1/2 + 1/2 + ...
    + 1/s."""
    l, spent, lost, most = worst(arms), 0.0, 0.0, 0  # noqa: E741
    for a in range(len(arms)):
        if arms[a].in_play:
            spent += arms[a].costs
        else:
            lost += arms[a].costs
            most = max(most, arms[a].pulls)
    if run.left > 2 and arms[l].pulls > most:
        beta = (0.5 + harmonic(2, run.left)) * spent / (rules.budget - lost)
        unit = 2.0 * math.sqrt(variance_at(rules, 0.5, 0.5))  # 1 for rewards in [0, 1]
        if gap(arms, run, l) / unit > 1.0 / math.sqrt(beta) - 1.0:
            drop(arms, run, l)
    return False


@required_slot
def gap(arms, run, l):  # noqa: E741
    """How far the worst arm l is below the others in play."""


def to_mean(arms, run, l):  # noqa: E741
    """CR-A: to the mean of their means."""
    total = 0.0
    for a in range(len(arms)):
        if arms[a].in_play and a != l:
            total += arms[a].mean
    return total / (run.left - 1) - arms[l].mean


def to_next(arms, run, l):  # noqa: E741
    """CR-C: to the smallest of them."""
    smallest = np.inf
    for a in range(len(arms)):
        if arms[a].in_play and a != l:
            smallest = min(smallest, arms[a].mean)
    return smallest - arms[l].mean


GAPS = {"mean": to_mean, "next": to_next}


@dataclass(frozen=True)
class ContinuousRejects(Policy):
    """Continuous Rejects: pull the arms in play equally often; drop the worst as soon as its gap is large enough.

    The gap is to the mean of the other arms' means (`gap=mean`, the paper's CR-A) or to the next one (`gap=next`,
    CR-C). For rewards in [0, 1]; gaussian ones are taken in units of two standard deviations. Needs a budget.
    """

    gap: str = "mean"
    name = "continuous-rejects"
    spends_budget = True
    choose, stop = staticmethod(least_pulled), staticmethod(stop)
    choices: ClassVar[Any] = {"gap": ("gap", GAPS)}
