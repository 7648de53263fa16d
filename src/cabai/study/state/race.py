"""The state of a study with items: a race after everything told so far. It uses items in its own order, so results
count at once, in whatever order they are told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import CHEAPEST
from cabai.datasets.race import CHAMPION, CheapestRace, OpenRace, Race
from cabai.study.log.events import Event
from cabai.study.settings import Settings
from cabai.study.state import progress
from cabai.study.state.accounts import Accounts, Lease, Verdict, finite_or_none, packed, unpack
from cabai.study.state.progress import Claim, Pairs, Remaining

LESS_THAN_CERTAIN = math.nextafter(1.0, 0.0)  # 1 is only for what is known exactly, however small delta is


class RaceState(Accounts):
    KEPT = (*Accounts.KEPT, "bill")
    OF_ARMS: ClassVar = {
        **Accounts.OF_ARMS,
        "scored": np.int64,  # evaluations that returned a score that was missing
        "rewards_told": np.int64,  # scores, of failed evaluations too, that no earlier study paid for
    }
    shows = True
    why_none = "enough is under way: its results may decide, and more would be paid for nothing"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        assert settings.items is not None
        arms, self.items = len(settings.arms), settings.items
        self.order = self.items.order(settings.seed)  # the item at each position
        self.position = np.empty_like(self.order)  # of each item
        self.position[self.order] = np.arange(len(self.order))
        self.bill = 0.0
        self.busy: list[set[int]] = [set() for _ in range(arms)]  # positions that are being evaluated
        self._passed: dict[int, int] = {}  # where the race has looked for the next item, while nothing is told
        self._race = self._new_race()
        self._known = np.zeros((arms, self.items.count), np.bool_)  # scores, by position
        self._new: list[tuple[int, int, float]] = []  # scores that the race was not told yet: arm, position, score

    def _new_race(self) -> Race:
        settings, items, arms = self.settings, self.items, len(self.settings.arms)
        low, high = settings.family.mean_range
        shared: dict[str, Any] = {
            "delta": settings.delta, "epsilon": settings.epsilon, "low": low, "high": high,
            "minimize": settings.direction == "minimize", "speculate": items.speculate,
        }  # fmt: skip
        if settings.cheapest is not None:
            return CheapestRace(arms, items.count, goal=settings.cheapest, **shared)
        if settings.reserve is not None:  # more arms may join
            return OpenRace(arms, items.count, first=settings.first_arms, reserve=settings.reserve, **shared)
        return Race(arms, items.count, race=items.race, earlier=len(items.earlier), **shared)

    @property
    def race(self) -> Race:
        """The race. It is told several scores at a time where a log is read."""
        if self._new:
            new, self._new = self._new, []
            self._race.tell_many(new)
        return self._race

    # Events.

    def _ask(self, event: Event) -> None:
        super()._ask(event)
        self.busy[int(event.arm)].add(int(self.position[event.item]))  # type: ignore[arg-type]

    def withdraw(self, pull: Lease) -> None:
        super().withdraw(pull)
        self.busy[pull.arm].discard(int(self.position[pull.item]))
        self._passed.clear()

    def result(self, event: Event, lease: Lease) -> None:
        self.busy[lease.arm].discard(int(self.position[lease.item]))
        self.bill += float(event.cost)  # type: ignore[arg-type]
        self._score(lease.arm, int(lease.item), event.reward, paid=True)  # type: ignore[arg-type]

    def _amend(self, event: Event) -> None:
        before, scores = self.settings, self.race.scores
        super()._amend(event)
        for _ in range(len(before.arms), len(self.settings.arms)):
            self.join()
        if (self.settings.epsilon, self.settings.arms) != (before.epsilon, before.arms):  # other tests, the same scores
            self._race = self._new_race()
            self._new = [(int(a), int(at), float(scores[a, at])) for a, at in np.argwhere(self._known)]

    def join(self) -> None:
        super().join()
        self.busy.append(set())
        self._known = np.vstack([self._known, np.zeros((1, self.items.count), np.bool_)])
        self._passed.clear()

    def _import(self, event: Event) -> None:
        """A score that was told, and paid for, in another study."""
        self.asked += 1
        self.told += 1
        self._score(int(event.arm), int(event.item), event.reward, paid=False)  # type: ignore[arg-type]

    def _score(self, a: int, item: int, reward: float | None, *, paid: bool) -> None:
        """A score counts once: the first of an item."""
        self._passed.clear()
        at, score = int(self.position[item]), self.settings.failed_score if reward is None else reward
        if self._known[a, at]:
            self.discarded[a] += reward is not None
            return
        self.scored[a] += reward is not None
        if score is not None:
            self._known[a, at] = True
            self.rewards_told[a] += paid
            self._new.append((a, at, score))

    # What is known.

    def paid_costs(self) -> NDArray[np.float64]:
        if self.settings.costs is not None:
            return np.array(self.settings.costs)
        with np.errstate(all="ignore"):
            costs: NDArray[np.float64] = self.spent / self.rewards_told
        return np.where(self.rewards_told > 0, costs, np.nan)

    @property
    def prices(self) -> list[float]:
        """What an evaluation of each arm costs; inf where that is not known."""
        return [math.inf if math.isnan(cost) else cost for cost in self.paid_costs().tolist()]

    @property
    def running_costs(self) -> list[float]:
        goal = self.settings.cheapest
        return self.prices if goal is None or goal.running_costs is None else list(goal.running_costs)

    @property
    def in_play(self) -> NDArray[np.bool_]:
        return ~self.race.board.out

    @property
    def leader(self) -> int | None:
        return self.race.leader(self.prices)

    def wants(self, arm: int) -> bool:
        return self.finishes or arm in self.race.active(self.prices)

    @property
    def finishes(self) -> bool:
        """Whether it is decided, but the rest costs so little, within the limits, that it is evaluated."""
        share, prices, most = self.items.finish, self.paid_costs(), self.settings
        if share == 0 or self.race.is_complete or np.isnan(prices).any() or self.race.winner(self.prices) is None:
            return False
        counts = self.items.count - self._known.sum(axis=1)
        left = float((prices * counts).sum())
        within = most.max_cost is None or self.bill + left <= most.max_cost
        within = within and (most.max_pulls is None or self.told + int(counts.sum()) <= most.max_pulls)
        return 0 < left <= share * self.bill and within

    def verdict(self) -> Verdict | None:
        race, winner = self.race, self.race.winner(self.prices)
        if winner is None or self.finishes:
            return None
        is_known = race.is_complete and self.items.earlier_error == 0
        return Verdict(winner, 1.0 if is_known else min(1 - self.settings.error, LESS_THAN_CERTAIN))

    def choose(self, extra: int = 0, batch: int = 0, arm: int | None = None) -> tuple[int, int | None] | None:
        found = self.race.next(self.prices, self.busy, self._passed, extra, batch, arm, self.finishes)
        return None if found is None else (found[0], int(self.order[found[1]]))

    def next_if_idle(self) -> int | None:
        found = self.race.next(self.prices, [()] * len(self.busy), everything=self.finishes)
        return None if found is None else found[0]

    def confidence(self) -> float:
        leader = self.leader
        if leader is None:
            return 0.0
        return max(0.0, self.race.confidence(leader, self.settings.delta) - self.items.earlier_error)

    def closest(self) -> tuple[int, float, float] | None:
        leader = self.leader
        if leader is None:
            return None
        capital, target = self.race.capital(leader), self.race.target(leader)
        rivals = [a for a in self.race.rivals(leader) if capital[a] < target]
        if rivals:
            rival = min(rivals, key=lambda a: capital[a])
        else:  # decided: the arm that is least behind
            rival = min((a for a in range(len(capital)) if a != leader), key=lambda a: self.lead(leader, a) or 0.0)
        return rival, math.log(capital[rival]), math.log(target)

    def pairs(self, leader: int | None) -> Pairs:
        """The capital of the leader against each other arm, and what is required of it."""
        if leader is None:
            return [None] * len(self.settings.arms)
        required = math.log(self.race.target(leader))
        found = enumerate(self.race.capital(leader).tolist())
        return [None if a == leader else (math.log(capital), required) for a, capital in found]

    def claims(self) -> list[Claim]:
        """What is still to be shown. Here evidence is the capital now, and not the largest so far."""
        race, board, leader = self.race, self.race.board, self.leader
        if leader is None:
            return []
        if isinstance(race, CheapestRace):
            found = [(test, b, b, a) for test, b, a in race.open_claims(leader)]
        else:
            test, by = (0, 0) if race.name == CHAMPION else (len(board.epsilons) - 1, leader)
            found = [(test, by, leader, a) for a in race.active(self.prices) if a != leader]
        least = math.log(race.target(leader))
        return [
            Claim(b, a, float(board.epsilons[test]), math.log(max(float(board.capital[test, by, a].sum()), 1e-300)),
                  least)
            for test, by, b, a in found
        ]  # fmt: skip

    def estimate(self) -> Remaining | None:
        return progress.of_race(self, self.claims())

    def lead(self, b: int, a: int) -> float | None:
        """On the items that both have finished."""
        board = self.race.board
        common = int(min(board.prefix[b], board.prefix[a]))
        if not common:
            return None
        return float(board.sums[b, common] - board.sums[a, common]) / common * (self.race.high - self.race.low)

    def claim(self) -> str | None:
        """What that evidence is for, in words, where the cheapest arm that is good enough is looked for."""
        leader = self.leader
        if leader is None or not isinstance(self.race, CheapestRace):
            return None
        return self.race.claim(leader, self.settings.arms)

    def scores(self) -> Mapping[str, dict[str | int, float]]:
        """Every known score, by arm and by the item's id, in the order of the items."""
        found = {}
        for a, arm in enumerate(self.settings.arms):
            by_item = self.race.scores[a, self.position]
            found[arm] = {self.items.id(i): float(by_item[i]) for i in np.flatnonzero(~np.isnan(by_item)).tolist()}
        return found

    def overflows(self, a: int, reward: float | None, cost: float) -> bool:
        return not all(map(math.isfinite, (self.spent[a] + cost, self.bill + cost)))

    def about(self) -> dict[str, Any]:
        return {
            "policy": "lockstep", "threshold": self.race.name, "proven": True, "certified": False,
            "certified_pulls": None, "would_decide": False, "items": self.items.count,
            "full_cost": finite_or_none(float((self.paid_costs() * self.items.count).sum())),
            "is_complete": self.race.is_complete,
            "earlier": [arm for arm in self.items.earlier if arm not in self.settings.arms],
        }  # fmt: skip

    def counted(self, a: int) -> tuple[int, int, float | None]:
        """The scores of arm a that count, those that wait, and the mean of the first."""
        prefix = int(self.race.board.prefix[a])
        mean = float(self.race.scores[a, :prefix].mean()) if prefix else None
        return prefix, self.scores_of(a) - prefix, mean

    def scores_of(self, a: int) -> int:
        return int(np.count_nonzero(~np.isnan(self.race.scores[a])))

    def interval(self, a: int) -> tuple[float, float]:
        """The range in which an arm's mean over all items certainly lies: if the rest were the worst, or the best."""
        (low, high), count = self.settings.family.mean_range, self.items.count
        known, left = float(np.nansum(self.race.scores[a])), count - self.scores_of(a)
        return max((known + left * low) / count, low), min((known + left * high) / count, high)

    def is_excluded(self, a: int) -> bool:
        return bool(self.race.board.out[a])

    def at_most(self) -> float | None:
        """What evaluating the rest costs, or what is left of the budget."""
        costs, may_come = self.paid_costs(), range(len(self.settings.arms))
        left = sum(
            float(costs[a]) * (self.items.count - self.scores_of(a))
            for a in may_come
            if self.settings.goal == CHEAPEST or self.in_play[a]
        )
        limits = [each for each in (finite_or_none(left), self.rest_of_budget) if each is not None]
        return min(limits, default=None)

    # Snapshots.

    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {"scores": packed(self.race.scores)}

    def restore(self, kept: dict[str, Any]) -> None:
        super().restore(kept)
        scores = np.empty(self._known.shape)
        unpack(scores, kept["scores"])
        self._known[:] = ~np.isnan(scores)
        self._new = [(int(a), int(at), float(scores[a, at])) for a, at in np.argwhere(self._known)]
        for pull in self.waited_for():
            self.busy[pull.arm].add(int(self.position[pull.item]))
