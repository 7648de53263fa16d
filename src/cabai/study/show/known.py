"""What is known at any moment: which arms may be the best, how far the leader may be from it, and who is better than
whom.

All of it follows from the study's own test, at any time and however often you look (docs/theory/known.md). The
statements about the best arm hold together with probability 1 - delta; so do, separately, those about all pairs of
arms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import beats, is_settled
from cabai.datasets.capital import ROUNDED_UP, first_bets, largest_capital, smallest_epsilon
from cabai.datasets.race import PAIRED
from cabai.families.slots import variance_at
from cabai.study.state.race import RaceState
from cabai.support.validation import InvalidInput
from cabai.thresholds import Threshold

CLOSE, ROUGHLY = 2e-3, 2e-2  # of epsilon: the precision of the search, from above
DOUBLINGS = 60
NOTHING = 0.99  # of the range of means: that an arm is at most so much worse says nothing
USUAL_PRICE = 3.0  # nats, of a test: where the search begins
MOST_COMPARED = 10**6  # scores in all pairs of arms that are compared for a status


class Known(NamedTuple):
    may_be_best: NDArray[np.bool_] | None = None  # None, here and below: nothing can be said
    within: float | None = None  # the leader is at most so much worse than the best
    better: NDArray[np.bool_] | None = None  # [b, a]: b is better than a; all pairs at once, as is the next
    lead: float | None = None  # the leader is better than its rival by at most so much


def known_of(state: Any, leader: int | None, rival: int | None = None, *, decided: bool = False) -> Known:
    """What is known about the arms, the leader and a rival: by a proven test of pairs of arms that never change."""
    if isinstance(state, RaceState):
        return known_of_race(state, leader, rival, decided=decided)
    settings, setup = state.settings, state.setup
    is_of_pairs = settings.can_test and getattr(setup.policy, "tests_pairs", True)
    if not is_of_pairs or not setup.threshold.is_proven_for(settings.family) or settings.joined or settings.dropped:
        return Known()
    tester = Tester(state)
    possible = tester.may_be_best()
    better = tester.separated(possible)
    if decided and leader is not None and settings.epsilon == 0:  # every other arm was beaten when it was
        possible = np.arange(len(possible)) == leader
    within = None if leader is None else tester.within(leader, possible)
    lead = None if leader is None or rival is None else tester.lead(leader, rival)
    return Known(possible, within, better, lead)


class Tester:
    """The tests of pairs of arms at the present state."""

    def __init__(self, state: Any) -> None:
        self.state, self.settings, self.setup = state, state.settings, state.setup
        self.threshold = self.setup.threshold.of_pairs
        self.by_pairs = self.threshold == self.setup.threshold  # the study's own test is one of pairs, too
        self.arms, self.t = Records(state.ordered.arms), int(state.ordered.run["t"])
        self.means = state.ordered.arms["tested_mean"]
        self.tested = state.ordered.arms["tested"] > 0
        self.order = np.argsort(np.where(self.tested, -self.means, np.inf), kind="stable").tolist()
        self.unit, (low, high) = self.settings.family.unit, self.settings.family.mean_range
        self.width = high - low

    def may_be_best(self) -> NDArray[np.bool_]:
        """The arms that no arm beats, nor has beaten."""
        possible: NDArray[np.bool_] = self.state.unbeaten.astype(np.bool_)
        beaten = self._beaten(self.setup)
        for a in np.flatnonzero(possible & self.tested).tolist():
            possible[a] = not any(beaten(b, a) for b in self._above(a))
        return possible

    def separated(self, possible: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[b, a]: b beats a at delta/K. That is one test for each of K (K - 1) pairs, at their level. The same test at
        delta, which is less strict, has beaten no arm that may be the best."""
        found = np.zeros((len(self.arms), len(self.arms)), np.bool_)
        beaten = self._beaten(self.settings.setup(self.settings.delta / len(self.arms), self.threshold))
        for a in np.flatnonzero(self.tested & ~(possible & self.by_pairs)).tolist():
            for b in self._above(a):
                found[b, a] = beaten(b, a)
        return found

    def within(self, leader: int, possible: NDArray[np.bool_]) -> float | None:
        """The smallest epsilon, rounded up, at which the leader is settled over all arms that may be the best."""
        rivals = [a for a in self.order if possible[a] and a != leader]
        setup = self._with_epsilon(self.setup.threshold, self.settings.delta)
        if setup is None or not (self.tested[leader] and self.tested[rivals].all()):
            return None
        found, beaten = 0.0, self._beaten(self.setup)
        for a in rivals:
            if found == 0.0 and beaten(leader, a):
                continue
            own = self._smallest(setup, leader, a, found)
            if own is None:
                return None
            found = max(found, own)
        return informative(found * self.unit, self.width)

    def lead(self, leader: int, rival: int) -> float | None:
        """The most by which the leader can be better than a rival, at the level of all pairs of arms."""
        setup = self._with_epsilon(self.threshold, self.settings.delta / len(self.arms))
        if setup is None or not (self.tested[leader] and self.tested[rival]):
            return None
        found = self._smallest(setup, rival, leader, 0.0, ROUGHLY)
        return None if found is None else informative(found * self.unit, self.width)

    def _with_epsilon(self, threshold: Threshold, delta: float) -> Setup | None:
        """A test with an epsilon, which is then put there; None if a user's own family has none."""
        any_epsilon = self.width / 2 if math.isfinite(self.width) else 1.0
        with suppress(InvalidInput):
            kernel_family = self.settings.kernel_family
            return Setup(kernel_family, threshold, arms=len(self.arms), delta=delta, epsilon=any_epsilon)
        return None

    def _smallest(self, setup: Setup, b: int, a: int, least: float, close: float = CLOSE) -> float | None:
        """The smallest epsilon from `least` on at which b is settled over a, rounded up so that it is settled there."""
        most, rules, settled = self.width / self.unit, Record(setup.rules), setup.bound(is_settled)

        def holds(epsilon: float) -> bool:
            rules.epsilon = epsilon
            with np.errstate(all="ignore"):
                return bool(settled(rules, self.t, self.arms[b], self.arms[a]))

        if least > 0 and holds(least):
            return least
        usual = self._spread(setup, b, a) * math.sqrt(2 * (rules.level + USUAL_PRICE))
        behind, step = float(self.means[a] - self.means[b]), usual / 20
        low = max(behind, least, 0.0)
        high = max(behind + usual, low + step)
        for _ in range(DOUBLINGS):
            if not high < most:
                high = (low + most) / 2
                if most - high < CLOSE * most:
                    return None
            if holds(high):
                break
            low, high, step = high, high + step, 2 * step
        else:
            return None
        while high - low > close * high:
            middle = max((low + high) / 2, high - step)
            if holds(middle):
                high, step = middle, 2 * step
            else:
                low = middle
        return high

    def _spread(self, setup: Setup, b: int, a: int) -> float:
        """About a standard deviation of the difference of two means."""
        one, other = self.arms[b], self.arms[a]
        if self.settings.family.key == "symmetric":
            return math.sqrt(one.own_variance / one.pulls + other.own_variance / other.pulls)
        mean = (one.tested * one.tested_mean + other.tested * other.tested_mean) / (one.tested + other.tested)
        with np.errstate(all="ignore"):
            each = float(setup.bound(variance_at)(Record(setup.rules), mean, 1.0 - mean))
            spread = math.sqrt(max(each, 0.0) * (1 / one.tested + 1 / other.tested))
        return spread if 0 < spread < math.inf else 1e-3 * (abs(float(mean)) or 1.0)

    def _above(self, a: int) -> list[int]:
        """The arms with a higher mean than arm a: no other beats it."""
        return [b for b in self.order if self.tested[b] and self.means[b] > self.means[a]]

    def _beaten(self, setup: Setup) -> Callable[[int, int], bool]:
        view, kernels = self.state.ordered, self.settings.kernels
        if setup.rules.dtype == self.setup.rules.dtype and setup.binding == self.setup.binding:
            return lambda b, a: kernels.beats(view.arms, view.run, b, a, setup.rules)
        rules, test = Record(setup.rules), setup.bound(beats)

        def beaten(b: int, a: int) -> bool:
            with np.errstate(all="ignore"):
                return bool(test(rules, self.t, self.arms[b], self.arms[a]))

        return beaten


