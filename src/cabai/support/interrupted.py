"""Show callers a plain KeyboardInterrupt after Ctrl-C, without internal details."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


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
