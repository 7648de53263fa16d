"""What is kept of trajectories instead of their rows: exact sums, counts, and a sketch of the costs' quantiles.

The sums of two sets of trajectories add up to those of their union, to the bit and in any order: so a result does not
depend on how trajectories were divided into chunks, nor on which came back first.

Sums are exact. A double is a whole number of 53 bits times a power of 2, and Python's integers do not round.

The sketch is a histogram of the logarithms of costs, as in DDSketch (Masson, Rim, Lee 2019), but its buckets are read
from the bits of a double instead of computed: each octave is divided into 1024 equal parts. A quantile is the middle of
its bucket, at most 2**-11 = 0.05 % away from the exact one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import Cheapest, right_answers
from cabai.instance import Instance

HALF = 27  # bits: a product of two halves of a double's 53 bits can be summed in 64
UNIT = 1126  # sums are in units of 2**-UNIT, of which every double is a whole number
DROPPED = 42  # the bits of a double that its bucket does not depend on

ADDED = ("trajectories", "cost", "squared_cost", "steps", "errors", "unfinished")  # the fields of both are added up


@dataclass(frozen=True)
class Sums:
    """Of some trajectories; `a + b` is that of both."""

    trajectories: int
    cost: int  # in units of 2**-UNIT
    squared_cost: int  # the sum of squares, in units of 2**-(2 UNIT)
    steps: int
    pulls: tuple[int, ...]  # of each arm
    errors: int
    unfinished: int
    least: float  # cost
    largest: float
    buckets: NDArray[np.int64]  # those that are not empty, in order
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, results: NDArray[Any], pulls: NDArray[np.int64], right: NDArray[np.int64]) -> Sums:
        """Of a chunk's rows, a result and the pulls each; `right` lists the arms that are right answers."""
        costs, decisions = np.ascontiguousarray(results["cost"]), results["decision"]
        buckets, counts = np.unique(costs.view(np.int64) >> DROPPED, return_counts=True)
        cost, squared = exact_sums(costs)
        finished = decisions >= 0
        return cls(
            trajectories=len(costs),
            cost=cost,
            squared_cost=squared,
            steps=int(results["steps"].sum()),
            pulls=tuple(pulls.sum(axis=0).tolist()),
            errors=int((finished & ~np.isin(decisions, right)).sum()),
            unfinished=int((~finished).sum()),
            least=float(costs.min()),
            largest=float(costs.max()),
            buckets=buckets,
            counts=counts,
        )

    def __add__(self, other: Sums) -> Sums:
        buckets, places = np.unique(np.concatenate([self.buckets, other.buckets]), return_inverse=True)
        counts = np.zeros(len(buckets), np.int64)
        np.add.at(counts, places, np.concatenate([self.counts, other.counts]))
        return Sums(
            **{name: getattr(self, name) + getattr(other, name) for name in ADDED},
            pulls=tuple(a + b for a, b in zip(self.pulls, other.pulls, strict=True)),
            least=min(self.least, other.least),
            largest=max(self.largest, other.largest),
            buckets=buckets,
            counts=counts,
        )

    @property
    def mean(self) -> float:
        return float(Fraction(self.cost, self.trajectories << UNIT))

    @property
    def std(self) -> float:
        """The standard deviation of a sample; 0 for a single trajectory."""
        n = self.trajectories
        above = n * self.squared_cost - self.cost**2  # n (n - 1) times the variance
        return math.sqrt(Fraction(above, n * (n - 1) << 2 * UNIT)) if n > 1 else 0.0

    def quantile(self, q: float) -> float:
        """As `numpy.quantile`, by interpolation between two ordered costs, each known to 0.05 %."""
        place = (self.trajectories - 1) * q
        below = math.floor(place)
        ranks = np.minimum([below, below + 1], self.trajectories - 1)
        found = np.searchsorted(np.cumsum(self.counts), ranks, side="right")
        middles = ((self.buckets[found] << DROPPED) + (1 << (DROPPED - 1))).view(np.float64)
        low, high = np.clip(middles, self.least, self.largest).tolist()
        return float(low + (place - below) * (high - low))


def exact_sums(values: NDArray[np.float64]) -> tuple[int, int]:
    """The sum of some numbers, in units of 2**-UNIT, and of their squares, in the square of that; both exact."""
    fractions, exponents = np.frexp(values)
    mantissas = np.ldexp(fractions, 53).astype(np.int64)
    total = squares = 0
    for exponent in np.unique(exponents).tolist():
        whole = mantissas[exponents == exponent]
        high, low = whole >> HALF, whole & ((1 << HALF) - 1)
        shift = exponent - 53 + UNIT
        total += exact_sum(whole) << shift
        squares += (
            (exact_sum(high * high) << 2 * HALF) + (exact_sum(high * low) << (HALF + 1)) + exact_sum(low * low)
        ) << 2 * shift
    return total, squares


def exact_sum(values: NDArray[np.int64]) -> int:
    """The sum of whole numbers of up to 2**63, which need not itself fit in 64 bits."""
    return (int((values >> HALF).sum()) << HALF) + int((values & ((1 << HALF) - 1)).sum())


def right_arms(instance: Instance, epsilon: float, goal: Cheapest | None = None) -> NDArray[np.int64]:
    """The arms whose mean is the best, or within epsilon of it; or, of these, the cheapest as far as it can be told."""
    means = instance.means
    if goal is not None:
        running = instance.costs if goal.running_costs is None else goal.running_costs
        return right_answers(means, running, epsilon, goal.slack)  # type: ignore[arg-type]
    slack = 1e-12 * max(1.0, abs(means.max())) if epsilon else 0.0  # for the rounding error of a difference
    return np.flatnonzero(means >= means.max() - epsilon - slack)
