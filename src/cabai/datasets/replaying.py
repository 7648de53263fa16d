"""What a race would have cost on known scores: the same race, compiled, repeated in other orders."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cached_property, cmp_to_key
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import BEST, CHEAPEST, Cheapest, by_cost, checked_goal, right_answers
from cabai.datasets import cheapest
from cabai.datasets.board import run_race
from cabai.datasets.dataset import ScoreTable, lead, paid_for, permutation
from cabai.datasets.race import finish_of, functions_of, race_of, share_of, started
from cabai.datasets.reading import read_table
from cabai.errors import MissingScores
from cabai.support.interruptible import interruptible
from cabai.support.specialise import specialised
from cabai.support.tables import table as text_table
from cabai.support.validation import InvalidInput, number, probability, shown, whole

QUANTILES = (0.05, 0.5, 0.95)
ROWS = 20  # arms that are printed


@dataclass(frozen=True)
class Replay:
    """The result of `cabai.replay`: races on one table of scores, each in another random order of the items.

    Print it to see a table of the arms, and what was paid.

    >>> import cabai
    >>> scores = {"small": [1, 0, 1, 0] * 50, "large": [1, 1, 1, 0] * 50}
    >>> found = cabai.replay(scores, costs={"small": 1, "large": 3}, repeats=20)
    >>> found.full_cost, bool((found.shares < 1).all()), bool((found.evaluated < 1).all())
    (800.0, True, True)
    >>> found.ranking, found.same_winner, found.within_epsilon, found.right
    ([1, 0], 1.0, 1.0, 1.0)
    >>> found.to_dict()["decisions"]
    {'small': 0, 'large': 20}
    """

    table: ScoreTable
    race: str
    delta: float
    epsilon: float
    direction: str
    seed: int
    decisions: NDArray[np.int64]  # by repeat: the number of the arm
    costs: NDArray[np.float64]  # by repeat
    pulls: NDArray[np.int64]  # repeats x arms
    left_out: int = 0  # items without a score of some arm, which are not in the table
    lacking: dict[str, int] = field(default_factory=dict)  # by arm: on how many of them it has no score
    goal: Cheapest | None = None  # the goal: the best arm (None), or the cheapest that is good enough

    @property
    def full_cost(self) -> float:
        """What evaluating every arm on every item costs."""
        return float(paid_for(self.table).sum())

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of the full cost that was paid, by repeat."""
        return self.costs / self.full_cost

    @property
    def _means(self) -> NDArray[np.float64]:
        means: NDArray[np.float64] = self.table.scores.mean(axis=1)
        return -means if self.direction == "minimize" else means

    @property
    def same_winner(self) -> float:
        """The share of the repeats that chose the arm which all scores together say is the answer.

        That is an arm with the best mean or, with `goal="cheapest"`, the cheapest arm within epsilon of it.
        """
        if self.goal is not None:
            return float((self.decisions == self._answer(self.goal)).mean())
        best = self.ranking[0]
        ties = [a for a in self.ranking if lead(self.table.scores, best, a, minimize=False) == 0]
        return float(np.isin(self.decisions, ties).mean())

    @cached_property
    def ranking(self) -> list[int]:
        """The numbers of the arms, the best first, by all scores."""
        return sorted_arms(self.table, self.direction)

    @property
    def within_epsilon(self) -> float:
        """The share of the repeats that chose an arm whose mean is within epsilon of the best."""
        means = self._means
        good = means >= means.max() - self.epsilon - 1e-12
        return max(self.same_winner, float(good[self.decisions].mean()))

    @property
    def right(self) -> float:
        """The share of the repeats whose answer is what the race promises.

        The promise is an arm within epsilon of the best and, with `goal="cheapest"`, also that every cheaper arm is
        worse than the best by more than epsilon - slack.
        """
        if self.goal is None:
            return self.within_epsilon
        answers = right_answers(self._means, running_costs_of(self.table, self.goal), self.epsilon, self.goal.slack)
        return float(np.isin(self.decisions, answers).mean())

    def _answer(self, goal: Cheapest) -> int:
        """The cheapest arm that is at most epsilon worse than the best, by all scores."""
        items, best = len(self.table.items), self.ranking[0]
        by_all = [lead(self.table.scores, a, best, self.direction == "minimize") for a in range(len(self.table.arms))]
        good = [cheapest.is_close(each, items, self.epsilon) for each in by_all]
        return next(a for a in by_cost(running_costs_of(self.table, goal)) if good[a])

    def to_dict(self) -> dict[str, Any]:
        """All results as a dictionary that JSON can hold."""
        arms = self.table.arms
        counts = np.bincount(self.decisions, minlength=len(arms))
        plain = ("race", "delta", "epsilon", "direction", "seed", "full_cost", "same_winner", "within_epsilon", "right")
        return {
            "arms": list(arms),
            "items": len(self.table.items),
            "repeats": len(self.decisions),
            **{name: getattr(self, name) for name in plain},
            "mean_cost": float(self.costs.mean()),
            "share": float(self.shares.mean()),
            "share_quantiles": {str(q): float(np.quantile(self.shares, q)) for q in QUANTILES},
            "decisions": {arm: int(count) for arm, count in zip(arms, counts, strict=True)},
            "pulls": {arm: float(mean) for arm, mean in zip(arms, self.pulls.mean(axis=0), strict=True)},
            "missing": {"items": self.left_out, "arms": self.lacking},
            "goal": BEST if self.goal is None else CHEAPEST,
            "slack": None if self.goal is None else self.goal.slack,
        }

    @property
    def evaluated(self) -> NDArray[np.float64]:
        """The mean share of the items that each arm was evaluated on."""
        shares: NDArray[np.float64] = self.pulls.mean(axis=0) / len(self.table.items)
        return shares

    def __repr__(self) -> str:
        arms, repeats, evaluated = self.table.arms, len(self.decisions), self.evaluated
        means, chosen = self.table.scores.mean(axis=1), np.bincount(self.decisions, minlength=len(arms))
        heading = f"{self.race} race, {self.direction}, delta {self.delta:g}"
        heading += f", epsilon {self.epsilon:g}" if self.epsilon else ""
        heading += "" if self.goal is None else f", slack {self.goal.slack:g}"
        heading += f", {len(arms)} arms on {len(self.table.items)} items, {repeats} repeats"
        rows = [["arm", "mean score", "evaluated", "chosen"]]
        rows += [[arms[a], f"{means[a]:.4g}", percent(evaluated[a]), str(chosen[a])] for a in self.ranking[:ROWS]]
        lines, rest = [heading, text_table(rows)], self.ranking[ROWS:]
        if rest:
            lines.append(
                f"and {len(rest)} more arms: evaluated {percent(evaluated[rest].mean())}, chosen {chosen[rest].sum()}"
            )
        full = f"{self.full_cost:.6g}" if self.full_cost < 1e6 else f"{self.full_cost:.0f}"
        low, _, high = (percent(float(np.quantile(self.shares, q))) for q in QUANTILES)
        lines.append(
            f"Paid: {percent(float(self.shares.mean()))} of the full cost of {full} on average, {low} to {high} in "
            "nine of ten repeats."
        )
        if self.table.billed is not None:
            lines.append(self.table.billed)
        same, right = round(self.same_winner * repeats), round(self.right * repeats)
        what = "Winner" if self.goal is None else "Answer"
        more = f"; within {self.epsilon:g} of the best in {right}" if self.epsilon else ""
        more = more if self.goal is None else f"; as promised in {right}"
        lines.append(f"{what}: the same as with all scores in {same} of {repeats} repeats{more}.")
        if self.left_out:
            lines.append(f"Left out: {left_out_words(self.table, self.left_out, self.lacking)}.")
        return "\n".join(lines)


