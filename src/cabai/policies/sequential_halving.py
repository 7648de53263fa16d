"""Sequential Halving (Karnin, Koren, Somekh 2013), in money as SH-RR (Li and Cheung 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.core.state import Fields
from cabai.policies.base import one_of
from cabai.policies.rejecting import Spending, drop, least_pulled
from cabai.support.specialise import required_slot


def choose(arms, run, rules):
    """In turn: the arm in play with the fewest pulls."""
    chosen = least_pulled(arms, run, rules)
    arms[chosen].before = arms[chosen].rewards
    return chosen


def stop(arms, run, rules):
    """Phase q of ceil(log2 K) ends when the next pull would take the bill above q equal parts of the budget, so what a
    phase leaves goes to the next one. The better half, rounded up, stays in play."""
    phases = math.ceil(math.log2(len(arms)) - 1e-12)
    while run.left > 1:
        ration, fewest = rules.budget * (run.phase / phases), arms[least_pulled(arms, run, rules)]
        if run.spent + fewest.cost <= ration * (1.0 + 1e-12):
            return False
        for _ in range(run.left // 2):
            found, least = -1, np.inf
            for a in range(len(arms)):
                if arms[a].in_play and (found < 0 or score(arms[a], fewest.pulls) <= least):
                    found, least = a, score(arms[a], fewest.pulls)
            drop(arms, run, found)
        run.phase += 1
        for a in range(len(arms)):
            arms[a].base_pulls, arms[a].base_rewards = arms[a].pulls, arms[a].rewards
    return False


@required_slot
def score(arm, fewest):
    """By what the arms of a phase are compared."""


def of_all(arm, fewest):
    return arm.mean


def of_the_phase(arm, fewest):
    pulls = arm.pulls - arm.base_pulls
    return (arm.rewards - arm.base_rewards) / pulls if pulls > 0 else -np.inf


def of_equally_many(arm, fewest):
    """Of the first samples, as many as the arm with the fewest has: in turn, others have at most one more."""
    return arm.before / (arm.pulls - 1) if arm.pulls > fewest else arm.mean


SCORES = {True: of_all, False: of_the_phase, "equal": of_equally_many}


@dataclass(frozen=True)
class SequentialHalving(Spending):
    """Sequential Halving: ceil(log2 K) phases of equal cost, after each of which the worse half of the arms is dropped.

    It pulls the arms in play in turn, whatever they cost. Arms are compared by all of their samples (`reuse=true`, as
    SH-RR's paper), by those of the phase (`reuse=false`, as Karnin et al.), or by equally many each (`reuse=equal`, as
    SH-RR's published code). Needs a budget.

    >>> import cabai
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.5], costs=[1, 0.1])
    >>> cabai.simulate(instance, "sequential-halving", budget=100, trajectories=100).summary().errors
    0
    """

    reuse: bool | str = True
    name = "sequential-halving"
    choose, stop = staticmethod(choose), staticmethod(stop)
    arm_memory: ClassVar[Fields] = {"before": 0.0, "base_pulls": 0, "base_rewards": 0.0}
    run_memory: ClassVar[Fields] = {"phase": 1}
    keeps, keeps_of_arms = ("phase",), ("before", "base_pulls", "base_rewards")

    def __post_init__(self) -> None:
        one_of(SCORES, self.reuse, "reuse")

    @property
    def functions(self) -> tuple[Any, ...]:  # type: ignore[override]
        return (("score", SCORES[self.reuse]),)
