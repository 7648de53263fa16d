"""What a race would have cost on scores that are known: the same race, compiled, again and again in other orders."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.loop import run_race
from cabai.datasets.permutation import permutation
from cabai.datasets.race import TESTS, Race, functions_of, race_of
from cabai.datasets.tables import ScoreTable
from cabai.support.specialise import specialised
from cabai.support.validation import InvalidInput, number, probability, whole

QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Replay:
    """Races on one table, each in another random order; from `cabai.replay`."""

    table: ScoreTable
    race: str
    delta: float
    epsilon: float
    direction: str
    seed: int
    decisions: NDArray[np.int64]  # by repeat: the number of the arm
    costs: NDArray[np.float64]  # by repeat
    pulls: NDArray[np.int64]  # repeats x arms

    @property
    def full_cost(self) -> float:
        """What evaluating everything costs."""
        costs = self.table.costs
        return float(self.table.scores.size if costs is None else costs.sum())

    @property
    def shares(self) -> NDArray[np.float64]:
        """By repeat, the share of the full cost that was paid."""
        return self.costs / self.full_cost

    @property
    def _means(self) -> NDArray[np.float64]:
        means: NDArray[np.float64] = self.table.scores.mean(axis=1)
        return -means if self.direction == "minimize" else means

    @property
    def same_winner(self) -> float:
        """The share of the repeats that chose an arm with the best mean of all."""
        best = sorted_arms(self.table, self.direction)
        ties = {a for a in best if lead(self.table, self.direction, best[0], a) == 0}
        return float(np.isin(self.decisions, list(ties)).mean())

    @property
    def within_epsilon(self) -> float:
        """The share of the repeats that chose an arm whose mean is within epsilon of the best."""
        means = self._means
        good = means >= means.max() - self.epsilon - 1e-12
        return max(self.same_winner, float(good[self.decisions].mean()))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        arms = self.table.arms
        counts = np.bincount(self.decisions, minlength=len(arms))
        return {
            "arms": list(arms),
            "items": len(self.table.items),
            "repeats": len(self.decisions),
            "race": self.race,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "direction": self.direction,
            "seed": self.seed,
            "full_cost": self.full_cost,
            "mean_cost": float(self.costs.mean()),
            "share": float(self.shares.mean()),
            "share_quantiles": {str(q): float(np.quantile(self.shares, q)) for q in QUANTILES},
            "same_winner": self.same_winner,
            "within_epsilon": self.within_epsilon,
            "decisions": {arm: int(count) for arm, count in zip(arms, counts, strict=True)},
            "pulls": {arm: float(mean) for arm, mean in zip(arms, self.pulls.mean(axis=0), strict=True)},
        }


def replay_table(
    table: ScoreTable, *, delta: float = 0.05, epsilon: float = 0.0, direction: str = "maximize", repeats: int = 200,
    seed: int = 0, race: str | None = None, low: float = 0.0, high: float = 1.0, workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Replay:  # fmt: skip
    """Race the arms of a complete table, `repeats` times."""
    delta, epsilon = probability(delta), number(epsilon, "epsilon")
    if epsilon < 0:
        raise InvalidInput(f"epsilon must not be negative, got {epsilon!r}.")
    if direction not in ("maximize", "minimize"):
        raise InvalidInput(f"direction must be one of maximize, minimize, got {direction!r}.")
    if table.missing:
        raise InvalidInput(f"{table.missing} of {table.scores.size} evaluations have no score.")
    if not (low < high and (table.scores >= low).all() and (table.scores <= high).all()):
        raise InvalidInput(
            f"scores must lie from {low:g} to {high:g}, got from {table.scores.min():g} to {table.scores.max():g}."
        )
    count, first = whole(repeats, "repeats", 1), whole(seed, "seed", 0)
    jobs = whole(workers, "workers", 1) if workers is not None else os.cpu_count() or 1
    arms, items = table.scores.shape
    name = race_of(race, epsilon)
    scaling = Race(2, 1, delta=delta, low=low, high=high, minimize=direction == "minimize")
    shares = np.ascontiguousarray(scaling.share(table.scores))
    costs = np.ones(table.scores.shape) if table.costs is None else np.ascontiguousarray(table.costs)
    prices, rank = costs.mean(axis=1), np.empty(arms, np.int64)
    rank[sorted_arms(table, direction)] = np.arange(arms)
    race_once = compiled_race(name)
    decisions, paid, pulls = np.empty(count, np.int64), np.empty(count), np.zeros((count, arms), np.int64)
    size = max(1, min(20, count // (4 * jobs)))
    over = False  # set on Ctrl-C: races not begun are not run

    def run(begin: int) -> int:
        end = begin if over else min(begin + size, count)
        for r in range(begin, end):
            state = TESTS[name].start(arms, items, delta, epsilon / (high - low))
            order = permutation(items, first, r)
            decisions[r], paid[r] = race_once(state, order, shares, costs, prices, rank, pulls[r])
        return end - begin

    executor, done = ThreadPoolExecutor(jobs), 0
    try:
        for future in as_completed([executor.submit(run, begin) for begin in range(0, count, size)]):
            done += future.result()
            if progress is not None:
                progress(done)
    finally:
        over = True
        executor.shutdown(wait=True, cancel_futures=True)
    return Replay(table, name, delta, epsilon, direction, first, decisions, paid, pulls)


def sorted_arms(table: ScoreTable, direction: str) -> list[int]:
    """The best arm first, by sums without rounding; those that tie, the cheapest first."""
    prices = [0.0] * len(table.arms) if table.costs is None else table.costs.mean(axis=1).tolist()

    def order(a: int, b: int) -> int:
        by = -lead(table, direction, a, b) or prices[a] - prices[b]
        return (by > 0) - (by < 0)

    return sorted(range(len(table.arms)), key=cmp_to_key(order))


def lead(table: ScoreTable, direction: str, a: int, b: int) -> float:
    """By how much arm a is better than b in all; 0 only if they are equal."""
    difference = math.fsum([*table.scores[a].tolist(), *(-table.scores[b]).tolist()])
    return -difference if direction == "minimize" else difference


def compiled_race(name: str) -> Any:
    from cabai.core.compiling import compiled

    return compiled(specialised(run_race, functions_of(name)))