def percent(share: float) -> str:
    """
    >>> percent(0.3271), percent(0.04)
    ('32.7 %', '4 %')
    """
    return f"{100 * share:.3g} %"


def left_out_words(table: ScoreTable, left_out: int, lacking: dict[str, int]) -> str:
    """Which items are not in a table, and why not."""
    items = left_out + len(table.items)
    worst = sorted(lacking, key=lambda arm: -lacking[arm])
    names = ", ".join(f"{arm} on {lacking[arm]}" for arm in worst[:5])
    more = f" and {len(worst) - 5} more arms" if len(worst) > 5 else ""
    return f"{left_out} of {items} items, on which not every arm has a score ({names}{more})"


def replay(
    table: Any, *, costs: Any = None, delta: float = 0.05, epsilon: float = 0.0, direction: str = "maximize",
    repeats: int = 200, seed: int = 0, race: str | None = None, low: float = 0.0, high: float = 1.0,
    workers: int | None = None, progress: Callable[[int], None] | None = None, goal: str = BEST,
    slack: float | None = None, running_costs: Any = None, finish: float | None = None,
) -> Replay:  # fmt: skip
    """What a race of the arms would have cost on scores that you have.

    The race is run `repeats` times, each in another random order of the items. `table` holds the scores: a path to a
    CSV or Parquet file or to logs, a pandas DataFrame, or a mapping of each arm to its scores. `costs` are what
    evaluations cost: by arm, or a table. `cabai.datasets.read_table` says how each is read. With `goal="cheapest"`, the
    race looks for the cheapest arm to run that is within epsilon of the best, as `cabai.evaluate` does; arms cost to
    run `running_costs` (default: the mean of `costs`). Scores lie from `low` to `high`. Items on which not every arm
    has a score are left out, with a warning.

    >>> import random
    >>> draw = random.Random(1).random
    >>> scores = {name: [draw() < mean for _ in range(500)] for name, mean in [("a", 0.9), ("b", 0.6), ("c", 0.3)]}
    >>> replay(scores, costs={"a": 1, "b": 0.1, "c": 0.1}, repeats=50)
    champion race, maximize, delta 0.05, 3 arms on 500 items, 50 repeats
    arm  mean score  evaluated  chosen
    a         0.898     6.04 %      50
    b         0.568     6.02 %       0
    c         0.292     2.92 %       0
    Paid: 5.78 % of the full cost of 600 on average, 2.75 % to 12.4 % in nine of ten repeats.
    Winner: the same as with all scores in 50 of 50 repeats.
    """
    delta, epsilon = probability(delta), number(epsilon, "epsilon")
    if epsilon < 0:
        raise InvalidInput(f"epsilon must not be negative, got {epsilon!r}.")
    found, left_out, lacking = without_holes(read_table(table, costs=costs, low=low, high=high))
    if left_out:
        warnings.warn(f"left out: {left_out_words(found, left_out, lacking)}.", MissingScores, stacklevel=2)
    looked_for = checked_goal(goal, epsilon, slack, running_costs, found.arms)
    share = finish_of(finish, goal)
    if direction not in ("maximize", "minimize"):
        raise InvalidInput(f"direction must be one of maximize, minimize, got {direction!r}.")
    count, first = whole(repeats, "repeats", 1), whole(seed, "seed", 0)
    arms, items = found.scores.shape
    name = race_of(race, epsilon, goal)
    shares = np.ascontiguousarray(share_of(found.scores, low, high, direction == "minimize"))
    each = np.ascontiguousarray(paid_for(found))
    prices, rank = each.mean(axis=1), np.empty(arms, np.int64)
    rank[sorted_arms(found, direction)] = np.arange(arms)
    running = np.zeros(arms) if looked_for is None else np.array(running_costs_of(found, looked_for))
    close = np.zeros((arms, arms), np.bool_) if looked_for is None else close_pairs(found, direction, epsilon)
    race_once = interruptible(lambda: compiled_race(name))
    decisions, paid, pulls = np.empty(count, np.int64), np.empty(count), np.zeros((count, arms), np.int64)

    def run(r: int) -> None:
        state = started(arms, items, delta, epsilon, name, looked_for, high - low)
        if looked_for is not None:
            state.running[:], state.close[:] = running, close
        order = permutation(items, first, r)
        decisions[r], paid[r] = race_once(state, order, shares, each, prices, rank, pulls[r], share)

    run_in_threads(run, count, workers, progress)
    return Replay(found, name, delta, epsilon, direction, first, decisions, paid, pulls, left_out, lacking, looked_for)


