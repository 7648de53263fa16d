"""A live race: scores come in one by one, in any order, and it says what to evaluate next."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import BEST, CHEAPEST, Cheapest
from cabai.datasets import board, champion, cheapest, pairs
from cabai.datasets.board import NO_ARM
from cabai.datasets.capital import ROUNDED_UP, empty_board
from cabai.datasets.dataset import lead
from cabai.support.specialise import binding
from cabai.support.validation import InvalidInput, not_negative, shown

PAIRED, CHAMPION = RACES = ("paired", "champion")
TESTS: dict[str, Any] = {PAIRED: pairs, CHAMPION: champion}


def functions_of(race: str) -> Any:
    return binding(cheapest.functions if race == CHEAPEST else [TESTS[race].compare, TESTS[race].is_paused])


def started(
    arms: int, items: int, delta: float, epsilon: float, race: str, goal: Cheapest | None = None, unit: float = 1.0
) -> board.Board:
    """A board before the first evaluation; scores differ by `unit` at most."""
    share = epsilon / unit
    if goal is not None:
        margin = max(share - goal.slack / unit, 0.0)
        return pairs.board_of(arms, items, delta, [-margin, share], goal.pairs(arms))
    if race == CHAMPION:
        return empty_board(arms, items, [0.0], 1 / delta, -math.log(delta), owners=1)
    return pairs.board_of(arms, items, delta, [0.0] if epsilon == 0 else [0.0, share], arms - 1)


def finish_of(finish: float | None, goal: str) -> float:
    """As given, or what is usual for the goal."""
    usual = 0.1 if goal == CHEAPEST else 0.0
    return usual if finish is None else not_negative(finish, "finish")


def race_of(race: str | None, epsilon: float, goal: str = BEST) -> str:
    """The name of the race, checked; if none is given, the race that costs less."""
    if goal == CHEAPEST:
        if race not in (None, CHEAPEST):
            raise InvalidInput(f"goal 'cheapest' has its own race: leave race out, got {shown(race)}.")
        return CHEAPEST
    if race is None:
        return CHAMPION if epsilon == 0 else PAIRED
    if race not in RACES:
        raise InvalidInput(f"race must be one of {', '.join(RACES)}, got {shown(race)}.")
    if race == CHAMPION and epsilon > 0:
        raise InvalidInput("race 'champion' looks for the best arm itself: it needs epsilon 0; 'paired' accepts any.")
    return race


def share_of(scores: Any, low: float, high: float, minimize: bool) -> Any:
    """Scores as shares of their range, larger is better."""
    return ((high - scores) if minimize else (scores - low)) / (high - low)


class Race:
    """K arms on n items, numbered by their position in the race's order; scores from `low` to `high`.

    >>> race = Race(2, 100, delta=0.05)
    >>> while race.winner([1, 1]) is None:
    ...     arm, position = race.next([1, 1], [[], []])
    ...     race.tell(arm, position, float(arm == 1))
    >>> race.winner([1, 1]), race.board.prefix.tolist()
    (1, [7, 7])
    """

    def __init__(
        self, arms: int, items: int, *, delta: float, epsilon: float = 0.0, race: str | None = None,
        low: float = 0.0, high: float = 1.0, minimize: bool = False, speculate: float = 0.1,
        earlier: int = 0,
    ) -> None:  # fmt: skip
        """`epsilon` is in units of the scores. If the first arm has won an `earlier` race of this many arms, which the
        others have joined, one of these must itself be shown better than it: it may be epsilon below the best there."""
        self.name, self.incumbent = race_of(race, epsilon), 0 if earlier else None
        start = started(arms, items, delta, epsilon, self.name, unit=high - low)
        if earlier and epsilon:  # any of the earlier arms may be the incumbent
            wrong = (arms - 1) * (earlier + 1) - 1
            start = pairs.board_of(arms, items, delta, start.epsilons.tolist(), wrong)
        self._begin(start, low, high, minimize, speculate)

    def _begin(self, start: board.Board, low: float, high: float, minimize: bool, speculate: float) -> None:
        self.board, arms, items = start, *start.shares.shape
        self.low, self.high, self.minimize, self.speculate = low, high, minimize, speculate
        self.scores = np.full((arms, items), np.nan)  # as they were told
        self.told = 0
        self._leader: tuple[Any, int | None] = (None, None)  # and what it was found from

    @property
    def items(self) -> int:
        return self.scores.shape[1]

    def tell(self, arm: int, position: int, score: float) -> None:
        """An arm's score on the item at that position."""
        self.tell_many([(arm, position, score)])

    def tell_many(self, results: Sequence[tuple[int, int, float]]) -> None:
        """Arms, positions and scores."""
        for arm, position, score in results:
            assert math.isnan(self.scores[arm, position])
            self.scores[arm, position] = score
            self.board.shares[arm, position] = share_of(score, self.low, self.high, self.minimize)
            self.told += 1
        before = self.board.prefix.copy()
        for arm in {arm for arm, _, _ in results}:
            board.extend(self.board, arm)
        if self.name == CHAMPION:
            champion.compare(self.board, NO_ARM, 0)
        elif grown := np.flatnonzero(self.board.prefix > before).tolist():
            pairs.compare_at_once(self.board, grown, before)

    # The functions of `board`, for all arms at a time.

    def leader(self, costs: Sequence[float]) -> int | None:
        """Of the arms not out, the best so far; ties go to the cheaper. Found once per score, and looked up often."""
        state, given = self.board, (self.told, *costs)
        if self._leader[0] != given:
            known = np.flatnonzero(~state.out & (state.prefix > 0))
            means = state.sums[known, state.prefix[known]] / state.prefix[known]
            tied = known[means == means.max(initial=-math.inf)].tolist()
            self._leader = given, min(tied, key=lambda a: costs[a], default=None)
        return self._leader[1]

    def active(self, costs: Sequence[float]) -> list[int]:
        return self._active(self.leader(costs))

    def _active(self, leader: int | None) -> list[int]:
        wanted = ~self.board.out
        if leader is not None and self.name == PAIRED:
            wanted &= self.board.best[-1, leader] < self.board.target  # the others are beaten within epsilon
            if self.incumbent not in (None, leader):
                wanted[self.incumbent] = self.board.best[0, leader, self.incumbent] < self.board.target
            wanted[leader] = True
        found: list[int] = np.flatnonzero(wanted).tolist()
        return found

    def winner(self, costs: Sequence[float]) -> int | None:
        """The winner, if the race is over. If it has finished everything, it has the largest sum of scores, computed
        without rounding, of all arms that have; of those that tie, it is the cheapest."""
        leader = self.leader(costs)
        if leader is None:
            return None
        finished = self.board.prefix == self.items
        active = self._active(leader)
        if len(active) > 1 and not finished[active].all():
            return None
        return self.best_finished(costs) if finished[leader] else leader

    def best_finished(self, costs: Sequence[float]) -> int:
        """Of the arms that have finished everything, also of those that are out: now it is known."""
        best, *rest = np.flatnonzero(self.board.prefix == self.items).tolist()
        for a in rest:
            lead = self.lead(a, best)
            if lead > 0 or (lead == 0 and costs[a] < costs[best]):
                best = a
        return int(best)

    def lead(self, a: int, b: int) -> float:
        return lead(self.scores, a, b, self.minimize)

    def next(
        self, costs: Sequence[float], under_way: Sequence[Collection[int]], passed: dict[int, int] | None = None,
        extra: int = 0, batch: int = 0, arm: int | None = None, everything: bool = False,
    ) -> tuple[int, int] | None:  # fmt: skip
        """The arm and position to evaluate next, where `under_way[a]` are positions of arm a that are being evaluated;
        None if enough is under way, plus `extra`. `passed` remembers where the search has been, for calls with nothing
        told in between.

        With a `batch`, it is the first of this many of one arm, which has no other under way, and no arm is a batch
        ahead of another. The others follow, if the `arm` is given. To evaluate `everything`, all arms are active."""
        wanted = list(range(len(self.scores))) if everything else self.active(costs)
        active, begin = wanted if arm is None else [arm], {} if passed is None else passed
        if not batch and not math.isinf(self.speculate):  # results may decide: then the others were paid for nothing
            most = max(2 * len(active), self.speculate * self.told)
            if sum(map(len, under_way)) >= most + extra:
                return None
        prefix = self.board.prefix.tolist()
        reached = {a: self._reached(a, under_way[a], begin.get(a, prefix[a])) for a in active}
        begin.update(reached)
        if batch and arm is None:
            last = min((prefix[a] if under_way[a] else reached[a] for a in active), default=0) + batch + extra
            active = [a for a in active if len(under_way[a]) <= extra and reached[a] < last]
        chosen = min(active, key=lambda a: (reached[a], costs[a]), default=None)
        return None if chosen is None or reached[chosen] == self.items else (chosen, reached[chosen])

    def _reached(self, arm: int, busy: Collection[int], position: int) -> int:
        """The first position of an arm, from this one on, that is neither told nor under way."""
        scores = self.scores[arm]
        while position < self.items and (position in busy or not math.isnan(scores[position])):
            position += 1
        return position

    @property
    def is_complete(self) -> bool:
        return bool((self.board.prefix == self.items).all())

    def capital(self, leader: int) -> NDArray[np.float64]:
        """For each arm, the largest capital so far against "it is better than the leader"; inf where that is known to
        be false, and for the leader."""
        if self.name == PAIRED:
            found: NDArray[np.float64] = self._capital(leader)
            if self.incumbent not in (None, leader):
                found[self.incumbent] = self.board.best[0, leader, self.incumbent]
        else:
            found = self.board.best[0, 0].copy()
        finished = self.board.prefix == self.items
        if finished[leader]:
            for a in np.flatnonzero(finished):
                found[a] = math.inf if self.lead(leader, int(a)) >= 0 else found[a]
        found[leader] = math.inf
        return found

    def _capital(self, leader: int) -> NDArray[np.float64]:
        """Of the leader, or of any arm that drops them."""
        found: NDArray[np.float64] = np.maximum(self.board.best[-1, leader], self.board.best[0].max(axis=0))
        return found

    def rivals(self, leader: int) -> list[int]:
        """The arms about which something must be shown."""
        return [a for a in np.flatnonzero(~self.board.out).tolist() if a != leader]

    def confidence(self, leader: int, delta: float) -> float:
        """1 - the smallest delta at which the leader would have won by now. It is valid at any time."""
        least = float(self.capital(leader).min())
        return max(0.0, 1 - self.target(leader) * delta / least)

    def target(self, arm: int) -> float:
        """The capital with which this arm beats another."""
        return self.board.target


