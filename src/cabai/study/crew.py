"""The threads of a run, and how they end: when the work is done, when one of them fails, and on Ctrl-C."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LOOK = 0.2  # seconds between checks of the threads: Windows handles Ctrl-C only in between
PATIENCE = 2.0  # seconds within which what was told to end should end


class Crew:
    """Several threads with the same task. They are daemon threads: some tests never return."""

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
        """Wait until one of the threads ends, or for so long."""
        with suppress(queue.Empty):
            self.threads[self.ended.get(timeout=seconds)].join()

    def join(self, seconds: float = PATIENCE) -> None:
        """Wait until all have ended, or for so long."""
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))