def run_in_threads(
    run: Callable[[int], None], count: int, workers: int | None, progress: Callable[[int], None] | None = None
) -> None:
    """Call `run` with 0 ... count - 1, some at a time in each of several threads: this one handles Ctrl-C."""
    jobs = whole(workers, "workers", 1) if workers is not None else os.cpu_count() or 1
    size = max(1, min(20, count // (4 * jobs)))

    def run_some(begin: int) -> int:
        some = range(begin, min(begin + size, count))
        for r in some:
            run(r)
        return len(some)

    done, executor = 0, ThreadPoolExecutor(jobs)
    try:
        for future in as_completed([executor.submit(run_some, begin) for begin in range(0, count, size)]):
            done += future.result()
            if progress is not None:
                progress(done)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def without_holes(table: ScoreTable) -> tuple[ScoreTable, int, dict[str, int]]:
    """The items that every arm has a score on, how many others there are, and how many scores each arm lacks."""
    holes = np.isnan(table.scores)
    left_out = int(holes.any(axis=0).sum())
    lacking = {arm: int(count) for arm, count in zip(table.arms, holes.sum(axis=1), strict=True) if count}
    if left_out == len(table.items):
        worst = max(lacking, key=lacking.__getitem__)
        raise InvalidInput(
            f"no item has a score of every arm: arm {shown(worst)} has none on {lacking[worst]} of {left_out} items. "
            "Leave out arms that lack many, and check that all arms use the same names for items."
        )
    return (table.whole() if left_out else table), left_out, lacking


def running_costs_of(table: ScoreTable, goal: Cheapest) -> list[float]:
    return list(paid_for(table).mean(axis=1) if goal.running_costs is None else goal.running_costs)


def close_pairs(table: ScoreTable, direction: str, epsilon: float) -> NDArray[np.bool_]:
    """For each pair of arms, whether the first is at most epsilon worse by all scores."""
    arms, items, minimize = range(len(table.arms)), len(table.items), direction == "minimize"
    rows = [[cheapest.is_close(lead(table.scores, b, a, minimize), items, epsilon) for a in arms] for b in arms]
    return np.array(rows, np.bool_)


def sorted_arms(table: ScoreTable, direction: str) -> list[int]:
    """The best arm first, by sums without rounding; of those that tie, the cheapest first."""
    prices = paid_for(table).mean(axis=1)

    def order(a: int, b: int) -> int:
        by = -lead(table.scores, a, b, direction == "minimize") or prices[a] - prices[b]
        return int(by > 0) - int(by < 0)

    return sorted(range(len(table.arms)), key=cmp_to_key(order))


def compiled_race(name: str) -> Any:
    from cabai.core.compiling import compiled

    return compiled(specialised(run_race, functions_of(name)))
