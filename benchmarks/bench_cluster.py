"""Processes, Dask and Ray against threads on the same cores: what an engine costs, and how many tasks it can hand out.

    python benchmarks/bench_cluster.py [--quick]

1. The same simulation on each engine in turn, several rounds, `SECONDS` of work at a time. Clusters are started, and
   have received the work, before anything is measured; the time for that is a separate column. `wall` is the median
   over rounds of the time over that of threads in the same round. `CPU` is the same for the processor's time of all
   processes, scheduler and client included: it is valid even if others use the machine.
2. Tasks of a single short trajectory, 256 under way, as fast as the engine takes them: the time per task bounds how
   many cores one client and one scheduler can keep busy with tasks of a second.
3. The client's memory for rows and for a summary.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median

import psutil

from cabai import Instance, simulate
from cabai.simulation.engines import Engine, opened
from cabai.support.tables import table

ENGINES = (None, "processes", "dask", "ray")
INSTANCE, POLICY, DELTA = Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01]), "top-two", 1e-6
SHORT = Instance("gaussian", [9, 0], [1, 1])
SECONDS, GOAL = 30.0, 1.10
MEMORY = """
import resource
import cabai
from bench_cluster import SHORT
cabai.simulate(SHORT, "uniform", trajectories={trajectories}, keep={keep!r})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def cpu_seconds() -> float:
    """CPU seconds of this process and its living children."""
    own = psutil.Process()
    total = sum(own.cpu_times()[:2])
    for each in own.children(recursive=True):
        try:
            total += sum(each.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


def measured(engine: Engine, trajectories: int) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    simulate(INSTANCE, POLICY, delta=DELTA, trajectories=trajectories, engine=engine, keep="summary")
    return time.perf_counter() - wall, cpu_seconds() - cpu


def overhead(rounds: int, seconds: float) -> None:
    places: list[Engine] = []
    begun, warmed = [], []
    for name in ENGINES:
        started = time.perf_counter()
        places.append(opened(name).__enter__())
        begun.append(time.perf_counter() - started)
        warmed.append(measured(places[-1], 2000)[0])
    trial = measured(places[0], 20_000)[0]
    trajectories = round(20_000 * seconds / trial)
    found: list[list[tuple[float, float]]] = [[] for _ in ENGINES]
    for turn in range(rounds):
        order = range(len(ENGINES)) if turn % 2 == 0 else reversed(range(len(ENGINES)))
        for i in order:
            found[i].append(measured(places[i], trajectories))
    rows = [["engine", "to start", "first work", "wall s", "wall", "CPU s", "CPU"]]
    for i, name in enumerate(ENGINES):
        walls, cpus = ([each[k] / first[k] for each, first in zip(found[i], found[0], strict=True)] for k in (0, 1))
        rows.append([
            name or "threads", f"{begun[i]:.1f}", f"{warmed[i]:.1f}", f"{median(each[0] for each in found[i]):.1f}",
            f"{median(walls):.3f} ({min(walls):.2f} to {max(walls):.2f})",
            f"{median(each[1] for each in found[i]):.1f}", f"{median(cpus):.3f}",
        ])  # fmt: skip
    load = os.getloadavg()[0]
    print(f"{trajectories} trajectories of {POLICY}, {rounds} rounds, {os.cpu_count()} cores, load {load:.1f}")
    print(table(rows))
    print(f"goal: below {GOAL}\n", flush=True)
    for place in places:
        place.close()


def per_task(tasks: int) -> None:
    """The client's, the scheduler's and the workers' time for a task that does almost nothing."""
    rows = [["engine", "ms per task", "of it this process's CPU"]]
    for name in ENGINES:
        with opened(name) as place:
            simulate(SHORT, "uniform", trajectories=100, engine=place)
            place.__class__ = type("OneByOne", (type(place),), {"aim": 0.0, "shortest": 0.0, "room": 256})
            wall, cpu = time.perf_counter(), time.process_time()
            simulate(SHORT, "uniform", trajectories=tasks, engine=place)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        rows.append([name or "threads", f"{1000 * wall / tasks:.2f}", f"{1000 * cpu / tasks:.2f}"])
    print(table(rows) + "\n", flush=True)


def memory(most: int) -> None:
    rows = [["trajectories", "rows, MB", "summary, MB"]]
    trajectories = 10_000
    while trajectories <= most:
        row = [str(trajectories)]
        for keep in ("rows", "summary"):
            code = MEMORY.format(trajectories=trajectories, keep=keep)
            folder = os.path.dirname(__file__)
            done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
            row.append(done.stdout.strip())
        rows.append(row)
        trajectories *= 10
    print(table(rows), flush=True)


def main() -> None:
    quick = "--quick" in sys.argv
    overhead(1 if quick else 3, 5.0 if quick else SECONDS)
    per_task(300 if quick else 3000)
    memory(10**6 if quick else 10**7)


if __name__ == "__main__":  # Dask's processes import this file
    main()
