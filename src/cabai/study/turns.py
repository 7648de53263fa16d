"""A fair lock: threads of one process get it in the order in which they came, which Python's locks do not promise."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import Any


class Turn:
    """A lock that one thread holds at a time, and may take more than once."""

    def __init__(self) -> None:
        self.inside: list[int] = []  # the thread that holds it, once per acquisition
        self.reset()
        _turns.add(self)

    def reset(self) -> None:
        """Forget all threads but this one."""
        self.mutex = threading.Lock()
        self.waiting: deque[tuple[int, Any]] = deque()
        self.inside = [thread for thread in self.inside if thread == threading.get_ident()]

    def acquire(self, *, blocking: bool = True) -> bool:
        thread, signal = threading.get_ident(), None  # it waits for the signal, if it must
        try:
            with self.mutex:
                if thread in self.inside or not (self.inside or self.waiting):
                    self.inside.append(thread)
                    return True
                if not blocking:
                    return False
                signal = threading.Lock()
                signal.acquire()
                self.waiting.append((thread, signal))
            signal.acquire()
        except BaseException:  # Ctrl-C: leave the queue, or pass the turn on
            with self.mutex:
                if (thread, signal) in self.waiting:
                    self.waiting.remove((thread, signal))
                is_inside = thread in self.inside
            if is_inside:
                self.release()
            raise
        return True

    def release(self) -> None:
        with self.mutex:
            self.inside.remove(threading.get_ident())
            if self.waiting and not self.inside:
                thread, signal = self.waiting.popleft()
                self.inside.append(thread)
                signal.release()

    __enter__ = acquire

    def __exit__(self, *_: Any) -> None:
        self.release()


_turns: weakref.WeakSet[Turn] = weakref.WeakSet()
process = 0  # how often this process and its parents have forked: another number than theirs


def reset_turns() -> None:
    """After a fork: the threads that held it or waited do not exist in this process."""
    global process
    process += 1
    for turn in _turns:
        turn.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_turns)
