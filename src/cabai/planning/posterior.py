"""Draws of the means of a study's arms, given what is known about them, for forecasts.

On a scale where a reward varies by about 1 whatever its mean, the arms are taken to be alike: their means lie around an
unknown centre, with a spread tau of about 0.3, within a factor of e. The data say how far apart the arms are; while
they say little, near ties and wide gaps are both likely.

    theta_a = scale(mean_a) ~ N(centre, tau²),   estimate_a ~ N(theta_a, 1/n_a)

Given tau, all of this is normal; tau is on a grid. No decision of a study depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
SPREADS = np.geomspace(0.01, 5.0, 49)  # tau
USUAL, WIDTH = 0.3, 1.0  # the centre of tau, and the standard deviation of its logarithm, before there are data


class Scale(NamedTuple):
    """A transformation to a scale where rewards vary by about 1, its inverse, and an estimate with its variance from n
    rewards and their mean."""

    back: Callable[[Numbers], Numbers]
    estimate: Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]


def arcsine(n: Numbers, mean: Numbers) -> tuple[Numbers, Numbers]:
    """Anscombe's, for shares."""
    share = (n * mean + 3 / 8) / (n + 3 / 4)
    return 2 * np.arcsin(np.sqrt(share)), 1 / (n + 0.5)


def root(n: Numbers, mean: Numbers) -> tuple[Numbers, Numbers]:
    """Anscombe's, for counts."""
    return 2 * np.sqrt(mean + 3 / (8 * n)), 1 / n


def log(n: Numbers, mean: Numbers) -> tuple[Numbers, Numbers]:
    """The mean of log(gamma) is a little below the log of its mean."""
    return np.log(np.maximum(mean, 1e-300)) + 1 / (2 * n), 1 / (n - 0.5)


SCALES = {
    "bernoulli": Scale(lambda x: np.sin(x.clip(0, math.pi) / 2) ** 2, arcsine),
    "poisson": Scale(lambda x: (x.clip(0) / 2) ** 2, root),
    "exponential": Scale(np.exp, log),
}


def scale_of(family: str, variance: float) -> Scale:
    """Of a family by its name; of others, and of gaussian, with this variance of a reward."""
    sd = math.sqrt(variance)
    return SCALES.get(family, Scale(lambda x: x * sd, lambda n, mean: (mean / sd, 1 / n)))


def draws(
    scale: Scale, n: Numbers, mean: Numbers, count: int, rng: np.random.Generator, usual: float = USUAL
) -> Numbers:
    """Draws of all means, a row each, given n rewards of each arm and their mean; `usual` is the centre of tau."""
    at, error = scale.estimate(n, mean)
    weights = 1 / (error + SPREADS[:, None] ** 2)  # by spread and arm
    total = weights.sum(axis=1)
    centre = (weights * at).sum(axis=1) / total
    log_chance = -0.5 * (np.log(SPREADS / usual) / WIDTH) ** 2 + 0.5 * (
        np.log(weights).sum(axis=1) - np.log(total) - (weights * (at - centre[:, None]) ** 2).sum(axis=1)
    )
    chance = np.exp(log_chance - log_chance.max())
    which = rng.choice(len(SPREADS), count, p=chance / chance.sum())
    around = centre[which] + rng.standard_normal(count) / np.sqrt(total[which])
    own, common = 1 / error, 1 / SPREADS[which][:, None] ** 2
    middle = (own * at + common * around[:, None]) / (own + common)
    return scale.back(middle + rng.standard_normal((count, len(n))) / np.sqrt(own + common))
