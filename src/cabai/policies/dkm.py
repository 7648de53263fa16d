"""DKM (Degenne, Koolen, Ménard 2019): a game between AdaHedge, which learns shares, and the closest wrong answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cabai.core.shares import halves
from cabai.core.state import Fields
from cabai.families.base import lower_end, upper_end
from cabai.families.slots import divergence, variance_slope
from cabai.policies.base import Policy
from cabai.policies.pairs import closest, of_weights
from cabai.policies.tracking import TRACKED, furthest_behind


def choose(arms, run, rules):
    """Track u ∝ exp(-η L), η = log K / Δ; then let AdaHedge learn from the optimistic gains g."""
    K, b = len(arms), arms[run.leader]
    if run.known_for != run.leader:  # another answer, another game
        run.known_for, run.gap = run.leader, 0.01
        for a in range(K):
            arms[a].loss = 0.0
    eta, least, total = math.log(K) / run.gap, np.inf, 0.0
    for a in range(K):
        least = min(least, arms[a].loss)
    for a in range(K):
        arms[a].weight = max(math.exp(-eta * (arms[a].loss - least)), 1e-300)
        total += arms[a].weight
    for a in range(K):
        arms[a].weight /= total
        arms[a].tracked += arms[a].weight
    chosen = furthest_behind(arms, run)

    j = closest(arms, rules, run.leader)  # the best response: b and j at their pooled mean x
    x = b.mean
    if b.mean > arms[j].mean:  # else, at the edge of a family, rounding would put x next to it, where d is huge
        _, _, x, _ = halves(b, arms[j], b.weight / b.cost / (arms[j].weight / arms[j].cost), rules)
    largest, mean, mixed = 0.0, 0.0, 0.0
    for a in range(K):
        arms[a].gain = gain(arms[a], x if a == run.leader or a == j else arms[a].mean, run, rules) / arms[a].cost
        largest = max(largest, arms[a].gain)
        mean += arms[a].weight * arms[a].gain
    for a in range(K):
        mixed += arms[a].weight * math.exp(eta * (arms[a].gain - largest))
        arms[a].loss -= arms[a].gain
    run.gap += max(largest + math.log(max(mixed, 1e-300)) / eta - mean, 0.0)  # Δ += the mixability gap
    return chosen


def gain(arm, at, run, rules):
    """max(l, d(up, at), d(down, at)), up and down the ends of {q : d(mean, q) <= l}, l = log t / N; finite.

    d(p, q) is the integral of (x - p)/V(x) from p to q. V has at most one peak, so at the mean itself, only the end
    towards which V grows can give more than l."""
    largest = level = math.log(run.t) / arm.pulls
    for side in (1.0, -1.0):
        if at != arm.mean or side * variance_slope(rules, arm.mean) > 0.0:
            end = upper_end(rules, arm.mean, level) if side > 0.0 else lower_end(rules, arm.mean, level)
            d = divergence(rules, end, end - at, at, 1.0 - at)
            if largest < d < np.inf:  # infinite where `at` is at the edge of the family
                largest = d
    return largest


@dataclass(frozen=True)
class DKM(Policy):
    """DKM: a no-regret learner of shares against the closest alternative, with optimism instead of exploration.

    The paper keeps one AdaHedge per answer; this one starts again when the answer changes. Gains are per cost, shares
    are of the money.
    """

    name = "dkm"
    choose = staticmethod(choose)
    functions = (("separation", of_weights),)
    arm_memory: ClassVar[Fields] = {"loss": 0.0, **TRACKED}
    arm_scratch: ClassVar[Fields] = {"weight": 0.0, "gain": 0.0}
    run_memory: ClassVar[Fields] = {"known_for": -1, "gap": 0.01}
    keeps_of_arms = ("tracked",)
