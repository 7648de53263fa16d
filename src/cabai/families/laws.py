"""Distributions ("laws") for drawing bounded rewards in a simulation, given each arm's mean and standard deviation.

Kernels see rewards scaled to [0, 1]. Each law reads the mean from arm.mean and a number of its own from arm.spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from cabai.support.streams import normal, uniform


def draw_uniform(arm):
    """arm.spread: half the width of the interval."""
    return arm.mean + (2.0 * uniform(arm) - 1.0) * arm.spread


def draw_two_point(arm):
    """arm.spread: the distance between the two points. The higher one has probability arm.mean."""
    low = arm.mean * (1.0 - arm.spread)
    return min(low + arm.spread, 1.0) if uniform(arm) < arm.mean else low


def draw_beta(arm):
    """arm.spread: the sum of the two parameters. Computes X/(X + Y) from the logs of two gamma variables."""
    x = log_gamma(arm, arm.spread * arm.mean)
    y = log_gamma(arm, arm.spread * (1.0 - arm.mean))
    return 1.0 / (1.0 + math.exp(min(y - x, 700.0)))


def log_gamma(arm, shape):
    """The log of a gamma variable, by Marsaglia and Tsang (2000); X U^(1/shape) for a small shape."""
    boost, more = 0.0, shape
    if shape < 1.0:
        boost = math.log(1.0 - uniform(arm)) / shape
        more = shape + 1.0
    d = more - 1.0 / 3.0
    while True:
        x = normal(arm)
        root = 1.0 + x / math.sqrt(9.0 * d)
        if root > 0.0:
            v = root * root * root
            if math.log(1.0 - uniform(arm)) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return math.log(d * v) + boost


def draw_sample(arm):
    """One of the arm.spread rewards given by the user, all equally likely."""
    return arm.sample[int(uniform(arm) * arm.spread)]


class Law(NamedTuple):
    draw: Any
    largest: Callable[[float], float]  # the largest standard deviation for a mean
    spread: Callable[[float, float], float]  # what `draw` reads from arm.spread, given the mean and standard deviation


def bernoulli_sd(mean: float) -> float:
    return math.sqrt(mean * (1 - mean))


LAWS = {
    "uniform": Law(draw_uniform, lambda mean: min(mean, 1 - mean) / 3**0.5, lambda mean, sd: 3**0.5 * sd),
    "two-point": Law(draw_two_point, bernoulli_sd, lambda mean, sd: sd / (bernoulli_sd(mean) or 1.0)),
    "beta": Law(
        draw_beta,
        lambda mean: 0.999 * bernoulli_sd(mean),
        lambda mean, sd: mean * (1 - mean) / (sd * sd) - 1,
    ),
}
