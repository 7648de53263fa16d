"""What simulated studies pay. Some are cut short, and what is unknown because of that is never reported as known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Amount(NamedTuple):
    """A number, its standard error, and whether it is only a lower bound of the truth."""

    value: float
    error: float = 0.0
    at_least: bool = False


class Found(NamedTuple):
    """A value with which a budget is enough, and the chance of a decision. Without a value, `tried` is not enough."""

    value: float | None
    chance: Amount
    tried: float


@dataclass(frozen=True)
class Bills:
    """By draw: what was paid, whether there was a decision, whether it was wrong, and whether the study was cut
    short."""

    costs: NDArray[np.float64]
    decided: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    cut: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def mean(self) -> Amount:
        error = float(self.costs.std(ddof=1)) / math.sqrt(len(self)) if len(self) > 1 else 0.0
        return Amount(float(self.costs.mean()), error, bool(self.cut.any()))

    def quantile(self, share: float) -> Amount:
        """The smallest bill that this share of the studies does not exceed.

        >>> bills = Bills(np.array([1.0, 2.0, 3.0, 9.0]), *np.array([[1, 1, 1, 0], [0] * 4, [0, 0, 0, 1]], bool))
        >>> bills.quantile(0.75), bills.quantile(0.99)
        (Amount(value=3.0, error=0.0, at_least=False), Amount(value=9.0, error=0.0, at_least=True))
        """
        return self._smallest(self.costs, share)

    def chance(self, budget: float) -> Amount:
        """The share of the studies that decide within a budget."""
        within = self.decided & (self.costs <= budget * (1 + 1e-12))
        near = (int(within.sum()) + 1) / (len(self) + 2)  # so that an error is never 0
        error = math.sqrt(near * (1 - near) / len(self))
        return Amount(float(within.mean()), error, bool((self.cut & (self.costs < budget)).any()))

    def needed(self, chance: float) -> Amount | None:
        """The smallest budget within which this share of the studies decides; None if fewer ever do."""
        paid = np.where(self.decided | self.cut, self.costs, math.inf)
        found = self._smallest(paid, chance)
        return None if math.isinf(found.value) else found

    def _smallest(self, paid: NDArray[np.float64], share: float) -> Amount:
        value = float(np.sort(paid)[max(0, math.ceil(share * len(self) - 1e-9) - 1)])
        return Amount(value, at_least=bool((self.cut & (self.costs <= value)).any()))

    def up_to(self, limit: float) -> NDArray[np.float64]:
        """What each study pays up to a limit; also known for those that were cut there or later."""
        return np.minimum(self.costs, limit)
