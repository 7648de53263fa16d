"""How the cost of one simulated pull is drawn, around the arm's mean cost: one function per model."""

from __future__ import annotations

import math

from cabai.support.specialise import required_slot
from cabai.support.streams import GOLDEN, mix, unit


@required_slot
def draw_cost(arm):
    """The cost of the arm's next pull."""


def next_uniform(arm):
    """The next random number in [0, 1) from the arm's stream for costs."""
    arm.cost_stream += GOLDEN
    return unit(mix(arm.cost_stream))


def fixed(arm):
    return arm.cost


def uniform(arm):
    return arm.cost * (0.5 + next_uniform(arm))


def two_point(arm):
    return arm.cost * (0.5 if next_uniform(arm) < 0.5 else 1.5)


def beta(arm):
    """The median of three uniforms is Beta(2, 2)."""
    u = next_uniform(arm)
    v = next_uniform(arm)
    w = next_uniform(arm)
    return arm.cost * (0.5 + max(min(u, v), min(max(u, v), w)))


def exponential(arm):
    return arm.cost * (0.1 - 0.9 * math.log(1.0 - next_uniform(arm)))


DRAWS = {"fixed": fixed, "uniform": uniform, "two-point": two_point, "beta": beta, "exponential": exponential}
