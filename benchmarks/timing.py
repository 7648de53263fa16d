"""How the benchmarks measure: CPU time, the minimum of several repetitions; jobs that are compared take turns in one
run."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_times(repetitions: int, *jobs: Callable[[], object], clock=time.process_time) -> list[float]:
    """The minimum seconds that each job took, over `repetitions` rounds in which the jobs take turns."""
    best = [float("inf")] * len(jobs)
    for _ in range(repetitions):
        for i, job in enumerate(jobs):
            started = clock()
            job()
            best[i] = min(best[i], clock() - started)
    return best
