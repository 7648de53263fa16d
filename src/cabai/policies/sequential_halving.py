"""Sequential Halving (Karnin, Koren, Somekh 2013), in money as SH-RR (Li and Cheung 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from cabai.core.state import Fields
from cabai.policies.base import Policy
from cabai.policies.rejecting import drop, least_pulled
from cabai.support.specialise import slot


def choose(arms, run, rules):
    """In turn: the arm in play with the fewest pulls."""
    chosen = least_pulled(arms, run, rules)
    arms[chosen].before = arms[chosen].rewards
    return chosen


def stop(arms, run, rules):
    """Phase q of ceil(log2 K) ends when the next pull would take the bill above q equal parts of the budget, so what a
    phase leaves goes to the next one. The better half, rounded up, stays in play."""
    phases, phase, left = math.ceil(math.log2(len(arms)) - 1e-12), 1, len(arms)
    while left > run.left:
        phase, left = phase + 1, left - left // 2
    while run.left > 1:
        ration, fewest = rules.budget * (phase / phases), arms[least_pulled(arms, run, rules)]
        if run.spent + fewest.cost <= ration * (1.0 + 1e-12):
            return False
        if phase == 1:  # perhaps once more, with another budget
            for a in range(len(arms)):
                arms[a].base_pulls, arms[a].base_rewards = 0, 0.0
        for _ in range(run.left // 2):
            found, least = -1, math.inf
            for a in range(len(arms)):
                if arms[a].in_play and (found < 0 or score(arms[a], fewest.pulls) <= least):
                    found, least = a, score(arms[a], fewest.pulls)
            drop(arms, run, found)
        phase += 1
        for a in range(len(arms)):
            arms[a].base_pulls, arms[a].base_rewards = arms[a].pulls, arms[a].rewards
    return False


@slot
def score(arm, fewest):
    """By what the arms of a phase are compared, if one has the `fewest` pulls."""
    return arm.mean


def of_the_phase(arm, fewest):
    pulls = arm.pulls - arm.base_pulls
    return (arm.rewards - arm.base_rewards) / pulls if pulls > 0 else -math.inf


def of_equally_many(arm, fewest):
    """Of the first samples, as many as the arm with the fewest has: in turn, others have at most one more."""
    return arm.before / (arm.pulls - 1) if arm.pulls > fewest else arm.mean


SCORES = {True: None, False: of_the_phase, "equal": of_equally_many}


@dataclass(frozen=True)
class SequentialHalving(Policy):
    """Sequential Halving: ceil(log2 K) phases of equal cost, after each of which the worse half of the arms is dropped.

    It pulls arms in turn, whatever they cost. It compares all of their samples (`reuse=true`, SH-RR's paper), those of
    the phase (`reuse=false`, Karnin et al.), or equally many each (`reuse=equal`, SH-RR's code). Needs a budget.
    """

    reuse: bool | str = True
    name = "sequential-halving"
    spends_budget = True
    choose, stop = staticmethod(choose), staticmethod(stop)
    arm_memory: ClassVar[Fields] = {"before": 0.0, "base_pulls": 0, "base_rewards": 0.0}
    keeps_of_arms = tuple(arm_memory)
    choices: ClassVar[Any] = {"reuse": ("score", SCORES)}
