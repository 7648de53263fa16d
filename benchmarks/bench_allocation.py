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

from cabai.compiling import compiled
from cabai.families import family_of
from cabai.kernels.allocation import allocate
from cabai.paper.plain import cost_shares
from cabai.policies.base import TOLERANCE
from cabai.state import ARM, RULES, RUN, Record, Records, record
from cabai.tables import table
from timing import best_times

ARMS = 3, 10, 100, 1000
FAMILIES = {
    "gaussian": (1.5, 1.0, 0.5),
    "bernoulli": (0.9, 0.6, 0.3),
    "poisson": (1.5, 1.0, 0.5),
    "exponential": (1.5, 1.0, 0.5),
}
SHIFT = 1e-3  # how far one observation moves a mean after a thousand


@compiled
def solve_cold(arms, run, rules, times):
    for _ in range(times):
        run.memo = 0.0
        allocate(arms, run, rules)


@compiled
def solve_warm(arms, run, rules, rounds, shift):
    """In each round every arm in turn moves by `shift`, then every arm in turn moves back."""
    for _ in range(rounds):
        for move in (shift, -shift):
            for a in range(len(arms)):
                arms[a].mean += move
                allocate(arms, run, rules)


def problem(family: str, K: int) -> tuple[np.ndarray, np.void, np.void]:
    """The paper's instance stretched to K arms: rivals evenly spaced, costs falling from 1 to 0.01."""
    best, second, worst = FAMILIES[family]
    arms, run, rules = np.zeros(K, ARM), record(RUN), record(RULES)
    arms["mean"] = [best, *np.linspace(second, worst, K - 1)]
    arms["cost"] = np.geomspace(1, 0.01, K)
    run["leader"] = 0
    rules["family"], rules["variance"] = family_of(family).code, 1.0
    return arms, run, rules


class Counting(Record):
    """Rules that count how often a solver asks for its tolerance: once a step."""

    steps = 0

    def __getattr__(self, name: str) -> Any:
        Counting.steps += name == "tolerance"
        return super().__getattr__(name)


def steps(arms: np.ndarray, run: np.void, rules: np.void) -> int:
    """How many steps a solve takes from the arms' present memory; the arms are left solved."""
    Counting.steps = 0
    allocate(Records(arms), Record(run), Counting(rules))
    return Counting.steps


def warm_steps(arms: np.ndarray, run: np.void, rules: np.void) -> float:
    """The mean of `steps` after a move of each of up to ten arms."""
    moving = range(min(10, len(arms)))
    total = 0
    for a in moving:
        arms[a]["mean"] += SHIFT
        total += steps(arms, run, rules)
    arms["mean"][list(moving)] -= SHIFT
    return total / len(moving)


def row(family: str, K: int, quick: bool) -> list[str]:
    arms, run, rules = problem(family, K)
    rules["tolerance"] = 1e-16
    cold_steps = steps(arms, run, rules)
    expected = cost_shares(family, arms["mean"], arms["cost"])
    error = float(np.abs(arms["share"] - expected).max())
    rounds = max(1, (10_000 if quick else 100_000) // K**2)
    warm_rules = rules.copy()
    warm_rules["tolerance"] = TOLERANCE
    solve_cold(arms, run, rules, 1)
    solve_warm(arms, run, warm_rules, 1, SHIFT)
    naive, cold, warm = best_times(
        2 if quick else 5,
        lambda: cost_shares(family, arms["mean"], arms["cost"]),
        lambda: solve_cold(arms, run, rules, 2 * K * rounds),
        lambda: solve_warm(arms, run, warm_rules, rounds, SHIFT),
    )
    cold, warm = cold / (2 * K * rounds), warm / (2 * K * rounds)
    return [
        family, str(K), f"{naive * 1e3:.3g}", f"{cold * 1e6:.3g}", f"{naive / cold:,.0f}", str(cold_steps),
        f"{warm * 1e6:.3g}", f"{naive / warm:,.0f}", f"{warm_steps(arms, run, warm_rules):.1f}",
        f"{warm * 1e6 / K:.3f}", f"{error:.0e}",
    ]  # fmt: skip


def main(quick: bool) -> None:
    header = [
        "family", "K", "naive ms", "cold µs", "ratio", "steps", "warm µs", "ratio", "steps", "warm µs/arm", "error",
    ]  # fmt: skip
    print(table([header, *(row(family, K, quick) for family in FAMILIES for K in ARMS)]))


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