class OpenRace(Race):
    """A paired race that more arms may join while it runs (docs/theory/race.md).

    No arm is out, since there is no telling who else comes: the winner must itself beat every other arm. Each arm has a
    share of delta for that: (1 - reserve)/K of the `first` K arms, reserve/2^k of the k-th that joins.

    >>> race = OpenRace(2, 100, first=2, reserve=0.1, delta=0.05)
    >>> [round(race.target(arm)) for arm in range(2)]
    [44, 44]
    """

    def __init__(
        self, arms: int, items: int, *, first: int, reserve: float, delta: float, epsilon: float = 0.0,
        low: float = 0.0, high: float = 1.0, minimize: bool = False, speculate: float = 0.1,
    ) -> None:  # fmt: skip
        self.name, self.incumbent = PAIRED, None
        parts = [first / (1 - reserve)] * first + [2**k / reserve for k in range(1, arms - first + 1)]
        self.targets: list[float] = [each / delta * ROUNDED_UP for each in parts]
        start = pairs.board_of(arms, items, delta, [epsilon / (high - low)], parts[0])
        start = start._replace(target=max(self.targets))  # bets go on until it counts for every arm
        self._begin(start, low, high, minimize, speculate)

    def tell_many(self, results: Sequence[tuple[int, int, float]]) -> None:
        super().tell_many(results)
        self.board.out[:] = False

    def leader(self, costs: Sequence[float]) -> int | None:
        found = super().leader(costs)
        return found if found is None or self.board.prefix[found] < self.items else self.best_finished(costs)

    def _active(self, leader: int | None) -> list[int]:
        arms = range(len(self.board.prefix))
        if leader is None:
            return list(arms)
        beaten = self.board.best[0, leader] >= self.targets[leader]
        return [a for a in arms if a == leader or not beaten[a]]

    def _capital(self, leader: int) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.board.best[0, leader].copy()
        return found

    def rivals(self, leader: int) -> list[int]:
        return [a for a in self._active(leader) if a != leader]

    def target(self, arm: int) -> float:
        return self.targets[arm]


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
