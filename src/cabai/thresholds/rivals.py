"""Which pulls count for an arm: those of its best rival of the moment, once that one is clearly ahead of the next.

Shared by the two forms of `champion`: with the tilts of `contrast` (champion.py), and with the bets of `bets`
(champion_bets.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cabai.families import Family
from cabai.families.slots import variance_at
from cabai.support.specialise import slot
from cabai.thresholds.base import InOrder

CLEARLY = 4.0  # b is clearly ahead if Z > log(1 + N_b/N_a) / CLEARLY
LARGEST = 600.0  # of an exponent: times a number of pulls, it is finite


def credit(arms, run, rules, b, pulls, reward):
    """Count pulls of arm b, with this sum of rewards, for the arms whose best rival it is.

    A pull that should not have counted costs 1 + 2 N_b/N_a times what one that should have earns. So b must be ahead of
    the next rival x of a: e^(4 Z_{b,x}) > 1 + N_b/N_a, where Z is approximate.
    """
    n = float(arms[b].pulls)  # Python's numbers: without a compiler, NumPy's are slow
    if n == 0.0 or rules.log_counted == -np.inf:
        return
    first = second = third = -1
    best = next_best = last = -np.inf  # their means
    for a in range(len(arms)):
        arm = arms[a]
        mean = float(arm.mean)
        if mean > last and arm.pulls > 0:
            if mean > best:
                first, second, third = a, first, second
                best, next_best, last = mean, best, next_best
            elif mean > next_best:
                second, third = a, second
                next_best, last = mean, next_best
            else:
                third, last = a, mean
    if b == first:
        of_second, of_others = lead(arms, rules, b, third, best - last), lead(arms, rules, b, second, best - next_best)
        for a in range(len(arms)):
            if a != b:
                arm = arms[a]
                n_a = float(arm.pulls)
                if n_a * (of_second if a == second else of_others) > n_a + n:
                    count_for(rules, arm, arms[b], pulls, reward)
    elif b == second:
        arm, n_a = arms[first], float(arms[first].pulls)
        if n_a * lead(arms, rules, b, third, next_best - last) > n_a + n:
            count_for(rules, arm, arms[b], pulls, reward)


@slot
def count_for(rules, arm, b, pulls, reward):
    """Count pulls of arm record b, with this sum of rewards, for an arm."""
    arm.rivals += pulls
    arm.rival_rewards += reward


def lead(arms, rules, b, x, gap):
    """e^(4 Z_{b,x}) for this gap of their means; very large if there is no such arm x."""
    if x < 0:
        return math.exp(LARGEST)
    if not gap > 0.0:
        return 1.0
    return math.exp(min(CLEARLY * 0.5 * gap * gap / gap_variance(rules, arms[b], arms[x]), LARGEST))


@slot
def gap_variance(rules, b, x):
    """The variance of the difference of two means, as if V were constant."""
    n_b, n_x = float(b.pulls), float(x.pulls)
    m = (n_b * float(b.mean) + n_x * float(x.mean)) / (n_b + n_x)
    return (n_b + n_x) * variance_at(rules, m, 1.0 - m) / (n_b * n_x)


def sizes(b, a):
    return max(b.tested, a.rivals), a.tested


class OneTestPerArm(InOrder):
    """What `champion` adds to a test of pairs: its level and weights."""

    name = "champion"

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, Any]:
        found: dict[str, Any] = super().parameters(family, arms, delta)  # type: ignore[misc]
        if self.is_pair_test or arms == 2:  # with two arms, the one rival is known
            return found | {"log_counted": -math.inf, "log_leader": 0.0}
        own = 1 if found.get("range_count", 1) == 1 else 2  # with ranges, the weights of pairs may be others
        parts = 2 * arms * (arms - 1) * own
        return found | {
            "level": -math.log(delta), "log_counted": math.log(1 - 1 / (2 * arms)), "log_leader": -math.log(parts),
        }  # fmt: skip

    def pull_equally(self, b: Any, a: Any, arms: int) -> float:
        a.rivals, a.rival_rewards = b.pulls, b.rewards  # nearly all pulls of the leader count
        return 0.0
