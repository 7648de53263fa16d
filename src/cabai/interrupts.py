"""Handle Ctrl-C while the command `cabai` is loading or ending: stop at once, with one line and no traceback.

Loading takes a moment, and an interrupt would otherwise appear in whatever is being imported. So this module is
imported first, and it is fast to import. A program that imports cabai is not affected.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from typing import Any

CODE = 130  # as in shells: 128 plus the number of the signal


def stop(*_: Any) -> None:
    os.write(2, b'{"error": "stopped."}\n' if "--json" in sys.argv else b"cabai: stopped.\n")
    os._exit(CODE)


def stop_while_loading() -> None:
    """Stop at once on Ctrl-C, until `raise_again`, if this process is the command."""
    program = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    is_command = program in ("cabai", "cabai.exe") or (program == "-m" and "cabai" in sys.orig_argv)
    if is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)


def raise_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, as usual."""
    if signal.getsignal(signal.SIGINT) is stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def leave_at_once() -> None:
    """Let another Ctrl-C, while the process ends, exit without waiting for threads."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(CODE))


def say_so_as_it_ends() -> None:
    """Exit with this code, even from code made of text, such as a namedtuple's: Python would exit as if killed."""
    _ending.append(CODE)


def is_ending() -> bool:
    """Whether the process was interrupted and exits with this code."""
    return bool(_ending)


def end() -> None:
    """Exit with the code; runs last."""
    if _ending:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(CODE)


_ending: list[int] = []
atexit.register(end)  # functions registered later run earlier
stop_while_loading()
