"""Ctrl-C, as whoever called us should see it: KeyboardInterrupt, without what it has interrupted inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plainly_interrupted() -> Iterator[None]:
    """A KeyboardInterrupt leaves this as a new one, with its notes: its traceback is the caller's, and none of the
    errors is shown during whose handling it came."""
    try:
        yield
    except KeyboardInterrupt as error:
        plain = KeyboardInterrupt()
        for note in getattr(error, "__notes__", ()):
            plain.add_note(note)
        raise plain from None
