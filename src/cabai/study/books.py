"""The accounts of each arm: what was paid and what failed, independent of how a study uses its rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.study.settings import Settings

ACCOUNT = np.dtype([("spent", "f8"), ("failures", "i8"), ("largest_cost", "f8"), ("offers", "i8"), ("lapses", "i8"),
                    ("discarded", "i8")])  # fmt: skip
KEPT = ACCOUNT.names or ()  # of an arm, in its row
AT_STOP = "costs_at_stop"  # in the memory of a study
ROUNDING = 1e-9  # of a budget: ten times 0.1 is 1, in spite of rounding


class Books:
    """The accounts of a study's arms."""

    def __init__(self, settings: Settings) -> None:
        arms = len(settings.arms)
        self.settings = settings
        self._open(np.zeros(arms, ACCOUNT))
        self.costs_at_stop: list[float | None] | None = None  # running costs, with goal cheapest
        self.changed: set[int] = set()  # arms whose stored row is out of date

    def _open(self, accounts: NDArray[Any]) -> None:
        """Use these accounts, one for each arm."""
        self.accounts = accounts
        self.spent = accounts["spent"]  # failed pulls included
        self.failures = accounts["failures"]
        self.largest_cost = accounts["largest_cost"]  # of one pull, failed pulls included
        self.offers = accounts["offers"]  # of pulls told
        self.lapses = accounts["lapses"]  # of pulls told: leases that ended without a result
        self.discarded = accounts["discarded"]  # rewards of withdrawn pulls, which never count

    @property
    def bill(self) -> float:
        """What was paid in all."""
        raise NotImplementedError

    @property
    def counted_costs(self) -> float:
        """The sum of the costs as the policy counts them."""
        raise NotImplementedError

    @property
    def rewards_told(self) -> NDArray[np.int64]:
        """How many pulls of each arm have returned a reward."""
        raise NotImplementedError

    def restore_books(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Read from the rows of the arms."""
        for name in KEPT:
            self.accounts[name] = [value or 0 for value in columns[name]]

    def copy_books(self, other: Books) -> None:
        self._open(other.accounts.copy())
        self.changed = set(other.changed)

    def pay(self, a: int, cost: float) -> None:
        self.spent[a] = float(self.spent[a]) + cost  # which may be inf, without a warning
        self.largest_cost[a] = max(float(self.largest_cost[a]), cost)
        self.changed.add(a)

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left of the budget."""
        limit = self.settings.max_cost
        return limit is not None and bool(self.bill >= limit * (1 - ROUNDING))

    @property
    def knows_cost(self) -> NDArray[np.bool_]:
        """The arms whose cost per pull is known: all if costs are given, else those with a reward."""
        known: NDArray[np.bool_] = (self.rewards_told > 0) | (self.settings.costs is not None)
        return known

    def affordable(self, under_way: Sequence[int]) -> NDArray[np.bool_]:
        """For each arm, whether the budget pays for one more pull of it in addition to the `under_way[a]` of each arm
        a.

        A pull reserves its arm's known cost, or the largest cost of its arm so far. An arm whose cost is not known
        may be pulled while something is left, one pull at a time, which reserves the largest cost of any arm so far.
        """
        limit, pending = self.settings.max_cost, np.asarray(under_way)
        if limit is None:
            return np.ones(len(pending), np.bool_)
        if self.settings.costs is not None:
            reserved = np.array(self.settings.costs)
        else:
            reserved = np.where(self.largest_cost > 0, self.largest_cost, self.largest_cost.max())
        with np.errstate(all="ignore"):
            left = limit - self.bill - (pending * reserved).sum()
            fits: NDArray[np.bool_] = reserved <= left + limit * ROUNDING
        return np.where(self.knows_cost, fits, (pending == 0) & (left > limit * ROUNDING))

    def paid_costs(self) -> NDArray[np.float64]:
        """What a reward of each arm costs, even if the policy ignores costs; nan where nothing is known."""
        if self.settings.costs is not None:
            return np.array(self.settings.costs)
        with np.errstate(all="ignore"):
            costs: NDArray[np.float64] = self.spent / (self.rewards_told + self.discarded)
        return costs

    @property
    def running_costs(self) -> list[float]:
        """What arms cost to run, with goal cheapest; inf where it is not known."""
        raise NotImplementedError

    def stop(self) -> None:
        """Keep the running costs at the moment the study stops: the decision is about these, whatever is told later."""
        if self.settings.cheapest is not None:
            self.costs_at_stop = [cost if math.isfinite(cost) else None for cost in self.running_costs]

    def go_on(self) -> None:
        """Forget them: the stop is undone."""
        self.costs_at_stop = None

    def remember_stop(self, remembered: Mapping[str, Any]) -> None:
        """The same, as stored; studies of older versions have none."""
        kept = remembered.get(AT_STOP)
        if kept is not None and (
            self.settings.cheapest is None
            or len(kept) != len(self.settings.arms)
            or not all(cost is None or 0 <= cost < math.inf for cost in kept)
        ):
            raise ValueError(f"it has {AT_STOP} = {kept!r}")
        self.costs_at_stop = kept

    def memory_of_stop(self) -> dict[str, Any]:
        """The same, for storing."""
        return {} if self.costs_at_stop is None else {AT_STOP: self.costs_at_stop}
