"""A family of one's own: the number of failures before the first success, known by its mean m.

P(y) = (m/(1 + m))^y / (1 + m),   d(p, q) = p log(p/q) - (1 + p) log((1 + p)/(1 + q)),   V(m) = m (1 + m)
"""

import math
from dataclasses import dataclass

import cabai


def divergence(rules, p, difference, q, complement):
    if q <= 0.0:
        return 0.0 if difference == 0.0 else math.inf
    rest = (1.0 + p) * math.log1p(difference / (1.0 + q))
    return p * math.log1p(difference / q) - rest if p > 0.0 else -rest


def variance_at(rules, q, complement):
    return q * (1.0 + q)


def variance_slope(rules, q):
    return 1.0 + 2.0 * q


def edges(rules):
    return 0.0, math.inf


def draw(arm):
    u = 1.0 - cabai.uniform(arm)
    return math.floor(math.log(u) / math.log(arm.mean / (1.0 + arm.mean))) if arm.mean > 0.0 else 0.0


@dataclass(frozen=True)
class Geometric(cabai.Family):
    """Rewards 0, 1, 2, ...: how often something works before it fails."""

    name = "geometric"
    means, rewards = "0 or positive", "a whole number, 0 or more,"
    whole_rewards = True
    functions = divergence, variance_at, variance_slope, edges, draw
