"""Where studies live: a database, found by its URL. Importing this imports SQLAlchemy.

A change to a study is one transaction, made by one function that is handed a connection. On SQLite the transaction
takes the write lock as it begins (BEGIN IMMEDIATE), is logged ahead (WAL) and is on the disk when it ends
(synchronous = FULL); on PostgreSQL it locks the study's row. What a transaction has written is durable when `write`
returns, and a transaction that did not end has written nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool, StaticPool

from cabai.study import clock, schema
from cabai.study.errors import StorageError, StudyNotFound
from cabai.study.statements import send
from cabai.study.turns import Turn
from cabai.support.validation import InvalidInput

T = TypeVar("T")
Work = Callable[[sa.Connection], T]

PATIENCE = 120.0  # seconds to wait for another's transaction
PAUSE = (0.001, 0.006)  # seconds between two tries for SQLite's write lock, from and to
MEMORY = "memory"
INTERRUPTS = (KeyboardInterrupt, SystemExit)  # may come at any moment: nobody knows what a connection is doing then
# What PostgreSQL and PgBouncer say; there is no code for it where a connection cannot be made.
NO_CONNECTION_LEFT = ("too many clients", "too many connections", "slots are reserved", "no more connections allowed")
_opened: dict[str, Storage] = {}
_opening = threading.Lock()


def open_storage(url: str, *, make: bool = True) -> Storage:
    """The storage at a URL, its tables made or brought up to date; the same object for the same URL.

    Unless `make`, a SQLite file must be there already.
    """
    if not isinstance(url, str) or not url:
        given = repr(url) if isinstance(url, str) else f"a {type(url).__name__}"
        raise InvalidInput(f"storage must be a URL such as sqlite:///cabai.db, got {given}.")
    if "\0" in url or url.encode(errors="replace").decode() != url:
        raise InvalidInput("storage must be a URL of ordinary characters, got one with NUL or broken characters in it.")
    if url in ("memory:", "memory://", "sqlite://", "sqlite:///:memory:"):  # one process has one memory
        url = MEMORY
    parsed = checked_url(url)
    file = file_of(parsed)
    if not make and file is not None and not os.path.exists(file):
        raise StudyNotFound(f"there are no studies in {url}: the file does not exist.")
    key = file or url  # the same name is another file after a change of directory
    with _opening:
        if key in _opened and _opened[key].is_gone():
            _opened.pop(key).engine.dispose()
        if key not in _opened:
            _opened[key] = Storage(make_engine(parsed))
        return _opened[key]


class Storage:
    """A database with studies in it."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.file = file_of(engine.url)
        self.identity: tuple[int, int] | None = None  # of the file, once it is prepared
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        in_memory = self.is_sqlite and self.file is None
        self.url = MEMORY if in_memory else shown(self.engine.url)
        # Threads of one process that write queue here, which is quicker than polling. Those that read do not
        # wait for them, unless they share the one connection of a database in memory.
        self.turn: Any = Turn() if self.is_sqlite else contextlib.nullcontext()
        self.reading: Any = self.turn if in_memory else Guests() if self.is_sqlite else contextlib.nullcontext()
        self.writers = self.engine.execution_options(cabai_writes=True)
        self.readers = (
            self.engine if self.is_sqlite else self.engine.execution_options(isolation_level="REPEATABLE READ")
        )
        self.writer: sa.Connection | None = None  # to a file, kept for whoever is next: SQLAlchemy connects slowly
        sa.event.listen(self.engine, "engine_disposed", self._put_away)
        _storages.add(self)
        try:
            self.prepare()
            self.identity = self._identity()
        except BaseException:
            self.engine.dispose()
            raise

    def write(self, work: Work[T], *, since: float | None = None) -> T:
        """Run `work` in one transaction, durable when this returns. Who has waited already says `since` when, by
        `time.monotonic`: that is part of the time that it waits for a connection.

        If the connection breaks, it is run once more on a new one: so `work` must be safe to repeat, as asking and
        telling are.
        """
        if self.file is not None:
            return self._run(work, self.in_turn, self.turn)
        return self._run(work, lambda: self.connected(self.writers, since), self.turn)

    def read(self, work: Work[T]) -> T:
        """Run `work` on one consistent state of the database, whoever writes meanwhile."""
        return self._run(work, lambda: self.connected(self.readers), self.reading)

    def is_gone(self) -> bool:
        """Whether the database's file was deleted, or another put in its place, so that what is written is lost."""
        return self.identity is not None and self._identity() != self.identity

    def _identity(self) -> tuple[int, int] | None:
        if self.file is None:
            return None
        try:
            found = os.stat(self.file)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _run(self, work: Work[T], connected: Callable[[], AbstractContextManager[sa.Connection]], turn: Any) -> T:
        with turn, self.plain_errors():
            if self.is_gone():
                raise StorageError(f"storage {self.url} was deleted or replaced while it was in use; load it again.")
            try:
                with connected() as connection:
                    return work(connection)
            except sa.exc.DBAPIError as error:
                if not error.connection_invalidated:
                    raise
            with connected() as connection:  # the server may be back
                return work(connection)

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[sa.Connection]:
        """The connection of whoever has the turn to write to a file, in a transaction."""
        connection = self.writer = self.writer or self.writers.connect()
        try:
            with connection.begin():
                yield connection
        except (sa.exc.DBAPIError, *INTERRUPTS):
            self._put_away()
            raise

    def _put_away(self, _: Any = None) -> None:
        """Close the connection that is kept, unless another thread is writing."""
        if self.writer is not None and self.turn.acquire(blocking=False):
            writer, self.writer = self.writer, None
            self.turn.release()
            if writer is not None:
                writer.invalidate()  # its pool may be gone, and would keep it open
                writer.close()

    @contextlib.contextmanager
    def connected(self, engine: sa.Engine, since: float | None = None) -> Iterator[sa.Connection]:
        """A connection in a transaction. Where the server has none to spare, wait for one that others give back."""
        deadline, pause = (time.monotonic() if since is None else since) + PATIENCE, 0.05
        while True:
            try:
                connection = engine.connect()
                break
            except sa.exc.OperationalError as error:
                if not any(words in str(error.orig) for words in NO_CONNECTION_LEFT):
                    raise
                if time.monotonic() > deadline:
                    raise StorageError(
                        f"storage {self.url} had no free connection for {PATIENCE:g} seconds: run fewer processes at a "
                        "time, or raise the server's max_connections. Everything acknowledged before is stored; this "
                        "call was not acknowledged."
                    ) from error
                time.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, 2.0)
        with connection:
            try:
                with connection.begin():
                    yield connection
            except INTERRUPTS:
                connection.invalidate()
                raise

    @contextlib.contextmanager
    def plain_errors(self) -> Iterator[None]:
        """What the database says, as one line."""
        try:
            yield
        except sa.exc.IntegrityError:  # two transactions had the same idea: for the caller to settle
            raise
        except sa.exc.DBAPIError as error:
            reason = " ".join(str(error.orig).split())
            if self.file is not None and not os.path.isdir(os.path.dirname(self.file)):
                reason = f"there is no folder {os.path.dirname(self.file)}"
            lost = " If it was telling a pull, tell it again: that is safe." if error.connection_invalidated else ""
            raise StorageError(
                f"storage {self.url} failed: {reason}. Everything acknowledged before is stored; this call was not "
                f"acknowledged.{lost}"
            ) from error
        except sa.exc.TimeoutError as error:
            raise StorageError(
                f"storage {self.url} failed: all connections of this process were in use for {PATIENCE:g} seconds. "
                "Everything acknowledged before is stored; this call was not acknowledged."
            ) from error

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


