"""A plan: what simulated studies pay, what a study will cost and what it can conclude, in numbers and in words.

Some simulated studies are cut short, and what is unknown because of that is never reported as known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.replaying import percent
from cabai.planning.truths import Truths
from cabai.support.tables import table

QUANTILES = (0.1, 0.5, 0.9, 0.99)


class Amount(NamedTuple):
    """A number, its standard error, and whether it is only a lower bound of the truth."""

    value: float
    error: float = 0.0
    at_least: bool = False


class Found(NamedTuple):
    """A value with which a budget is enough, and the chance of a decision. Without a value, `tried` is not enough."""

    value: float | None
    chance: Amount
    tried: float


@dataclass(frozen=True)
class Bills:
    """By draw: what was paid, whether there was a decision, whether it was wrong, whether the study was cut short."""

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
        """The smallest bill that this share of the studies does not exceed.

        >>> bills = Bills(np.array([1.0, 2.0, 3.0, 9.0]), *np.array([[1, 1, 1, 0], [0] * 4, [0, 0, 0, 1]], bool))
        >>> bills.quantile(0.75), bills.quantile(0.99)
        (Amount(value=3.0, error=0.0, at_least=False), Amount(value=9.0, error=0.0, at_least=True))
        """
        return self._smallest(self.costs, share)

    def chance(self, budget: float) -> Amount:
        """The share of the studies that decide within a budget."""
        within = self.decided & (self.costs <= budget * (1 + 1e-12))
        near = (int(within.sum()) + 1) / (len(self) + 2)  # so that an error is never 0
        error = math.sqrt(near * (1 - near) / len(self))
        return Amount(float(within.mean()), error, bool((self.cut & (self.costs < budget)).any()))

    def needed(self, chance: float) -> Amount | None:
        """The smallest budget within which this share of the studies decides; None if fewer ever do."""
        paid = np.where(self.decided | self.cut, self.costs, math.inf)
        found = self._smallest(paid, chance)
        return None if math.isinf(found.value) else found

    def _smallest(self, paid: NDArray[np.float64], share: float) -> Amount:
        value = float(np.sort(paid)[max(0, math.ceil(share * len(self) - 1e-9) - 1)])
        return Amount(value, at_least=bool((self.cut & (self.costs <= value)).any()))


@dataclass(frozen=True)
class ArmPlan:
    """One arm: what was assumed about it, how often it is the best, and what including it adds."""

    name: str
    mean: str  # as it was given
    cost: str
    best: float  # the share of the truths in which it is the best
    adds: Amount | None = None  # to the mean bill; None: only one arm would be left, or not known
    chance_without: Amount | None = None  # to decide within the budget without it


@dataclass(frozen=True)
class CurvePoint:
    """What studies pay at one gap or epsilon."""

    at: float
    bills: Bills


@dataclass(frozen=True)
class Plan:
    """The result of `cabai.plan`: what a study will cost, and what a budget can conclude; print it to read it.

    `solved` has, by name, what is enough for the wanted chance: the budget and, if you gave a budget, the smallest
    epsilon, gap and delta. `at_least` in the dictionary names numbers that are lower limits, because some simulated
    studies were cut before their end.

    >>> import cabai
    >>> plan = cabai.plan(family="bernoulli", means=["0.7..0.9", "0.4..0.6"], costs=[1, 0.5], draws=200)
    >>> plan.to_dict()["delta"], plan.budget == plan.solved["budget"].value, plan.chance.value >= 0.8
    (0.05, True, True)
    """

    about: str  # the family, the policy and so on, in words
    direction: str
    delta: float
    epsilon: float
    arms: list[ArmPlan]
    bills: Bills
    given_budget: float | None
    wanted: float
    seed: int
    solved: dict[str, Found | None]
    limit: float = math.inf  # bills count up to here in what an arm adds
    items: int | None = None  # of a dataset
    full_cost: float | None = None  # of evaluating all of it
    curve_of: str | None = None  # gap or epsilon
    curve: Sequence[CurvePoint] = field(default=())
    notes: Sequence[str] = field(default=())
    truths: Truths | None = None  # that were drawn; None for a race

    @property
    def budget(self) -> float | None:
        """The budget that you gave or, without one, the budget that is enough for the wanted chance."""
        needed = self.solved["budget"]
        return self.given_budget if self.given_budget is not None else None if needed is None else needed.value

    @property
    def chance(self) -> Amount | None:
        """The chance that a study decides within the budget, with its standard error."""
        return None if self.budget is None else self.bills.chance(self.budget)

    def to_dict(self) -> dict[str, Any]:
        """The plan as a dictionary that JSON can hold: no NaN, no infinities."""
        mean, chance, gap, quantiles = self.bills.mean, self.chance, self.solved.get("gap"), quantiles_of(self.bills)
        amounts = {"mean_cost": mean, "chance": chance} | {f"cost_quantiles.{key}": x for key, x in quantiles.items()}
        plain = ("budget", "epsilon", "delta", "items", "full_cost", "direction", "seed", "about")
        return {
            "mean_cost": mean.value,
            "se_cost": mean.error,
            "cost_quantiles": {share: bill.value for share, bill in quantiles.items()},
            "chance": chance and chance.value,
            "se_chance": chance and chance.error,
            **{name: getattr(self, name) for name in plain},
            "gap": gap and gap.value,
            "at_least": lower_limits(amounts),
            "wanted_chance": self.wanted,
            "solved": {name: found and found_dict(found) for name, found in self.solved.items()},
            "arms": [arm_dict(arm) for arm in self.arms],
            "adds_up_to": None if math.isinf(self.limit) else self.limit,
            "curve": self.curve_of and {"of": self.curve_of, "points": [self._point(each) for each in self.curve]},
            "draws": len(self.bills),
            "cut": int(self.bills.cut.sum()),
            "wrong": float(self.bills.wrong.mean()),
        }

    def _point(self, point: CurvePoint) -> dict[str, Any]:
        quantiles = quantiles_of(point.bills)
        chance = None if self.budget is None else point.bills.chance(self.budget)
        return {
            "at": point.at,
            "cost_quantiles": {share: bill.value for share, bill in quantiles.items()},
            "at_least": lower_limits(quantiles | {"chance": chance}),
            "chance": chance and chance.value,
        }

    def __repr__(self) -> str:
        bills, budget, wanted = self.bills, self.given_budget, percent(self.wanted)
        adds = any(arm.adds is not None for arm in self.arms)
        within = adds and budget is not None
        rows = [["arm", "mean", "cost", "is best"] + ["adds to the bill"] * adds + ["chance without it"] * within]
        for arm in self.arms:
            more = "-" if arm.adds is None else f"{money(arm.adds.value)} ± {money(arm.adds.error, 2)}"
            without = "-" if arm.chance_without is None else shown_chance(arm.chance_without)
            rows.append([arm.name, arm.mean, arm.cost, percent(arm.best)] + [more] * adds + [without] * within)
        half, *ends = (bills.quantile(share) for share in (0.5, 0.9, 0.99))
        pay = "; ".join(map(pays, (0.9,) if ends[0].at_least else (0.9, 0.99), ends))
        low = bills.mean.at_least
        middle = (
            f"at least {money(bills.mean.value)}"
            if low
            else f"{money(bills.mean.value)} ± {money(bills.mean.error, 2)}"
        )
        lines = [
            self.about,
            table(rows, left=3),
            f"The bill: median {at_least(half, 'more than ')}, mean {middle}; {pay}.",
        ]
        if self.full_cost is not None:
            lines.append(f"Evaluating everything costs {money(self.full_cost)}.")
        if budget is not None:
            lines.append(f"Chance of a decision within {money(budget)}: {shown_chance(bills.chance(budget))}.")
        needed = bills.needed(self.wanted)
        if needed is None:
            lines.append(f"No budget is enough for a chance of {wanted}: too many studies end without a decision.")
        else:
            lines.append(f"Budget for a chance of {wanted}: {at_least(needed, 'more than ')}.")
        searched = {name: found for name, found in self.solved.items() if name != "budget" and found is not None}
        if searched:
            lines.append(f"Or, with a budget of {money(budget or 0)} and that chance:")
            lines += [f"  {solved_line(name, found)}" for name, found in searched.items()]
        if self.curve_of is not None:
            lines.append(self._curve_table(self.curve_of))
        if adds and not math.isinf(self.limit):
            lines.append(f"What an arm adds is computed as if no study paid more than {money(self.limit)}.")
        cut = int(bills.cut.sum())
        ended = f", {cut} of them cut short before a decision" if cut else ""
        last = f"From {len(bills)} simulated studies{ended}; ± is a standard error, seed {self.seed}."
        return "\n".join([*lines, *self.notes, last])

    def _curve_table(self, of: str) -> str:
        rows = [[of, "median", "90 % pay at most", *(["chance"] if self.budget is not None else [])]]
        for point in self.curve:
            row = [f"{point.at:g}", *(at_least(point.bills.quantile(share), "> ") for share in (0.5, 0.9))]
            rows.append(row if self.budget is None else [*row, shown_chance(point.bills.chance(self.budget))])
        return table(rows)


def solved_line(name: str, found: Found) -> str:
    wanted = {
        "epsilon": "an arm within {} of the best (epsilon)",
        "gap": "a best arm ahead of the next by {} (gap), others as given",
        "delta": "a decision that is wrong with probability at most {} (delta)",
    }[name]
    chance = shown_chance(found.chance)
    if found.value == 0:
        return f"the best arm itself: chance {chance}"
    if found.value is not None:
        return f"{wanted.format(f'{found.value:g}')}: chance {chance}"
    if found.chance.at_least:
        words = f"at {found.tried:g} the chance is {chance}, and some studies were cut short"
        return f"{wanted.format('?')}: not found; {words}"
    return f"even {'an' if name == 'epsilon' else 'a'} {name} of {found.tried:g} is not enough: chance {chance}"


def quantiles_of(bills: Bills) -> dict[str, Amount]:
    return {str(share): bills.quantile(share) for share in QUANTILES}


def lower_limits(amounts: Mapping[str, Amount | None]) -> list[str]:
    """Which of these are only known to be at least what they say."""
    return [name for name, amount in amounts.items() if amount is not None and amount.at_least]


def found_dict(found: Found) -> dict[str, Any]:
    value, chance, tried = found
    at_least = lower_limits({"chance": chance})
    return {"value": value, "chance": chance.value, "se_chance": chance.error, "tried": tried, "at_least": at_least}


def arm_dict(arm: ArmPlan) -> dict[str, Any]:
    adds, without = arm.adds, arm.chance_without
    found = {name: getattr(arm, name) for name in ("name", "mean", "cost", "best")}
    found |= {"adds": adds and adds.value, "se_adds": adds and adds.error, "chance_without": without and without.value}
    return found | {"at_least": lower_limits({"chance_without": without})}


def at_least(bill: Amount, words: str) -> str:
    """A bill, with words before it if it is only known to be larger."""
    return f"{words if bill.at_least else ''}{money(bill.value)}"


def pays(share: float, bill: Amount) -> str:
    """
    >>> pays(0.9, Amount(120.0)), pays(0.99, Amount(500.0, at_least=True))
    ('90 % pay at most 120', '1 % or more pay more than 500')
    """
    if bill.at_least:
        return f"{percent(1 - share)} or more pay more than {money(bill.value)}"
    return f"{percent(share)} pay at most {money(bill.value)}"


def money(value: float, digits: int = 3) -> str:
    """
    >>> money(1234567), money(0.012345), money(-3.0)
    ('1230000', '0.0123', '-3')
    """
    return f"{float(f'{value:.{digits}g}'):.15g}"


def shown_chance(chance: Amount) -> str:
    """
    >>> shown_chance(Amount(0.7134, 0.0202)), shown_chance(Amount(0.5, 0.01, at_least=True))
    ('71 ± 2 %', 'at least 50 ± 1 %')
    """
    words = "at least " if chance.at_least else ""
    return f"{words}{100 * chance.value:.0f} ± {100 * chance.error:.1g} %"
