"""What is known at any moment: which arms may be the best, how far the leader may be from it, and who is better than
whom.

All of it follows from the study's own test, at any time and however often you look (docs/theory/known.md). The
statements about the best arm hold together with probability 1 - delta; so do, separately, those about all pairs of
arms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import beats, is_settled
from cabai.families.slots import variance_at
from cabai.study.play import Play
from cabai.support.validation import InvalidInput

CLOSE = 1e-3  # of epsilon: the precision of the search, from above
DOUBLINGS = 60


@dataclass(frozen=True)
class Known:
    """What the results that count have shown."""

    may_be_best: NDArray[np.bool_]
    within: float | None  # the leader is at most so much worse than the best; None: nothing is shown
    better: NDArray[np.bool_]  # [b, a]: b is better than a; all pairs at once


def known_of(play: Play, leader: int | None, *, decided: bool = False) -> Known | None:
    """What is known about a study's arms; None if its test is not proven, or not about pairs of arms."""
    settings, setup = play.settings, play.setup
    if not settings.can_test or not getattr(setup.policy, "tests_pairs", True):
        return None
    if not setup.threshold.is_proven_for(settings.family):
        return None
    if settings.joined or settings.dropped:  # these statements are only for studies whose arms never change
        return None
    tester = Tester(play)
    possible = tester.may_be_best()
    if decided and leader is not None and settings.epsilon == 0:  # every other arm was beaten when it was
        possible = np.arange(len(possible)) == leader
    within = None if leader is None else tester.within(leader, possible)
    return Known(possible, within, tester.separated())


class Tester:
    """The tests of pairs of arms at the present state."""

    def __init__(self, play: Play) -> None:
        self.play, self.settings, self.setup = play, play.settings, play.setup
        self.arms, self.t = Records(play.ordered.arms), int(play.ordered.run["t"])
        self.means = play.ordered.arms["tested_mean"]
        self.tested = play.ordered.arms["tested"] > 0
        self.order = np.argsort(np.where(self.tested, -self.means, np.inf), kind="stable")

    def may_be_best(self) -> NDArray[np.bool_]:
        """The arms that no arm beats, nor has beaten."""
        possible = self.play.ordered.arms["in_play"].astype(np.bool_)
        beaten = self._beaten(self.setup)
        for a in np.flatnonzero(possible & self.tested).tolist():
            possible[a] = not any(beaten(b, a) for b in self._above(a))
        return possible

    def separated(self) -> NDArray[np.bool_]:
        """[b, a]: b beats a at delta/K. That is one test for each of K (K - 1) pairs, at the level of so many."""
        found = np.zeros((len(self.arms), len(self.arms)), np.bool_)
        beaten = self._beaten(self.settings.setup(delta=self.settings.delta / len(self.arms)))
        for a in np.flatnonzero(self.tested).tolist():
            for b in self._above(a):
                found[b, a] = beaten(b, a)
        return found

    def within(self, leader: int, possible: NDArray[np.bool_]) -> float | None:
        """The smallest epsilon, rounded up, at which the leader is settled over all arms that may be the best."""
        rivals = [a for a in self.order.tolist() if possible[a] and a != leader]
        if not (self.tested[leader] and self.tested[rivals].all()):
            return None
        try:
            width = self.settings.family.mean_range[1] - self.settings.family.mean_range[0]
            some = width / 2 if math.isfinite(width) else 1.0  # each epsilon that is tried is put there
            setup = Setup(
                self.settings.kernel_family, self.setup.threshold, arms=len(self.arms), delta=self.settings.delta,
                epsilon=some,
            )  # fmt: skip
        except InvalidInput:  # a user's own family may have none
            return None
        most, found = width / self.settings.family.unit, 0.0
        beaten = self._beaten(self.setup)
        for a in rivals:
            if found == 0.0 and beaten(leader, a):
                continue
            own = self._smallest(setup, leader, a, found, most)
            if own is None:
                return None
            found = max(found, own)
        return found * self.settings.family.unit

    def _smallest(self, setup: Setup, b: int, a: int, least: float, most: float) -> float | None:
        """The smallest epsilon from `least` on at which b is settled over a, rounded up so that it is settled there."""
        rules, settled = Record(setup.rules), setup.bound(is_settled)

        def holds(epsilon: float) -> bool:
            rules.epsilon = epsilon
            with np.errstate(all="ignore"):
                return bool(settled(rules, self.t, self.arms[b], self.arms[a]))

        if least > 0 and holds(least):
            return least
        low = max(float(self.means[a] - self.means[b]), least, 0.0)
        high, step = low, self._step(setup, b, a)
        for _ in range(DOUBLINGS):
            high = low + step
            if not high < most:
                return None
            if holds(high):
                break
            low, step = high, 2 * step
        else:
            return None
        while high - low > CLOSE * high:
            middle = (low + high) / 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high

    def _step(self, setup: Setup, b: int, a: int) -> float:
        """About a standard deviation of the difference of two means, to begin with."""
        one, other = self.arms[b], self.arms[a]
        mean = (one.tested * one.tested_mean + other.tested * other.tested_mean) / (one.tested + other.tested)
        with np.errstate(all="ignore"):
            each = float(setup.bound(variance_at)(Record(setup.rules), mean, 1.0 - mean))
            step = math.sqrt(max(each, 0.0) * (1 / one.tested + 1 / other.tested))
        return step if 0 < step < math.inf else 1e-3 * (abs(float(mean)) or 1.0)

    def _above(self, a: int) -> list[int]:
        """The arms with a higher mean than arm a: no other beats it."""
        return [b for b in self.order.tolist() if self.tested[b] and self.means[b] > self.means[a]]

    def _beaten(self, setup: Setup) -> Callable[[int, int], bool]:
        side, kernels = self.play.ordered, self.play.kernels
        if setup.rules.dtype == self.setup.rules.dtype and setup.binding == self.setup.binding:
            return lambda b, a: kernels.beats(side.arms, side.run, b, a, setup.rules)
        rules, test = Record(setup.rules), setup.bound(beats)

        def beaten(b: int, a: int) -> bool:
            with np.errstate(all="ignore"):
                return bool(test(rules, self.t, self.arms[b], self.arms[a]))

        return beaten
