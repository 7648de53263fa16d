"""What policies share that track shares: forced exploration, and following the sum of all shares computed so far."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cabai.core.shares import allocate
from cabai.policies.base import Policy
from cabai.policies.rejecting import least_pulled
from cabai.support.specialise import required_slot
from cabai.support.validation import InvalidInput, number

#: The sum of an arm's shares; the first pulls, one of each arm, count as equal shares.
TRACKED = {"tracked": 1.0}


@required_slot
def track(arms, run, rules):
    """The arm that is furthest behind its share."""


def explore_or_track(arms, run, rules):
    """While some arm has fewer than exploration sqrt(t) - slack K pulls, pull the arm with the fewest; else track."""
    least = least_pulled(arms, run, rules)
    if arms[least].pulls < rules.exploration * math.sqrt(run.t) - rules.slack:
        return least
    return track(arms, run, rules)


@dataclass(frozen=True)
class Tracking(Policy):
    """A policy that explores a little and otherwise follows its `track` function."""

    exploration: float = 1.0
    slack: float = 0.0
    choose = staticmethod(explore_or_track)

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("exploration", "slack"):
            if number(getattr(self, field), field) < 0:
                raise InvalidInput(f"{field} must not be negative, got {getattr(self, field)!r}.")

    def parameters(self, arms: int) -> dict[str, float]:
        return {"exploration": float(self.exploration), "slack": float(self.slack * arms)}


def furthest_behind(arms, run):
    """argmax J W_a / W - C_a, W_a the sum of the shares of a and W that of all: argmax W_a - N_a if costs are equal."""
    total = 0.0
    for a in range(len(arms)):
        total += arms[a].tracked
    chosen, largest = -1, -np.inf
    for a in range(len(arms)):
        behind = run.counted * (arms[a].tracked / total) - arms[a].costs
        if behind > largest:
            chosen, largest = a, behind
    return chosen


def track_sums(arms, run, rules):
    """C-tracking: add up the shares, each raised to at least 1/(2 sqrt(K² + t)) and the others lowered alike."""
    allocate(arms, run, rules)
    least = 0.5 / math.sqrt(len(arms) ** 2 + run.t)
    count, lowered = len(arms) + 1, -np.inf
    while True:
        above, now = len(arms) * least - 1.0, 0
        for a in range(len(arms)):
            if arms[a].share - lowered > least:
                above += arms[a].share - least
                now += 1
        if now >= count:
            break
        count, lowered = now, above / now
    for a in range(len(arms)):
        arms[a].tracked += max(arms[a].share - lowered, least)
    return furthest_behind(arms, run)
