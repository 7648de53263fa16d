"""CTAS and CO on Gaussian arms in plain NumPy, many trajectories at a time: every quantity of the lemmas is in view.

It shares no code with the engine. It never stops, and costs are uniform within 50 % of their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.instance import Instance
from cabai.paper.lab import Lab

Rows = NDArray[np.float64]  # one row per trajectory, one column per arm


class Observed(NamedTuple):
    """All trajectories after t pulls: N_a, the empirical means and the sums of the costs."""

    t: int
    pulls: Rows
    means: Rows
    costs: Rows


def optimal_shares(means: Rows, costs: Rows) -> Rows:
    """w* of many Gaussian instances of variance 1: sum over a of c_a x_a² = c_1, where x_a = y/(gap_a²/2 - y).

    The sum is convex in y, so Newton's method falls to y* from above: from the least y at which one term alone is c_1.
    """
    rows, best = np.arange(len(means)), means.argmax(axis=1)
    most = (means[rows, best, None] - means) ** 2 / 2
    most[rows, best] = 1e100
    ratios = costs / costs[rows, best, None]
    y = (most / (1 + np.sqrt(ratios))).min(axis=1, keepdims=True)
    for _ in range(6 + means.shape[1] // 2):
        x = y / (most - y)
        slope = 2 * (ratios * x * most / (most - y) ** 2).sum(axis=1, keepdims=True)
        y = y - ((ratios * x**2).sum(axis=1, keepdims=True) - 1) / slope
    shares: Rows = ratios * y / (most - y)
    shares[rows, best] = 1.0
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def ctas(now: Observed) -> Any:
    """Algorithm 1: the least-pulled arm if it has fewer than sqrt(t) pulls, else the largest deficit J w_a - C_a."""
    shares = optimal_shares(now.means, now.costs / now.pulls)
    behind = now.costs.sum(axis=1, keepdims=True) * shares - now.costs
    forced = now.pulls.min(axis=1) < np.sqrt(now.t)
    return np.where(forced, now.pulls.argmin(axis=1), behind.argmax(axis=1))


def co(now: Observed) -> Any:
    """Algorithm 2's sampling rule, all arms in play: the smallest sqrt(mean cost) N, so the smallest C_a N_a."""
    return (now.costs * now.pulls).argmin(axis=1)


def lockstep(
    lab: Lab, rule: Callable[[Observed], Any], problem: Instance, *, trajectories: int, pulls: int, sd: float = 1.0
) -> Iterator[Observed]:
    """Yield what was observed after each pull, from one pull of every arm on; the next step overwrites it."""
    lab.progress(f"{rule.__name__} in NumPy, {trajectories} trajectories of {pulls} pulls")
    rng, rows, arms = np.random.default_rng(lab.seed), np.arange(trajectories), len(problem)
    N, R, M, C = np.zeros((4, trajectories, arms))
    for t in range(1, pulls + 1):
        chosen = np.full(trajectories, t - 1) if t <= arms else rule(Observed(t - 1, N, M, C))
        N[rows, chosen] += 1
        R[rows, chosen] += problem.means[chosen] + sd * rng.standard_normal(trajectories)
        C[rows, chosen] += problem.costs[chosen] * (0.5 + rng.random(trajectories))
        if t >= arms:
            M[:] = R / N
            yield Observed(t, N, M, C)
