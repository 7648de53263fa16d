"""What simulated studies pay. Some are cut before their end, and what is not known because of that is never told as if
it were."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Amount(NamedTuple):
    """A number, its standard error, and whether all that is known is that the truth is not below it."""

    value: float
    error: float = 0.0
    at_least: bool = False


@dataclass(frozen=True)
class Bills:
    """By draw: what was paid, whether there was a decision, whether it was wrong, and whether it was cut before."""

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
        """The least bill that so large a share of the studies do not exceed.

        >>> bills = Bills(np.array([1.0, 2.0, 3.0, 9.0]), *np.array([[1, 1, 1, 0], [0] * 4, [0, 0, 0, 1]], bool))
        >>> bills.quantile(0.75), bills.quantile(0.99)
        (Amount(value=3.0, error=0.0, at_least=False), Amount(value=9.0, error=0.0, at_least=True))
        """
        place = max(0, math.ceil(share * len(self) - 1e-9) - 1)
        value = float(np.sort(self.costs)[place])
        return Amount(value, at_least=bool((self.cut & (self.costs <= value)).any()))

    def chance(self, budget: float) -> Amount:
        """The share of the studies that decide within a budget."""
        within = self.decided & (self.costs <= budget * (1 + 1e-12))
        near = (int(within.sum()) + 1) / (len(self) + 2)  # so that an error is never 0
        error = math.sqrt(near * (1 - near) / len(self))
        return Amount(float(within.mean()), error, bool((self.cut & (self.costs < budget)).any()))

    def needed(self, chance: float) -> Amount | None:
        """The least budget within which so large a share of the studies decide; None if fewer ever do."""
        paid = np.where(self.decided | self.cut, self.costs, math.inf)
        place = max(0, math.ceil(chance * len(self) - 1e-9) - 1)
        value = float(np.sort(paid)[place])
        if math.isinf(value):
            return None
        return Amount(value, at_least=bool((self.cut & (self.costs <= value)).any()))

    def up_to(self, limit: float) -> NDArray[np.float64]:
        """What each pays if nothing beyond a limit is paid: known also of those that were cut there or later."""
        return np.minimum(self.costs, limit)
