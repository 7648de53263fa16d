"""What the default tests cost against tests of pairs, on the same rewards, and how long a trajectory takes.

    python benchmarks/bench_champion.py [known] [random] [bound] [time] [--seed N] [--trajectories N] [--instances N]
                                        [--kinds LIST] [--arms LIST] [--policies LIST] [--deltas LIST]

Mean cost of `champion` over that of `contrast`; of `hedged` for two gaussian arms; over that of `bets` for rewards in
[0, 1]. `known`: known instances, some with a very expensive leader. `random`: for each kind of rewards, number of arms
and policy, instances with costs over four orders of magnitude; another seed draws others. Goal: at most 1.02 where the
leader has more than 20 pulls on average. `bound`: the bill over the lower bound (goals: the paper's instance 2.2, 1.72,
1.31 at delta 0.05, 0.01, 1e-6; ten arms 2.5 at 0.05). `time`: CPU seconds per trajectory over contrast's, warm, on one
core (goals: 1.5 with 3 arms, 2 with 100). A run of co may never end: its runs are cut short, and named if that matters.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

from bench_bets import KINDS, random_instance
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
FAMILIES = "gaussian", "bernoulli", "poisson", "exponential"
MOST_PULLS = 10**6


def tests(instance: Instance) -> tuple[str, str]:
    """The test of the best arm, and that of pairs."""
    if len(instance) == 2:
        return "hedged", "contrast"
    return "champion", "bets" if str(instance.family) == "bounded" else "contrast"


def ratios(instance: Instance, policy: str, trajectories: int, deltas: list[float], seed: int = 7) -> np.ndarray:
    """One row per delta: mean cost over that of the test of pairs, its standard error, the mean pulls of the best arm,
    mean cost over the lower bound, and the share of runs that were cut short."""
    found = []
    for delta in [deltas] if policy == "top-two" else [[each] for each in deltas]:
        new, old = (
            simulate(
                instance, policy, threshold=each, trajectories=trajectories, delta=delta, seed=seed,
                max_pulls=MOST_PULLS, workers=1,
            )
            for each in tests(instance)
        )  # fmt: skip
        for mine, other in zip(new, old, strict=True):
            ratio = mine.costs.mean() / other.costs.mean()
            error = (mine.costs - ratio * other.costs).std() / other.costs.mean() / trajectories**0.5
            pulls = mine.pulls[:, int(np.argmax(instance.means))].mean()
            cut = max(each.summary().unfinished for each in (mine, other)) / trajectories
            found.append((ratio, error, pulls, mine.summary().ratio or np.nan, cut))
    return np.array(found, float)


def known(n: int) -> None:
    worst, rows = (-np.inf, 0.0), [["instance", "costs", *(f"delta {delta:g}" for delta in DELTAS)]]
    for family, means, costs in KNOWN:
        found = ratios(Instance(family, means, costs), "top-two", n, DELTAS)
        worst = max(worst, *((ratio, error) for ratio, error, pulls, *_ in found if pulls > 20))
        name = f"{family} {','.join(f'{mean:g}' for mean in means[:3])} ({len(means)})"
        rows.append([name, ",".join(f"{c:g}" for c in costs[:3]), *(f"{r:.3f} ± {e:.3f}" for r, e, *_ in found)])
    print(f"Mean cost of champion over contrast's, top-two, {n} trajectories with the same rewards")
    print(table(rows, left=2))
    print(f"largest where the leader has more than 20 pulls: {worst[0]:.3f} ± {worst[1]:.3f} (goal 1.02)\n", flush=True)


def some_instance(rng: np.random.Generator, kind: str, arms: int) -> Instance:
    if kind in FAMILIES:
        return Instance(kind, random_means(rng, kind, arms, -0.5), 10 ** rng.uniform(-4, 0, arms))
    return random_instance(rng, kind, arms, 4)


def on_random(kind: str, arms: int, policy: str, n: int, count: int, deltas: list[float], seed: int) -> list[str]:
    """A row: median (least to most) by delta; median over the lower bound; the most where the leader has more than 20
    pulls, and how many of those are above 1.02 by two standard errors."""
    rng = np.random.default_rng([arms, seed])
    found = np.array([ratios(some_instance(rng, kind, arms), policy, n, deltas) for _ in range(count)])
    bill, error, pulls, over_bound, cut = np.moveaxis(found, 2, 0)
    cells = [f"{np.median(each):.3f} ({each.min():.2f} to {each.max():.2f})" for each in bill.T]
    bounds = "/".join(f"{each:.2f}" for each in np.median(over_bound, axis=0)) if kind in FAMILIES else "-"
    much = np.where(pulls > 20, bill, -np.inf)
    at = np.unravel_index(np.argmax(much), much.shape)
    above = int((much - 2 * error > 1.02).sum())
    worst = f"{bill[at]:.3f} ± {error[at]:.3f}, {above} of {(pulls > 20).sum()}" if much[at] > 0 else "none"
    return [kind, str(arms), policy, *cells, bounds, worst, f"{cut.max():.0%}" if cut.max() > 0 else ""]


def over_the_bound(n: int) -> None:
    for means, costs in (([1.5, 1, 0.5], PAPER), ([1, *[0.5] * 9], [1] * 10)):
        runs = simulate(Instance("gaussian", means, costs), threshold="champion", delta=DELTAS[1:], trajectories=n)
        found = [each.summary() for each in runs]
        words = ", ".join(
            f"{each.delta:g}: {each.ratio:.3f} ± {each.ratio * each.se_cost / each.mean_cost:.3f}" for each in found
        )
        print(f"bill over the lower bound, gaussian, {len(means)} arms, by delta: {words}", flush=True)


def seconds(instance: Instance, policy: str, trajectories: int) -> float:
    jobs = [
        partial(simulate, instance, policy, threshold=each, delta=0.05, trajectories=trajectories, workers=1)
        for each in tests(instance)
    ]
    for job in jobs:
        job()
    new, old = best_times(5, *jobs)
    return new / old


def times(n: int) -> None:
    rng = np.random.default_rng(5)
    hundred = [1, *rng.uniform(-1, 0.5, 99)]
    cases = [Instance("gaussian", [1.5, 1, 0.5], PAPER), Instance("bernoulli", [0.9, 0.6, 0.3], PAPER),
             Instance("bounded", [0.9, 0.6, 0.3], PAPER), Instance("gaussian", hundred, [1] * 100)]  # fmt: skip
    for instance in cases:
        found = [seconds(instance, policy, n if len(instance) > 10 else 10 * n) for policy in ("top-two", "co")]
        print(f"CPU time over that of pairs, {instance.family}, {len(instance)} arms: top-two {found[0]:.2f}, "
              f"co {found[1]:.2f}", flush=True)  # fmt: skip


def main(given: argparse.Namespace) -> None:
    n, parts = given.trajectories, given.parts or ["known", "random", "bound", "time"]
    if "known" in parts:
        known(4 * n)
    if "random" in parts:
        deltas = [float(each) for each in given.deltas.split(",")]
        heading = ["rewards", "arms", "policy", *(f"delta {delta:g}" for delta in deltas)]
        heading += ["over the bound", "most with 20 pulls, clearly above 1.02", "cut short"]
        print(f"Median (least to most) over {given.instances} random instances, seed {given.seed}, {n} trajectories")
        for kind in given.kinds.split(","):
            rows = [
                on_random(kind, arms, policy, n if arms <= 10 else n // 4, given.instances, deltas, given.seed)
                for arms in map(int, given.arms.split(","))
                for policy in given.policies.split(",")
                if arms > 2 or kind == "gaussian"
            ]
            print(table([heading, *rows], left=3), flush=True)
    if "bound" in parts:
        over_the_bound(20 * n)
    if "time" in parts:
        times(n)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=["known", "random", "bound", "time", []])
    parser.add_argument("--trajectories", type=int, default=100)
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--kinds", default=",".join((*FAMILIES, *KINDS)))
    parser.add_argument("--arms", default="2,3,4,10")
    parser.add_argument("--policies", default="top-two")
    parser.add_argument("--deltas", default=",".join(f"{delta:g}" for delta in DELTAS))
    main(parser.parse_args())
