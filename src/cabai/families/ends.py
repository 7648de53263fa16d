"""Where a divergence reaches a level: the ends of an interval of means."""

import math

import numpy as np

from cabai.families.slots import divergence, edges, variance_at
from cabai.support.specialise import required_slot

FAR = 8.0  # farther than this factor from the mean, solve for the end itself, not its distance


def newton_end(rules, mean, level, side):
    """Solve d(mean, q) = level on one side of the mean, by Newton's method on sqrt(2 d) within a bracket.

    sqrt(2 d(mean, q)) is nearly linear in q around the mean. The unknown is the distance q - mean, which stays accurate
    when the interval is narrow.
    """
    if level <= 0.0:
        return mean
    goal = math.sqrt(2.0 * level)
    # `near` and `far` bracket the distance |q - mean|; the farthest is the edge of the family.
    low, high = edges(rules)
    near = 0.0
    far = mean - low if side < 0.0 else high - mean
    distance = goal * math.sqrt(variance_at(rules, mean, 1.0 - mean))
    if mean <= low or not 0.0 < distance < far:
        distance = 0.5 * far if far < np.inf else abs(mean) + level + goal
    for _ in range(200):
        q = mean + side * distance
        root = math.sqrt(2.0 * divergence(rules, mean, -side * distance, q, 1.0 - q))
        if root < goal:
            near = distance
        else:
            far = distance
        # d sqrt(2d) / d distance = distance / (V(q) sqrt(2d))
        step = (goal - root) * root * variance_at(rules, q, 1.0 - q) / distance
        new = distance + step
        if near < new < far:
            if abs(step) <= 1e-8 * distance:  # this close, the error left is the square of the step
                return mean + side * new
        else:  # also if new is nan
            new = 0.5 * (near + far) if far < np.inf else 2.0 * distance
            if not near < new < far:
                return mean + side * new
        distance = new
    return mean + side * distance


@required_slot
def far_end(rules, mean, level):
    """Solve d(mean, q) = level for a q that is more than FAR times smaller than the mean: there q itself must be
    accurate, not its distance from the mean."""


def end_above_zero(rules, mean, level):
    """The `lower_end` of a family whose means are positive."""
    if mean <= 0.0:
        return 0.0
    far = mean / FAR
    if level > divergence(rules, mean, mean - far, far, 1.0 - far):
        return far_end(rules, mean, level)
    return newton_end(rules, mean, level, -1.0)
