"""What an engine is: it takes chunks of trajectories, and gives a future for each."""

from __future__ import annotations

import os
import sys
import time
from abc import abstractmethod
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from cabai.errors import EngineFailed
from cabai.simulation.engines import task
from cabai.simulation.work import Part, Work

MOST_BYTES = 2**24  # bytes that the rows of one task may take
COUNTED_AGAIN = 5.0  # seconds: a cluster may grow


class Engine(AbstractContextManager["Engine"]):
    """An engine is closed at the end of a `with`: what it has started ends then, what it was given continues."""

    where: ClassVar[str]  # in words
    shortest: ClassVar[float] = 0.2  # seconds that a task should take at least, while there is enough to do
    pilot: ClassVar[int] = 4  # trajectories of a task while it is not known how long they take
    workers: int | None = None  # the most tasks at a time, if the user has said so

    @property
    def cores(self) -> int:
        return self.workers or os.cpu_count() or 1

    @property
    def aim(self) -> float:
        """Seconds that a task should take: longer with many cores, or one scheduler could not keep up with them."""
        return min(max(1.0, self.cores / 100), 1.8)

    @property
    def room(self) -> int:
        """How many tasks may be under way: one waits for each that runs, so that no core is idle in between."""
        return 2 * self.cores

    def most(self, work: Work) -> int:
        """The most trajectories of a task."""
        return max(1, MOST_BYTES // work.row_bytes) if work.keeps_rows else sys.maxsize

    def prepare(self, work: Work) -> Any:
        """Compile here first: errors in a user's own code are then reported in its own terms."""
        work.compiled()

    def share(self, work: Work) -> Any:
        """The work, as `submit` takes it: by default, as tasks in other processes take it."""
        return task.packed(work)

    @abstractmethod
    def submit(self, shared: Any, first: int, count: int) -> Future[Part]:
        """Begin with the chunk of trajectories first ... first + count - 1."""

    @abstractmethod
    def cancel(self) -> None:
        """Drop what waits, and stop what runs."""

    @abstractmethod
    def close(self) -> None:
        """End what this engine has started."""

    def explained(self, error: Exception) -> Exception:
        """What to raise for an error that came back in place of a result."""
        return error

    def __exit__(self, *error: object) -> None:
        self.close()


class Cluster(Engine):
    """An engine whose cores may become more or fewer while it runs."""

    cluster: ClassVar[str]  # its name, in words
    counted, cores_then = -COUNTED_AGAIN, 1

    @abstractmethod
    def count(self) -> int:
        """The cores that it has now."""

    @property
    def cores(self) -> int:
        if self.workers is not None:
            return self.workers
        if time.monotonic() - self.counted > COUNTED_AGAIN:
            self.cores_then, self.counted = max(1, self.count()), time.monotonic()
        return self.cores_then

    @property
    def room(self) -> int:
        return self.workers or 2 * self.cores

    def explained(self, error: Exception) -> Exception:
        if not isinstance(error, ModuleNotFoundError):
            return error
        return EngineFailed(
            f"a worker of {self.cluster} has no module {error.name!r}: install on every worker the packages that you "
            "have here, first of all the same version of cabai."
        )
