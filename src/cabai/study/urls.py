"""The URL of a storage: in memory, a SQLite file or a PostgreSQL server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cabai.support.validation import InvalidInput

if TYPE_CHECKING:
    import sqlalchemy as sa

MEMORY = "memory"
KINDS = "memory, sqlite:///FILE or postgresql://USER@HOST/DATABASE"
# psycopg2 is another driver for the same servers: its URLs mean the same.
POSTGRES_DRIVERS = ("", "psycopg", "psycopg2")
DRIVERS = {"sqlite": ("", "pysqlite"), "postgresql": POSTGRES_DRIVERS, "postgres": POSTGRES_DRIVERS}


def checked_url(url: Any) -> str | sa.URL | None:
    """The path of a SQLite file; None for studies in memory; or the URL of a server. An error never shows a URL: there
    may be a password in it, anywhere if the URL is wrong."""
    if not isinstance(url, str) or not url:
        given = repr(url) if isinstance(url, str) else f"a {type(url).__name__}"
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


def server_url(url: str) -> sa.URL:
    """The URL of a PostgreSQL server; anything else is refused."""
    import sqlalchemy as sa

    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise InvalidInput(f"storage must be {KINDS}, got {beginning(url)}.") from None
    except ValueError:
        raise InvalidInput(f"storage {beginning(url)} has a port that is not a number.") from None
    backend, _, driver = parsed.drivername.partition("+")
    if backend not in DRIVERS:
        raise InvalidInput(f"storage must be {KINDS}, got {beginning(url)}.")
    if driver not in DRIVERS[backend]:
        raise InvalidInput(
            f"storage {backend}+{driver}:// names a driver that cabai does not use: write {backend}://... instead."
        )
    if backend == "sqlite":
        raise InvalidInput(f"storage sqlite:// takes a file and nothing else: {KINDS}.")
    if parsed.port is not None and not 1 <= parsed.port <= 65535:
        raise InvalidInput(f"the port in storage {shown(parsed)} must be from 1 to 65535.")
    if "%00" in url:
        raise InvalidInput(f"storage {beginning(url)} must not contain NUL, here written %00.")
    if "@" in f"{parsed.host}{parsed.database}":  # part of a password, perhaps
        raise InvalidInput(f"storage {beginning(url)} must have one @ at most: write %40, %3A, %2F within a password.")
    return parsed.set(drivername="postgresql+psycopg")


def beginning(url: str) -> str:
    """The part of an invalid URL that is safe to show: its first word."""
    word = re.match(r"[A-Za-z][\w.+-]*(?=://)", url)
    if word:
        return f"{word[0]}://..."
    return "something else" if re.search("[:@?=/]", url) else repr(url)


def shown(url: sa.URL) -> str:
    """A URL without its password, and without its options: there may be a password among those too."""
    return url.set(query={}).render_as_string(hide_password=True)
