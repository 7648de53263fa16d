"""The most that linear bets on rewards in [0, 1] can be worth, given only the mean and variance of the rewards."""

from __future__ import annotations

import math

import numpy as np

from cabai.core.evidence import ROUNDING

HIGHEST_STAKE = math.expm1(10.0)
STEPS = 8
CLOSE = 0.2  # nats


def start(b, a, epsilon, enough):
    """Approximately the m at which the best bets on b and a are worth the least, their worth there per pull, and the
    uncertainty of m. Returns early with any m at which they are not worth more than `enough`.

    The first guess is exact for gaussian rewards; then the secant method on the slope (Illinois).
    """
    n_b, n_a, mean_b, mean_a = b.tested, a.tested, b.tested_mean, a.tested_mean
    v_b, v_a = b.variance, a.variance
    low, high = max(mean_a - epsilon, 0.0), min(mean_b, 1.0 - epsilon)
    m = first_guess(b, a, epsilon)
    if enough > 0.0 and both_worth_at_most(b, a, epsilon, m) <= enough:
        return m, 0.0, 0.0, 0.0
    at_low = at_high = up = down = 0.0
    side = 0
    for _ in range(STEPS):
        up, fall = worth(mean_b - m, v_b, 1.0 - m)
        down, rise = worth(m + epsilon - mean_a, v_a, m + epsilon)
        slope = n_a * rise - n_b * fall
        if n_b * up + n_a * down <= enough:
            break
        if slope < 0.0:
            low, at_low = m, slope
            at_high *= 0.5 if side < 0 else 1.0
            side = -1
        else:
            high, at_high = m, slope
            at_low *= 0.5 if side > 0 else 1.0
            side = 1
        if not low < high or abs(slope) * (high - low) < CLOSE:
            break
        m = 0.5 * (low + high)
        if at_low < 0.0 < at_high:
            m = (low * at_high - high * at_low) / (at_high - at_low)
    return m, up, down, math.sqrt(1.0 / (n_b / b.reserved + n_a / a.reserved))


def first_guess(b, a, epsilon):
    """The m at which bets would be worth the least if rewards were gaussian."""
    per_b, per_a = b.tested / b.reserved, a.tested / a.reserved
    m = (per_b * b.tested_mean + per_a * (a.tested_mean - epsilon)) / (per_b + per_a)
    return min(max(m, a.tested_mean - epsilon, 0.0), b.tested_mean, 1.0 - epsilon)


def both_worth_at_most(b, a, epsilon, m):
    """An upper bound, without logarithms, on the worth of the best bets on b and a at m."""
    up = worth_at_most(b.tested_mean - m, b.variance, 1.0 - m)
    return b.tested * up + a.tested * worth_at_most(m + epsilon - a.tested_mean, a.variance, m + epsilon)


def reserved_variance(n, mean, variance):
    """The variance of n rewards, with a reserve for what has not been observed."""
    share = (n * mean + 0.5) / (n + 1.0)
    return variance + share * (1.0 - share) / (n * n)


def worth(gap, variance, room):
    """The most that the best single bet can be worth, in nats per reward, and its slope in the gap.

    gap is how far the mean reward is beyond m in the direction of the bet, and room is how far a reward can be. A bet
    with stake c is worth the mean of g(y) = log((1 + c y)/(1 + c m)). Among all distributions on [0, 1] with this mean
    and variance, the one on two points, one of them 1, has the largest mean of g: the parabola that touches g in the
    other point and meets it in 1 is nowhere below g, because the third derivative of g is positive. Rewards 0 and 1
    have this distribution.
    """
    if not gap > 0.0:
        return 0.0, 0.0
    m, rest = max(1.0 - room, 0.0), room - gap
    h = HIGHEST_STAKE / (1.0 + HIGHEST_STAKE * m)  # h = c/(1 + c m): the bet is worth log(1 + h (y - m))
    chance, other = 0.0, gap  # probability of the point 1; position of the other point relative to m
    if rest > 0.0:
        chance = variance / (variance + rest * rest)
        other = max(gap - variance / rest, -m)
    if other < 0.0:
        h = min(h, gap / (-other * room))
    return chance * math.log(1.0 + h * room) + (1.0 - chance) * math.log(1.0 + h * other), h


def worth_at_most(gap, variance, room):
    """An upper bound on `worth` without logarithms.

    With two points, one of them 1 with probability p, the best bet is worth d(p, q): the bernoulli divergence, where q
    is the probability at which the mean would be m. As in `evidence_at_most`, d(p, q) <= (p - q)² (1/(6 V(p)) +
    1/(3 V(q))). After multiplying by the squared distance of the points, (p - q)² becomes gap², V(p) the variance, and
    V(q) `below` times room.
    """
    if not gap > 0.0:
        return 0.0
    rest = room - gap
    if not (variance > 0.0 and rest > 0.0):
        return np.inf
    below = variance / rest - gap
    if not below > 0.0:
        return np.inf
    return ROUNDING * gap * gap * (1.0 / (6.0 * variance) + 1.0 / (3.0 * below * room))
