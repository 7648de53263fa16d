"""The straightforward version, as the paper describes it: NumPy arrays, textbook divergences, nested brentq.

The policies follow the paper step by step. Nothing is deliberately slow, but nothing is cached, merged, reordered or
compiled.

It keeps to NumPy throughout. With Python floats in the root finding, a pull of CTAS took 392, 632 and 436 microseconds
instead of 607, 1687 and 969 (gaussian, bernoulli, poisson): read ratios to it with that in mind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import xlogy

Vector = NDArray[np.float64]
Arms = Iterator[int]  # those that a policy pulls, in turn, until it decides
EDGE = 1e-6  # empirical means at the edge of a family are moved inside by this much, so that every divergence is finite


def divergence(family: str, p, q):
    """d(p, q) for numbers or arrays; gaussian with variance 1."""
    if family == "gaussian":
        return (p - q) ** 2 / 2
    if family == "bernoulli":
        return xlogy(p, p / q) + xlogy(1 - p, (1 - p) / (1 - q))
    if family == "poisson":
        return xlogy(p, p / q) + q - p
    return p / q - 1 - np.log(p / q)


def cost_shares(family: str, means: Vector, costs: Vector) -> Vector:
    """w*: find y* by brentq, and for each y on the way each x_a(y) by brentq."""
    best = int(np.argmax(means))
    if (means == means[best]).sum() > 1:
        shares = np.where(means == means[best], np.sqrt(costs), 0.0)
        return shares / shares.sum()
    rivals = [a for a in range(len(means)) if a != best]

    def pooled(x: float, a: int) -> float:
        return (means[best] + x * means[a]) / (1 + x)

    def g(x: float, a: int, y: float) -> float:
        m = pooled(x, a)
        return divergence(family, means[best], m) + x * divergence(family, means[a], m) - y

    def x_of(a: int, y: float) -> float:
        high = 1.0
        while g(high, a, y) < 0 and high < 1e12:
            high *= 4
        return brentq(g, 0, high, args=(a, y)) if high < 1e12 else high

    def balance(y: float) -> float:
        total = -1.0
        for a in rivals:
            m = pooled(x_of(a, y), a)
            rival = max(divergence(family, means[a], m), 1e-300)
            total += costs[a] * divergence(family, means[best], m) / (costs[best] * rival)
        return total

    limit = min(divergence(family, means[best], means[a]) for a in rivals)
    y = brentq(balance, 1e-9 * limit, (1 - 1e-9) * limit)
    shares = np.array([costs[a] * (1.0 if a == best else x_of(a, y)) for a in range(len(means))])
    return shares / shares.sum()


def evidence(family: str, pulls: Vector, means: Vector, leader: int) -> Vector:
    """Z of the leader over each arm."""
    pooled = (pulls[leader] * means[leader] + pulls * means) / (pulls[leader] + pulls)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = pulls[leader] * divergence(family, means[leader], pooled) + pulls * divergence(family, means, pooled)
    return np.where(means < means[leader], z, 0.0)


def interval(family: str, mean: float, level: float) -> tuple[float, float]:
    """The ends of {q : d(mean, q) <= level}."""
    if family == "gaussian":
        return mean - math.sqrt(2 * level), mean + math.sqrt(2 * level)
    lowest, highest = 1e-12, 1 - 1e-12
    if family == "poisson":
        highest = mean + 1
        while divergence(family, mean, highest) < level:
            highest += highest - mean

    def end(edge: float) -> float:
        if divergence(family, mean, edge) <= level:
            return edge
        return brentq(lambda q: divergence(family, mean, q) - level, mean, edge)

    return end(lowest), end(highest)


class Trajectory:
    """Pulls, rewards and costs of one trajectory, and the draws that feed it; every arm has been pulled once."""

    def __init__(self, family: str, means: Vector, costs: Vector, delta: float, rng: np.random.Generator) -> None:
        self.family, self.true_means, self.true_costs, self.delta = family, means, costs, delta
        draws: dict[str, Any] = {"gaussian": rng.normal, "bernoulli": partial(rng.binomial, 1), "poisson": rng.poisson}
        self.draw: Callable[[float], float] = draws[family]
        self.K = len(means)
        self.N, self.R, self.C = np.zeros((3, self.K))
        for a in range(self.K):
            self.pull(a)

    def pull(self, a: int) -> None:
        self.N[a] += 1
        self.R[a] += self.draw(self.true_means[a])
        self.C[a] += self.true_costs[a]

    def run(self, policy: str, limit: int | None = None) -> None:
        """Pull the arms that the policy names until it has decided, or at most `limit` of them."""
        for arm in islice(POLICIES[policy](self), limit):
            self.pull(arm)

    @property
    def t(self) -> int:
        return int(self.N.sum())

    @property
    def means(self) -> Vector:
        return self.R / self.N

    @property
    def inner_means(self) -> Vector:
        """The means, a little inside the family."""
        if self.family == "gaussian":
            return self.means
        return np.clip(self.means, EDGE, 1 - EDGE if self.family == "bernoulli" else None)

    @property
    def beta(self) -> float:
        return math.log(2 * self.K * self.t / self.delta)


def co(state: Trajectory) -> Arms:
    playing = np.ones(state.K, bool)
    while True:
        means = state.means
        leader = int(np.argmax(np.where(playing, means, -np.inf)))
        playing &= evidence(state.family, state.N, means, leader) <= state.beta
        if playing.sum() == 1:
            return
        yield int(np.argmin(np.where(playing, np.sqrt(state.C / state.N) * state.N, np.inf)))


def ctas(state: Trajectory, *, cost_blind: bool = False) -> Arms:
    while True:
        means = state.means
        leader = int(np.argmax(means))
        if np.delete(evidence(state.family, state.N, means, leader), leader).min() > state.beta:
            return
        if state.N.min() < math.sqrt(state.t) - (state.K / 2 if cost_blind else 0):
            yield int(np.argmin(state.N))
        else:
            costs = state.N if cost_blind else state.C
            shares = cost_shares(state.family, state.inner_means, costs / state.N)
            yield int(np.argmax(costs.sum() * shares - costs))


def d_lucb(state: Trajectory) -> Arms:
    while True:
        means, beta = state.inner_means, state.beta
        leader = int(np.argmax(means))
        ends = [interval(state.family, means[a], beta / state.N[a]) for a in range(state.K)]
        upper = np.array([-np.inf if a == leader else ends[a][1] for a in range(state.K)])
        rival = int(np.argmax(upper))
        if ends[leader][0] > upper[rival]:
            return
        yield leader
        yield rival


POLICIES: dict[str, Callable[[Trajectory], Arms]] = {
    "co": co,
    "ctas": ctas,
    "tas": partial(ctas, cost_blind=True),
    "d-lucb": d_lucb,
}
