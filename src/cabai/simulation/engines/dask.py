"""A Dask cluster: one that is running, or one of this machine's cores."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.errors import EngineFailed
from cabai.simulation.engines import task
from cabai.simulation.engines.base import Cluster
from cabai.simulation.work import Part
from cabai.support.validation import InvalidInput, optional

PATIENCE = 3.0  # seconds after which a chunk checks now and then whether anybody still waits for it


class Dask(Cluster):
    where, cluster = "on Dask", "the Dask cluster"

    def __init__(self, client: Any = None, address: str | None = None, workers: int | None = None) -> None:
        """The client given, the scheduler at an address, the current client, or a new cluster of this machine."""
        distributed = optional("distributed")
        self.workers, self.started = workers, list[Any]()
        if client is None and address is None:
            with suppress(ValueError):  # there is none
                client = distributed.default_client()
        if client is None:
            if address is None:
                cluster = distributed.LocalCluster(
                    n_workers=workers or os.cpu_count() or 1, threads_per_worker=1, dashboard_address=":0",
                    silence_logs=logging.CRITICAL,
                )  # fmt: skip
                self.started.append(cluster)
            try:
                client = distributed.Client(address or cluster, set_as_default=False)
            except (OSError, ValueError) as error:
                raise EngineFailed(f"cannot reach a Dask scheduler at {address}: {error}") from error
            self.started.insert(0, client)
            if address is None:
                client.run(task.ignore_interrupts)
        if client.asynchronous:
            raise InvalidInput("engine must be a dask.distributed.Client that is not asynchronous.")
        self.client, self.executor = client, client.get_executor(pure=False)

    def count(self) -> int:
        return sum(self.client.nthreads().values())

    def submit(self, shared: bytes, first: int, count: int) -> Future[Part]:
        return self.executor.submit(task.run, shared, first, count, stopped_if_dropped)  # type: ignore[no-any-return]

    def cancel(self) -> None:
        self.executor.shutdown(wait=False)

    def close(self) -> None:
        for each in self.started:
            each.close()

    def explained(self, error: Exception) -> Exception:
        if isinstance(error, CancelledError):
            return EngineFailed("the Dask cluster dropped the work: it was cancelled, or the scheduler is gone.")
        if type(error).__name__ == "KilledWorker":
            return EngineFailed(f"workers of the Dask cluster died of this work: {error}")
        return super().explained(error)


@contextmanager
def stopped_if_dropped(signals: NDArray[np.int64]) -> Iterator[None]:
    """Stop a long chunk that nobody waits for any more. Dask itself drops what is queued, and lets finish what runs."""
    from distributed import get_worker

    worker, key = get_worker(), None
    with suppress(Exception):
        key = worker.get_current_task()
    over = threading.Event()

    def look() -> None:
        pause = PATIENCE
        while key is not None and not over.wait(pause):
            pause = 1.0
            known = worker.state.tasks.get(key)
            if known is None or known.state not in ("executing", "long-running"):
                signals[:] = 1

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
