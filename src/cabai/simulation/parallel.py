"""Chunks of trajectories, side by side."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.simulation.work import Work
from cabai.support.validation import InvalidInput, optional, whole

Progress = Callable[[int], None]
ENGINES = (None, "joblib")


def collect(
    work: Work, trajectories: int, workers: int | None, engine: str | None, progress: Progress | None
) -> list[NDArray[Any]]:
    """Run all trajectories in chunks, and put their results in order."""
    jobs = whole(workers, "workers", 1) if workers is not None else os.cpu_count() or 1
    size = max(1, min(100, math.ceil(trajectories / (4 * jobs))))
    signals = np.zeros(2, np.int64)
    chunks = [(first, min(size, trajectories - first), signals) for first in range(0, trajectories, size)]
    gathered: list[NDArray[Any]] = []
    done = 0
    try:
        for first, count, parts in in_parallel(work.run, chunks, jobs, engine):
            if not gathered:
                gathered = [np.empty((trajectories, *part.shape[1:]), part.dtype) for part in parts]
            for target, part in zip(gathered, parts, strict=True):
                target[first : first + count] = part[:count]
            done += count
            if progress is not None:
                progress(done)
    except BaseException:  # Ctrl-C for one: tell the workers to stop where they are
        signals[:] = 1
        raise
    return gathered


def in_parallel(
    function: Callable[..., Any], arguments: list[tuple[Any, ...]], jobs: int, engine: str | None
) -> Iterator[Any]:
    """function(*arguments[i]) for every i, in any order, none of it in this thread, which stays free to hear Ctrl-C.

    The engine is None, for threads of this process, or "joblib": threads, or where its parallel_config says, in other
    processes or on a Dask cluster.
    """
    if engine == "joblib":
        joblib = optional("joblib")
        backend, _ = joblib.parallel.get_active_backend(prefer="threads")
        if not backend.supports_return_generator:
            raise InvalidInput(
                f"joblib's {type(backend).__name__} cannot return results one by one, which a simulation needs; "
                "the backends threading, loky and dask can."
            )
        tasks = (joblib.delayed(function)(*each) for each in arguments)
        yield from joblib.Parallel(n_jobs=jobs, prefer="threads", return_as="generator_unordered")(tasks)
        return
    executor = ThreadPoolExecutor(jobs)
    try:
        for future in as_completed([executor.submit(function, *each) for each in arguments]):
            yield future.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
