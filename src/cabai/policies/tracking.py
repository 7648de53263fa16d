"""Forced exploration around any rule that tracks shares."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cabai.policies.base import Policy
from cabai.support.specialise import required_slot
from cabai.support.validation import InvalidInput, number


@required_slot
def track(arms, run, rules):
    """The arm that is furthest behind its share."""


def explore_or_track(arms, run, rules):
    """While some arm has fewer than exploration sqrt(t) - slack K pulls, pull the arm with the fewest; else track."""
    least = 0
    for a in range(len(arms)):
        if arms[a].pulls < arms[least].pulls:
            least = a
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
