"""Cost-aware Track-and-Stop (the paper's Algorithm 1): explore a little, otherwise track the optimal cost shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cabai.core.shares import ARM_MEMORY, ARM_SCRATCH, RUN_MEMORY, allocate
from cabai.policies.tracking import Tracking
from cabai.support.specialise import required_slot
from cabai.support.validation import InvalidInput


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


LAGS = {"deficit": deficit, "ratio": ratio}


@dataclass(frozen=True)
class CTAS(Tracking):
    """Cost-aware Track-and-Stop: track the optimal cost shares of the estimated instance.

    While some arm has fewer than exploration sqrt(t) - slack K pulls, pull the arm with the fewest. Otherwise
    pull the arm that is furthest behind its share: by the largest deficit J w_a - C_a (`tracking="deficit"`, as in the
    paper), or by the largest ratio w_a / C_a (`tracking="ratio"`), which is much cheaper with many arms.

    >>> import cabai
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.5], costs=[1, 0.1])
    >>> cabai.simulate(instance, "ctas", trajectories=100).summary().errors
    0
    """

    tracking: str = "deficit"
    name = "ctas"
    arm_memory, run_memory, arm_scratch = ARM_MEMORY, RUN_MEMORY, ARM_SCRATCH

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tracking not in LAGS:
            raise InvalidInput(f"tracking must be one of {', '.join(LAGS)}, got {self.tracking!r}.")

    @property
    def functions(self) -> tuple[Any, ...]:  # type: ignore[override]
        return track, ("lag", LAGS[self.tracking])
