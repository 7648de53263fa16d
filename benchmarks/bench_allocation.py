"""The optimal allocation: cabai's joint method against a nested `scipy.optimize.brentq`, from 3 to 1000 arms.

    python benchmarks/bench_allocation.py [--quick]

`cold` solves from nothing to the last digits; `warm` solves again, to the tolerance of the ctas policy, after the mean
of one arm moved as by one more observation: what ctas does at each step. `steps` counts the method's steps, each of
them O(K); `error` is the largest difference between cabai's and the naive shares. CPU time, cabai's from a compiled
loop.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cabai.core.compiling import compiled
from cabai.core.setup import TOLERANCE, Setup
from cabai.core.shares import allocate
from cabai.core.state import Record, Records
from cabai.families import family_of
from cabai.paper.plain import cost_shares
from cabai.policies import policy_of
from cabai.support.tables import table
from cabai.thresholds import threshold_of
from timing import best_times

ARMS = 3, 10, 100, 1000
FAMILIES = {
    "gaussian": (1.5, 1.0, 0.5),
    "bernoulli": (0.9, 0.6, 0.3),
    "poisson": (1.5, 1.0, 0.5),
    "exponential": (1.5, 1.0, 0.5),
}
SHIFT = 1e-3  # how far one observation moves a mean after a thousand


def solve_cold(arms, run, rules, times):
    for _ in range(times):
        run.z = 0.0
        allocate(arms, run, rules)


def solve_warm(arms, run, rules, rounds, shift):
    """In each round every arm in turn moves by `shift`, then every arm in turn moves back."""
    for _ in range(rounds):
        for move in (shift, -shift):
            for a in range(len(arms)):
                arms[a].mean += move
                allocate(arms, run, rules)


def problem(family: str, K: int) -> tuple[Setup, np.ndarray, np.void]:
    """The paper's instance stretched to K arms: rivals evenly spaced, costs falling from 1 to 0.01."""
    best, second, worst = FAMILIES[family]
    setup = Setup(family_of(family), threshold_of("paper"), policy_of("ctas"), arms=K, delta=0.05)
    arms, run = setup.start()
    arms["mean"] = [best, *np.linspace(second, worst, K - 1)]
    arms["cost"] = np.geomspace(1, 0.01, K)
    run["leader"] = 0
    return setup, arms, run


class Counting(Record):
    """Rules that count how often a solver reads its tolerance: once per step."""

    steps = 0

    def __getattr__(self, name: str) -> Any:
        Counting.steps += name == "tolerance"
        return super().__getattr__(name)


def steps(setup: Setup, arms: np.ndarray, run: np.void, rules: np.void) -> int:
    """How many steps a solve takes from the arms' present memory; the arms are left solved."""
    Counting.steps = 0
    setup.bound(allocate)(Records(arms), Record(run), Counting(rules))
    return Counting.steps


def warm_steps(setup: Setup, arms: np.ndarray, run: np.void, rules: np.void) -> float:
    """The mean of `steps` after a move of each of up to ten arms."""
    moving = range(min(10, len(arms)))
    total = 0
    for a in moving:
        arms[a]["mean"] += SHIFT
        total += steps(setup, arms, run, rules)
    arms["mean"][list(moving)] -= SHIFT
    return total / len(moving)


def row(family: str, K: int, quick: bool) -> list[str]:
    setup, arms, run = problem(family, K)
    rules, warm_rules = setup.rules.copy(), setup.rules
    rules["tolerance"], warm_rules["tolerance"] = 1e-16, TOLERANCE
    cold_steps = steps(setup, arms, run, rules)
    expected = cost_shares(family, arms["mean"], arms["cost"])
    error = float(np.abs(arms["share"] - expected).max())
    rounds = max(1, (10_000 if quick else 100_000) // K**2)
    cold_form, warm_form = compiled(setup.bound(solve_cold)), compiled(setup.bound(solve_warm))
    cold_form(arms, run, rules, 1)
    warm_form(arms, run, warm_rules, 1, SHIFT)
    naive, cold, warm = best_times(
        2 if quick else 5,
        lambda: cost_shares(family, arms["mean"], arms["cost"]),
        lambda: cold_form(arms, run, rules, 2 * K * rounds),
        lambda: warm_form(arms, run, warm_rules, rounds, SHIFT),
    )
    cold, warm = cold / (2 * K * rounds), warm / (2 * K * rounds)
    return [
        family, str(K), f"{naive * 1e3:.3g}", f"{cold * 1e6:.3g}", f"{naive / cold:,.0f}", str(cold_steps),
        f"{warm * 1e6:.3g}", f"{naive / warm:,.0f}", f"{warm_steps(setup, arms, run, warm_rules):.1f}",
        f"{warm * 1e6 / K:.3f}", f"{error:.0e}",
    ]  # fmt: skip


def main(quick: bool) -> None:
    header = [
        "family", "K", "naive ms", "cold µs", "ratio", "steps", "warm µs", "ratio", "steps", "warm µs/arm", "error",
    ]  # fmt: skip
    print(table([header, *(row(family, K, quick) for family in FAMILIES for K in ARMS)]))


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