def known_of_race(state: RaceState, leader: int | None, rival: int | None, *, decided: bool) -> Known:
    """The same as for a study without items. A paired race spends one delta on its decision, on the arms that may be
    the best, and on `within`. A champion race has no pairs: there `within` is a statement by itself, about all other
    arms."""
    race, settings, arms = state.race, state.settings, len(state.settings.arms)
    possible, unit, delta = ~race.board.out, race.high - race.low, settings.delta
    if settings.reserve is not None:  # these statements are only for arms that never change
        return Known(possible)
    if decided and leader is not None and settings.epsilon == 0:
        possible = np.arange(arms) == leader
    if leader is not None:
        possible[tied_with(state, leader)] = True
    if leader is None or state.items.earlier:  # what it says of ranks would be about these arms only
        return Known(possible, better=None if state.items.earlier else race_separated(state))

    def within() -> float | None:
        """The smallest epsilon, rounded up, at which the leader beats all arms that may be the best."""
        rivals = np.ones(arms, np.bool_) if race.name != PAIRED and possible.sum() > 1 else possible
        target, found = (arms - 1) / delta * ROUNDED_UP, 0.0
        for a in np.flatnonzero(rivals).tolist():
            if a == leader or (is_finished(state, leader, a) and race.lead(leader, a) >= 0):
                continue
            own = smallest_epsilon(race.board, arms, delta, target, leader, a, found)
            if own is None:
                return None
            found = max(found, own)
        return informative(found * unit, unit)

    def lead(rival: int) -> float | None:
        """The most by which the leader can be better than a rival on all items, at the level of all pairs of arms."""
        if is_finished(state, leader, rival):
            return race.lead(leader, rival) / race.items
        target = arms * (arms - 1) / delta * ROUNDED_UP
        found = smallest_epsilon(race.board, arms, delta / arms, target, rival, leader, close=ROUGHLY)
        return None if found is None else informative(found * unit, unit)

    return Known(possible, within(), race_separated(state), None if rival is None else lead(rival))


