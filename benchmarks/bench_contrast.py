"""What `contrast` costs against `evalue`, on the same rewards, and how long a trajectory takes.

    python benchmarks/bench_contrast.py [--quick] [--trajectories N]

Mean cost over evalue's for top-two and co, on instances of the paper's kind, near ties, wide gaps and costs that differ
1e5-fold, and on random ones: at most 1 apart from noise. Then the proven bill over the lower bound on the paper's
gaussian instance (goals: 2.5 at delta 0.05, 1.35 at 1e-6), and CPU seconds per trajectory over evalue's, warm, on one
core (goal: 1.5). The standard error of a ratio is that of pairs of trajectories with the same rewards.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from cabai import Instance, simulate
from cabai.results import Runs
from cabai.support.tables import table
from timing import best_times

DELTAS = 0.1, 0.05, 0.01, 1e-6
PAPER = [1, 0.1, 0.01]
KNOWN = [
    ("gaussian", [1.5, 1, 0.5], PAPER), ("gaussian", [1.5, 1.2, 1.2], PAPER), ("gaussian", [1, *[0.5] * 9], [1] * 10),
    ("gaussian", [0.1, 0, 0], [1] * 3), ("gaussian", [0.8, 0.4, 0.2, 0, -0.3], [1] * 5),
    ("gaussian", [3, 1, 1, 0], [1] * 4), ("gaussian", [20, 0, -5], [1] * 3), ("gaussian", [1, 0], [1e5, 1]),
    ("gaussian", [0.3, 0], [1, 1e5]), ("bernoulli", [0.9, 0.6, 0.3], PAPER),
    ("bernoulli", [0.5, 0.45, 0.43, 0.4], [1] * 4), ("bernoulli", [0.3, 0.2, 0.15], [1] * 3),
    ("bernoulli", [0.99, 0.01], [1] * 2), ("bernoulli", [0.6, 0.4], [1e5, 1]), ("poisson", [1.5, 1, 0.5], PAPER),
    ("poisson", [10_000, 9900], [1] * 2), ("poisson", [1000, 930], [1] * 2), ("poisson", [3000, 2900, 2850], [1] * 3),
    ("poisson", [70, 50], [1] * 2), ("poisson", [1, 0.6], [1, 1e5]), ("exponential", [1.5, 1, 0.5], PAPER),
    ("exponential", [50, 1], [1] * 2), ("exponential", [2, 1], [1, 1e5]),
]  # fmt: skip


def random_means(rng: np.random.Generator, family: str, arms: int, least: float = -1.0) -> np.ndarray:
    """Means with gaps of a tenth (10 ** least) to some standard deviations."""
    gap = 10 ** rng.uniform(least, 0.3)
    below = gap * np.array([0, 1, *rng.uniform(1, 4, arms - 2)])
    if family == "gaussian":
        return -below
    if family == "bernoulli":  # gaps of log odds
        return 1 / (1 + np.exp(2 * below - rng.normal(0, 1)))
    if family == "poisson":  # gaps in standard deviations
        largest = 10 ** rng.uniform(-0.5, 4)
        return largest * np.exp(-below / max(largest**0.5, 1))
    return 10 ** rng.uniform(-0.5, 1) * np.exp(-below)


def random_instances(family: str, count: int) -> list[Instance]:
    """Two to six arms, and costs that differ up to a hundredfold."""
    rng, found = np.random.default_rng(2026), []
    for _ in range(count):
        arms = int(rng.integers(2, 7))
        found.append(Instance(family, random_means(rng, family, arms), 10 ** rng.uniform(-2, 0, arms)))
    return found


def runs_of(instance: Instance, policy: str, threshold: str, trajectories: int, max_pulls: int | None) -> list[Runs]:
    go = partial(
        simulate, instance, policy, threshold=threshold, trajectories=trajectories, max_pulls=max_pulls, seed=7
    )
    return go(delta=list(DELTAS)) if policy == "top-two" else [go(delta=delta) for delta in DELTAS]


def ratios(instance: Instance, policy: str, trajectories: int) -> list[tuple[float, float]]:
    """Mean cost of contrast over evalue's, and its standard error, at each delta.

    A trajectory that has dropped the best arm may continue for ever between tied rivals, so all are cut at a large
    limit.
    """
    most = 3_000_000
    found = []
    for new, old in zip(
        *(runs_of(instance, policy, each, trajectories, most) for each in ("contrast", "evalue")), strict=True
    ):
        ratio = new.costs.mean() / old.costs.mean()
        error = (new.costs - ratio * old.costs).std() / old.costs.mean() / len(new.costs) ** 0.5
        found.append((ratio, error))
    return found


def seconds(instance: Instance, policy: str, trajectories: int, delta: float) -> float:
    jobs = [
        partial(simulate, instance, policy, threshold=each, delta=delta, trajectories=trajectories, workers=1,
                max_pulls=3_000_000)
        for each in ("contrast", "evalue")
    ]  # fmt: skip
    for job in jobs:
        job()
    new, old = best_times(5, *jobs)
    return new / old


def main(quick: bool, n: int) -> None:
    worst, random = -np.inf, {}
    rows = [["instance", "policy", *(f"delta {delta:g}" for delta in DELTAS)]]
    cases = [Instance(*case) for case in KNOWN]
    for family in ("gaussian", "bernoulli", "poisson", "exponential"):
        cases += random_instances(family, 3 if quick else 20)
    for number, instance in enumerate(cases):
        means = ",".join(f"{mean:.3g}" for mean in instance.means[:4])
        for policy in ("top-two", "co"):
            few = n if means != "0.1,0,0" else n // 5
            found = ratios(instance, policy, few)
            if number >= len(KNOWN):
                random.setdefault((str(instance.family), policy), []).append([ratio for ratio, _ in found])
            worst = max(worst, *((ratio - 1) / max(error, 1e-9) for ratio, error in found))
            rows.append([f"{instance.family} {means}", policy, *(f"{r:.3f} ± {e:.3f}" for r, e in found)])
    print("Mean cost of contrast over evalue's, the same rewards, ± standard error")
    print(table(rows, left=2), flush=True)
    print(f"most above 1: {worst:.1f} standard errors (goal: below 4, there are {8 * len(cases)} numbers)\n")
    rows = [["random instances", "policy", *(f"delta {delta:g}" for delta in DELTAS)]]
    for (family, policy), found in random.items():
        cells = [f"{np.median(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in zip(*found, strict=True)]
        rows.append([f"{len(found)} {family}", policy, *cells])
    print("The same, of the random instances: median (least to most)")
    print(table(rows, left=2), flush=True)
    paper = Instance("gaussian", [1.5, 1, 0.5], PAPER)
    for delta, goal in ((0.05, 2.5), (1e-6, 1.35)):
        bills = [
            simulate(paper, policy, delta=delta, trajectories=4 * n).summary().ratio for policy in ("top-two", "co")
        ]
        print(f"bill over the lower bound at delta {delta:g}: top-two {bills[0]:.3f}, co {bills[1]:.3f} (goal {goal})")
    rows = [["family", "policy", "delta 0.05", "delta 1e-6"]]
    for instance in (Instance(*KNOWN[i]) for i in (0, 2, 9, 14, 20)):
        for policy in ("top-two", "co"):
            times = [seconds(instance, policy, 4 * n, delta) for delta in (0.05, 1e-6)]
            rows.append([f"{instance.family}, {len(instance)} arms", policy, *(f"{x:.2f}" for x in times)])
    print("\nCPU seconds per trajectory over evalue's (goal 1.5)")
    print(table(rows, left=2))


if __name__ == "__main__":
    is_quick = "--quick" in sys.argv
    given = int(sys.argv[sys.argv.index("--trajectories") + 1]) if "--trajectories" in sys.argv else None
    main(is_quick, given or (100 if is_quick else 1000))
