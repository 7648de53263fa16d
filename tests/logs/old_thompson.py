"""A policy of one's own: a top-two Thompson sampler for gaussian rewards with variance 1."""

import math

import cabai


@cabai.policy
def thompson(arms, run, rules):
    """Draw a mean for every arm; pull the arm with the largest or, by a coin, the one with the second largest."""
    first = second = -1
    largest = next_largest = -math.inf
    for a in range(len(arms)):
        drawn = arms[a].mean + cabai.normal(run) / math.sqrt(arms[a].pulls)
        if drawn > largest:
            second, next_largest = first, largest
            first, largest = a, drawn
        elif drawn > next_largest:
            second, next_largest = a, drawn
    return first if cabai.uniform(run) < 0.5 else second
