"""Cost-aware Track-and-Stop (the paper's Algorithm 1): explore a little, else follow the estimated optimal shares."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cabai.checks import InvalidInput, number
from cabai.kernels.allocation import allocate
from cabai.policies.base import Policy

TRACKING = ("deficit", "ratio")


def choose(arms, run, rules):
    least = 0
    for a in range(len(arms)):
        if arms[a].pulls < arms[least].pulls:
            least = a
    if arms[least].pulls < rules.exploration * math.sqrt(run.t) - rules.slack:
        return least  # forced exploration
    allocate(arms, run, rules)
    chosen, largest = -1, -np.inf
    for a in range(len(arms)):
        arm = arms[a]
        if rules.tracking == 0:
            lag = run.spent * arm.share - arm.costs  # J w_a - C_a
        else:
            lag = arm.share / arm.costs
        if lag > largest:
            chosen, largest = a, lag
    return chosen


@dataclass(frozen=True)
class CTAS(Policy):
    """Cost-aware Track-and-Stop: track the optimal cost shares of the estimated instance.

    While some arm has fewer than exploration sqrt(t) - slack K pulls, pull the least-pulled arm. Else pull the arm
    that lags its share most: by the largest deficit J w_a - C_a (`tracking="deficit"`, the paper's), or by the largest
    ratio w_a / C_a (`tracking="ratio"`), which is much cheaper when arms are many.
    """

    exploration: float = 1.0
    slack: float = 0.0
    tracking: str = "deficit"
    name = "ctas"
    choose = staticmethod(choose)

    def __post_init__(self) -> None:
        for field in ("exploration", "slack"):
            if number(getattr(self, field), field) < 0:
                raise InvalidInput(f"{field} must not be negative, got {getattr(self, field)!r}.")
        if self.tracking not in TRACKING:
            raise InvalidInput(f"tracking must be one of {', '.join(TRACKING)}, got {self.tracking!r}.")

    def numbers(self, arms: int) -> dict[str, float]:
        return {
            "exploration": self.exploration,
            "slack": self.slack * arms,
            "tracking": TRACKING.index(self.tracking),
        }
