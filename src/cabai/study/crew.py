"""The threads of a run, and how they end: when the work is done, when one of them fails, and on Ctrl-C."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LOOK = 0.2  # seconds between looks at what the threads do: Windows hears Ctrl-C only in between
PATIENCE = 2.0  # seconds in which what was told to end at once should end


class Crew:
    """So many threads that do the same. None keeps the process from ending: some tests never return."""

    def __init__(self, count: int, work: Callable[[int], None]) -> None:
        self.ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.errors: list[BaseException] = []
        self.threads = [
            threading.Thread(target=self._run, args=(work, i), name=f"cabai worker {i}", daemon=True)
            for i in range(count)
        ]

    def _run(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            self.errors.append(error)
        finally:
            self.ended.put(number)

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    @property
    def is_at_work(self) -> bool:
        return any(thread.is_alive() for thread in self.threads)

    def wait(self, seconds: float) -> None:
        """Until one of the threads ends, or so long."""
        with suppress(queue.Empty):
            self.threads[self.ended.get(timeout=seconds)].join()

    def join(self, seconds: float = PATIENCE) -> None:
        """Until all have ended, or so long."""
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))
