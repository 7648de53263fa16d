"""Where studies live: a database, found by its URL. Importing this imports SQLAlchemy.

A change to a study is one transaction, made by one function that is handed a connection. On SQLite the transaction
takes the write lock as it begins (BEGIN IMMEDIATE), is logged ahead (WAL) and is on the disk when it ends
(synchronous = FULL); on PostgreSQL it locks the study's row. What a transaction has written is durable when `write`
returns, and a transaction that did not end has written nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool, StaticPool

from cabai.checks import InvalidInput
from cabai.study import schema
from cabai.study.errors import StorageError, StudyNotFound

T = TypeVar("T")
Work = Callable[[sa.Connection], T]

PATIENCE = 120.0  # seconds to wait for another's transaction
MEMORY = "memory"
_opened: dict[str, Storage] = {}
_opening = threading.Lock()


def open_storage(url: str, *, make: bool = True) -> Storage:
    """The storage at a URL, its tables made or brought up to date; the same object for the same URL.

    Unless `make`, a SQLite file must be there already.
    """
    if not isinstance(url, str) or not url:
        raise InvalidInput(f"storage must be a URL such as sqlite:///cabai.db, got {url!r}.")
    file = sqlite_file(url)
    if not make and file is not None and not file.exists():
        raise StudyNotFound(f"there are no studies in {url}: there is no such file.")
    with _opening:
        if url not in _opened:
            _opened[url] = Storage(url)
        return _opened[url]


class Storage:
    """A database with studies in it."""

    def __init__(self, url: str) -> None:
        self.engine = make_engine(url)
        self.url = self.engine.url.render_as_string(hide_password=True)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        # Threads of one process queue here, which is fairer and quicker than SQLite's polling; and the one connection
        # of a database in memory cannot be shared.
        self.turn: Any = threading.RLock() if self.is_sqlite else contextlib.nullcontext()
        self.readers = (
            self.engine if self.is_sqlite else self.engine.execution_options(isolation_level="REPEATABLE READ")
        )
        _engines.add(self.engine)
        self.prepare()

    def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction, durable when this returns.

        If the connection breaks, it is run once more on a new one: so `work` must be safe to repeat, as asking and
        telling are.
        """
        return self._run(work, self.engine.execution_options(cabai_writes=True))

    def read(self, work: Work[T]) -> T:
        """Run `work` on one consistent state of the database."""
        return self._run(work, self.readers)

    def _run(self, work: Work[T], engine: sa.Engine) -> T:
        with self.turn, self.plain_errors():
            try:
                with engine.begin() as connection:
                    return work(connection)
            except sa.exc.DBAPIError as error:
                if not error.connection_invalidated:
                    raise
            with engine.begin() as connection:  # the server may be back
                return work(connection)

    @contextlib.contextmanager
    def plain_errors(self) -> Iterator[None]:
        """What the database says, as one line."""
        try:
            yield
        except sa.exc.IntegrityError:  # two transactions had the same idea: for the caller to settle
            raise
        except sa.exc.DBAPIError as error:
            reason = " ".join(str(error.orig).split())
            lost = " If it was telling a pull, tell it again: that is safe." if error.connection_invalidated else ""
            raise StorageError(
                f"storage {self.url} failed: {reason}. What was acknowledged before is kept, this call was not.{lost}"
            ) from error
        except sa.exc.TimeoutError as error:
            raise StorageError(f"storage {self.url} failed: {error}") from error

    def version(self, connection: sa.Connection) -> str | None:
        """The version of the tables, or None where there are none."""
        if not sa.inspect(connection).has_table(schema.VERSION_TABLE):
            return None
        found = connection.execute(sa.text(f"SELECT version_num FROM {schema.VERSION_TABLE}")).scalar()
        return None if found is None else str(found)

    def prepare(self) -> None:
        """Make the tables, or bring them up to date; refuse those of a newer cabai."""
        if self.read(self.version) != schema.REVISION:
            self.write(self._migrate)

    def _migrate(self, connection: sa.Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7402117)"))  # one at a time
        found = self.version(connection)
        if found == schema.REVISION:  # another process has done it meanwhile
            return
        from alembic import command
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
        if found is not None and found not in known:
            raise StorageError(
                f"storage {self.url} was written by a newer cabai (tables of version {found}, this one knows "
                f"{schema.REVISION}): upgrade cabai. Nothing was changed."
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def make_engine(url: str) -> sa.Engine:
    """An engine for a URL: in memory, SQLite or PostgreSQL."""
    try:
        parsed = sa.make_url("sqlite://" if url in (MEMORY, "memory:", "memory://") else url)
        backend = parsed.get_backend_name()
    except sa.exc.ArgumentError:
        backend = ""
    if backend == "sqlite":
        return sqlite_engine(parsed)
    if backend in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
        return sa.create_engine(parsed, pool_size=4, max_overflow=-1, connect_args={"connect_timeout": 10})
    raise InvalidInput(f"storage must be memory, sqlite:///FILE or postgresql://USER@HOST/DATABASE, got {url!r}.")


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite URL; None for any other."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        return None
    on_disk = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:")
    return Path(str(parsed.database)) if on_disk else None


def sqlite_engine(url: sa.URL) -> sa.Engine:
    in_memory = url.database in (None, "", ":memory:")
    pool: Any = {"poolclass": StaticPool} if in_memory else {"poolclass": QueuePool, "pool_size": 4, "max_overflow": -1}
    engine = sa.create_engine(url, connect_args={"check_same_thread": False, "timeout": PATIENCE}, **pool)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin where `begin` below says, not where the driver guesses
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        if not in_memory:
            use_wal(connection)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("cabai_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def use_wal(connection: Any) -> None:
    """Switch a database file to write-ahead logging; SQLite does not wait its turn for that, so we do."""
    deadline = time.monotonic() + PATIENCE
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


_engines: weakref.WeakSet[sa.Engine] = weakref.WeakSet()


def _after_fork() -> None:
    """A forked process must not use its parent's connections, nor wait for locks that its parent's threads held."""
    global _opening
    _opening = threading.Lock()
    for engine in list(_engines):
        if not isinstance(engine.pool, StaticPool):
            engine.dispose(close=False)
    for storage in _opened.values():
        if storage.is_sqlite:
            storage.turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
