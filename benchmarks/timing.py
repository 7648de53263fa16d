"""How the benchmarks measure: CPU time, the least of several repetitions, all that is compared in turn in one run."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_times(repetitions: int, *jobs: Callable[[], object], clock=time.process_time) -> list[float]:
    """The least seconds that each job took, in `repetitions` rounds in which each has its turn."""
    best = [float("inf")] * len(jobs)
    for _ in range(repetitions):
        for i, job in enumerate(jobs):
            started = clock()
            job()
            best[i] = min(best[i], clock() - started)
    return best
