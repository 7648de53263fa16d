"""How fast engine "cuda" is: trajectories per second, against one core and all cores of the same machine.

    python benchmarks/bench_gpu.py [--quick] [--cells NAME,...] [--variants] [--first] [--seconds S] [--out FILE]

Each cell is simulated with keep="summary" on the GPU, in one thread and in all threads, warm; then a number of
trajectories is made both ways, and those that differ in anything are counted. Goals: 200 times one core for top-two
with contrast and three arms, 100 times with 30 arms. --variants measures other settings of the kernel; --first the time
to the first result in a new process, with an empty and a filled cache; --profile CELL makes some launches, for a
profiler.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from cabai import Instance, simulate
from cabai.core.setup import Setup
from cabai.errors import EngineFailed
from cabai.policies import policy_of
from cabai.simulation.engines import cuda
from cabai.simulation.work import Work
from cabai.support.tables import table
from cabai.thresholds import threshold_of

PAPER = [1, 0.1, 0.01]
MANY = [1.0, *np.linspace(0.7, 0.0, 29).tolist()]
SHARES = [0.8, *np.linspace(0.6, 0.2, 29).tolist()]


class Cell(NamedTuple):
    family: str
    means: list[float]
    costs: list[float]
    policy: str
    delta: float
    threshold: str | None = None
    goal: int | None = None  # times one core

    @property
    def instance(self) -> Instance:
        return Instance(self.family, self.means, self.costs)

    @property
    def options(self) -> dict[str, Any]:
        return {"policy": self.policy, "delta": self.delta, "threshold": self.threshold}


CELLS = {
    "gaussian-top-two": Cell("gaussian", [1.5, 1, 0.5], PAPER, "top-two", 0.05, "contrast", goal=200),
    "bernoulli-top-two": Cell("bernoulli", [0.9, 0.6, 0.3], PAPER, "top-two", 0.05, "contrast", goal=200),
    "gaussian-30-top-two": Cell("gaussian", MANY, [1] * 30, "top-two", 0.05, "contrast", goal=100),
    "bernoulli-30-top-two": Cell("bernoulli", SHARES, [1] * 30, "top-two", 0.05, "contrast", goal=100),
    "bounded-top-two": Cell("bounded", [0.9, 0.6, 0.3], PAPER, "top-two", 0.05),
    "poisson-top-two": Cell("poisson", [1.5, 1, 0.5], PAPER, "top-two", 0.05),
    "exponential-top-two": Cell("exponential", [1.5, 1, 0.5], PAPER, "top-two", 0.05),
    "gaussian-champion": Cell("gaussian", [1.5, 1, 0.5], PAPER, "top-two", 0.05, "champion"),
    "gaussian-30-champion": Cell("gaussian", MANY, [1] * 30, "top-two", 0.05, "champion"),
    "bernoulli-champion": Cell("bernoulli", [0.9, 0.6, 0.3], PAPER, "top-two", 0.05, "champion"),
    "symmetric-top-two": Cell("gaussian(variance=unknown)", [1.5, 1, 0.5], PAPER, "top-two", 0.05),
    "gaussian-co": Cell("gaussian", [1.5, 1, 0.5], PAPER, "co", 1e-6, "paper"),
    "gaussian-ctas": Cell("gaussian", [1.5, 1, 0.5], PAPER, "ctas", 1e-6, "paper"),
    "bernoulli-ctas": Cell("bernoulli", [0.9, 0.6, 0.3], PAPER, "ctas", 1e-6, "paper"),
    "poisson-ctas": Cell("poisson", [1.5, 1, 0.5], PAPER, "ctas", 1e-6, "paper"),
    "gaussian-30-ctas": Cell("gaussian", MANY, [1] * 30, "ctas", 1e-6, "paper"),
}  # fmt: skip
QUICK = ["gaussian-top-two", "bernoulli-top-two", "gaussian-30-top-two", "bernoulli-30-top-two"]
VARIANTS = [
    *({"threads": n} for n in (64, 256, 512)),
    *({"registers": n} for n in (None, 128, 64)),
    {"gather": 2}, {"refill": 2}, {"large": 10**9},
]  # fmt: skip


def compile_one(cell: Cell, changes: dict[str, Any], on_cpu: bool) -> tuple[float, Any]:
    """Compile a cell's kernel with some settings, in a process of its own, so that it is in the cache."""
    started = time.perf_counter()
    instance, policy = cell.instance, policy_of(cell.policy)
    rule = threshold_of(cell.threshold, instance.family, len(instance))
    setup = Setup(instance.family, rule, policy, arms=len(instance), delta=cell.delta)
    work = Work([instance], [setup], 0, 2**62, np.inf)
    try:
        with cuda.Cuda(tuning=cuda.Tuning(**changes)) as engine:
            _, made, *_ = engine.share(work)
            numbers = made.get_regs_per_thread(), made.get_local_mem_per_thread()
    except Exception as error:
        numbers = (type(error).__name__, str(error)[:300])
    seconds = time.perf_counter() - started
    if on_cpu:
        work.compiled()
    return seconds, numbers


def compile_all(jobs: list[tuple[str, Cell, dict[str, Any]]], *, on_cpu: bool = False) -> dict[str, Any]:
    """Compile them on all cores: one after another, they would take a quarter of a minute each."""
    found = {}
    how = {"mp_context": get_context("spawn"), "max_tasks_per_child": 1}
    with ProcessPoolExecutor(min(len(jobs), os.cpu_count() or 1), **how) as pool:
        made = pool.map(partial(compile_one, on_cpu=on_cpu), *zip(*(job[1:] for job in jobs), strict=True))
        for (name, _, changes), (seconds, numbers) in zip(jobs, made, strict=True):
            found[f"{name} {changes}"] = {"seconds": round(seconds, 1), "registers, local bytes": numbers}
            print(f"compiled {name} {changes or ''}: {seconds:.1f} s, registers and local bytes {numbers}", flush=True)
    return found


