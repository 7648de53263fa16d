"""The linear program of `fws`, solved without a solver."""

from __future__ import annotations

import numpy as np


def add_steepest(arms, b, near):
    """Add z = argmax over shares z of min over near a of  z_b to_b + z_a to_a - f_a  to arms[a].tracked.

    For a given z_b, all z_a = max(v + f_a - z_b to_b, 0)/to_a with v such that they sum to 1 - z_b. v rises with z_b as
    long as the sum of to_b/to_a over the arms with z_a > 0 is above 1.
    """
    low, high = 0.0, 1.0
    for _ in range(50 if near > 1 else 0):
        z_b = 0.5 * (low + high)
        if fill(arms, z_b)[1] > 1.0:
            low = z_b
        else:
            high = z_b
    v, slope = fill(arms, low)
    z_b = 0.5 * (low + high) if near > 1 else 1.0 if slope > 1.0 else 0.0
    v, _ = fill(arms, z_b)
    arms[b].tracked += z_b
    for a in range(len(arms)):
        if arms[a].near and z_b < 1.0:
            arms[a].tracked += max(v + arms[a].f - z_b * arms[a].to_b, 0.0) / arms[a].to_a


def fill(arms, z_b):
    """v, by Newton's method on a convex function, from above, which ends; and that sum of to_b/to_a."""
    v, slope, count = np.inf, 0.0, len(arms) + 1
    while True:
        filled, per, slope, now = 1.0 - z_b, 0.0, 0.0, 0
        for a in range(len(arms)):
            arm = arms[a]
            if arm.near and v + arm.f > z_b * arm.to_b:
                filled += (z_b * arm.to_b - arm.f) / arm.to_a
                per += 1.0 / arm.to_a
                slope += arm.to_b / arm.to_a
                now += 1
        if now >= count:
            return v, slope
        v, count = filled / per if now > 0 else v, now
