"""Success or failure: d(p, q) = p log(p/q) + (1-p) log((1-p)/(1-q)) = q psi((p-q)/q) + (1-q) psi((q-p)/(1-q))."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.families.base import Family
from cabai.families.ends import FAR, end_above_zero, newton_end
from cabai.families.psi import psi
from cabai.support.stirling import stirling, stirling_half
from cabai.support.streams import gamma, uniform

HALF_LOG_HALF_PI = 0.5 * math.log(math.pi / 2)


def divergence(rules, p, difference, q, complement):
    if difference == 0.0:
        return 0.0
    above = q * psi(difference / q) if q > 0.0 else np.inf
    below = complement * psi(-difference / complement) if complement > 0.0 else np.inf
    return above + below


def variance_at(rules, q, complement):
    return q * complement


def variance_slope(rules, q):
    return 1.0 - 2.0 * q


def edges(rules):
    return 0.0, 1.0


def draw(arm):
    return 1.0 if uniform(arm) < arm.mean else 0.0


def draw_mean(rules, record, n, total):
    """Beta(1 + R, 1 + N - R)."""
    successes = gamma(record, 1.0 + total)
    return successes / (successes + gamma(record, 1.0 + max(n - total, 0.0)))


def remainder(rules, n, total):
    """The Krichevsky-Trofimov mixture. It is proper, so no first reward has to be set aside."""
    failures = max(n - total, 0.0)
    return -(HALF_LOG_HALF_PI + stirling(n) - stirling_half(total) - stirling_half(failures))


def tilted(rules, tilt, rate, price, n, difference, m):
    """The mean of e^(l y) is 1 + m (e^l - 1)."""
    growth = rate * m
    return n * (tilt * (difference + m) - math.log1p(growth)), -n * rate / (1.0 + growth)


def upper_end(rules, mean, level):
    if mean >= 1.0:
        return 1.0
    far = (1.0 - mean) / FAR  # like the lower end, with failures in place of successes
    if level > divergence(rules, mean, mean - 1.0 + far, 1.0 - far, far):
        return 1.0 - far_end(rules, 1.0 - mean, level)
    return newton_end(rules, mean, level, 1.0)


def far_end(rules, mean, level):
    """With q = mean e^-s,

    mean s + (1 - mean) log((1 - mean)/(1 - mean e^-s)) = level. The second term hardly depends on s, so each iteration
    that uses the last s in it gains at least a factor of FAR.
    """
    s = math.log(FAR)
    for _ in range(40):
        before = s
        if mean < 1.0:
            s = (level - (1.0 - mean) * (math.log1p(-mean) - math.log1p(-mean * math.exp(-s)))) / mean
        else:
            s = level
        if abs(s - before) <= 1e-15 * s:
            break
    return mean * math.exp(-s)


@dataclass(frozen=True)
class Bernoulli(Family):
    """Success or failure: rewards 1 and 0.

    >>> Bernoulli().mean_range
    (0.0, 1.0)
    """

    name = "bernoulli"
    shows_margins = True
    means, rewards = "in [0, 1]", "0 or 1"
    limits = (0.0, 1.0)
    usual_tilts = 1.2, 1.0
    typical_means = (0.5, 0.05, 0.95)
    whole_rewards = True
    sets_first_aside = False
    is_symmetric = True
    functions: ClassVar[tuple[Any, ...]] = (
        divergence, variance_at, variance_slope, edges, draw, draw_mean, remainder, tilted, upper_end, far_end,
        ("lower_end", end_above_zero),
    )  # fmt: skip

    def allows_reward(self, reward: float) -> bool:
        return reward in (0, 1)

    def tilt(self, tilt: float) -> tuple[float, float]:
        """e^l - 1; the second number is not used."""
        return math.expm1(tilt), 0.0

    def mirror(self, value: float) -> float:
        return 1 - value