def rate(cell: Cell, seconds: float, start: int, **options: Any) -> tuple[float, Any]:
    """Trajectories per second, from a run of about that many seconds, sized by shorter ones; and its result."""
    n, done = start, None
    while True:
        done = simulate(cell.instance, trajectories=n, keep="summary", seed=1, **cell.options, **options)
        if done.seconds > 0.5 * seconds:
            return n / done.seconds, done
        n = int(n * min(8.0, max(1.5, seconds / max(done.seconds, 1e-3))))


def start_of(name: str) -> int:
    """With how many trajectories to begin on a GPU."""
    return 200_000 if len(CELLS[name].means) == 3 else 20_000


def differing(cell: Cell, trajectories: int, engine: Any) -> tuple[int, float]:
    """How many trajectories differ between the GPU and threads, and the largest relative difference of a mean cost."""
    both = [
        simulate(cell.instance, trajectories=trajectories, seed=2, engine=each, **cell.options)
        for each in (None, engine)
    ]
    a, b = both
    same = (a.decisions == b.decisions) & (a.costs == b.costs) & (a.steps == b.steps) & (a.pulls == b.pulls).all(axis=1)
    return int((~same).sum()), float(b.costs.mean() / a.costs.mean() - 1)


def first_result(name: str) -> tuple[float, float]:
    """Seconds until a new process has simulated 1000 trajectories: with an empty cache, and with a filled one."""
    cell = CELLS[name]
    code = (
        f"import cabai; cabai.simulate(cabai.Instance({cell.family!r}, {cell.means!r}, {cell.costs!r}), "
        f"{cell.policy!r}, delta={cell.delta}, threshold={cell.threshold!r}, trajectories=1000, engine='cuda')"
    )
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for _ in range(2):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], env=os.environ | {"NUMBA_CACHE_DIR": folder}, check=True)
            found.append(time.perf_counter() - started)
    return found[0], found[1]


def option(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def main() -> None:
    from numba import cuda as device

    try:
        cuda.Cuda().close()
    except EngineFailed as error:  # `make bench` goes on with the others
        print(error)
        return
    quick, kept = "--quick" in sys.argv, option("--out")
    names = option("--cells").split(",") if option("--cells") else QUICK if quick else list(CELLS)
    seconds = float(option("--seconds", "1" if quick else "2"))
    told = {"gpu": str(device.get_current_device().name), "cores": os.cpu_count()}
    print(f"{told['gpu']}, {told['cores']} cores", flush=True)

    def keep(part: str, value: Any) -> None:
        told[part] = value
        if kept:
            with open(kept, "w") as file:
                json.dump(told, file, indent=1, default=str)

    keep("compiled", compile_all([(name, CELLS[name], {}) for name in names], on_cpu=True))
    rows = [["cell", "per second", "one core", "times", "all cores", "times", "goal", "differ", "mean cost"]]
    cells: dict[str, Any] = {}
    for name in names:
        cell = CELLS[name]
        with cuda.Cuda() as engine:
            longer = 3 if len(cell.means) == 3 else 8  # the first and the longest trajectories count less
            gpu, done = rate(cell, longer * seconds, start_of(name), engine=engine)
            one, _ = rate(cell, seconds, 200, workers=1)
            every, _ = rate(cell, seconds, 2000)
            count = 5000 if quick else 40_000 if len(cell.means) == 3 else 10_000
            differ, off = differing(cell, count, engine)
        mean_pulls = sum(done.sums.pulls) / done.sums.trajectories
        cells[name] = {
            "gpu": gpu, "one core": one, "all cores": every, "differ": [differ, count], "mean cost off by": off,
            "mean pulls": mean_pulls,
        }  # fmt: skip
        rows.append([
            name, f"{gpu:,.0f}", f"{one:,.0f}", f"{gpu / one:.0f}", f"{every:,.0f}", f"{gpu / every:.1f}",
            str(cell.goal or ""), f"{differ}/{count}", f"{100 * off:+.4f} %",
        ])  # fmt: skip
        print(table(rows[:1] + rows[-1:], left=1), flush=True)
        keep("cells", cells)
    if "--variants" in sys.argv:
        some = QUICK
        keep(
            "compiled variants",
            compile_all([(name, CELLS[name], changes) for changes in VARIANTS[3:] for name in some]),
        )
        variants = [["settings", *some]]
        speeds: dict[str, Any] = {}
        for changes in [{}, *VARIANTS, {}]:
            found = []
            for name in some:
                try:
                    with cuda.Cuda(tuning=cuda.Tuning(**changes)) as engine:
                        found.append(rate(CELLS[name], 0.5, start_of(name), engine=engine)[0])
                except Exception as error:
                    print(changes, name, repr(error)[:200], flush=True)
                    found.append(0.0)
            variants.append([str(changes), *(f"{each:,.0f}" for each in found)])
            print(variants[-1], flush=True)
            speeds[f"{len(speeds)} {changes}"] = found
            keep("variants", {"cells": some, "speeds": speeds})
        print(table(variants, left=1), flush=True)
    if "--first" in sys.argv:
        firsts = {name: first_result(name) for name in names[:2]}
        keep("first result, cold and warm", firsts)
        print("seconds to the first result, with an empty and a filled cache:", firsts, flush=True)
    print(table(rows, left=1))


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
    elif "--profile" in sys.argv:
        profiled = CELLS[option("--profile")]
        simulate(profiled.instance, trajectories=500_000, keep="summary", engine="cuda", **profiled.options)
    else:
        main()
