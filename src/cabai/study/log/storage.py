"""Where studies are stored, by a URL: in memory, in a SQLite file or on a PostgreSQL server."""

from __future__ import annotations

import os
import re
from typing import Any

from cabai.errors import StudyNotFound
from cabai.study.log.database import Storage, opening
from cabai.study.log.sqlite import SqliteStorage
from cabai.support.validation import InvalidInput

MEMORY = "memory"
KINDS = "memory, sqlite:///FILE or postgresql://USER@HOST/DATABASE"
DRIVERS = {"sqlite": ("", "pysqlite"), "postgresql": ("", "psycopg", "psycopg2")}  # which all mean the same
DRIVERS["postgres"] = DRIVERS["postgresql"]

# As it is shown, without the password and the options, where there may be a password too; and how to connect.
ServerURL = tuple[str, dict[str, Any]]
_opened: dict[str, Storage] = {}


def open_storage(url: str, *, make: bool = True) -> Storage:
    """The storage at a URL, the same object for the same URL. Unless `make`, a SQLite file must be there."""
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


def storage_at(place: str | ServerURL | None) -> Storage:
    if isinstance(place, tuple):
        from cabai.study.log.postgres import PostgresStorage

        return PostgresStorage(*place)
    return SqliteStorage(place, MEMORY if place is None else f"sqlite:///{place}")


def checked_url(url: Any) -> str | ServerURL | None:
    """The path of a SQLite file, None for memory, or a server. An error shows no URL: it may hold a password."""
    if not isinstance(url, str) or not url:
        given = repr(url) if isinstance(url, str) else f"a value of type {type(url).__name__}"
        raise InvalidInput(f"storage must be a URL such as sqlite:///cabai.db, got {given}.")
    if "\0" in url or url.encode(errors="replace").decode() != url:
        raise InvalidInput("storage must be a URL of ordinary characters, got one with NUL or broken characters in it.")
    if url in (MEMORY, "memory:", "memory://"):
        return None
    scheme, mark, rest = url.partition("://")
    backend, _, driver = scheme.lower().partition("+")
    if not mark or backend not in DRIVERS:
        raise InvalidInput(f"storage must be {KINDS}, got {beginning(url)}.")
    if driver not in DRIVERS[backend]:
        raise InvalidInput(
            f"storage {backend}+{driver}:// names a driver that cabai does not use: write {backend}://... instead."
        )
    if backend != "sqlite":
        return server_url(url, rest)
    if "?" in rest or rest[:1] not in ("", "/"):
        raise InvalidInput(f"storage sqlite:// takes a file and nothing else: {KINDS}.")
    return None if rest in ("", "/", "/:memory:") else rest[1:]


def server_url(url: str, rest: str) -> ServerURL:
    """A database of a PostgreSQL server, as PostgreSQL's own library reads it."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        options = conninfo_to_dict(f"postgresql://{rest}")
    except ProgrammingError as error:
        wrong = "cannot be read: write %40, %3A, %2F within a password"
        if "query parameter" in str(error):
            wrong = "has options that the database does not know"
        raise InvalidInput(f"storage {beginning(url)} {wrong}.") from None
    if "@" in f"{options.get('host')}{options.get('dbname')}":  # part of a password, perhaps
        raise InvalidInput(f"storage {beginning(url)} must have one @ at most: write %40, %3A, %2F within a password.")
    port = str(options.get("port") or 5432)
    if not (re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
        raise InvalidInput(f"the port in storage {beginning(url)} must be a number from 1 to 65535.")
    shown = re.sub("^([^:/@]*):[^/@]*@", r"\1:***@", rest.partition("?")[0])
    return f"postgresql://{shown}", {"connect_timeout": 10} | options


def beginning(url: str) -> str:
    """The part of an invalid URL that is safe to show: its first word."""
    word = re.match(r"[A-Za-z][\w.+-]*(?=://)", url)
    if word:
        return f"{word[0]}://..."
    return "something else" if re.search("[:@?=/]", url) else repr(url)