class Guests:
    """Threads that are reading: any number at a time, but none while the process forks.

    Where a thread holds `door`, nobody comes in or goes out.
    """

    def __init__(self) -> None:
        self.door = threading.Condition()
        self.inside: list[int] = []  # threads

    def __enter__(self) -> None:
        with self.door:
            self.inside.append(threading.get_ident())

    def __exit__(self, *_: Any) -> None:
        with self.door:
            self.inside.remove(threading.get_ident())
            self.door.notify_all()

    def acquire(self) -> None:
        """Wait until no other thread is inside, and close the door."""
        self.door.acquire()
        self.door.wait_for(lambda: set(self.inside) <= {threading.get_ident()})

    def release(self) -> None:
        self.door.release()


def checked_url(url: str) -> sa.URL:
    """What a URL means: in memory, SQLite or PostgreSQL. An error never shows a URL: there may be a password in it,
    anywhere if the URL is wrong."""
    try:
        parsed = sa.make_url("sqlite://" if url == MEMORY else url)
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
        if parsed.query or parsed.username or parsed.password or parsed.host or parsed.port:
            raise InvalidInput(f"storage sqlite:// takes a file and nothing else: {KINDS}.")
        return parsed.set(drivername="sqlite")
    if parsed.port is not None and not 1 <= parsed.port <= 65535:
        raise InvalidInput(f"the port in storage {shown(parsed)} must be from 1 to 65535.")
    if "%00" in url:
        raise InvalidInput(f"storage {beginning(url)} must not contain NUL, here written %00.")
    if "@" in f"{parsed.host}{parsed.database}":  # part of a password, perhaps
        raise InvalidInput(f"storage {beginning(url)} must have one @ at most: write %40, %3A, %2F within a password.")
    return parsed.set(drivername="postgresql+psycopg")


