"""Where studies live: a database, found by its URL."""

from __future__ import annotations

import os
from typing import Any

from cabai.study.errors import StudyNotFound
from cabai.study.log.database import Storage, opening
from cabai.study.log.sqlite import SqliteStorage
from cabai.study.log.urls import MEMORY, checked_url

_opened: dict[str, Storage] = {}


def open_storage(url: str, *, make: bool = True) -> Storage:
    """The storage at a URL, its tables made or brought up to date; the same object for the same URL.

    Unless `make`, a SQLite file must be there already.
    """
    place = checked_url(url)
    file = os.path.abspath(place) if isinstance(place, str) else None
    if not make and file is not None and not os.path.exists(file):
        raise StudyNotFound(f"there are no studies in {url}: the file does not exist.")
    # The same name is another file after a change of directory; and one process has one memory.
    key = MEMORY if place is None else file or url
    with opening:
        if key in _opened and _opened[key].is_gone():
            _opened.pop(key).close()
        if key not in _opened:
            _opened[key] = storage_at(place)
        return _opened[key]


def storage_at(place: Any) -> Storage:
    if place is None or isinstance(place, str):
        return SqliteStorage(place)
    from cabai.study.log.postgres import PostgresStorage

    return PostgresStorage(place)
