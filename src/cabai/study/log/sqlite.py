"""Studies in a SQLite file, or in memory.

A transaction that writes takes the write lock as it begins (BEGIN IMMEDIATE), is logged ahead (WAL) and is on the disk
when it ends (synchronous = FULL).
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from cabai.study.errors import StorageError
from cabai.study.log import database, tables
from cabai.study.log.database import INTERRUPTS, Conflict, DatabaseError
from cabai.study.log.events import Event
from cabai.study.log.urls import MEMORY

T = TypeVar("T")
PAUSE = (0.001, 0.006)  # seconds between two tries for the write lock, from and to
IDLE = 4  # connections that are kept for the next reader


def plain_error(error: sqlite3.Error) -> DatabaseError:
    return (Conflict if isinstance(error, sqlite3.IntegrityError) else DatabaseError)(error)


@contextmanager
def plain() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise plain_error(error) from error


class SqliteConnection:
    """A connection to a file, or to a database in memory."""

    kind = tables.SQLITE

    def __init__(self, file: str | None) -> None:
        with plain():
            self.driver = driver = sqlite3.connect(
                file or ":memory:", timeout=database.PATIENCE, isolation_level=None, check_same_thread=False
            )
            try:
                driver.execute("PRAGMA foreign_keys = ON")
                driver.execute("PRAGMA synchronous = FULL")
                if file is not None:
                    use_wal(driver)
            except BaseException:
                driver.close()
                raise
        self.waits = database.PATIENCE  # seconds for which SQLite itself tries again to get a lock
        self.streaming: sqlite3.Cursor | None = None  # the last: while it is open, a rollback does not end its snapshot

    def fetch(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self.driver.execute(tables.to_sql(text, tables.SQLITE), values).fetchall()
        except sqlite3.Error as error:
            raise plain_error(error) from error

    def write(self, text: str, values: Sequence[Any] = ()) -> None:
        try:
            self.driver.execute(tables.to_sql(text, tables.SQLITE), values)
        except sqlite3.Error as error:
            raise plain_error(error) from error

    def stream(self, text: str, values: Sequence[Any], size: int) -> Iterator[list[Any]]:
        with plain():
            cursor = self.streaming = self.driver.execute(tables.to_sql(text, tables.SQLITE), values)
            while rows := cursor.fetchmany(size):
                yield rows

    def now(self) -> float:
        return database.now()

    def lock(self, study: int, after: int) -> tuple[float, list[Event]] | None:
        found = self.fetch(tables.STUDY_EVENTS, (after, study))  # the write lock is taken already
        if not found:
            return None
        return database.now(), [] if found[0][0] is None else list(map(Event._make, found))

    def begin(self) -> None:
        """From now on, all reads see one state of the database, even while others write."""
        if self.driver.in_transaction:  # it was left so because Ctrl-C came while it was undone
            self.rollback()
        if self.waits != database.PATIENCE:
            self.let_wait(database.PATIENCE)
        self.write("BEGIN")

    def begin_to_write(self) -> None:
        """Take the write lock. Left to itself, SQLite tries less and less often the longer it has waited, so that the
        last to come is served first; here all that wait have the same chance."""
        if self.driver.in_transaction:  # as above
            self.rollback()
        if self.waits:
            self.let_wait(0.0)
        deadline = 0.0
        while True:
            try:
                self.driver.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.Error as error:
                deadline = deadline or time.monotonic() + database.PATIENCE
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise plain_error(error) from error
            time.sleep(random.uniform(*PAUSE))

    def let_wait(self, seconds: float) -> None:
        self.write(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
        self.waits = seconds

    def commit(self) -> None:
        self.write("COMMIT")  # which is kept prepared; that of the driver is not

    def rollback(self) -> None:
        with plain():
            self.end_stream()
            self.driver.rollback()

    def close(self) -> None:
        with plain():
            self.end_stream()
            self.driver.close()

    def __del__(self) -> None:
        """Of a storage that nobody uses any more; Python 3.13 would warn that it was not closed."""
        with suppress(Exception):
            self.driver.close()

    def end_stream(self) -> None:
        """The reader may have stopped in the middle, and still hold it."""
        if self.streaming is not None:
            self.streaming.close()
            self.streaming = None


class SqliteStorage(database.Storage):
    """A SQLite file with studies in it; or one in memory, with one connection that all threads share in turn."""

    def __init__(self, path: str | None) -> None:
        self.file = None if path is None else os.path.abspath(path)
        self.url = MEMORY if path is None else f"sqlite:///{path}"
        self.identity: tuple[int, int] | None = None  # of the file, once it is prepared
        # Threads of one process that write queue here, which is quicker than polling. Those that read do not
        # wait for them, unless they share the one connection of a database in memory.
        self.turn: Any = threading.RLock()
        self.reading: Any = self.turn if self.file is None else Readers()
        self.writer: SqliteConnection | None = None  # kept for the next thread: connecting takes a while
        self.readers: list[SqliteConnection] = []  # unused ones
        super().__init__()

    def prepare(self) -> None:
        super().prepare()
        self.identity = self._identity()

    def write(self, work: database.Work[T], *, since: float | None = None) -> T:
        with self.turn:
            self.check_there()
            try:
                return self._written(work)
            except Conflict:
                raise
            except DatabaseError as error:
                raise self.failed(error) from error

    def _written(self, work: database.Work[T]) -> T:
        """Run `work` in one transaction, by the thread whose turn it is."""
        connection = self.writer
        if connection is None:
            connection = self.writer = SqliteConnection(self.file)
        try:
            connection.begin_to_write()
            result = work(connection)
            self.commit(connection)
            return result
        except BaseException as error:
            try:
                is_kept = self._undone(connection, error)
            except BaseException as another:  # Ctrl-C, meanwhile: others wait for the lock
                self.writer = connection if self._undone(connection, another) else None
                raise
            if not is_kept:
                self.writer = None
            raise

    def _undone(self, connection: SqliteConnection, error: BaseException) -> bool:
        """Leave nothing of a transaction that failed; returns whether its connection can be used again."""
        if self.file is not None and isinstance(error, (DatabaseError, *INTERRUPTS)):
            connection.close()  # its state is unknown
            return False
        connection.rollback()
        return True

    def read(self, work: database.Work[T]) -> T:
        with self.reading:
            self.check_there()
            try:
                return self._looked(work)
            except DatabaseError as error:
                raise self.failed(error) from error

    def _looked(self, work: database.Work[T]) -> T:
        """Run `work` on one state of the database, even while others write."""
        connection = self._reader()
        try:
            connection.begin()
            found = work(connection)
            connection.commit()
        except BaseException as error:
            if self._undone(connection, error):
                self._keep(connection)
            raise
        self._keep(connection)
        return found

    def _reader(self) -> SqliteConnection:
        if self.file is None:
            self.writer = self.writer or SqliteConnection(None)
            return self.writer
        try:
            return self.readers.pop()
        except IndexError:
            return SqliteConnection(self.file)

    def _keep(self, connection: SqliteConnection) -> None:
        """Keep a connection for the next who reads, if there are not enough."""
        if connection is not self.writer:
            if len(self.readers) < IDLE:
                self.readers.append(connection)
            else:
                connection.close()

    def is_gone(self) -> bool:
        return self.identity is not None and self.identity != self._identity()

    def check_there(self) -> None:
        if self.is_gone():
            raise StorageError(f"storage {self.url} was deleted or replaced while it was in use; load it again.")

    def _identity(self) -> tuple[int, int] | None:
        if self.file is None:
            return None
        try:
            found = os.stat(self.file)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def failed(self, error: DatabaseError) -> StorageError:
        if self.file is not None and not os.path.isdir(os.path.dirname(self.file)):
            error = DatabaseError(Exception(f"there is no folder {os.path.dirname(self.file)}"))
        return super().failed(error)

    def make_tables(self) -> None:
        def work(connection: database.Connection) -> None:
            if not self.is_prepared(connection):  # else another process has just made them
                for text in tables.MAKE:
                    connection.write(text)

        self.write(work)

    def close(self) -> None:
        """Close unused connections."""
        if self.turn.acquire(blocking=False):
            writer, self.writer = self.writer, None
            self.turn.release()
            if writer is not None:
                writer.close()
        with suppress(IndexError):  # somebody may take the last to read
            while True:
                self.readers.pop().close()

    def before_fork(self) -> None:
        """Wait for transactions to end, and close all connections: one that is open in two processes would have the
        child believe that it holds locks which only its parent has, and write to a log that the parent removed."""
        self.turn.acquire()
        self.reading.acquire()
        if self.file is not None:
            self.close()

    def after_fork(self) -> None:
        self.reading.release()
        self.turn.release()

    def after_fork_in_child(self) -> None:
        self.after_fork()


class Readers:
    """Threads that are reading: any number at a time, but none while the process forks.

    Where a thread holds `door`, nobody comes in or goes out.
    """

    def __init__(self) -> None:
        self.door = threading.Condition()
        self.inside: list[int] = []  # threads
        self.closing = False  # whether one waits until nobody is inside: those who come now wait for it

    def __enter__(self) -> None:
        with self.door:
            self.door.wait_for(lambda: not self.closing or threading.get_ident() in self.inside)
            self.inside.append(threading.get_ident())

    def __exit__(self, *_: Any) -> None:
        with self.door:
            self.inside.remove(threading.get_ident())
            self.door.notify_all()

    def acquire(self) -> None:
        """Wait until no other thread is inside, and close the door."""
        self.door.acquire()
        self.closing = True
        try:
            self.door.wait_for(lambda: set(self.inside) <= {threading.get_ident()})
        finally:
            self.closing = False

    def release(self) -> None:
        self.door.notify_all()
        self.door.release()


def use_wal(driver: sqlite3.Connection) -> None:
    """Switch a database file to write-ahead logging; SQLite does not wait its turn for that, so we do."""
    deadline = time.monotonic() + database.PATIENCE
    while driver.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            driver.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
