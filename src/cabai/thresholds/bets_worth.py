"""What linear bets on rewards in [0, 1] are worth at most, from the mean and the variance of the rewards alone."""

from __future__ import annotations

import math

HIGHEST_STAKE = math.expm1(10.0)
STEPS = 8
CLOSE = 0.2  # nats


def start(b, a, epsilon):
    """About the m where the best bets on b and a are worth least, what they are worth there for each pull, and how well
    m is known. The first guess would be it if rewards were gaussian; then the secant of the slope (Illinois)."""
    per_b, per_a = b.tested / reserved_variance(b), a.tested / reserved_variance(a)
    v_b, v_a = variance_of(b), variance_of(a)
    low, high = max(a.tested_mean - epsilon, 0.0), min(b.tested_mean, 1.0 - epsilon)
    m = (per_b * b.tested_mean + per_a * (a.tested_mean - epsilon)) / (per_b + per_a)
    m = min(max(m, low), high)
    at_low = at_high = up = down = 0.0
    side = 0
    for _ in range(STEPS):
        up, fall = worth(b.tested_mean - m, v_b, 1.0 - m)
        down, rise = worth(m + epsilon - a.tested_mean, v_a, m + epsilon)
        slope = a.tested * rise - b.tested * fall
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
    return m, up, down, math.sqrt(1.0 / (per_b + per_a))


def reserved_variance(arm):
    """The variance of an arm's rewards, with a reserve for what has not been seen."""
    n = arm.tested
    share = (n * arm.tested_mean + 0.5) / (n + 1.0)
    return variance_of(arm) + share * (1.0 - share) / (n * n)


def variance_of(arm):
    return max(arm.squares / arm.tested - arm.tested_mean * arm.tested_mean, 0.0)


def worth(gap, variance, room):
    """At least the log of what the best single bet is worth, for each of some rewards: without logarithms, and close.

    gap is how far their mean is beyond m, in the direction of the bet, and room how far they can be at most. A bet is
    worth log(1 + x) of a reward y, x = h (y - m), where h is at most 1/(1 - room) and x at most X = h room. There
    log(1 + x) <= x - x²/(2 (1 + X)). So it is at most h gap - h² q/(2 (1 + h room)), q = variance + gap².
    Returned with its slope in the gap, as m moves.
    """
    if not gap > 0.0:
        return 0.0, 0.0
    q = variance + gap * gap
    most = min(1.0 / max(1.0 - room, 1e-300), HIGHEST_STAKE)
    h = most
    if 2.0 * room * gap < q:
        h = min((1.0 / math.sqrt(1.0 - 2.0 * room * gap / q) - 1.0) / room, most)
    part = h / (1.0 + h * room)
    return h * (gap - 0.5 * part * q), h * (1.0 - part * gap + 0.5 * part * part * q)