def race_separated(state: RaceState) -> NDArray[np.bool_]:
    """[b, a]: b is better than a, shown by a capital of K (K - 1)/delta, or because all scores of both are known.

    If there are too many scores to compare all pairs for a status, only the latter counts.
    """
    race, arms = state.race, len(state.settings.arms)
    found, target = np.zeros((arms, arms), np.bool_), arms * (arms - 1) / state.settings.delta * ROUNDED_UP
    bets = first_bets(race.items, math.log(target))
    small = arms * int(race.board.prefix.sum()) <= MOST_COMPARED
    for b, a in itertools.permutations(range(arms), 2):
        if is_finished(state, b, a):
            found[b, a] = race.lead(b, a) > 0
        elif small:
            found[b, a] = largest_capital(race.board, bets, b, a, 0.0) >= target
    return found


def informative(difference: float, width: float) -> float | None:
    """A difference that is shown, if that says anything."""
    return difference if difference < NOTHING * width else None


def tied_with(state: RaceState, leader: int) -> list[int]:
    """The arms whose scores on all items have exactly the total of the leader's."""
    others = [a for a in range(len(state.settings.arms)) if a != leader and is_finished(state, leader, a)]
    return [a for a in others if state.race.lead(leader, a) == 0]


def is_finished(state: RaceState, b: int, a: int) -> bool:
    return bool(state.race.board.prefix[b] == state.race.items == state.race.board.prefix[a])


def closed(better: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The transitive closure: c is better than a if c is better than b, and b than a.

    >>> closed(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], bool)).astype(int).tolist()
    [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    """
    found = better.copy()
    for b in range(len(found)):
        found |= np.outer(found[:, b], found[b])
    return found


def ranks(better: NDArray[np.bool_]) -> list[list[int]]:
    """The best and the worst rank that each arm can have: 1 is the best mean. `better` is closed.

    >>> ranks(closed(np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]], bool)))
    [[1, 2], [2, 3], [1, 3]]
    """
    arms = len(better)
    return [[1 + int(better[:, a].sum()), arms - int(better[a].sum())] for a in range(arms)]
