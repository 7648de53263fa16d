"""d-LUCB (Kaufmann and Kalyanakrishnan 2013): pull the leader and the rival that could still be better."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from cabai.kernels.divergence import lower_end, upper_end
from cabai.kernels.evidence import required
from cabai.policies.base import Policy
from cabai.thresholds import Mixture, Threshold


def level_of(arm, run, rules, arms):
    """What an arm's interval {q : d(mean_a, q) <= level} allows, per pull that counts."""
    if rules.evalue:  # each of the K arms alone, hence log(K/delta) and one price
        return (rules.level + math.log(arms / (arms - 1)) + arm.price) / arm.tested
    return required(run.t, rules) / arm.tested


def highest_rival(arms, run, rules):
    """Find the arm other than the leader with the highest upper end; return that end."""
    highest = -np.inf
    for a in range(len(arms)):
        if a != run.leader:
            arm = arms[a]
            end = np.inf
            if arm.tested > 0:
                end = upper_end(rules.family, rules.variance, arm.tested_mean, level_of(arm, run, rules, len(arms)))
            if end > highest:
                run.rival, highest = a, end
    return highest


def stop(arms, run, rules):
    """At the end of a round: is the leader's lower end above every rival's upper end, less epsilon?"""
    if run.note >= 0:  # the rival's pull of this round is still to come
        return False
    highest = highest_rival(arms, run, rules) - rules.epsilon
    leader = arms[run.leader]
    if leader.tested == 0 or leader.tested_mean <= highest:
        return False
    return (
        lower_end(rules.family, rules.variance, leader.tested_mean, level_of(leader, run, rules, len(arms))) > highest
    )


def choose(arms, run, rules):
    """A round pulls the leader, then the rival that `stop` has just found."""
    if run.note >= 0:
        rival = run.note
        run.note = -1
        return rival
    run.note = run.rival
    return run.leader


@dataclass(frozen=True)
class DLUCB(Policy):
    """d-LUCB: each round pull the leader and the rival with the highest upper confidence end, until they do not
    overlap.

    Blind to costs. An arm's interval is {q : N_a d(mean_a, q) <= beta(t, delta)}; with `evalue`, the anytime-valid
    interval {q : N_a d(mean_a, q) <= log(K/delta) + price_a}.
    """

    name = "d-lucb"
    choose = staticmethod(choose)
    stop = staticmethod(stop)
    cost_blind = True
    depends_on_delta = True
    keeps = ("note",)

    def threshold(self, given: Threshold) -> Threshold:
        return dataclasses.replace(given, pairwise=False) if isinstance(given, Mixture) else given
