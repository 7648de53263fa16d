"""A plan: what a study will cost and what it can conclude, in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cabai.datasets.replaying import percent
from cabai.planning.bills import Amount, Bills, Found
from cabai.planning.truths import Truths
from cabai.support.tables import table

QUANTILES = (0.1, 0.5, 0.9, 0.99)


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
        return {
            "mean_cost": mean.value,
            "se_cost": mean.error,
            "cost_quantiles": {share: bill.value for share, bill in quantiles.items()},
            "chance": chance and chance.value,
            "se_chance": chance and chance.error,
            "budget": self.budget,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "gap": gap and gap.value,
            "at_least": lower_limits(amounts),
            "wanted_chance": self.wanted,
            "solved": {name: found and found_dict(found) for name, found in self.solved.items()},
            "arms": [arm_dict(arm) for arm in self.arms],
            "adds_up_to": None if math.isinf(self.limit) else self.limit,
            "items": self.items,
            "full_cost": self.full_cost,
            "curve": self.curve_of and {"of": self.curve_of, "points": [self._point(each) for each in self.curve]},
            "direction": self.direction,
            "draws": len(self.bills),
            "cut": int(self.bills.cut.sum()),
            "wrong": float(self.bills.wrong.mean()),
            "seed": self.seed,
            "about": self.about,
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
        lines = [*self._arm_lines(), *self._bill_lines(), *self._curve_lines(), *self._last_lines()]
        return "\n".join([self.about, *lines])

    def _arm_lines(self) -> list[str]:
        adds = any(arm.adds is not None for arm in self.arms)
        within = adds and self.given_budget is not None
        header = ["arm", "mean", "cost", "is best", *(["adds to the bill"] if adds else [])]
        rows = [[*header, *(["chance without it"] if within else [])]]
        for arm in self.arms:
            row = [arm.name, arm.mean, arm.cost, percent(arm.best)]
            if adds:
                row.append("-" if arm.adds is None else f"{money(arm.adds.value)} ± {money(arm.adds.error, 2)}")
            if within:
                row.append("-" if arm.chance_without is None else shown_chance(arm.chance_without))
            rows.append(row)
        return [table(rows, left=3)]

    def _bill_lines(self) -> list[str]:
        half, *quantile = (self.bills.quantile(share) for share in (0.5, 0.9, 0.99))
        mean, shares = self.bills.mean, (0.9,) if quantile[0].at_least else (0.9, 0.99)
        middle = f"mean at least {money(mean.value)}"
        if not mean.at_least:
            middle = f"mean {money(mean.value)} ± {money(mean.error, 2)}"
        ends = "; ".join(map(pays, shares, quantile))
        lines = [f"The bill: median {at_least(half, 'more than ')}, {middle}; {ends}."]
        if self.full_cost is not None:
            lines.append(f"Evaluating everything costs {money(self.full_cost)}.")
        if self.given_budget is not None:
            assert self.chance is not None
            lines.append(f"Chance of a decision within {money(self.given_budget)}: {shown_chance(self.chance)}.")
        needed = self.bills.needed(self.wanted)
        if needed is None:
            lines.append(
                f"No budget is enough for a chance of {percent(self.wanted)}: too many studies end without a decision."
            )
        else:
            lines.append(f"Budget for a chance of {percent(self.wanted)}: {at_least(needed, 'more than ')}.")
        searched = {name: found for name, found in self.solved.items() if name != "budget" and found is not None}
        if searched:
            lines.append(f"Or, with a budget of {money(self.given_budget or 0)} and that chance:")
            lines += [f"  {line}" for line in map(self._solved_line, searched, searched.values())]
        return lines

    def _solved_line(self, name: str, found: Found) -> str:
        wanted = {
            "epsilon": "an arm within {} of the best (epsilon)",
            "gap": "a best arm ahead of the next by {} (gap), others as given",
            "delta": "a decision that is wrong with probability at most {} (delta)",
        }[name]
        if found.value == 0:
            return f"the best arm itself: chance {shown_chance(found.chance)}"
        if found.value is None and found.chance.at_least:
            words = f"at {found.tried:g} the chance is {shown_chance(found.chance)}, and some studies were cut short"
            return f"{wanted.format('?')}: not found; {words}"
        if found.value is None:
            article = "an" if name == "epsilon" else "a"
            return f"even {article} {name} of {found.tried:g} is not enough: chance {shown_chance(found.chance)}"
        return f"{wanted.format(f'{found.value:g}')}: chance {shown_chance(found.chance)}"

    def _curve_lines(self) -> list[str]:
        if self.curve_of is None:
            return []
        header = [self.curve_of, "median", "90 % pay at most", *(["chance"] if self.budget is not None else [])]
        rows = [header]
        for point in self.curve:
            pair = [point.bills.quantile(share) for share in (0.5, 0.9)]
            row = [f"{point.at:g}", *(at_least(each, "> ") for each in pair)]
            if self.budget is not None:
                row.append(shown_chance(point.bills.chance(self.budget)))
            rows.append(row)
        return [table(rows)]

    def _last_lines(self) -> list[str]:
        lines = []
        if any(arm.adds is not None for arm in self.arms) and not math.isinf(self.limit):
            lines.append(f"What an arm adds is computed as if no study paid more than {money(self.limit)}.")
        lines += self.notes
        cut = int(self.bills.cut.sum())
        ended = f", {cut} of them cut short because their arms are too close" if cut else ""
        lines.append(f"From {len(self.bills)} simulated studies{ended}; ± is a standard error, seed {self.seed}.")
        return lines


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
