"""Threads of this process: compiled code runs side by side."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from cabai.simulation.engines.base import Engine
from cabai.simulation.work import Part, Work


class Threads(Engine):
    where = "in threads"
    aim, shortest = 0.2, 0.005  # a task costs almost nothing here

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers
        self.signals = np.zeros(2, np.int64)
        self.pool = ThreadPoolExecutor(self.cores)

    def share(self, work: Work) -> Work:
        return work

    def submit(self, shared: Work, first: int, count: int) -> Future[Part]:
        return self.pool.submit(shared.run, first, count, self.signals)

    def cancel(self) -> None:
        self.signals[:] = 1  # threads look at it as they go

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
