"""The time that studies use, in seconds since 1970: the database's, not the worker's.

PostgreSQL has its own clock. SQLite has none: it uses the machine's, through a function of this name.
"""

from __future__ import annotations

import time

CLOCK = "cabai_now"


def now() -> float:
    """The machine's time, read here and nowhere else, so that tests can move it by hand."""
    return time.time()
