"""Run work that ignores Ctrl-C, such as compiling, in its own thread, so that the main thread can react to Ctrl-C.

A signal handler runs in the main thread, between two steps of Python code. LLVM runs for seconds, or a minute on a busy
machine, without any. The first Python code after that may be a callback from LLVM, which no exception can leave: the
interrupt is printed and lost.
"""

from __future__ import annotations

import atexit
import contextvars
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from cabai import interrupts

T = TypeVar("T")
LOOK = 0.5  # seconds between checks: Windows only handles Ctrl-C in between
_at_work: set[threading.Thread] = set()


def interruptible(work: Callable[[], T]) -> T:
    """Run `work`, and return or raise what it does; after Ctrl-C it goes on in the background, not waited for."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    ended: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            ended.put((context.run(work), None))
        except BaseException as error:
            ended.put((None, error))
        finally:
            _at_work.discard(threading.current_thread())

    thread = threading.Thread(target=run, name="cabai in the background", daemon=True)
    _at_work.add(thread)
    thread.start()
    result, error = next_item(ended)
    thread.join()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def next_item(ended: queue.SimpleQueue[T]) -> T:
    """The next item of a queue; Ctrl-C interrupts the wait."""
    while True:
        with suppress(queue.Empty):
            return ended.get(timeout=LOOK)


def wait_for_all() -> None:
    """Wait for LLVM before the process ends; but a command stopped by Ctrl-C ends at once."""
    if not interrupts.is_ending():
        with suppress(KeyboardInterrupt):
            for thread in list(_at_work):
                thread.join()


atexit.register(wait_for_all)


@contextmanager
def plainly_interrupted() -> Iterator[None]:
    """Replace a KeyboardInterrupt by a new one with the same notes. Its traceback starts at the caller, and it does not
    show errors that were being handled when it came."""
    try:
        yield
    except KeyboardInterrupt as error:
        plain = KeyboardInterrupt()
        for note in getattr(error, "__notes__", ()):
            plain.add_note(note)
        raise plain from None
