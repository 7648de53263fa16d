"""A race for the cheapest arm that is good enough, as it is run live."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import CHEAPEST, Cheapest
from cabai.datasets import cheapest
from cabai.datasets.board import NO_ARM
from cabai.datasets.race import Race, started


class CheapestRace(Race):
    """K arms on n items. `costs` are what evaluations cost; running an arm costs the same, unless declared.

    >>> race = CheapestRace(2, 100, goal=Cheapest(0.05, (1.0, 2.0)), delta=0.05, epsilon=0.1)
    >>> while race.winner([1, 2]) is None:
    ...     arm, position = race.next([1, 2], [[], []])
    ...     race.tell(arm, position, 1.0)
    >>> race.winner([1, 2]), race.board.prefix.tolist()
    (0, [34, 34])
    """

    def __init__(
        self, arms: int, items: int, *, goal: Cheapest, delta: float, epsilon: float, low: float = 0.0,
        high: float = 1.0, minimize: bool = False, speculate: float = 0.1,
    ) -> None:  # fmt: skip
        """`epsilon` and the goal's slack are in units of the scores."""
        self.name, self.goal, self.epsilon = CHEAPEST, goal, epsilon
        start = started(arms, items, delta, epsilon, CHEAPEST, goal, high - low)
        self._begin(start, low, high, minimize, speculate)

    def tell_many(self, results: Sequence[tuple[int, int, float]]) -> None:
        before = self.board.prefix == self.items
        super().tell_many(results)
        finished = self.board.prefix == self.items
        for b in np.flatnonzero(finished & ~before).tolist():
            for a in np.flatnonzero(finished).tolist():
                if a != b:
                    lead = self.lead(b, a)
                    self.board.close[b, a] = cheapest.is_close(lead, self.items, self.epsilon)
                    self.board.close[a, b] = cheapest.is_close(-lead, self.items, self.epsilon)

    def _price(self, costs: Sequence[float]) -> None:
        self.board.running[:] = costs if self.goal.running_costs is None else self.goal.running_costs

    def leader(self, costs: Sequence[float]) -> int | None:
        self._price(costs)
        found = int(cheapest.find_leader(self.board, costs))
        return None if found == NO_ARM else found

    def _active(self, leader: int | None) -> list[int]:
        likely = NO_ARM if leader is None else leader
        return [a for a in range(len(self.board.prefix)) if cheapest.is_active(self.board, likely, a)]

    def winner(self, costs: Sequence[float]) -> int | None:
        self._price(costs)
        found = int(cheapest.find_answer(self.board))
        return None if found == NO_ARM else found

    def capital(self, leader: int) -> NDArray[np.float64]:
        """For each arm, the capital for "the leader is at most epsilon worse" or, if that is less and still to be
        shown, for "the arm is too bad"; inf where both are known, and for the leader."""
        found: NDArray[np.float64] = self.board.best[1, leader].copy()
        finished = self.board.prefix == self.items
        found[finished & finished[leader] & self.board.close[leader]] = math.inf
        found[leader] = math.inf
        for a in range(len(found)):
            if cheapest.is_open(self.board, leader, a):
                others = np.delete(self.board.best[0, :, a], a)
                found[a] = min(found[a], others.max())
        return found

    def rivals(self, leader: int) -> list[int]:
        return sorted({a for _, _, a in self.open_claims(leader)})

    def open_claims(self, leader: int) -> list[tuple[int, int, int]]:
        """The claims still to be shown: the test, the arm claimed to be better, the other arm."""
        found = []
        for a in range(len(self.board.prefix)):
            if a != leader and not cheapest.is_cleared(self.board, leader, a):
                found.append((1, leader, a))
            if cheapest.is_open(self.board, leader, a):
                others = self.board.best[0, :, a].copy()
                others[a] = -math.inf
                found.append((0, int(others.argmax()), a))
        return found

    def claim(self, leader: int, names: Sequence[str]) -> str | None:
        """The claim with the least evidence of those to be shown, in words."""
        claims = self.open_claims(leader)
        if not claims:
            return None
        test, b, a = min(claims, key=self.board.best.__getitem__)
        if test == 1:
            return f"{names[b]} is within {self.epsilon:g} of {names[a]}"
        return f"{names[b]} is better than {names[a]} by more than {self.goal.margin(self.epsilon):g}"
