"""Cost-aware Track-and-Stop (the paper's Algorithm 1): explore a little, otherwise track the optimal cost shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.core.shares import ARM_MEMORY, ARM_SCRATCH, RUN_MEMORY, allocate
from cabai.core.state import Fields
from cabai.policies.tracking import TRACKED, Tracking, track_sums
from cabai.support.specialise import required_slot


def track(arms, run, rules):
    allocate(arms, run, rules)
    chosen, largest = -1, -np.inf
    for a in range(len(arms)):
        behind = lag(run, arms[a])
        if behind > largest:
            chosen, largest = a, behind
    return chosen


@required_slot
def lag(run, arm):
    """How far an arm is behind its share."""


def deficit(run, arm):
    return run.counted * arm.share - arm.costs  # J w_a - C_a


def ratio(run, arm):
    return arm.share / arm.costs


LAGS = {"deficit": deficit, "ratio": ratio, "sums": None}


@dataclass(frozen=True)
class CTAS(Tracking):
    """Cost-aware Track-and-Stop: track the optimal cost shares of the estimated instance.

    While some arm has fewer than exploration sqrt(t) - slack K pulls, pull the arm with the fewest. Otherwise
    pull the arm that is furthest behind its share: by the largest deficit J w_a - C_a (`tracking="deficit"`, as in the
    paper), or by the largest ratio w_a / C_a (`tracking="ratio"`), which is much cheaper with many arms. With
    `tracking="sums"` (C-tracking), follow the sum of all shares so far, each at least 1/(2 sqrt(K² + t)), without
    other exploration.

    >>> import cabai
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.5], costs=[1, 0.1])
    >>> cabai.simulate(instance, "ctas", trajectories=100).summary().errors
    0
    """

    tracking: str = "deficit"
    name = "ctas"
    draws = 0
    run_memory, arm_scratch = RUN_MEMORY, ARM_SCRATCH
    keeps_of_arms = tuple(TRACKED)
    choices: ClassVar[Any] = {"tracking": ("lag", LAGS)}

    @property
    def arm_memory(self) -> Fields:  # type: ignore[override]
        return ARM_MEMORY | TRACKED if self.tracking == "sums" else ARM_MEMORY

    @property
    def functions(self) -> tuple[Any, ...]:
        return (("track", track_sums),) if self.tracking == "sums" else (track, *super().functions)

    def parameters(self, arms: int) -> dict[str, float]:
        return super().parameters(arms) | ({"exploration": 0.0} if self.tracking == "sums" else {})
