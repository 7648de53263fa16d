"""A policy of one's own: top-two Thompson sampling (Russo 2016) for gaussian rewards of variance 1."""

import math

import cabai

MOST = 1000  # draws for the second arm


@cabai.policy
def thompson(arms, run, rules):
    """Draw a mean for every arm and pull the best; or, by a coin, draw again until another arm is best, and pull it."""
    best, largest = -1, -math.inf
    for a in range(len(arms)):
        drawn = draw(arms[a], run)
        if drawn > largest:
            best, largest = a, drawn
    if cabai.uniform(run) < 0.5:
        return best
    rival, lead = -1, -math.inf
    for _ in range(MOST):  # if all are in vain: the arm that came closest
        of_best = draw(arms[best], run)
        for a in range(len(arms)):
            if a != best:
                ahead = draw(arms[a], run) - of_best
                if ahead > lead:
                    rival, lead = a, ahead
        if lead > 0:
            break
    return rival


def draw(arm, run):
    """A mean that the arm may have, after its rewards so far."""
    return arm.mean + cabai.normal(run) / math.sqrt(arm.pulls)
