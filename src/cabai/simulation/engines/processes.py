"""Processes of this machine."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Future
from typing import Any

from cabai.simulation.engines import task
from cabai.simulation.engines.base import Engine
from cabai.simulation.work import Part
from cabai.support.validation import optional


class Processes(Engine):
    """Loky's pool, the one that joblib uses: it does not import the program that is running in its processes."""

    where = "in other processes"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers
        self.pool = self.new_pool()

    def new_pool(self) -> Any:
        loky = optional("joblib.externals.loky")
        return loky.ProcessPoolExecutor(self.cores, initializer=task.ignore_interrupts)

    def submit(self, shared: bytes, first: int, count: int) -> Future[Part]:
        try:
            return self.pool.submit(task.run, shared, first, count)  # type: ignore[no-any-return]
        except BrokenExecutor:  # one of its processes has died, and with it the pool
            self.pool.shutdown(kill_workers=True)
            self.pool = self.new_pool()
            return self.pool.submit(task.run, shared, first, count)  # type: ignore[no-any-return]

    def cancel(self) -> None:
        self.pool.shutdown(kill_workers=True)

    close = cancel
