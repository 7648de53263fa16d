"""What a plan answers, from what simulated studies or races pay: what a budget is enough for, the curve, the arms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cabai.planning.bills import Amount, Bills, Found
from cabai.planning.results import ArmPlan, CurvePoint, Plan
from cabai.study.settings import Settings
from cabai.thresholds import Calibrated

Progress = Callable[[str], None]
DELTAS = [float(f"{m}e-{e}") for e in range(1, 11) for m in (5, 4, 3, 2.5, 2, 1.5, 1)]  # that a plan may find
FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)  # of the curve's middle
SIMULATED_BUDGETS = 10.0  # budgets, up to which a bill is simulated
CLOSE = 1.07  # a search ends when this factor separates what is enough from what is not
STEPS = 10  # at most
FARTHEST = 8.0  # the largest factor from one try to the next


class Subject(ABC):
    """What is planned, studies or races: what they pay on truths that were drawn once, with some settings changed."""

    settings: Settings
    words: list[tuple[str, str]]  # what is assumed of each arm's mean and cost
    best: Sequence[float]  # by arm, the share of the truths in which it is the best
    about: str
    notes: list[str]
    facts: dict[str, Any]  # further fields of the plan

    @abstractmethod
    def bills(
        self, *, epsilon: float | None = None, gap: float | None = None, delta: float | None = None,
        without: int | None = None, limit: float = math.inf, searching: bool = True,
    ) -> Bills:  # fmt: skip
        """What they pay, where nothing above `limit` need be known; while `searching`, on the first truths only."""

    def by_delta(self, limit: float) -> list[Bills] | None:
        """The same for each of DELTAS, if that takes no longer than for one."""
        return None

    @abstractmethod
    def scale(self, of: str) -> float:
        """Where a search for an epsilon or a gap begins, and the middle of a curve."""

    @abstractmethod
    def largest(self, of: str) -> float:
        """The largest epsilon or gap there can be; 0 if there is none to be found."""

    @abstractmethod
    def limit(self, bills: Bills) -> float:
        """The bill up to which what an arm adds is computed, without a budget."""

    @property
    def is_calibrated(self) -> bool:
        """For one delta, epsilon and number of arms only."""
        return isinstance(self.settings.threshold, Calibrated)


def answered(
    subject: Subject, *, budget: float | None, chance: float, left_out: Sequence[str], worth: bool, curve: str | None,
    seed: int, progress: Progress | None,
) -> Plan:  # fmt: skip
    """The plan."""
    settings, say = subject.settings, progress or (lambda _: None)
    say("simulating studies")
    far = math.inf if budget is None else SIMULATED_BUDGETS * budget
    bills = subject.bills(limit=far, searching=False)
    needed = bills.needed(chance)
    solved: dict[str, Found | None] = {"budget": None}
    if needed is not None:  # without a value if only a budget that is not enough is known
        value = None if needed.at_least else needed.value
        solved["budget"] = Found(value, bills.chance(needed.value), needed.value)
    if budget is not None:
        search, free = BudgetSearch(subject, budget, chance, say), () if subject.is_calibrated else left_out
        solved["epsilon"] = search.epsilon() if "epsilon" in free else None
        solved["gap"] = search.gap()
        solved["delta"] = search.delta() if "delta" in free else None
    points = []
    if curve is not None:
        found = solved.get(curve)
        middle = found.value if found is not None and found.value else subject.scale(curve)
        for at in (float(f"{factor * middle:.3g}") for factor in FACTORS):
            if at < subject.largest(curve):
                say(f"the bill at {curve} {at:g}")
                points.append(CurvePoint(at, subject.bills(**{curve: at}, limit=far)))  # type: ignore[arg-type]
    can = worth and len(settings.arms) > 2 and not subject.is_calibrated
    limit = budget if budget is not None else subject.limit(bills)
    arms = []
    for a, name in enumerate(settings.arms):
        adds = without = None
        if can:
            say(f"what {name} adds")
            less = subject.bills(without=a, limit=limit)
            adds, without = difference(bills, less, limit), None if budget is None else less.chance(budget)
        arms.append(ArmPlan(name, *subject.words[a], float(subject.best[a]), adds, without))
    return Plan(
        about=subject.about, direction=settings.direction, delta=settings.delta, epsilon=settings.epsilon, arms=arms,
        bills=bills, given_budget=budget, wanted=chance, seed=seed, solved=solved, limit=limit if can else math.inf,
        curve_of=curve, curve=points, notes=subject.notes, **subject.facts,
    )  # fmt: skip


def difference(bills: Bills, less: Bills, limit: float) -> Amount | None:
    """What an arm adds, from the same truths with and without it; None where studies were cut below the limit."""
    count = len(less)
    if (bills.cut & (bills.costs < limit))[:count].any() or (less.cut & (less.costs < limit)).any():
        return None
    more = bills.up_to(limit)[:count] - less.up_to(limit)
    return Amount(float(more.mean()), float(more.std(ddof=1)) / math.sqrt(count))


class Range(NamedTuple):
    """Where a search goes, and `guess(x, ratio)`: where the bill is `ratio` times smaller than at x."""

    start: float
    least: float
    most: float
    guess: Callable[[float, float], float]


@dataclass(frozen=True)
class BudgetSearch:
    """For the smallest epsilon, gap and delta with which a budget is enough, with a given chance."""

    subject: Subject
    budget: float
    chance: float
    say: Progress

    def epsilon(self) -> Found:
        without = self.subject.bills(epsilon=0.0, limit=2 * self.budget).chance(self.budget)
        return Found(0.0, without, 0.0) if without.value >= self.chance else self.smallest("epsilon")

    def gap(self) -> Found | None:
        return self.smallest("gap") if self.subject.largest("gap") > 0 else None

    def delta(self) -> Found:
        all_bills = self.subject.by_delta(self.budget)
        if all_bills is None:
            return self.smallest("delta")
        chances = [bills.chance(self.budget) for bills in all_bills]
        enough = [j for j, each in enumerate(chances) if each.value >= self.chance]
        j = enough[-1] if enough else 0
        return Found(DELTAS[j] if enough else None, chances[j], DELTAS[j])

    def range(self, of: str) -> Range:
        if of == "delta":
            return Range(self.subject.settings.delta, DELTAS[-1], DELTAS[0], lambda x, ratio: x ** min(1 / ratio, 8.0))
        scale, most = self.subject.scale(of), self.subject.largest(of)
        by_square = lambda x, ratio: 1.02 * x * math.sqrt(ratio)  # noqa: E731 - bills are proportional to 1/gap²
        return Range(min(scale, most), min(1e-4 * scale, most), most, by_square)

    def smallest(self, of: str) -> Found:
        """The smallest value, to about 7 %, at which studies decide within the budget with that chance.

        The larger it is, the easier they decide. Each value tried is rounded to three digits, so that what is reported
        is what was simulated.
        """
        start, least, most, guess = self.range(of)
        low, high, x = 0.0, math.inf, rounded(min(max(start, least), most), most)
        found = Found(None, Amount(0.0), x)
        for _ in range(STEPS):
            self.say(f"searching for the {of}: {x:g}")
            paid = self.subject.bills(**{of: x}, limit=2 * self.budget)  # type: ignore[arg-type]
            at_x = paid.chance(self.budget)
            if at_x.value >= self.chance:
                high, found = x, Found(x, at_x, x)
            else:
                low = x
                if found.value is None:
                    found = Found(None, at_x, x)
            if (low == x and x >= most) or (high == x and x <= least) or high <= low * CLOSE * 1.01:
                break
            needed = paid.needed(self.chance)
            ratio = math.inf if needed is None else needed.value / self.budget
            if needed is not None and needed.at_least:  # it is not known by how much more
                ratio = max(ratio, 2.0)
            next_x = guess(x, min(max(ratio, 1e-6), 1e6))
            if high == x:  # it was enough: try less, by 7 % at least
                next_x = min(max(next_x, x / FARTHEST), x / CLOSE)
            else:
                next_x = max(min(next_x, x * FARTHEST), x * CLOSE)
            if not low < next_x < high:  # what is already known says otherwise
                next_x = math.sqrt(low * high)
            x = rounded(min(max(next_x, least), most), most)
            if x in (low, high):
                break
        return found


def rounded(x: float, most: float) -> float:
    """Three digits; not above `most`."""
    near = float(f"{x:.3g}")
    return near if near <= most else x
