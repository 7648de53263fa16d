"""The plan of a race on a dataset, from a pilot's table of scores: a formula, and races on drawn datasets."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.planning import differences, planned_share
from cabai.datasets.race import CHAMPION, TESTS, Race, race_of
from cabai.datasets.reading import read_table
from cabai.datasets.replaying import compiled_race, left_out_words, without_holes
from cabai.datasets.tables import ScoreTable
from cabai.planning.bills import Amount, Bills
from cabai.planning.results import ArmPlan, Plan, Point
from cabai.planning.searching import Found, smallest
from cabai.study.create import described, settings_of
from cabai.study.settings import Settings
from cabai.support.validation import InvalidInput, shown, whole

SEARCHED = 200
FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)
LEAST_ITEMS = 10  # of a pilot


@dataclass(frozen=True)
class Pool:
    """Datasets of so many items, drawn from a pilot, and races on them.

    Each draw gives the pilot's items random weights (Rubin's Bayesian bootstrap, for the uncertainty of a small pilot)
    and draws the dataset's items by them. All arms' scores and costs on an item stay together. Since the items come in
    random order, the race takes them as they come.
    """

    table: ScoreTable
    settings: Settings
    items: int
    draws: int
    seed: int
    workers: int | None

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Scores as shares of the range, larger is better."""
        low, high = self.settings.family.mean_range
        scaling = Race(2, 1, delta=0.5, low=low, high=high, minimize=self.settings.direction == "minimize")
        return np.asarray(scaling.share(self.table.scores))

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        return np.ones(self.table.scores.shape) if self.table.costs is None else self.table.costs

    @cached_property
    def drawn(self) -> list[NDArray[np.int64]]:
        """By draw, the pilot's items that make up the dataset."""
        found, there = [], len(self.table.items)
        for r in range(self.draws):
            random = np.random.default_rng([self.seed, r])
            weights = random.exponential(size=there)
            found.append(random.choice(there, self.items, p=weights / weights.sum()))
        return found

    def bills(
        self, count: int, *, delta: float | None = None, epsilon: float | None = None, arms: Sequence[int] | None = None
    ) -> Bills:
        """What races on the first datasets pay."""
        arms = list(range(len(self.table.arms))) if arms is None else list(arms)
        settings = self.settings
        chance = settings.delta if delta is None else delta
        within = settings.epsilon if epsilon is None else epsilon
        assert settings.items is not None
        name = settings.items.race if within == settings.epsilon else race_of(None, within)
        race_once = compiled_race(name)
        low, high = settings.family.mean_range
        rows, order = np.array(arms), np.arange(self.items)
        paid, wrong = np.empty(count), np.empty(count, bool)

        def run(r: int) -> None:
            at = np.ix_(rows, self.drawn[r])
            scores, costs = np.ascontiguousarray(self.shares[at]), np.ascontiguousarray(self.costs[at])
            means, prices = scores.mean(axis=1), costs.mean(axis=1)
            rank = np.empty(len(arms), np.int64)
            rank[np.lexsort((prices, -means))] = np.arange(len(arms))
            state = TESTS[name].start(len(arms), self.items, chance, within / (high - low))
            pulls = np.zeros(len(arms), np.int64)
            winner, paid[r] = race_once(state, order, scores, costs, prices, rank, pulls)
            wrong[r] = means[winner] < means.max() - within / (high - low) - 1e-9

        executor = ThreadPoolExecutor(self.workers or os.cpu_count() or 1)
        try:
            list(executor.map(run, range(count)))
        finally:
            executor.shutdown(wait=True, cancel_futures=True)  # on Ctrl-C, races that have not begun are not run
        return Bills(paid, np.ones(count, bool), wrong, np.zeros(count, bool))

    @property
    def full_cost(self) -> float:
        """What evaluating everything costs, by the pilot's mean costs."""
        return float(self.costs.mean(axis=1).sum() * self.items)

    @property
    def formula(self) -> float:
        """What the planning formula says of the bill, with the pilot's gaps and variances."""
        settings, (best, gaps, variances) = self.settings, differences(self.shares)
        low, high = settings.family.mean_range
        prices = self.costs.mean(axis=1)
        ordered = [float(prices[best]), *np.delete(prices, best).tolist()]
        assert settings.items is not None
        share = planned_share(
            self.items, gaps, variances, delta=settings.delta, epsilon=settings.epsilon / (high - low), costs=ordered,
            race=settings.items.race,
        )  # fmt: skip
        return share * self.full_cost


