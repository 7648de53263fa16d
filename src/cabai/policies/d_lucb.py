"""d-LUCB (Kaufmann and Kalyanakrishnan 2013): pull the leader and the rival that could still be better."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cabai.core.state import Fields
from cabai.core.stopping import interval_level
from cabai.families.base import lower_end, upper_end
from cabai.families.slots import divergence
from cabai.policies.base import Policy
from cabai.thresholds import Bets, Contrast, EValue, Mixture, Threshold


def highest_rival(arms, run, rules):
    """Find the arm other than the leader with the highest upper end; return that end."""
    highest = -np.inf
    for a in range(len(arms)):
        if a != run.leader:
            arm = arms[a]
            end = np.inf
            if arm.tested > 0:
                level = interval_level(arm, run.t, rules, len(arms))
                if not may_exceed(rules, arm.tested_mean, level, highest):
                    continue
                end = upper_end(rules, arm.tested_mean, level)
            if end > highest:
                run.rival, highest = a, end
    return highest


def may_exceed(rules, mean, level, q):
    """Whether the upper end of {x : d(mean, x) <= level} may be above q: cheaper than the end."""
    return mean > q or not divergence(rules, mean, mean - q, q, 1.0 - q) > level


def stop(arms, run, rules):
    """At the end of a round: whether the leader's lower end is above every rival's upper end minus epsilon."""
    if run.waiting >= 0:  # the rival is still to be pulled in this round
        return False
    highest = highest_rival(arms, run, rules) - rules.epsilon
    leader = arms[run.leader]
    if leader.tested == 0 or leader.tested_mean <= highest:
        return False
    return lower_end(rules, leader.tested_mean, interval_level(leader, run.t, rules, len(arms))) > highest


def choose(arms, run, rules):
    """In each round, pull the leader, then the rival that `stop` has just found."""
    if run.waiting >= 0:
        rival = run.waiting
        run.waiting = -1
        return rival
    run.waiting = run.rival
    return run.leader


@dataclass(frozen=True)
class DLUCB(Policy):
    """d-LUCB: each round pull the leader and the rival with the highest upper confidence end, until they do not
    overlap.

    It ignores costs. An arm's interval is {q : N_a d(mean_a, q) <= beta(t, delta)}; with `evalue`, the anytime-valid
    interval {q : N_a d(mean_a, q) <= log(K/delta) + price_a}. `contrast` and `bets` test pairs of arms and have no
    intervals, so those of `evalue` are used instead. A run in which the best arm looks worse than tied ones, by bad
    luck, may never end (arXiv 2411.01808).

    >>> import cabai
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.5], costs=[1, 0.1])
    >>> cabai.simulate(instance, "d-lucb", trajectories=100).summary().errors
    0
    """

    name = "d-lucb"
    choose = staticmethod(choose)
    stop = staticmethod(stop)
    cost_blind = True
    depends_on_delta = True
    tests_pairs = False
    run_memory: ClassVar[Fields] = {"waiting": -1}  # the rival that is still to be pulled in this round
    keeps = ("waiting",)

    def threshold(self, given: Threshold) -> Threshold:
        if isinstance(given, (Bets, Contrast)):
            return EValue()
        return dataclasses.replace(given, pairwise=False) if isinstance(given, Mixture) else given
