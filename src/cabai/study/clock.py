"""The time that studies see, in seconds since 1970: that of the database, not of the worker.

PostgreSQL has a clock of its own. SQLite has none: it is told that of the machine, by a function of this name.
"""

from __future__ import annotations

import time

CLOCK = "cabai_now"


def now() -> float:
    """The machine's time, read here and nowhere else, so that tests can move it by hand."""
    return time.time()
