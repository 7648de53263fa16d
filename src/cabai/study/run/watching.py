"""One line about a study that runs: on the last line of a terminal, else one per minute."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from cabai.support.on_demand import through
from cabai.support.validation import check_kind, optional, true_or_false

if TYPE_CHECKING:
    from cabai.study.study import Study

OFTEN, SELDOM = 0.3, 60.0  # seconds between two lines, on a terminal and elsewhere
SHARE = 20  # times as long as making a line took: showing it must not take longer than what is shown


def page_of(study: Study, wanted: bool) -> AbstractContextManager[Any]:
    """The study's page, if it is wanted, while something is done."""
    if not true_or_false(wanted, "page"):
        return nullcontext()
    optional("fastapi")
    optional("uvicorn")
    return through("page")(study)  # type: ignore[no-any-return]


@contextmanager
def watched(study: Study, wanted: bool | None = None, *, again: str | None = None) -> Iterator[None]:
    """Show on stderr how a study stands; with `again`, a Ctrl-C says what is stored, and how to go on."""
    check_kind(wanted, (bool, type(None)), "progress must be true, false or None")
    over = threading.Event()
    watcher = threading.Thread(target=watch, args=(study, over), name="cabai progress", daemon=True)
    try:
        if wanted is not False:
            watcher.start()
        yield
    except KeyboardInterrupt:
        if again is not None:
            over.set()
            where = "only in memory" if study.storage == "memory" else f"in {study.storage}"
            print(f"\nInterrupted: {study.status().line()}. Stored {where}. {again}", file=sys.stderr, flush=True)
        raise
    finally:
        over.set()
        if watcher.ident is not None:  # it was started
            watcher.join(OFTEN)
    if wanted and not sys.stderr.isatty():
        print(study.status().line(), file=sys.stderr, flush=True)


def columns() -> int:
    """The width of the terminal that stderr is, whatever stdout is."""
    own = 0
    with suppress(OSError, ValueError):
        own = os.get_terminal_size(sys.stderr.fileno()).columns
    return own or shutil.get_terminal_size().columns


def watch(study: Study, over: threading.Event) -> None:
    """Write a line now and then. If that fails, nothing is said: the run itself reports what is wrong."""
    is_live, width = sys.stderr.isatty(), 0
    usual = pause = OFTEN if is_live else SELDOM
    while not over.wait(pause):
        started, pause = time.monotonic(), 10 * usual
        with suppress(Exception):
            status = study.status()
            if is_live:
                text = status.line(columns() - 1)
                sys.stderr.write("\r" + text.ljust(width))
                width = len(text)
            else:
                sys.stderr.write(f"{time.strftime('%H:%M:%S')} {status.line()}\n")
            sys.stderr.flush()
            pause = max(usual, SHARE * (time.monotonic() - started))
    if width:
        sys.stderr.write("\r" + " " * width + "\r")
        sys.stderr.flush()
