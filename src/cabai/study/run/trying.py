"""What users' tests may do: return something to be awaited, or raise an exception, which is a failed trial, to be
repeated, or a bug in the test, which ends the run."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from cabai.support.own import PACKAGE
from cabai.support.validation import InvalidInput, shown

# What Python raises if a program has a bug: every trial would raise it again.
PROGRAM = (
    NameError, AttributeError, TypeError, ImportError, SyntaxError, AssertionError, NotImplementedError, RecursionError,
)  # fmt: skip

Caught = tuple[type[Exception], ...] | None


def checked_catch(catch: Any) -> Caught:
    """The exceptions that count as failed trials, as given; None for the default ones."""
    if catch is None:
        return None
    given = tuple(catch) if isinstance(catch, (tuple, list, set, frozenset)) else (catch,)
    for each in given:
        if not isinstance(each, type) or not issubclass(each, Exception):
            raise InvalidInput(f"catch must be exception classes, such as (OSError, ValueError), got {shown(each)}.")
    return given


def is_of_the_trial(error: BaseException, caught: Caught) -> bool:
    """Whether this exception is a failed trial, so that another trial may succeed."""
    if caught is not None and isinstance(error, caught):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(is_of_the_trial(each, caught) for each in error.exceptions)
    if caught is not None or not isinstance(error, Exception) or isinstance(error, PROGRAM):
        return False
    return type(error).__module__.partition(".")[0] != "cabai"  # cabai itself was called in a wrong way


def blame(error: Exception, arm: str, caught: Caught) -> None:
    """Add a note to the error: why it ended the run, and what to do if it should not."""
    named = ", ".join(each.__name__ for each in (*((OSError,) if caught is None else caught), type(error)))
    error.add_note(
        f"{BLAME} arm {arm!r}, not a failed trial: it is not tried again. Its pull was released, and what it may have "
        f"cost is not on the bill. If a trial may fail like this, name the error: catch=({named})."
    )


BLAME = "cabai: this is an error in the test of"


def is_blamed(error: BaseException) -> bool:
    """Whether it was a test that raised this."""
    return any(note.startswith(BLAME) for note in getattr(error, "__notes__", ()))


def without_ours(error: BaseException) -> TracebackType | None:
    """Its traceback from the first frame that is not cabai's."""
    place = error.__traceback__
    while place is not None and Path(place.tb_frame.f_code.co_filename).is_relative_to(PACKAGE):
        place = place.tb_next
    return place or error.__traceback__


# Async tests: what they return is awaited in one event loop per run, whatever the number of workers.

PATIENCE = 2.0  # seconds within which what was told to end should end
_here = threading.local()  # the run that this thread works for


def awaited(result: Any) -> Any:
    """What a test returned; awaited, if that is needed. A worker of a run calls this."""
    return _here.awaiting.result_of(result) if inspect.isawaitable(result) else result


class Awaiting:
    """Awaits what async tests return, for workers in other threads: all in one event loop, in its own thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: Any = None  # once there is something to await
        self.thread: Any = None

    def serve(self) -> None:
        _here.awaiting = self

    def result_of(self, awaitable: Any) -> Any:
        """What it returns or raises, including exceptions that would end the loop instead of the worker."""
        import asyncio
        from concurrent import futures

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
        future = asyncio.run_coroutine_threadsafe(ending_well(), self.loop)
        while not future.done():
            if not self.thread.is_alive():
                raise RuntimeError("the loop that awaits async tests was stopped by one of them")
            futures.wait([future], timeout=1)
        result, error = future.result()
        if error is not None:
            raise error
        return result

    def cancel(self) -> None:
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
