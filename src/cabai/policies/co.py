"""Chernoff-Overlap (the paper's Algorithm 2): eliminate, and balance sqrt(cost) times pulls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cabai.core.state import Fields
from cabai.core.stopping import beats, is_settled
from cabai.policies.base import Policy
from cabai.support.specialise import slot


def stop(arms, run, rules):
    """Drop every arm in play that the leader beats; stop when one is left, or the leader is within epsilon of all.

    The threshold only rises with t, so the leader can newly beat an arm only if one of the two was pulled. Unless the
    leader was pulled or has changed, only the arm pulled last has to be tested.
    """
    leader, last = run.leader, run.last
    if leader == run.dropped_for and last != leader:
        first, end = last, last + 1
    else:
        first, end = 0, len(arms)
    run.dropped_for = leader
    for a in range(first, end):
        if a != leader and arms[a].in_play and beats(rules, run.t, arms[leader], arms[a]):
            arms[a].in_play = 0
            run.left -= 1
    return run.left == 1 or are_close(arms, run, rules)


@slot
def are_close(arms, run, rules):
    """Whether the arms still in play are close enough to stop: never without an epsilon."""
    return False


def are_within_epsilon(arms, run, rules):
    """Whether the leader is shown to be at most epsilon worse than every other arm in play."""
    for a in range(len(arms)):
        rival = a != run.leader and arms[a].in_play
        if rival and not is_settled(rules, run.t, arms[run.leader], arms[a]):
            return False
    return True


@slot
def effort(run, arms, a):
    """The effort spent on an arm: the arm in play with the least is pulled."""
    return arms[a].costs * arms[a].pulls


def choose(arms, run, rules):
    """The arm in play with the smallest sqrt(cost_a) N_a, which is the smallest C_a N_a."""
    chosen, smallest = -1, np.inf
    for a in range(len(arms)):
        if arms[a].in_play:
            weight = effort(run, arms, a)
            if weight < smallest:
                chosen, smallest = a, weight
    return chosen


@dataclass(frozen=True)
class CO(Policy):
    """Chernoff-Overlap: drop the arms that the leader beats, pull the arm in play with the smallest sqrt(cost) N.

    With the threshold `bets`, N is divided by the standard deviation of the arm's rewards. A run that drops the best
    arm, and is left with tied ones, never ends (arXiv 2411.01808), so the mean cost is then infinite.

    >>> import cabai
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.5], costs=[1, 0.1])
    >>> cabai.simulate(instance, "co", trajectories=100).summary().errors
    0
    """

    name = "co"
    draws = 0
    choose = staticmethod(choose)
    stop = staticmethod(stop)
    depends_on_delta = True
    run_memory: ClassVar[Fields] = {"dropped_for": -1}  # the leader against which every arm in play was last tested
    within = (("are_close", are_within_epsilon),)
