"""FWS, Frank-Wolfe sampling (Wang, Tzeng, Proutiere 2021), its linear program solved by water-filling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cabai.core.shares import halves
from cabai.core.state import Fields
from cabai.policies.base import Policy
from cabai.policies.tracking import TRACKED


def choose(arms, run, rules):
    """Y += z, the steepest direction of all nearly smallest f_a; pull argmax Y_a / C_a. Y/t is the paper's x."""
    K, square = len(arms), math.floor(math.sqrt(run.t // len(arms)) + 0.5) ** 2
    near = 0 if square == run.t // K else differentiate(arms, run, rules)
    if near > 0:
        add_steepest(arms, run.leader, near)
    else:  # explore
        for a in range(K):
            arms[a].tracked += 1.0 / K
    chosen = 0
    for a in range(K):
        if arms[a].tracked * arms[chosen].costs > arms[chosen].tracked * arms[a].costs:
            chosen = a
    return chosen


def differentiate(arms, run, rules):
    """f_a = Z_ba at the shares, its gradient (to_b, to_a); how many f_a are nearly the smallest, 0 if b is tied."""
    b, total, least, near = arms[run.leader], 0.0, np.inf, 0
    for a in range(len(arms)):
        total += arms[a].tracked
    for a in range(len(arms)):
        arm = arms[a]
        if a != run.leader:
            if not b.mean > arm.mean:
                return 0
            n_b, n_a = b.tracked / total / b.cost, arm.tracked / total / arm.cost
            d_b, d_a, _, _ = halves(b, arm, n_b / n_a, rules)
            arm.f, arm.to_b, arm.to_a = n_b * d_b + n_a * d_a, d_b / b.cost, d_a / arm.cost
            least = min(least, arm.f)
    for a in range(len(arms)):
        arms[a].near = a != run.leader and arms[a].f < least + run.t**-0.9 / len(arms)  # the paper's r
        near += arms[a].near
    return near


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


@dataclass(frozen=True)
class FWS(Policy):
    """Frank-Wolfe sampling: move the shares along the steepest direction of the smallest evidence, pull after them.

    When floor(t/K) is a square, or the best mean is tied, the direction is uniform. Shares are of the money, gradients
    per cost.
    """

    name = "fws"
    choose = staticmethod(choose)
    arm_memory: ClassVar[Fields] = {**TRACKED}
    arm_scratch: ClassVar[Fields] = {"f": 0.0, "to_b": 0.0, "to_a": 0.0, "near": 0}
    keeps_of_arms = ("tracked",)
