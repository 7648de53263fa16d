"""The simulation engine: against the paper, a naive version and C++; growth with the number of arms; two cores; memory.

    python benchmarks/bench_engine.py [--quick]

The C++ in kernel.cpp follows the same formulas and random streams, so each of its trajectories must be the same as
ours. If g++ is installed, it is built for this machine twice: with full optimisation for the times, and without fused
multiply-adds, which round differently, to compare trajectories. All times are CPU seconds on one core, the minimum of a
few repetitions, unless they say wall.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cabai import Instance, simulate
from cabai.core.setup import Setup
from cabai.paper import plain
from cabai.policies import policy_of
from cabai.results import Runs
from cabai.simulation.truth import truth_of
from cabai.support.streams import EDGE, HEIGHT
from cabai.support.tables import table
from cabai.thresholds import threshold_of
from timing import best_times

COSTS, DELTA = [1, 0.1, 0.01], 1e-6
POLICIES = "co", "ctas", "tas", "d-lucb", "uniform"  # as numbered in kernel.cpp
UNUSED = {"variance": 1.0, "exploration": 0.0, "slack": 0.0}  # by families and policies that have none
TABLE_2 = {  # the paper's seconds for 1000 trajectories of co, ctas, tas and d-lucb; families as numbered in kernel.cpp
    "gaussian": ([1.5, 1, 0.5], (85, 1712, 2410, 82)),
    "bernoulli": ([0.9, 0.6, 0.3], (58, 1995, 2780, 60)),
    "poisson": ([1.5, 1, 0.5], (96, 3260, 4633, 101)),
}
MEMORY_GOAL = 500  # MB
MILLION = """
import resource
import cabai
cabai.simulate(cabai.Instance("gaussian", {means}, {costs}), "co", delta={delta}, trajectories={trajectories})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


class Limit:
    """kernel.cpp, compiled; called as `simulate` is."""

    def __init__(self, folder: Path, *flags: str) -> None:
        source, library = Path(__file__).with_name("kernel.cpp"), folder / f"kernel{len(flags)}.so"
        options = ["-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", *flags]
        subprocess.run(["g++", *options, str(source), "-o", str(library)], check=True)
        self.library = ctypes.CDLL(str(library))

    def __call__(self, instance: Instance, policy: str, trajectories: int, max_pulls: int = 2**62) -> list[np.ndarray]:
        """The decision, cost and steps of each trajectory."""
        chosen, family = policy_of(policy), instance.family
        rules = Setup(family, threshold_of("paper"), chosen, arms=len(instance), delta=DELTA).rules
        known = UNUSED | {name: float(rules[name]) for name in rules.dtype.names if name != "room"}
        numbers = np.array([known[name] for name in ("variance", "level", "exploration", "slack", "tolerance")])
        inputs = instance.means, instance.costs, truth_of(instance)["spread"].copy(), numbers, EDGE, HEIGHT
        outputs = [np.empty(trajectories, kind) for kind in (np.int64, np.float64, np.int64)]
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        which = list(TABLE_2).index(family.name), POLICIES.index(chosen.name)
        self.library.simulate(
            *which, integer(len(instance)), *(pointer(x.ctypes.data) for x in inputs), ctypes.c_uint64(0),
            integer(trajectories), integer(max_pulls), *(pointer(x.ctypes.data) for x in outputs),
        )  # fmt: skip
        return outputs


def ours(instance: Instance, policy: str, trajectories: int, max_pulls: int | None = None, workers: int = 1) -> Runs:
    return simulate(
        instance,
        policy,
        delta=DELTA,
        trajectories=trajectories,
        max_pulls=max_pulls,
        workers=workers,
        threshold="paper",
    )


def against_limit(limit: Limit | None, repetitions: int, *cell: Any) -> tuple[float, float]:
    """Seconds of `ours` and of C++ on a cell; nan without a compiler."""
    jobs = [partial(ours, *cell), *([partial(limit, *cell)] if limit else [])]
    here, *there = best_times(repetitions, *jobs)
    return here, there[0] if there else math.nan


def naive_seconds_per_step(family: str, means: list[float], policy: str, trajectories: int) -> float:
    rng, steps = np.random.default_rng(0), 0
    started = time.process_time()
    for _ in range(trajectories):
        state = plain.Trajectory(family, np.array(means), np.array(COSTS), DELTA, rng)
        state.run(policy)
        steps += state.t
    return (time.process_time() - started) / steps