def plan_races(
    data: Any, given: dict[str, Any], *, arms: Any, costs: Any, budget: float | None, chance: float,
    left_out: list[str], worth: bool, curve: str | None, draws: int, seed: int, workers: int | None, progress: Any,
) -> Plan:  # fmt: skip
    """The plan of a race."""
    if data is None:
        raise InvalidInput(
            "a race on a dataset is planned from scores of the arms on some of its items: give a table of them, as "
            "pilot= (--pilot scores.csv)."
        )
    if curve == "gap":
        raise InvalidInput("on a dataset the gap is given by the pilot's scores: curve must be 'epsilon'.")
    names = arms if arms is not None else given.get("arms")
    table, settings, notes = table_of(data, dict(given), names, costs)
    say = progress or (lambda _: None)
    assert settings.items is not None
    pool = Pool(table, settings, settings.items.count, draws, seed, workers)
    say("racing on drawn datasets")
    bills = pool.bills(draws)
    needed = bills.needed(chance)
    assert needed is not None  # every race decides, and never pays more than everything
    solved: dict[str, Found | None] = {"budget": Found(needed.value, bills.chance(needed.value), needed.value)}
    some = min(SEARCHED, draws)
    if budget is not None:
        solved |= {
            "epsilon": epsilon_found(pool, some, budget, chance, say) if "epsilon" in left_out else None,
            "delta": delta_found(pool, some, budget, chance, say) if "delta" in left_out else None,
        }
    points = curve_points(pool, some, solved.get("epsilon"), say) if curve is not None else []
    plans, limit = arm_plans(pool, bills, some, budget, worth, say)
    about = f"{settings.items.race} race, {settings.direction}, {len(table.arms)} arms on {pool.items} items"
    about += f", delta {settings.delta:g}" + (f", epsilon {settings.epsilon:g}" if settings.epsilon else "")
    return Plan(
        about=f"{about}, from scores on {len(table.items)}", direction=settings.direction, delta=settings.delta,
        epsilon=settings.epsilon, arms=plans, bills=bills, given_budget=budget, wanted=chance, seed=seed, solved=solved,
        limit=limit, items=pool.items, full_cost=pool.full_cost, formula=pool.formula, curve_of=curve, curve=points,
        notes=notes,
    )  # fmt: skip


def table_of(data: Any, given: dict[str, Any], names: Any, costs: Any) -> tuple[ScoreTable, Settings, list[str]]:
    """The pilot's complete items for these arms, the settings of the race, and remarks."""
    given.pop("arms", None)
    given.pop("max_pulls", None)
    costs = given.pop("costs", None) if costs is None else costs
    items, notes = given.pop("items", None), []
    usual: dict[str, Any] = {"family": None, "race": None, "failed": "worst", "speculate": 0.1, "epsilon": 0.0}

    def settings_for(arms: Sequence[str], count: int) -> Settings:
        checked, of_items = described(**usual | given | {"arms": list(arms), "items": count})
        return settings_of(checked, of_items)

    low, high = settings_for(["a", "b"], 1).family.mean_range
    table = read_table(data, low=low, high=high)
    if names is not None:
        lacking = [arm for arm in names if arm not in table.arms]
        if lacking:
            raise InvalidInput(f"the pilot has no score of arm {shown(lacking[0])}; it has {', '.join(table.arms)}.")
        rows = [table.arms.index(arm) for arm in names]
        table = ScoreTable(
            tuple(names), table.items, table.scores[rows], None if table.costs is None else table.costs[rows]
        )
    if costs is not None:
        table = read_table(table, costs=by_arm(costs, table.arms), low=low, high=high)
    table, left_out, lacking_by = without_holes(table)
    if len(table.items) < LEAST_ITEMS:
        raise InvalidInput(
            f"the pilot has scores of all arms on {len(table.items)} items: it needs at least {LEAST_ITEMS}."
        )
    if left_out:
        notes.append(f"Left out: {left_out_words(left_out, left_out + len(table.items), lacking_by)}.")
    if items is None:
        notes.append(f"Planned for {len(table.items)} items, as many as the table has; --items changes that.")
    if table.costs is None:
        notes.append("No costs were given, so each evaluation costs 1.")
    count = len(table.items) if items is None else whole(items, "items", 1)
    return table, settings_for(table.arms, count), notes


