"""What the versions of `contrast` share that depend on the order of the pulls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cabai.core.goal import BEST
from cabai.core.statistics import Statistics
from cabai.families import Family
from cabai.support.validation import InvalidInput
from cabai.thresholds.contrast import Contrast


@dataclass(frozen=True)
class InOrder(Contrast):
    """A test of the best arm, from pulls in the order of asking."""

    def check_use(self, policy: Any, epsilon: float, family: Family) -> None:
        if policy.goal != BEST:
            raise InvalidInput(
                f"threshold {self.name} looks for the best arm: with goal {policy.goal!r}, leave out the threshold or "
                "use contrast."
            )

    def recall(self, arms: Any, statistics: Statistics) -> None:
        raise InvalidInput(
            f"threshold {self.name} depends on the order of the pulls, which statistics do not have: use contrast."
        )