def paper_table(limit: Limit | None, twin: Limit | None, quick: bool) -> str:
    """Table 2 of the paper. The naive time is the time per step of a few trajectories, times our number of steps."""
    header = [
        "family", "policy", "paper s", "naive s", "ours s", "ns/step", "C++ s", "naive/ours", "ours/C++", "differ",
    ]  # fmt: skip
    rows = [header]
    n = 500 if quick else 3000
    for family, (means, seconds) in TABLE_2.items():
        instance = Instance(family, means, COSTS)
        for policy, paper in zip(POLICIES[:4], seconds, strict=True):
            few = (2 if quick else 3) * (10 if policy in ("co", "d-lucb") else 1)
            runs = ours(instance, policy, n)
            here, there = against_limit(limit, 3 if quick else 7, instance, policy, n)
            slow = naive_seconds_per_step(family, means, policy, few) * runs.steps.sum()
            differ = "?"
            if twin:
                same = zip((runs.decisions, runs.costs, runs.steps), twin(instance, policy, n), strict=True)
                differ = f"{np.any([x != y for x, y in same], axis=0).sum()}/{n}"
            thousand = 1000 / n
            rows.append([
                family, policy, str(paper), f"{slow * thousand:.3g}", f"{here * thousand:.4f}",
                f"{here / runs.steps.sum() * 1e9:.1f}", f"{there * thousand:.4f}", f"{slow / here:,.0f}",
                f"{here / there:.2f}", differ,
            ])  # fmt: skip
    return table(rows, left=2)


def growth_table(limit: Limit | None, quick: bool) -> str:
    """One step as arms are added: one best arm, the others close, every run cut off before it can end.

    ctas and tas do not explore here: otherwise the first K² pulls would be uniform, without solving for the allocation.
    kernel.cpp has no top-two.
    """
    rows = [["policy", "K", "ns/step", "ns/step/arm", "C++ ns/step", "ours/C++"]]
    for policy in ("co", "ctas(exploration=0)", "tas(exploration=0)", "top-two", "uniform"):
        known = limit if policy_of(policy).name in POLICIES else None
        for K in (3, 10, 30, 100, 300, 1000):
            instance = Instance("gaussian", [1, *np.linspace(0.95, 0.5, K - 1)], np.geomspace(1, 0.01, K))
            max_pulls = 20 * K + 2000
            size = max(1, (200_000 if quick else 1_000_000) // (max_pulls * (1 + K // 30))), max_pulls
            steps = ours(instance, policy, *size).steps.sum()
            here, there = against_limit(known, 3 if quick else 5, instance, policy, *size)
            here, there = here / steps * 1e9, there / steps * 1e9
            rows.append([policy, str(K), f"{here:.1f}", f"{here / K:.2f}", f"{there:.1f}", f"{here / there:.2f}"])
    return table(rows)


def workers_table(quick: bool) -> str:
    """Two workers against one: wall time, which needs two idle cores, and the CPU time they spend in all."""
    rows = [["policy", "trajectories", "1 worker s", "2 workers s", "speed-up", "CPU 2/1"]]
    instance = Instance("gaussian", TABLE_2["gaussian"][0], COSTS)
    for policy, n in (("co", 5000 if quick else 40_000), ("ctas", 2000 if quick else 20_000)):
        jobs = [partial(ours, instance, policy, n, workers=workers) for workers in (1, 2)]
        one, two = best_times(3 if quick else 5, *jobs, clock=time.perf_counter)
        cpu_one, cpu_two = best_times(3, *jobs)
        rows.append([policy, str(n), f"{one:.2f}", f"{two:.2f}", f"{one / two:.2f}", f"{cpu_two / cpu_one:.2f}"])
    return table(rows)


def peak_memory(quick: bool) -> str:
    """Peak memory of a separate process that runs a million trajectories of co."""
    trajectories = 50_000 if quick else 1_000_000
    script = MILLION.format(means=TABLE_2["gaussian"][0], costs=COSTS, delta=DELTA, trajectories=trajectories)
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return f"peak memory of {trajectories:,} co trajectories: {int(run.stdout) / 1024:.0f} MB (goal {MEMORY_GOAL} MB)"


def main(quick: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        limit = twin = None
        if shutil.which("g++"):
            limit, twin = Limit(Path(folder)), Limit(Path(folder), "-ffp-contract=off")
        else:
            print("g++ is not installed: C++ is left out.")
        print("Seconds for 1000 trajectories, one core; differ: trajectories that C++ ran differently")
        print(paper_table(limit, twin, quick), "\n\nA step as arms are added (gaussian)")
        print(
            growth_table(limit, quick),
            "\n\nTwo workers against one (gaussian); wall time is worth something on idle cores only",
        )
        print(workers_table(quick), "\n")
        print(peak_memory(quick))


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
