"""Lazy Mirror Ascent (Ménard 2019), with costs as in MF-GRAD (Poiani et al. 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from cabai.core.shares import halves
from cabai.core.state import Fields
from cabai.policies.base import Policy
from cabai.policies.pairs import closest, of_weights
from cabai.policies.tracking import TRACKED, furthest_behind


def choose(arms, run, rules):
    """Track w, then move it along the gradient of the smallest Z: w ∝ w exp(η g), mixed with a little of 1/K."""
    K, b = len(arms), run.leader
    total = 0.0
    for a in range(K):
        total += arms[a].weight
    for a in range(K):
        arms[a].weight /= total  # w, the share of the money
        arms[a].tracked += arms[a].weight
    chosen = furthest_behind(arms, run)

    j = closest(arms, rules, b)
    run.n += 1
    if arms[b].mean > arms[j].mean:
        u = (arms[b].weight / arms[b].cost) / (arms[j].weight / arms[j].cost)
        d_b, d_j, _, _ = halves(arms[b], arms[j], u, rules)
        g_b, g_j = d_b / arms[b].cost, d_j / arms[j].cost
        largest = max(g_b, g_j)
        run.scale = largest if run.scale == 0.0 else 0.5 * (run.scale + largest)
        eta = math.sqrt(math.log(K) / run.n) / run.scale
        arms[b].weight *= math.exp(eta * g_b)
        arms[j].weight *= math.exp(eta * g_j)
    mix(arms, 0.25 / math.sqrt(run.n))
    return chosen


def mix(arms, gamma):
    """w = (1 - γ) w + γ/K."""
    total = 0.0
    for a in range(len(arms)):
        total += arms[a].weight
    for a in range(len(arms)):
        arms[a].weight = (1.0 - gamma) * arms[a].weight / total + gamma / len(arms)


@dataclass(frozen=True)
class LMA(Policy):
    """Lazy Mirror Ascent: track shares of the money that climb towards the optimal ones by one gradient a pull.

    With d(·, x) the two parts of the smallest evidence, each over its arm's cost, g is the gradient and η =
    sqrt(log K / n) / S. Published code takes S from the true means; here S is half its last value plus half of the
    largest part of g, which was no worse, but has no proof.
    """

    name = "lma"
    choose = staticmethod(choose)
    functions = (("separation", of_weights),)
    arm_memory: ClassVar[Fields] = {"weight": 1.0, **TRACKED}
    run_memory: ClassVar[Fields] = {"n": 0, "scale": 0.0}
    keeps = ("n", "scale")
    keeps_of_arms = ("weight", "tracked")
