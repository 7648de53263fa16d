"""What a plan answers, from what simulated studies or races pay: what a budget is enough for, the curve, the arms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.planning.results import Amount, ArmPlan, Bills, CurvePoint, Found, Plan
from cabai.study.create import described
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
    best: NDArray[np.int64]  # of each truth, the best arm
    words: list[tuple[str, str]]  # what is assumed of each arm's mean and cost
    notes: list[str]
    about: tuple[str, str, str]  # what is planned, on what, and with what
    facts: dict[str, Any]  # further fields of the plan

    @abstractmethod
    def bills(self, limit: float, *, searching: bool = True, **changed: Any) -> Bills:
        """What they pay, where nothing above `limit` need be known; while `searching`, on the first truths only. The
        epsilon, the gap or the delta may be changed, or they are `without` an arm."""

    def by_delta(self, limit: float) -> list[Bills] | None:
        """The same for each of DELTAS, if that takes no longer than for one."""
        return None

    @abstractmethod
    def usual_and_largest(self, of: str) -> tuple[float, float]:
        """A usual epsilon or gap, and the largest that there can be; 0 if there is none to be found."""

    def limit(self, bills: Bills) -> float:
        """The bill up to which what an arm adds is computed, without a budget."""
        return math.inf

    def range(self, of: str) -> tuple[float, float, float]:
        """Of an epsilon, a gap or a delta: where a search begins, which is the middle of a curve, and where it goes."""
        if of == "delta":
            return self.settings.delta, DELTAS[-1], DELTAS[0]
        usual, most = self.usual_and_largest(of)
        return usual, min(1e-4 * usual, most), most


def study_settings(given: Mapping[str, Any], arms: Sequence[str], items: int | None = None) -> Settings:
    """The settings that `create_study` would make of these; a plan has its own budget."""
    known = {name: value for name, value in given.items() if value is not None}
    checked = described(**known | {"arms": list(arms), "items": items})
    return replace(Settings.checked(**checked), max_cost=None)


def answered(
    subject: Subject, *, budget: float | None, chance: float, left_out: Sequence[str], worth: bool, curve: str | None,
    seed: int, progress: Progress | None,
) -> Plan:  # fmt: skip
    settings, say = subject.settings, progress or (lambda _: None)
    is_calibrated = isinstance(settings.threshold, Calibrated)  # for one delta, epsilon and number of arms only
    say("simulating studies")
    far = math.inf if budget is None else SIMULATED_BUDGETS * budget
    bills = subject.bills(far, searching=False)
    needed = bills.needed(chance)
    solved: dict[str, Found | None] = {"budget": None}
    if needed is not None:  # without a value if only a budget that is not enough is known
        value = None if needed.at_least else needed.value
        solved["budget"] = Found(value, bills.chance(needed.value), needed.value)
    if budget is not None:
        free = {"gap", *(() if is_calibrated else left_out)}
        for of in ("epsilon", "gap", "delta"):
            solved[of] = enough(subject, of, budget, chance, say) if of in free else None
    points = []
    if curve is not None:
        found, (start, _, most) = solved.get(curve), subject.range(curve)
        middle = found.value if found is not None and found.value else start
        for at in (float(f"{factor * middle:.3g}") for factor in FACTORS):
            if at < most:
                say(f"the bill at {curve} {at:g}")
                points.append(CurvePoint(at, subject.bills(far, **dict[str, Any]({curve: at}))))
    can = worth and len(settings.arms) > 2 and not is_calibrated
    limit = budget if budget is not None else subject.limit(bills)
    arms, best = [], np.bincount(subject.best, minlength=len(settings.arms)) / len(subject.best)
    for a, name in enumerate(settings.arms):
        adds = without = None
        if can:
            say(f"what {name} adds")
            less = subject.bills(limit, without=a)
            adds, without = difference(bills, less, limit), None if budget is None else less.chance(budget)
        arms.append(ArmPlan(name, *subject.words[a], float(best[a]), adds, without))
    what, on, more = subject.about
    delta = f"delta {settings.delta:g}" + (f", epsilon {settings.epsilon:g}" if settings.epsilon else "")
    return Plan(
        about=f"{what}, {settings.direction}, {len(arms)} arms{on}, {delta}, {more}", direction=settings.direction,
        delta=settings.delta, epsilon=settings.epsilon, arms=arms, bills=bills, given_budget=budget, wanted=chance,
        seed=seed, solved=solved, limit=limit if can else math.inf, curve_of=curve, curve=points, notes=subject.notes,
        **subject.facts,
    )  # fmt: skip


def difference(bills: Bills, less: Bills, limit: float) -> Amount | None:
    """What an arm adds, from the same truths with and without it; None where studies were cut below the limit."""
    count = len(less)
    if (bills.cut & (bills.costs < limit))[:count].any() or (less.cut & (less.costs < limit)).any():
        return None
    more = np.minimum(bills.costs[:count], limit) - np.minimum(less.costs, limit)
    return Amount(float(more.mean()), float(more.std(ddof=1)) / math.sqrt(count))


def enough(subject: Subject, of: str, budget: float, chance: float, say: Progress) -> Found | None:
    """The smallest epsilon, gap or delta, to about 7 %, with which studies decide within the budget with that chance;
    None if there is no gap to be found.

    The larger it is, the easier they decide. Each value tried is rounded to three digits, so that what is reported is
    what was simulated.
    """
    if of == "epsilon":
        without = subject.bills(2 * budget, epsilon=0.0).chance(budget)
        if without.value >= chance:
            return Found(0.0, without, 0.0)
    if of == "delta" and (all_bills := subject.by_delta(budget)) is not None:
        chances = [bills.chance(budget) for bills in all_bills]
        j = max((j for j, each in enumerate(chances) if each.value >= chance), default=None)
        return Found(None, chances[0], DELTAS[0]) if j is None else Found(DELTAS[j], chances[j], DELTAS[j])
    start, least, most = subject.range(of)
    if most <= 0:
        return None
    low, high, x = 0.0, math.inf, rounded(min(max(start, least), most), most)
    found = Found(None, Amount(0.0), x)
    for _ in range(STEPS):
        say(f"searching for the {of}: {x:g}")
        paid = subject.bills(2 * budget, **dict[str, Any]({of: x}))
        at_x = paid.chance(budget)
        if at_x.value >= chance:
            high, found = x, Found(x, at_x, x)
        else:
            low = x
            if found.value is None:
                found = Found(None, at_x, x)
        if (low == x and x >= most) or (high == x and x <= least) or high <= low * CLOSE * 1.01:
            break
        needed = paid.needed(chance)
        ratio = math.inf if needed is None else needed.value / budget
        if needed is not None and needed.at_least:  # it is not known by how much more
            ratio = max(ratio, 2.0)
        ratio = min(max(ratio, 1e-6), 1e6)  # bills are proportional to log(1/delta), and to 1/gap²
        next_x = x ** min(1 / ratio, 8.0) if of == "delta" else 1.02 * x * math.sqrt(ratio)
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
