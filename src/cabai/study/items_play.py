"""The state of a study with items: a race after everything told so far. It is computed from the log alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.cheapest_race import CheapestRace
from cabai.study.books import KEPT, Books
from cabai.study.settings import Settings


class ItemsPlay(Books):
    """Scores, race and accounts of a study with items."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        assert settings.items is not None
        arms, self.items = len(settings.arms), settings.items
        self.race = self.items.new_race(
            arms, settings.family, delta=settings.delta, epsilon=settings.epsilon, direction=settings.direction,
            goal=settings.cheapest,
        )  # fmt: skip
        self.order = self.items.order(settings.seed)  # the item at each position
        self.position = np.empty_like(self.order)  # of each item
        self.position[self.order] = np.arange(len(self.order))
        self.failed_score = self.items.failed_score(settings.family, settings.direction)
        self.pulls = np.zeros(arms, np.int64)  # evaluations that returned a score
        self.rewards, self.first, self.counted = np.zeros(arms), np.zeros(arms), np.zeros(arms)  # of those
        self.paid_for = np.zeros(arms, np.int64)  # evaluations, failed ones too, that no earlier study has paid for
        self.rows = 0  # of the log
        self.last: tuple[int, float] | None = None  # the last of them: which pull, and when it was told
        self._bill = 0.0

    def catch_up(self, arms: Sequence[Any], spent: float, log: Iterable[Any]) -> None:
        """Update with what others have told: the current rows of the arms, the bill, and new rows of the log."""
        columns = dict(zip(arms[0]._fields, zip(*arms, strict=True), strict=True))
        self.restore_books(columns)
        self.pulls[:], self.rewards[:] = columns["pulls"], columns["rewards"]
        self.first[:], self.counted[:] = columns["first"], columns["costs"]
        self._bill = spent
        scores: dict[tuple[int, int], float] = {}  # the first that was told of each
        for row in log:
            self.rows += 1
            self.last = (row.number, row.told)
            score = self.failed_score if row.reward is None else row.reward
            if score is not None and (row.arm, row.item) not in scores and self.is_missing(row.arm, row.item):
                scores[row.arm, row.item] = score
                self.paid_for[row.arm] += row.offers > 0
        self.race.tell_many([(a, int(self.position[item]), score) for (a, item), score in scores.items()])

    @property
    def bill(self) -> float:
        return self._bill

    @property
    def rewards_told(self) -> NDArray[np.int64]:
        return self.paid_for

    @property
    def counted_costs(self) -> float:
        return float(self.counted.sum())

    def is_missing(self, a: int, item: int) -> bool:
        """Whether the score of arm a on an item is not known."""
        return math.isnan(self.race.scores[a, self.position[item]])

    def observe(self, a: int, item: int, reward: float | None, cost: float, *, reused: bool = False) -> None:
        """Record an evaluation that returned a score, or failed, and its cost. A score counts once."""
        score = self.failed_score if reward is None else reward
        self.rows += 1
        self._bill += cost
        if reward is None:
            self.failures[a] += 1
        elif not self.is_missing(a, item):
            self.discarded[a] += 1
        else:
            seen = self.settings.seen(reward)
            if self.pulls[a] == 0:
                self.first[a] = seen
            self.pulls[a] += 1
            self.rewards[a] += seen
            self.counted[a] += cost
        if score is not None and self.is_missing(a, item):
            self.paid_for[a] += not reused
            self.race.tell(a, int(self.position[item]), score)
        self.pay(a, cost)

    def has_overflown(self, a: int) -> bool:
        return not all(map(math.isfinite, (self.counted[a], self.spent[a], self._bill)))

    def sums(self, a: int) -> dict[str, Any]:
        """What is stored of an arm."""
        sums = {"pulls": int(self.pulls[a]), "rewards": float(self.rewards[a]), "first": float(self.first[a]),
                "costs": float(self.counted[a])}  # fmt: skip
        books = dict(zip(KEPT, self.accounts[a].item(), strict=True))
        return books | sums | {f"ordered_{name}": value for name, value in sums.items()} | {"squares": None}

    def memory(self) -> str:
        """Only what a decision was about: the log has the rest."""
        return json.dumps(self.memory_of_stop())

    def paid_costs(self) -> NDArray[np.float64]:
        if self.settings.costs is not None:
            return np.array(self.settings.costs)
        with np.errstate(all="ignore"):
            costs: NDArray[np.float64] = self.spent / self.paid_for
        return np.where(self.paid_for > 0, costs, np.nan)

    @property
    def prices(self) -> list[float]:
        """What an evaluation of each arm costs; inf where that is not known."""
        return [math.inf if math.isnan(cost) else cost for cost in self.paid_costs().tolist()]

    @property
    def in_play(self) -> NDArray[np.bool_]:
        return ~self.race.board.out

    @property
    def leader(self) -> int | None:
        return self.race.leader(self.prices)

    @property
    def winner(self) -> int | None:
        return self.race.winner(self.prices)

    def to_come(self, under_way: Sequence[Any], beyond: int = 0) -> Iterator[tuple[int, int]]:
        """The arms and items to evaluate next, one by one, in addition to the pulls under way; until enough are, plus
        `beyond`."""
        busy: list[set[int]] = [set() for _ in self.settings.arms]
        for pull in under_way:
            busy[pull.arm].add(int(self.position[pull.item]))
        prices, passed = self.prices, dict[int, int]()
        while (found := self.race.next(prices, busy, passed, beyond)) is not None:
            arm, position = found
            busy[arm].add(position)
            yield arm, int(self.order[position])

    def confidence(self) -> float:
        """1 - the smallest delta at which the leader would have won by now; 0 if there is none."""
        leader = self.leader
        if leader is None:
            return 0.0
        return self.race.confidence(leader, self.settings.delta)

    def closest(self) -> tuple[int, float, float] | None:
        """The rival that the leader is furthest from beating, the evidence against it and what is required."""
        leader = self.leader
        if leader is None:
            return None
        capital = self.race.capital(leader)
        rivals = self.race.rivals(leader)
        if not rivals:
            return None
        rival = min(rivals, key=lambda a: capital[a])
        return rival, math.log(capital[rival]), math.log(self.race.board.target)

    def claim(self) -> str | None:
        """What that evidence is for, in words, where the cheapest arm that is good enough is looked for."""
        leader = self.leader
        if leader is None or not isinstance(self.race, CheapestRace):
            return None
        return self.race.claim(leader, self.settings.arms)

    @property
    def running_costs(self) -> list[float]:
        goal = self.settings.cheapest
        return self.prices if goal is None or goal.running_costs is None else list(goal.running_costs)

    def full_costs(self) -> NDArray[np.float64]:
        """What evaluating everything costs, by arm; nan where it is not known."""
        return self.paid_costs() * self.items.count

    def scores(self) -> Mapping[str, dict[str | int, float]]:
        """Every known score, by arm and by the item's id, in the order of the items."""
        found = {}
        for a, arm in enumerate(self.settings.arms):
            by_item = self.race.scores[a, self.position]
            found[arm] = {self.items.id(i): float(by_item[i]) for i in np.flatnonzero(~np.isnan(by_item)).tolist()}
        return found
