"""Chernoff-Overlap (the paper's Algorithm 2): eliminate, and balance sqrt(cost) times pulls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cabai.kernels import only_for
from cabai.kernels.evidence import beats, surplus_within
from cabai.policies.base import Policy


def stop(arms, run, rules):
    """Drop every arm in play that the leader beats; stop when one is left, or the leader is within epsilon of all.

    The threshold only rises with t, so a pair can newly cross only if one of its arms was pulled: unless that was the
    leader, or the leader is a new one, the arm pulled last is the only one to ask.
    """
    leader, last = run.leader, run.last
    if leader == run.note and last != leader:
        first, end = last, last + 1
    else:
        first, end = 0, len(arms)
    run.note = leader
    for a in range(first, end):
        if a != leader and arms[a].in_play and beats(rules, run.t, arms[leader], arms[a]):
            arms[a].in_play = 0
            run.left -= 1
    if run.left > 1 and rules.epsilon != 0.0:  # the arms in play may be too close to drop, and close enough to stop
        return least_surplus(arms, run, rules) > 0.0
    return run.left == 1


@only_for("epsilon")
def least_surplus(arms, run, rules):
    """By how much the evidence that the leader is within epsilon of each arm in play exceeds what is required."""
    least = np.inf
    for a in range(len(arms)):
        if a != run.leader and arms[a].in_play:
            least = min(least, surplus_within(rules, run.t, arms[run.leader], arms[a]))
    return least


def choose(arms, run, rules):
    """The arm in play with the smallest sqrt(cost_a) N_a, which is the smallest C_a N_a."""
    chosen, smallest = -1, np.inf
    for a in range(len(arms)):
        arm = arms[a]
        if arm.in_play:
            weight = arm.costs * arm.pulls
            if weight < smallest:
                chosen, smallest = a, weight
    return chosen


@dataclass(frozen=True)
class CO(Policy):
    """Chernoff-Overlap: drop the arms that the leader beats, pull the arm in play with the smallest sqrt(cost) N."""

    name = "co"
    choose = staticmethod(choose)
    stop = staticmethod(stop)
    depends_on_delta = True
