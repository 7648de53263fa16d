"""Waiting times: d(p, q) = p/q - 1 - log(p/q) = u - log(1 + u), u = (p - q)/q."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cabai.families.base import Family
from cabai.families.ends import FAR, end_above_zero, newton_end
from cabai.families.psi import SMALL, excess_of_exp
from cabai.support.stirling import stirling
from cabai.support.streams import TO_UNIT, gamma, uniform


# fmt: off
def excess(u):
    """u - log(1 + u), for u > -1."""
    if abs(u) < SMALL:  # sum over k >= 2 of (-u)^k / k
        return u * u * (1/2 - u * (1/3 - u * (1/4 - u * (1/5 - u * (1/6 - u * (1/7 - u * (1/8 - u * (1/9 - u * (1/10 - u / 11)))))))))  # noqa: E501
    if u <= -1.0:
        return np.inf
    return u - math.log(1.0 + u)
# fmt: on


def divergence(rules, p, difference, q, complement):
    """If q is more than twice p, use p/q: p - q would lose the precision of log(p/q)."""
    if difference == 0.0:
        return 0.0
    if q <= 0.0:
        return np.inf
    if p < 0.5 * q:
        ratio = p / q
        return difference / q - math.log(ratio) if ratio > 0.0 else np.inf
    return excess(difference / q)


def variance_at(rules, q, complement):
    return q * q


def variance_slope(rules, q):
    return 2.0 * q


def edges(rules):
    return 0.0, np.inf


def draw(arm):
    u = uniform(arm)
    return -arm.mean * math.log(1.0 - u) if u > 0.0 else arm.mean * TO_UNIT


def draw_mean(rules, record, n, total):
    """The rate is gamma distributed, with a prior that is flat in its logarithm."""
    return total / gamma(record, 1.0 * n)


def remainder(rules, n, total):
    return stirling(n)


def tilted(rules, tilt, rate, price, n, difference, m):
    """A tilt is l/m, and e^-c = 1 - l: tilts have no unit."""
    ratio = difference / m
    return n * (rate * ratio - price), -n * rate * (1.0 + ratio) / m


def straightened(rules, m, shift):
    """`tilted` is convex in 1/m. The coordinate 1 - m/(m + shift) increases with m."""
    at = m + shift
    if not at > 0.0:
        return -np.inf, np.inf
    return (shift / at, m / at / at) if at < np.inf else (1.0, 0.0)


def lowered(rules, mean):
    """A mean of 0 is not allowed, so epsilon lowers a mean to a hundredth of itself at most."""
    return max(mean - rules.epsilon, 0.01 * mean)


def upper_end(rules, mean, level):
    if level > divergence(rules, mean, mean - FAR * mean, FAR * mean, 1.0):
        # q = mean e^s with s + e^-s - 1 = level: each iteration with the last s in e^-s gains a factor of FAR
        s = math.log(FAR)
        for _ in range(40):
            before = s
            s = level - math.expm1(-s)
            if abs(s - before) <= 1e-15 * s:
                break
        return mean * math.exp(s) if s < 709.0 else np.inf
    return newton_end(rules, mean, level, 1.0)


def far_end(rules, mean, level):
    """With x = mean/q, x - 1 - log x = level."""
    x = FAR
    for _ in range(40):
        x, before = 1.0 + level + math.log(x), x
        if abs(x - before) <= 1e-15 * x:
            break
    return mean / x


@dataclass(frozen=True)
class Exponential(Family):
    """Waiting times: positive rewards with an exponential distribution.

    >>> round(Exponential().divergence(1, 2), 4)   # 1/2 - 1 - log(1/2)
    0.1931
    """

    name = "exponential"
    means = rewards = "positive"
    limits = (1e-100, 1e100)  # so that sums and squares do not overflow
    functions = (
        divergence, variance_at, variance_slope, edges, draw, draw_mean, remainder, tilted, straightened, lowered,
        upper_end, far_end, ("lower_end", end_above_zero),
    )  # fmt: skip

    def allows_mean(self, mean: float) -> bool:
        return 0 < mean < math.inf

    def tilt(self, tilt: float) -> tuple[float, float]:
        """1 - e^-c and c - 1 + e^-c."""
        return -math.expm1(-tilt), excess_of_exp(-tilt)
