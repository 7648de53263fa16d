"""What tests share that depend on the order of the pulls."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from cabai.core.goal import BEST
from cabai.core.statistics import Statistics
from cabai.families import Family
from cabai.support.validation import InvalidInput


class InOrder:
    """A test of the best arm, from pulls in the order of asking, that extends a test of pairs."""

    name: ClassVar[str]
    pair_test: ClassVar[str] = "contrast"  # the name of the test of pairs
    is_pair_test: ClassVar[bool] = False  # whether it is that test, on the same records

    @property
    def of_pairs(self) -> Any:
        return self if self.is_pair_test else pair_form(type(self))()

    def check_use(self, policy: Any, epsilon: float, family: Family) -> None:
        if policy.goal != BEST:
            raise InvalidInput(
                f"threshold {self.name} looks for the best arm: with goal {policy.goal!r}, leave out the threshold or "
                f"use {self.pair_test}."
            )

    def recall(self, arms: Any, statistics: Statistics) -> None:
        raise InvalidInput(
            f"threshold {self.name} depends on the order of the pulls, which statistics do not have: "
            f"use {self.pair_test}."
        )


@cache
def pair_form(kind: type) -> type:
    """The test of pairs on the records of another one: for statements about pairs, and where the order is not known."""
    return type(f"{kind.__name__}OfPairs", (kind,), {"is_pair_test": True, "__module__": kind.__module__})
