"""Real rewards with a known variance v, d(p, q) = (p - q)² / (2v); and with an unknown one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabai.families.base import Family
from cabai.support.streams import normal
from cabai.support.validation import InvalidInput, positive

UNKNOWN = "unknown"


def divergence(rules, p, difference, q, complement):
    return difference * difference / (2.0 * rules.variance)


def variance_at(rules, q, complement):
    return rules.variance


def variance_slope(rules, q):
    return 0.0


def edges(rules):
    return -np.inf, np.inf


def draw(arm):
    return arm.mean + arm.spread * normal(arm)


def draw_mean(rules, record, n, total):
    return total / n + math.sqrt(rules.variance / n) * normal(record)


def remainder(rules, n, total):
    return 0.0


def tilted(rules, tilt, rate, price, n, difference, m):
    return n * (rate * difference - price), -n * rate


# These are simpler and faster than the versions for every family.


def upper_end(rules, mean, level):
    return mean + math.sqrt(2.0 * rules.variance * level)


def lower_end(rules, mean, level):
    return mean - math.sqrt(2.0 * rules.variance * level)


def pair_evidence(rules, n_a, mean_a, n_b, mean_b):
    gap = mean_a - mean_b
    return (n_a * gap) * (n_b * gap) / (2.0 * rules.variance * (n_a + n_b))


def evidence_at_most(rules, b, a):
    """Not needed: Z itself is as fast to compute as a bound on it."""
    return np.inf


def evidence_at_least(rules, b, a):
    """Z itself."""
    if not b.tested_mean > a.tested_mean:
        return 0.0
    return pair_evidence(rules, b.tested, b.tested_mean, a.tested, a.tested_mean)


def coin(rules, leader, challenger):
    """The limit for equal means holds for all means: N d(mean, m) is proportional to the other arm's pulls."""
    return 1.0 * challenger.pulls, leader.pulls * (leader.cost / challenger.cost)


def meeting_point_at(rules, n_b, mean_b, n_a, mean_a, epsilon):
    return (n_b * mean_b + n_a * (mean_a - epsilon)) / (n_b + n_a)


def solve_shares(arms, run, rules):
    return shares_by_gaps(arms, run, 0.5 / rules.variance, rules.tolerance)


def shares_by_gaps(arms, run, half, tolerance):
    """u_a = z D_a - 1 with D_a = gap²/2v, so one unknown is left. F is concave: Newton from below never overshoots."""
    leader = arms[run.leader]
    per_cost = 1.0 / leader.cost
    nearest, lowest = np.inf, 0.0
    for a in range(len(arms)):
        if a != run.leader:
            arm = arms[a]
            gap = leader.mean - arm.mean
            arm.u = gap * gap * half  # D_a, until the end
            nearest = min(nearest, arm.u)
    z = run.z
    for _ in range(100):
        if not z * nearest > 1.0:
            # Start from the largest z that a single rival would need: it is never above the solution.
            for a in range(len(arms)):
                if a != run.leader:
                    lowest = max(lowest, (1.0 + math.sqrt(arms[a].cost * per_cost)) / arms[a].u)
            z = lowest
        phi = slope = 0.0
        for a in range(len(arms)):
            if a != run.leader:
                arm = arms[a]
                x = 1.0 / (z * arm.u - 1.0)
                term = arm.cost * per_cost * x * x
                phi += term
                slope += term * x * arm.u
        step = (math.sqrt(phi) - 1.0) * phi / slope  # F + F' step = 1
        moved = abs(step) * nearest / (z * nearest - 1.0)
        z += step
        if moved * moved <= tolerance and z * nearest > 1.0:
            break
    for a in range(len(arms)):
        if a != run.leader:
            arms[a].u = z * arms[a].u - 1.0
    return z


@dataclass(frozen=True)
class Gaussian(Family):
    """Real rewards with a known variance, or sub-Gaussian rewards with that variance proxy.

    >>> Gaussian(variance=4).divergence(1, 3)   # (1 - 3)² / (2 * 4)
    0.5
    """

    variance: float = 1.0
    name = "gaussian"
    means = rewards = "a real number"
    is_symmetric = shows_margins = True
    usual_tilts = 0.4, 1.2  # in units of 1/sd
    typical_means = (0.0,)  # all means are alike
    functions = (
        divergence, variance_at, variance_slope, edges, draw, draw_mean, remainder, tilted, upper_end, lower_end,
        pair_evidence, evidence_at_most, evidence_at_least, coin, meeting_point_at, solve_shares,
    )  # fmt: skip

    def __new__(cls, variance: Any = 1.0, **more: Any) -> Any:
        """`gaussian(variance=unknown)` is a family of its own."""
        if cls is Gaussian and variance == UNKNOWN:
            return UnknownVariance()
        return super().__new__(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", positive(self.variance, "variance"))

    @property
    def limits(self) -> tuple[float, float]:
        """1e9 standard deviations: there, rounding a sum of a million rewards adds 3 % of its noise."""
        farthest = 1e9 * math.sqrt(self.variance)
        return -farthest, farthest

    @property
    def scale(self) -> float:
        return math.sqrt(self.variance)

    def spread(self, mean: float) -> float:
        return math.sqrt(self.variance)

    def tilt(self, tilt: float) -> tuple[float, float]:
        return tilt / math.sqrt(self.variance), 0.5 * tilt * tilt


@dataclass(frozen=True)
class UnknownVariance(Family):
    """Real rewards of unknown variance, perhaps another one for each arm, as in `gaussian(variance=unknown)`.

    Nothing is assumed but that the rewards of an arm are symmetric about their mean. In a simulation they are gaussian,
    with the standard deviations of the instance. Without a variance there is no divergence, so there is no lower bound.

    >>> from cabai.families import family_of
    >>> print(family_of("gaussian(variance=unknown)"))
    gaussian(variance=unknown)
    """

    variance: str = ""
    name = "gaussian"
    means = rewards = "a real number"
    is_symmetric = shows_margins = True
    has_bound = sets_first_aside = False
    typical_means = (0.0,)
    functions = draw, edges

    def __post_init__(self) -> None:
        if self.variance not in ("", UNKNOWN):
            raise InvalidInput(f"variance must be positive or unknown, got {self.variance!r}.")
        object.__setattr__(self, "variance", UNKNOWN)

    @property
    def key(self) -> str:
        return "symmetric" if not self.is_own else super().key

    @property
    def parameters(self) -> dict[str, float]:
        """None: kernels know no variance."""
        return {}
