"""Races on a dataset, simulated on datasets drawn from a pilot's table of scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.dataset import paid_for, part_of
from cabai.datasets.race import race_of, share_of, started
from cabai.datasets.reading import read_table
from cabai.datasets.replaying import compiled_race, left_out_words, run_in_threads, without_holes
from cabai.planning.answers import Subject, study_settings
from cabai.planning.results import Bills
from cabai.support.validation import InvalidInput, shown, whole

SEARCHED = 200  # of the datasets, which are used for searches
LEAST_ITEMS = 10  # of a pilot


class SimulatedRaces(Subject):
    """Races on datasets that are drawn from a pilot's complete items for these arms.

    Each draw gives the pilot's items random weights (Rubin's Bayesian bootstrap, for the uncertainty of a small pilot)
    and draws the dataset's items by them. All arms' scores and costs on an item stay together. Since the items come in
    random order, the race takes them as they come.
    """

    def __init__(
        self, data: Any, given: dict[str, Any], *, arms: Any, costs: Any, draws: int, seed: int, workers: int | None
    ) -> None:
        if data is None:
            raise InvalidInput(
                "a race on a dataset is planned from scores of the arms on some of its items: give a table of them, as "
                "pilot= (--pilot scores.csv)."
            )
        names = arms if arms is not None else given.get("arms")
        costs = given.get("costs") if costs is None else costs
        items, self.notes = given.get("items"), []
        given = {name: value for name, value in given.items() if name not in ("max_pulls", "costs")}
        low, high = study_settings(given, ["a", "b"], 1).family.mean_range
        table = read_table(data, low=low, high=high)
        if names is not None:
            lacking = [arm for arm in names if arm not in table.arms]
            if lacking:
                raise InvalidInput(
                    f"the pilot has no score of arm {shown(lacking[0])}; it has {', '.join(table.arms)}."
                )
            table = part_of(table, [table.arms.index(arm) for arm in names], range(len(table.items)))
        if costs is not None:
            table = read_table(table, costs=by_arm(costs, table.arms), low=low, high=high)
        table, left_out, lacking_by = without_holes(table)
        there = len(table.items)
        if there < LEAST_ITEMS:
            raise InvalidInput(f"the pilot has scores of all arms on {there} items: it needs at least {LEAST_ITEMS}.")
        if left_out:
            self.notes.append(f"Left out: {left_out_words(table, left_out, lacking_by)}.")
        if items is None:
            self.notes.append(f"Planned for {there} items, as many as the table has; --items changes that.")
        if table.costs is None:
            self.notes.append("No costs were given, so each evaluation costs 1.")
        self.items, self.workers = there if items is None else whole(items, "items", 1), workers
        self.settings = settings = study_settings(given, table.arms, self.items)
        assert settings.items is not None
        self.race, self.width = settings.items.race, high - low
        self.shares = share_of(table.scores, low, high, settings.direction == "minimize")
        self.costs = paid_for(table)
        self.drawn: list[NDArray[np.int64]] = []  # by draw, the pilot's items that make up the dataset
        for r in range(draws):
            random = np.random.default_rng([seed, r])
            weights = random.exponential(size=there)
            self.drawn.append(random.choice(there, self.items, p=weights / weights.sum()))
        self.best = np.array([self.shares[:, places].mean(axis=1).argmax() for places in self.drawn])
        scores, prices = table.scores.mean(axis=1), self.costs.mean(axis=1)
        self.words = [(f"{score:.4g}", f"{price:.4g}") for score, price in zip(scores, prices, strict=True)]
        self.about = f"{self.race} race", f" on {self.items} items", f"from scores on {there}"
        self.facts = {"items": self.items, "full_cost": float(prices.sum() * self.items)}

    def bills(self, limit: float, *, searching: bool = True, **changed: Any) -> Bills:
        """What races on the first datasets pay: all of it, whatever the limit."""
        count = min(SEARCHED, len(self.drawn)) if searching else len(self.drawn)
        delta, within = (changed.get(name, getattr(self.settings, name)) for name in ("delta", "epsilon"))
        name = self.race if within == self.settings.epsilon else race_of(None, within)
        race_once, order, left_out = compiled_race(name), np.arange(self.items), changed.get("without", [])
        shares, paid = (np.delete(each, left_out, axis=0) for each in (self.shares, self.costs))
        found, wrong = np.empty(count), np.empty(count, bool)

        def run(r: int) -> None:
            scores, costs = (np.ascontiguousarray(each[:, self.drawn[r]]) for each in (shares, paid))
            means, prices = scores.mean(axis=1), costs.mean(axis=1)
            rank = np.lexsort((prices, -means)).argsort()
            state = started(len(means), self.items, delta, within / self.width, name)
            winner, found[r] = race_once(state, order, scores, costs, prices, rank, np.zeros(len(means), np.int64), 0.0)
            wrong[r] = means[winner] < means.max() - within / self.width - 1e-9

        run_in_threads(run, count, self.workers)
        return Bills(found, np.ones(count, bool), wrong, np.zeros(count, bool))

    def usual_and_largest(self, of: str) -> tuple[float, float]:
        best = int(self.shares.mean(axis=1).argmax())
        gaps = (self.shares[best] - np.delete(self.shares, best, axis=0)).mean(axis=1)
        largest = 0.0 if of == "gap" else 0.999 * self.width  # the gap is given by the pilot's scores
        return max(float(gaps.min()), 0.01) * self.width, largest


def by_arm(costs: Any, arms: Sequence[str]) -> Any:
    """What evaluations cost, as `read_table` takes it: numbers in the order of the arms, also as one string."""
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
