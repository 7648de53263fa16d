"""Where studies are stored, by a URL: in memory, in a SQLite file or on a PostgreSQL server."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from cabai.errors import StudyNotFound
from cabai.study.log.database import Storage, opening
from cabai.study.log.sqlite import SqliteStorage
from cabai.support.validation import InvalidInput

MEMORY = "memory"
KINDS = "memory, sqlite:///FILE or postgresql://USER@HOST/DATABASE"
# psycopg2 is another driver for the same servers: its URLs mean the same.
POSTGRES_DRIVERS = ("", "psycopg", "psycopg2")
DRIVERS = {"sqlite": ("", "pysqlite"), "postgresql": POSTGRES_DRIVERS, "postgres": POSTGRES_DRIVERS}
SERVER = re.compile(
    r"(?P<scheme>[\w+]+)://(?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?"
    r"(?:(?:\[(?P<v6>[^/?]+)\]|(?P<host>[^/:?]+))?(?::(?P<port>[^/?]*))?)?"
    r"(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?"
)

# As it is shown, without the password and the options, where there may be a password too; and how to connect.
ServerURL = tuple[str, dict[str, Any]]
_opened: dict[str, Storage] = {}


def open_storage(url: str, *, make: bool = True) -> Storage:
    """The storage at a URL, with its tables; the same object for the same URL. Unless `make`, a SQLite file must be
    there already."""
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
    """The path of a SQLite file; None for studies in memory; or a server. An error never shows a URL: there may be a
    password in it, anywhere if the URL is wrong."""
    if not isinstance(url, str) or not url:
        given = repr(url) if isinstance(url, str) else f"a value of type {type(url).__name__}"
        raise InvalidInput(f"storage must be a URL such as sqlite:///cabai.db, got {given}.")
    if "\0" in url or url.encode(errors="replace").decode() != url:
        raise InvalidInput("storage must be a URL of ordinary characters, got one with NUL or broken characters in it.")
    if url in (MEMORY, "memory:", "memory://"):
        return None
    plain = re.fullmatch(r"sqlite(?:\+pysqlite)?:///([^?]*)", url)
    if plain or url in ("sqlite://", "sqlite+pysqlite://"):
        path = plain[1] if plain else ""
        return None if path in ("", ":memory:") else path
    return server_url(url)


def server_url(url: str) -> ServerURL:
    """A database of a PostgreSQL server; anything else is refused."""
    found = SERVER.fullmatch(url)
    backend, _, driver = found["scheme"].lower().partition("+") if found else ("", "", "")
    if found is None or backend not in DRIVERS:
        raise InvalidInput(f"storage must be {KINDS}, got {beginning(url)}.")
    if driver not in DRIVERS[backend]:
        raise InvalidInput(
            f"storage {backend}+{driver}:// names a driver that cabai does not use: write {backend}://... instead."
        )
    if backend == "sqlite":
        raise InvalidInput(f"storage sqlite:// takes a file and nothing else: {KINDS}.")
    if found["port"] and not re.fullmatch("[0-9]+", found["port"]):
        raise InvalidInput(f"storage {beginning(url)} has a port that is not a number.")
    if "%00" in url:
        raise InvalidInput(f"storage {beginning(url)} must not contain NUL, here written %00.")
    host, port, database = found["v6"] or found["host"], int(found["port"] or 0), found["database"]
    if "@" in f"{host}{database}":  # part of a password, perhaps
        raise InvalidInput(f"storage {beginning(url)} must have one @ at most: write %40, %3A, %2F within a password.")
    user = None if found["user"] is None else unquote(found["user"])
    shown = "" if user is None else quote(user, safe="") + ("" if found["password"] is None else ":***") + "@"
    shown += f"[{host}]" if found["v6"] else host or ""
    shown = f"postgresql://{shown}{f':{port}' if found['port'] else ''}{'' if database is None else f'/{database}'}"
    if found["port"] and not 1 <= port <= 65535:
        raise InvalidInput(f"the port in storage {shown} must be from 1 to 65535.")
    named = {"user": user, "password": unquote(found["password"] or ""), "host": host, "port": port, "dbname": database}
    options = dict(parse_qsl(found["query"] or "", keep_blank_values=True))
    return shown, {"connect_timeout": 10} | {key: value for key, value in named.items() if value} | options


def beginning(url: str) -> str:
    """The part of an invalid URL that is safe to show: its first word."""
    word = re.match(r"[A-Za-z][\w.+-]*(?=://)", url)
    if word:
        return f"{word[0]}://..."
    return "something else" if re.search("[:@?=/]", url) else repr(url)