def make_engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() == "sqlite":
        return sqlite_engine(url)
    try:
        return postgres_engine(url)
    except sa.exc.ArgumentError:
        raise InvalidInput(f"storage {shown(url)} has options that the database does not know.") from None


KINDS = "memory, sqlite:///FILE or postgresql://USER@HOST/DATABASE"
# psycopg2 is another driver for the same servers: its URLs mean the same.
POSTGRES_DRIVERS = ("", "psycopg", "psycopg2")
DRIVERS = {"sqlite": ("", "pysqlite"), "postgresql": POSTGRES_DRIVERS, "postgres": POSTGRES_DRIVERS}


def beginning(url: str) -> str:
    """What of a URL that cannot be read is safe to show: the word that it begins with."""
    word = re.match(r"[A-Za-z][\w.+-]*(?=://)", url)
    if word:
        return f"{word[0]}://..."
    return "something else" if re.search("[:@?=/]", url) else repr(url)


def shown(url: sa.URL) -> str:
    """A URL without its password, and without its options: there may be a password among those too."""
    return url.set(query={}).render_as_string(hide_password=True)


def postgres_engine(url: sa.URL) -> sa.Engine:
    """Many threads share a few connections, since a server has not many; and transactions see what others have
    committed (READ COMMITTED), whatever the server's default: who waited for a study's lock must see what was done."""
    engine = sa.create_engine(
        url, pool_size=8, max_overflow=0, pool_timeout=PATIENCE, isolation_level="READ COMMITTED",
        pool_reset_on_return=None,  # every transaction has ended
        connect_args={"connect_timeout": 10} if "connect_timeout" not in url.query else {},
    )  # fmt: skip

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        """Commits are on the disk when they return, whatever the server's default; and a process that hangs in the
        middle of a transaction does not keep the others waiting for ever."""
        patience = f"{PATIENCE * 1000:.0f}"
        connection.execute(f"SET lock_timeout = {patience}; SET idle_in_transaction_session_timeout = {patience}")
        if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
            connection.execute("SET synchronous_commit = on")
        connection.commit()

    return engine


def file_of(url: sa.URL) -> str | None:
    """Which file a URL means, if it means one."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return os.path.abspath(str(url.database))


def sqlite_engine(url: sa.URL) -> sa.Engine:
    in_memory = file_of(url) is None
    pool: Any = {"poolclass": StaticPool} if in_memory else {"poolclass": QueuePool, "pool_size": 4, "max_overflow": -1}
    engine = sa.create_engine(url, connect_args={"check_same_thread": False, "timeout": PATIENCE}, **pool)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin where `begin` below says, not where the driver guesses
        connection.create_function(clock.CLOCK, 0, lambda: clock.now())
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        if not in_memory:
            use_wal(connection)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("cabai_writes", False):
            begin_to_write(connection)
        else:
            let_wait(connection, PATIENCE)
            send(connection, "BEGIN")

    return engine


def begin_to_write(connection: sa.Connection) -> None:
    """Take SQLite's write lock. Left to itself, SQLite tries less and less often the longer it has waited, so that who
    came last is served first; here everybody who waits has the same chance."""
    let_wait(connection, 0.0)
    deadline = 0.0
    while True:
        try:
            send(connection, "BEGIN IMMEDIATE")
            return
        except sa.exc.OperationalError as error:
            deadline = deadline or time.monotonic() + PATIENCE
            if "locked" not in str(error.orig) or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(*PAUSE))


def let_wait(connection: sa.Connection, seconds: float) -> None:
    """For so long SQLite itself tries again to get a lock."""
    if connection.info.get("cabai_waits") != seconds:
        send(connection, f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
        connection.info["cabai_waits"] = seconds


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


_storages: weakref.WeakSet[Storage] = weakref.WeakSet()
_forking: list[Storage] = []  # whose turn is held while a process forks


def _before_fork() -> None:
    """A connection to SQLite must not be open in two processes: the child would believe it holds locks that only its
    parent holds, and write to a log that the parent has put away. So wait for transactions to end, and close."""
    _opening.acquire()
    _forking.extend(_storages)
    for storage in _forking:
        if storage.is_sqlite:
            storage.turn.acquire()
            storage.reading.acquire()
            if not isinstance(storage.engine.pool, StaticPool):
                storage.engine.dispose()


def _after_fork() -> None:
    while _forking:
        storage = _forking.pop()
        if storage.is_sqlite:
            storage.reading.release()
            storage.turn.release()
    _opening.release()


def _after_fork_in_child() -> None:
    """A forked process must not use, nor close, its parent's connections to a server."""
    for storage in _forking:
        if not storage.is_sqlite:
            storage.engine.dispose(close=False)
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
