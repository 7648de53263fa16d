"""Counts: d(p, q) = p log(p/q) + q - p = q psi(u), u = (p - q)/q."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.families.base import Family
from cabai.families.ends import FAR, end_above_zero
from cabai.families.psi import excess_of_exp, psi
from cabai.support.stirling import HALF_LOG_2PI, stirling, stirling_half
from cabai.support.streams import gamma, uniform

LARGE = 10.0  # from this mean on, drawing by inversion would take too many steps


def divergence(rules, p, difference, q, complement):
    if difference == 0.0:
        return 0.0
    if q <= 0.0:
        return np.inf
    return q * psi(difference / q)


def variance_at(rules, q, complement):
    return q


def variance_slope(rules, q):
    return 1.0


def edges(rules):
    return 0.0, np.inf


def draw_mean(rules, record, n, total):
    return gamma(record, 1.0 + total) / n


def remainder(rules, n, total):
    return stirling_half(total)


def tilted(rules, tilt, rate, price, n, difference, m):
    return n * (tilt * difference - m * price), -n * rate


def far_end(rules, mean, level):
    """Like that of bernoulli: q = mean e^-s with mean (s + e^-s - 1) = level."""
    s = math.log(FAR)
    for _ in range(40):
        before = s
        s = level / mean - math.expm1(-s)
        if abs(s - before) <= 1e-15 * s:
            break
    return mean * math.exp(-s)


def draw(arm):
    """By inversion, for a mean below LARGE; arm.spread is exp(-mean)."""
    u = uniform(arm)
    count, probability = 0.0, arm.spread
    while u >= probability and count < 200.0:
        u -= probability
        count += 1.0
        probability *= arm.mean / count
    return count


def draw_of_any_mean(arm):
    return draw_large(arm) if arm.mean >= LARGE else draw(arm)


def draw_large(arm):
    """By Hörmann's PTRS (1993), for a mean of at least LARGE."""
    mean = arm.mean
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u = uniform(arm) - 0.5
        v = 1.0 - uniform(arm)
        us = 0.5 - abs(u)
        count = math.floor((2.0 * a / us + b) * u + mean + 0.43)
        if us >= 0.07 and v <= v_r:
            return count
        if count < 0.0 or (us < 0.013 and v > us):
            continue
        if math.log(v) + math.log(inverse_alpha) - math.log(a / (us * us) + b) <= log_poisson(count, mean):
            return count


def log_poisson(count, mean):
    """The log of a Poisson probability, as a divergence: the textbook form cancels if both are large.

    count log(mean) - mean - log(count!) = -d(count, mean) - log(2 pi count)/2 - s(count),  s the error of Stirling's
    formula.
    """
    if count == 0.0:
        return -mean
    return -mean * psi((count - mean) / mean) - 0.5 * math.log(count) - HALF_LOG_2PI - stirling(count)


@dataclass(frozen=True)
class Poisson(Family):
    """Counts: rewards 0, 1, 2 and so on.

    >>> Poisson().check_reward(3)
    3.0
    """

    name = "poisson"
    shows_margins = True
    means, rewards = "0 or positive", "a whole number, 0 or more,"
    limits = (0.0, 2.0**53)  # above this, a double cannot represent every count
    typical_means = (20.0, 0.3)
    whole_rewards = True
    functions = (
        divergence, variance_at, variance_slope, edges, draw, draw_mean, remainder, tilted, far_end,
        ("lower_end", end_above_zero),
    )  # fmt: skip

    @property
    def tilt_ranges(self) -> tuple[tuple[float, float, float], ...]:
        """About 1/sd = mean^-0.5: constant below a mean of 4, then a quarter for every factor of 16 in the mean."""
        ends = [0.0, *(4.0 * 16.0**k for k in range(13)), math.inf]
        usual = [self.usual_tilts[0] * factor for factor in (1.0, *(0.25 * 0.25**k for k in range(13)))]
        return tuple(zip(ends[:-1], ends[1:], usual, strict=True))

    def drawing(self, means: Sequence[float] | NDArray[np.float64]) -> Any:
        return draw_of_any_mean if max(means) >= LARGE else draw  # do not compile what is not needed

    def spread(self, mean: float) -> float:
        return math.exp(-mean)

    def tilt(self, tilt: float) -> tuple[float, float]:
        """e^l - 1 and e^l - 1 - l."""
        return math.expm1(tilt), excess_of_exp(tilt)
