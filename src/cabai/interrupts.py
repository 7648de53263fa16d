"""Ctrl-C while the command `cabai` is being loaded, or as it ends: it stops at once, with one line and no traceback.

Loading takes a moment, in which nothing is at stake yet and an interrupt would surface in whatever is being imported:
so importing this comes first, arranges for it, and takes next to no time itself. A program that imports cabai is left
alone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from typing import Any

CODE = 130  # as shells have it: 128 and the signal's number


def stop(*_: Any) -> None:
    os.write(2, b'{"error": "stopped."}\n' if "--json" in sys.argv else b"cabai: stopped.\n")
    os._exit(CODE)


def stop_while_loading() -> None:
    """From here until `raise_again`, if this process is the command."""
    program = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    is_command = program in ("cabai", "cabai.exe") or (program == "-m" and "cabai" in sys.orig_argv)
    if is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)


def raise_again() -> None:
    """Ctrl-C raises KeyboardInterrupt, as it usually does."""
    if signal.getsignal(signal.SIGINT) is stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def leave_at_once() -> None:
    """Another Ctrl-C while the process ends does not wait for its threads."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(CODE))


def say_so_as_it_ends() -> None:
    """End with this code, also if the interrupt came in code that was made of text, as that of namedtuples is: Python
    would take it for one that nobody has caught, and end as if it had been killed."""
    _ending.append(CODE)


def is_ending() -> bool:
    """Whether it has been interrupted, and ends with this code."""
    return bool(_ending)


def end() -> None:
    """The last thing that is done."""
    if _ending:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(CODE)


_ending: list[int] = []
atexit.register(end)  # what is registered later is done before
stop_while_loading()
