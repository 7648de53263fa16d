"""Async tests: what they return is awaited in one event loop per run, whatever the number of workers."""

from __future__ import annotations

import inspect
import threading
from typing import Any

PATIENCE = 2.0  # seconds within which what was told to end should end
STOPPED = "the loop that awaits async tests was stopped by one of them"
_here = threading.local()  # the run that this thread works for


def awaited(result: Any) -> Any:
    """What a test returned; awaited, if that is needed. A worker of a run calls this."""
    if not inspect.isawaitable(result):
        return result
    awaiting: Awaiting = _here.awaiting
    return awaiting.result_of(result)


class Awaiting:
    """Awaits what async tests return, for workers in other threads: all in one event loop, in its own thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: Any = None  # once there is something to await
        self.thread: Any = None

    def serve(self) -> None:
        """Await for this thread."""
        _here.awaiting = self

    def result_of(self, awaitable: Any) -> Any:
        """What it returns or raises, including exceptions that would end the loop instead of the worker."""
        import asyncio
        from concurrent.futures import TimeoutError as NotYet

        async def ending_well() -> tuple[Any, BaseException | None]:
            try:
                return await awaitable, None
            except BaseException as error:
                return None, error

        with self.lock:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                self.thread = threading.Thread(target=self.loop.run_forever, name="cabai awaits", daemon=True)
                self.thread.start()
        if not self.thread.is_alive():
            raise RuntimeError(STOPPED)
        future = asyncio.run_coroutine_threadsafe(ending_well(), self.loop)
        while True:
            try:
                result, error = future.result(timeout=1)
                break
            except NotYet:
                if not self.thread.is_alive():
                    raise RuntimeError(STOPPED) from None
        if error is not None:
            raise error
        return result

    def cancel(self) -> None:
        """Cancel everything that is awaited."""
        import asyncio

        if self.loop is not None and self.thread.is_alive():
            self.loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(self.loop)])

    def close(self) -> None:
        if self.loop is not None:
            if self.thread.is_alive():
                self.loop.call_soon_threadsafe(self.loop.stop)
                self.thread.join(PATIENCE)
            if not self.thread.is_alive():  # or a test blocks it for ever
                self.loop.close()
