"""What `champion` costs against `contrast`, on the same rewards, and how long a trajectory takes.

    python benchmarks/bench_champion.py [--trajectories N] [--instances N]

Mean cost over contrast's: random instances per family and number of arms, with costs over four orders of magnitude, and
known ones, some with a very expensive leader. Goal: at most 1.02 where the leader has more than 20 pulls on average.
Then the bill over the lower bound (goals: the paper's instance 2.2, 1.72, 1.31 at delta 0.05, 0.01, 1e-6; ten arms 2.5
at 0.05), and CPU seconds per trajectory over contrast's, warm, on one core (goals: 1.5 with 3 arms, 2 with 100).
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

from bench_contrast import random_means
from cabai import Instance, simulate
from cabai.support.tables import table
from timing import best_times

DELTAS = [0.1, 0.05, 0.01, 1e-6]
PAPER = [1, 0.1, 0.01]
KNOWN = [
    ("gaussian", [1.5, 1, 0.5], PAPER), ("gaussian", [1.5, 1.2, 1.2], PAPER), ("gaussian", [1, 0.5, 0.5], [1] * 3),
    ("gaussian", [1, *[0.5] * 4], [1] * 5), ("gaussian", [1, *[0.5] * 9], [1] * 10),
    ("gaussian", [1, *[0.5] * 4], [100, *[1] * 4]), ("gaussian", [1, *[0.5] * 9], [100, *[1] * 9]),
    ("gaussian", [1.5, 1.2, 1.2], [1000, 1, 1]), ("gaussian", [0.3, 0, 0], [1] * 3),
    ("bernoulli", [0.9, 0.6, 0.3], PAPER), ("bernoulli", [0.5, 0.45, 0.43, 0.4], [1] * 4),
    ("poisson", [1.5, 1, 0.5], PAPER), ("poisson", [1030, 1000, 1000], [1] * 3), ("exponential", [1.5, 1, 0.5], PAPER),
]  # fmt: skip
ARMS = {"gaussian": (3, 4, 5, 10, 30, 100), "bernoulli": (3, 10, 30), "poisson": (3, 10), "exponential": (3, 10)}


def random_instances(family: str, arms: int, count: int) -> list[Instance]:
    rng = np.random.default_rng([arms, 30])
    return [
        Instance(family, random_means(rng, family, arms, -0.5), 10 ** rng.uniform(-4, 0, arms)) for _ in range(count)
    ]


def ratios(instance: Instance, policy: str, trajectories: int, deltas: list[float]) -> list[tuple[float, float, float]]:
    """Mean cost over contrast's, its standard error, and the mean pulls of the best arm, at each delta."""
    found = []
    for delta in [deltas] if policy == "top-two" else [[each] for each in deltas]:
        new, old = (
            simulate(instance, policy, threshold=each, trajectories=trajectories, delta=delta, seed=7, max_pulls=10**6)
            for each in ("champion", "contrast")
        )
        for mine, other in zip(new, old, strict=True):
            ratio = mine.costs.mean() / other.costs.mean()
            error = (mine.costs - ratio * other.costs).std() / other.costs.mean() / trajectories**0.5
            found.append((ratio, error, float(mine.pulls[:, int(np.argmax(instance.means))].mean())))
    return found


def seconds(instance: Instance, policy: str, trajectories: int) -> float:
    jobs = [
        partial(simulate, instance, policy, threshold=each, delta=0.05, trajectories=trajectories, workers=1)
        for each in ("champion", "contrast")
    ]
    for job in jobs:
        job()
    new, old = best_times(5, *jobs)
    return new / old


def main(n: int, count: int) -> None:
    worst: tuple[float, ...] = (-np.inf, 0.0)
    heading = [f"delta {delta:g}" for delta in DELTAS]
    rows = [["instance", "costs", *heading]]
    for family, means, costs in KNOWN:
        found = ratios(Instance(family, means, costs), "top-two", 4 * n, DELTAS)
        worst = max(worst, *((ratio, error) for ratio, error, pulls in found if pulls > 20))
        name = f"{family} {','.join(f'{mean:g}' for mean in means[:3])} ({len(means)})"
        rows.append([name, ",".join(f"{c:g}" for c in costs[:3]), *(f"{r:.3f} ± {e:.3f}" for r, e, _ in found)])
    print(f"Mean cost of champion over contrast's, top-two, {4 * n} trajectories with the same rewards")
    print(table(rows, left=2), flush=True)
    rows = [["random instances", "policy", *heading]]
    for family, sizes in ARMS.items():
        for arms in sizes:
            drawn = random_instances(family, arms, count)
            for policy in (
                ("top-two", "co", "ctas") if (family, arms) in (("gaussian", 3), ("gaussian", 10)) else ("top-two",)
            ):
                deltas = DELTAS if policy == "top-two" else [0.05]
                found = [ratios(instance, policy, n, deltas) for instance in drawn]
                if policy == "top-two":  # a run of co may never end
                    worst = max(worst, *((r, e) for each in found for r, e, pulls in each if pulls > 20))
                cells = [sorted(ratio for ratio, _, _ in each) for each in zip(*found, strict=True)]
                words = [f"{np.median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f})" for each in cells]
                words = words if policy == "top-two" else ["", words[0], "", ""]
                rows.append([f"{count} {family}, {arms} arms", policy, *words])
    print(f"\nThe same, random instances, {n} trajectories each: median (least to most)")
    print(table(rows, left=2))
    print(f"largest where the leader has more than 20 pulls: {worst[0]:.3f} ± {worst[1]:.3f} (goal 1.02)\n", flush=True)
    for means, costs in (([1.5, 1, 0.5], PAPER), ([1, *[0.5] * 9], [1] * 10)):
        runs = simulate(Instance("gaussian", means, costs), threshold="champion", delta=DELTAS[1:], trajectories=20 * n)
        words = ", ".join(f"{each.delta:g}: {each.summary().ratio:.2f}" for each in runs)
        print(f"bill over the lower bound, gaussian, {len(means)} arms, by delta: {words}", flush=True)
    rng = np.random.default_rng(5)
    hundred = Instance("gaussian", [1, *rng.uniform(-1, 0.5, 99)], [1] * 100)
    cases = [Instance("gaussian", [1.5, 1, 0.5], PAPER), Instance("bernoulli", [0.9, 0.6, 0.3], PAPER), hundred]
    for instance in cases:
        times = [seconds(instance, policy, n if len(instance) > 10 else 10 * n) for policy in ("top-two", "co")]
        print(
            f"CPU time over contrast's, {instance.family}, {len(instance)}: top-two {times[0]:.2f}, co {times[1]:.2f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--trajectories", type=int, default=200)
    parser.add_argument("--instances", type=int, default=20)
    given = parser.parse_args()
    main(given.trajectories, given.instances)
