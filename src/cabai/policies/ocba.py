"""OCBA, optimal computing budget allocation (Chen, Lin, Yücesan, Chick 2000), with costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cabai.core.state import Fields
from cabai.families.base import lower_end, upper_end
from cabai.families.slots import variance_at
from cabai.policies.base import Policy
from cabai.policies.rejecting import least_pulled
from cabai.support.validation import whole


def choose(arms, run, rules):
    """After n0 pulls of each arm: argmax t r_a / r - N_a with r_a = V_a/(mean_b - mean_a)², r_b = sqrt(V_b sum of
    (c_a/c_b) r_a²/V_a) and r their sum."""
    K, b = len(arms), arms[run.leader]
    fewest = least_pulled(arms, run, rules)
    if arms[fewest].pulls < rules.first_pulls:
        return fewest
    total, squares = 0.0, 0.0
    for a in range(K):
        arm = arms[a]
        if arm.seen != arm.pulls:  # the largest variance with N d(mean, q) <= 1, never 0 as the one at the mean may be
            arm.seen = arm.pulls
            low, high = lower_end(rules, arm.mean, 1.0 / arm.pulls), upper_end(rules, arm.mean, 1.0 / arm.pulls)
            arm.widest = max(variance_at(rules, low, 1.0 - low), variance_at(rules, high, 1.0 - high))
    for a in range(K):
        if a != run.leader:
            arm = arms[a]
            gap = b.mean - arm.mean
            arm.r = arm.widest / max(gap * gap, 1e-9 * arm.widest)
            total += arm.r
            squares += arm.cost / b.cost * arm.r * arm.r / arm.widest
    b.r = math.sqrt(b.widest * squares)
    total += b.r
    chosen, most = -1, -np.inf
    for a in range(K):
        behind = run.t * (arms[a].r / total) - arms[a].pulls
        if behind > most:
            chosen, most = a, behind
    return chosen


@dataclass(frozen=True)
class OCBA(Policy):
    """OCBA: divide pulls as is best for normal rewards with the estimated means and variances.

    Standard in simulation; starves an arm after an unlucky start. V is the family's largest variance at means q with
    N d(mean, q) <= 1. Usually with a budget.
    """

    first_pulls: int = 5
    name = "ocba"
    choose = staticmethod(choose)
    arm_memory: ClassVar[Fields] = {"seen": 0, "widest": 0.0}
    arm_scratch: ClassVar[Fields] = {"r": 0.0}

    def __post_init__(self) -> None:
        whole(self.first_pulls, "first_pulls", 1)

    def parameters(self, arms: int) -> dict[str, float]:
        return {"first_pulls": float(self.first_pulls)}
