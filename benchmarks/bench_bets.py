"""What `bets` costs on bounded rewards against `evalue`, and how long a trajectory takes.

    python benchmarks/bench_bets.py [--quick]

Pulls per arm of two arms pulled in turn at delta 0.05, for several laws. Then the demo's digits, as beta rewards
with the means, standard deviations and costs of its pilot, with epsilon 0.005 (goal: 6.5 CPU seconds). Then mean cost
over evalue's on 20 random instances that nothing was tuned on. Then CPU seconds per trajectory over evalue's, warm, on
one core (goal: 4).
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from cabai import Instance, simulate
from cabai.support.tables import table
from timing import best_times

PAIRS = [  # means, law, standard deviation
    ([0.6, 0.59], "beta", 0.05), ([0.6, 0.595], "beta", 0.01), ([0.6, 0.5], "beta", 0.2), ([0.6, 0.5], "beta", 0.33),
    ([0.6, 0.5], "uniform", None), ([0.6, 0.5], "two-point", None), ([0.98, 0.95], "two-point", None),
]  # fmt: skip
DIGITS = Instance(
    "bounded", [0.898, 0.897, 0.984, 0.948, 0.9834, 0.959, 0.977, 0.968],
    [0.0011, 0.0013, 0.0008, 0.005, 0.013, 0.04, 0.16, 0.21], law="beta",
    sd=[0.0091, 0.0089, 0.0037, 0.0067, 0.004, 0.0061, 0.0048, 0.005],
)  # fmt: skip
THREE = [0.6, 0.5, 0.45], [1, 0.3, 0.1]
TIMED = [
    Instance("bounded", *THREE), Instance("bounded", *THREE, law="beta", sd=0.2),
    Instance("bounded", *THREE, law="two-point"), Instance("bounded", [0.9, 0.6, 0.3], [1, 0.1, 0.01], law="two-point"),
]  # fmt: skip


KINDS = "beta", "bimodal", "uniform", "rare zeros"


def random_instances(count: int) -> list[tuple[str, Instance]]:
    """Two to five arms, costs that differ up to a hundredfold."""
    rng, found = np.random.default_rng(2027), []
    for i in range(count):
        kind = KINDS[i % 4]
        found.append((kind, random_instance(rng, kind, int(rng.integers(2, 6)), 2)))
    return found


def random_instance(rng: np.random.Generator, kind: str, arms: int, orders: float) -> Instance:
    """Beta rewards of any variance, bimodal and uniform ones, and rewards that hardly vary except for a rare 0; costs
    over so many orders of magnitude."""
    best, gap = rng.uniform(0.3, 0.9), 10 ** rng.uniform(-1.3, -0.5)
    means = best - np.minimum(gap * np.array([0, 1, *rng.uniform(1, 3, arms - 2)]), 0.9 * best)
    costs, spread = 10 ** rng.uniform(-orders, 0, arms), np.sqrt(means * (1 - means))
    if kind == "rare zeros":
        values = means / 0.97 + rng.uniform(-0.01, 0.01, (100, arms))
        values[:3] = 0.0
        return Instance.of_samples("bounded", list(np.clip(values.T, 0, 1)), costs)
    if kind == "uniform":
        return Instance("bounded", means, costs)
    share = 10 ** rng.uniform(-1.5, -0.3) if kind == "beta" else rng.uniform(0.8, 0.95)
    return Instance("bounded", means, costs, law="beta", sd=share * spread)


def held_out(quick: bool) -> None:
    rows = [["law", "means", "policy", "cost over evalue's", "±", "errors"]]
    for kind, instance in random_instances(4 if quick else 20):
        for policy in ("top-two", "co"):
            new, old = (
                simulate(instance, policy, threshold=each, trajectories=100, max_pulls=300_000, seed=5)
                for each in ("bets", "evalue")
            )
            ratio = new.costs.mean() / old.costs.mean()
            error = (new.costs - ratio * old.costs).std() / old.costs.mean() / 10
            means = ",".join(f"{mean:.2f}" for mean in instance.means)
            rows.append([kind, means, policy, f"{ratio:.3f}", f"{error:.3f}", str(int(new.wrong.sum()))])
    print("\nMean cost over evalue's on random instances, 100 trajectories each, delta 0.05")
    print(table(rows, left=2), flush=True)


def seconds(instance: Instance, policy: str, trajectories: int) -> float:
    jobs = [
        partial(simulate, instance, policy, threshold=each, trajectories=trajectories, workers=1)
        for each in ("bets", "evalue")
    ]
    for job in jobs:
        job()
    new, old = best_times(5, *jobs)
    return new / old


def main(quick: bool) -> None:
    n = 200 if quick else 2000
    rows = [["law", "means", "sd", "evalue", "bets", "±"]]
    for means, law, sd in PAIRS:
        instance = Instance("bounded", means, [1, 1], law=law, sd=sd)
        old, new = (
            simulate(instance, "uniform", threshold=each, trajectories=few, max_pulls=20_000, seed=1).steps / 2
            for each, few in (("evalue", n // 10), ("bets", n))
        )
        shown = "> 9000" if old.max() >= 10_000 else f"{old.mean():.0f}"
        spread = f"{instance.sd[0]:.3g}"
        rows.append(
            [law, f"{means[0]:g}/{means[1]:g}", spread, shown, f"{new.mean():.0f}", f"{new.std() / n**0.5:.0f}"]
        )
    print("Pulls per arm, two arms in turn, delta 0.05")
    print(table(rows, left=2))
    print("\nThe demo's digits, CPU seconds of training, epsilon 0.005")
    for policy in ("top-two", "co", "ctas", "tas"):
        found = simulate(DIGITS, policy, epsilon=0.005, trajectories=n // 2).summary()
        goal = " (goal 6.5)" if policy == "top-two" else ""
        print(f"{policy:8}{found.mean_cost:6.2f} ± {found.se_cost:.2f}, errors {found.errors}{goal}")
    held_out(quick)
    rows = [["instance", "policy", "over evalue's"]]
    for instance in TIMED:
        for policy in ("top-two", "co"):
            means = ",".join(f"{mean:g}" for mean in instance.means)
            times = seconds(instance, policy, n // 2)
            rows.append([f"{instance.law or 'uniform'} {means}", policy, f"{times:.2f}"])
    print("\nCPU seconds per trajectory over evalue's (goal 4)")
    print(table(rows, left=2))


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