def by_arm(costs: Any, arms: Sequence[str]) -> Any:
    """What evaluations cost, as `read_table` takes it: numbers in the order of the arms, also as a string with
    commas."""
    if isinstance(costs, str) and "," in costs and not Path(costs).exists():
        costs = [part.strip() for part in costs.split(",")]
    if not isinstance(costs, (list, tuple, np.ndarray)):
        return costs
    if len(costs) != len(arms):
        raise InvalidInput(f"there are {len(arms)} arms, got {len(costs)} costs: give one for each arm.")
    try:
        return {arm: float(cost) for arm, cost in zip(arms, costs, strict=True)}
    except (TypeError, ValueError):
        raise InvalidInput(f"for a race on a dataset costs must be numbers or a table, got {shown(costs)}.") from None


def epsilon_found(pool: Pool, some: int, budget: float, chance: float, say: Any) -> Found | None:
    """The smallest epsilon with which a budget is enough."""
    assert pool.settings.items is not None
    low, high = pool.settings.family.mean_range
    if pool.settings.items.race == CHAMPION and pool.settings.epsilon == 0:
        without = pool.bills(some).chance(budget)
        if without.value >= chance:
            return Found(0.0, without, 0.0)

    def bills(epsilon: float) -> Bills:
        say(f"searching for the epsilon: {epsilon:g}")
        return pool.bills(some, epsilon=epsilon)

    scale = max(min(differences(pool.shares)[1]) * (high - low), 0.01 * (high - low))
    most = 0.999 * (high - low)
    return smallest(
        bills, scale, budget=budget, chance=chance, least=min(1e-3 * scale, most), most=most,
        guess=lambda x, ratio: 1.02 * x * math.sqrt(ratio),
    )  # fmt: skip


def delta_found(pool: Pool, some: int, budget: float, chance: float, say: Any) -> Found:
    """The smallest delta with which a budget is enough."""

    def bills(delta: float) -> Bills:
        say(f"searching for the delta: {delta:g}")
        return pool.bills(some, delta=delta)

    return smallest(
        bills, pool.settings.delta, budget=budget, chance=chance, least=1e-10, most=0.5,
        guess=lambda x, ratio: x ** min(1 / ratio, 8.0),
    )  # fmt: skip


def curve_points(pool: Pool, some: int, found: Found | None, say: Any) -> list[Point]:
    """What races pay at several epsilons, around the one that was found or around 2 % of the range."""
    low, high = pool.settings.family.mean_range
    middle = found.value if found is not None and found.value else 0.02 * (high - low)
    points = []
    for factor in FACTORS:
        at = float(f"{factor * middle:.3g}")
        if at < high - low:
            say(f"the bill at epsilon {at:g}")
            points.append(Point(at, pool.bills(some, epsilon=at)))
    return points


def arm_plans(
    pool: Pool, bills: Bills, some: int, budget: float | None, worth: bool, say: Any
) -> tuple[list[ArmPlan], float]:
    """Each arm: how often it is the best, and what it adds to the bill."""
    arms, limit = pool.table.arms, math.inf if budget is None else budget
    best = np.zeros(len(arms))
    for places in pool.drawn:
        best[pool.shares[:, places].mean(axis=1).argmax()] += 1 / pool.draws
    scores, prices = pool.table.scores.mean(axis=1), pool.costs.mean(axis=1)
    plans = []
    for a, name in enumerate(arms):
        adds = without = None
        if worth and len(arms) > 2:
            say(f"what {name} adds")
            less = pool.bills(some, arms=[b for b in range(len(arms)) if b != a])
            more = bills.up_to(limit)[:some] - less.up_to(limit)
            adds = Amount(float(more.mean()), float(more.std(ddof=1)) / math.sqrt(some))
            without = None if budget is None else less.chance(budget)
        plans.append(ArmPlan(name, f"{scores[a]:.4g}", f"{prices[a]:.4g}", float(best[a]), adds, without))
    return plans, limit if worth and len(arms) > 2 else math.inf
