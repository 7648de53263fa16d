"""Work that does not hear Ctrl-C, such as compiling, in a thread of its own, so that the main thread does.

A signal's handler runs in the main thread, between two steps of Python code. LLVM takes seconds, or a minute on a busy
machine, without any; and the first Python code that runs then may be a function that LLVM calls back, from which no
exception gets out: the interrupt is printed, and lost.
"""

from __future__ import annotations

import atexit
import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from cabai import interrupts

T = TypeVar("T")
LOOK = 0.5  # seconds between looks: Windows hears Ctrl-C only in between
_at_work: set[threading.Thread] = set()


def aside(work: Callable[[], T]) -> T:
    """What the work returns or raises. After Ctrl-C it goes on to its end, which nobody waits for, unless the process
    ends before."""
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

    thread = threading.Thread(target=run, name="cabai aside", daemon=True)
    _at_work.add(thread)
    thread.start()
    result, error = heard(ended)
    thread.join()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def heard(ended: queue.SimpleQueue[T]) -> T:
    """The next of a queue, with an ear for Ctrl-C."""
    while True:
        with suppress(queue.Empty):
            return ended.get(timeout=LOOK)


def wait_for_all() -> None:
    """LLVM must not be at work while the process is taken down; a command that was stopped leaves at once."""
    if not interrupts.is_ending():
        with suppress(KeyboardInterrupt):
            for thread in list(_at_work):
                thread.join()


atexit.register(wait_for_all)
