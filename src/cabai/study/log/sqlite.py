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
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from cabai.errors import StorageError
from cabai.study.log import database, tables
from cabai.study.log.database import Conflict, DatabaseError
from cabai.study.log.events import Event

PAUSE = (0.001, 0.006)  # seconds between two tries for the write lock, from and to


class SqliteConnection:
    """A connection to a file, or to a database in memory, made when it is needed; threads use it in turn."""

    driver: Any = None

    def __init__(self, file: str | None) -> None:
        self.file, self.turn = file, threading.RLock()

    def connect(self, patience: float) -> None:
        """SQLite itself tries for `patience` seconds to get a lock."""
        try:
            driver = sqlite3.connect(
                self.file or ":memory:", timeout=database.PATIENCE, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise DatabaseError(error) from error
        self._end = weakref.finalize(self, driver.close)  # of a storage that nobody uses any more
        self.driver = driver
        try:
            self.fetch("PRAGMA foreign_keys = ON")
            self.fetch("PRAGMA synchronous = FULL")
            modes = ("PRAGMA journal_mode", "PRAGMA journal_mode = WAL")  # SQLite does not wait its turn for the second
            if self.file and not any(self.fetch_unlocked(text) == [("wal",)] for text in modes):
                raise DatabaseError("write-ahead logging is not possible in this folder")
            self.fetch(f"PRAGMA busy_timeout = {patience * 1000:.0f}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.driver is not None:
            self._end()
            self.driver = None

    def fetch(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self.driver.execute(text, values).fetchall()  # type: ignore[no-any-return]
        except sqlite3.Error as error:
            raise (Conflict if isinstance(error, sqlite3.IntegrityError) else DatabaseError)(error) from error

    write = fetch

    def append(self, study: int, events: Iterable[Event]) -> None:
        for event in events:
            self.fetch(tables.APPEND, (study, *event))

    def now(self) -> float:
        return database.now()

    def lock(self, study: int, after: int) -> tuple[float, list[Any]]:
        return database.now(), self.fetch(tables.EVENTS, (after, study))  # the write lock is taken already

    def begin(self) -> None:
        """Take the write lock. Left to itself, SQLite tries less and less often the longer it has waited, so that the
        last to come is served first; here all that wait have the same chance."""
        if self.driver.in_transaction:  # it was left so because Ctrl-C came while it was undone
            self.driver.rollback()
        self.fetch_unlocked("BEGIN IMMEDIATE")

    def fetch_unlocked(self, text: str) -> list[Any]:
        """Execute a statement, as soon as no other process has the lock that it needs."""
        deadline = time.monotonic() + database.PATIENCE
        while True:
            try:
                return self.fetch(text)
            except DatabaseError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(*PAUSE))

    def commit(self) -> None:
        self.fetch("COMMIT")  # which is kept prepared; that of the driver is not


class SqliteStorage(database.Storage):
    """A SQLite file with studies in it; or one in memory, with one connection that all threads share in turn."""

    kind = tables.SQLITE

    def __init__(self, path: str | None, url: str) -> None:
        self.file, self.url = None if path is None else os.path.abspath(path), url
        self.identity: tuple[int, int] | None = None  # of the file, once it is prepared
        # Threads of one process that write queue here, which is quicker than polling. Those that read do not wait for
        # them, unless they share the one connection of a database in memory.
        self.writer = SqliteConnection(self.file)
        self.reader = self.writer if self.file is None else SqliteConnection(self.file)
        self.locks = self.writer.turn, self.reader.turn
        super().__init__()
        self.identity = self._identity()

    def _turn(self, begins: bool) -> Any:
        return (self.writer if begins else self.reader).turn

    def _connection(self, since: float | None, begins: bool) -> SqliteConnection:
        if self.is_gone():
            raise StorageError(f"storage {self.url} was deleted or replaced while it was in use; load it again.")
        found = self.writer if begins else self.reader
        if found.driver is None:
            found.connect(0.0 if begins else database.PATIENCE)
        return found

    def _undo(self, connection: SqliteConnection, error: BaseException) -> None:
        if self.file is None:
            connection.driver.rollback()
        else:
            connection.close()

    def is_gone(self) -> bool:
        return self.identity is not None and self.identity != self._identity()

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
            error = DatabaseError(f"there is no folder {os.path.dirname(self.file)}")
        return super().failed(error)

    def close(self) -> None:
        for connection in (self.writer, self.reader):
            if connection.turn.acquire(blocking=False):
                connection.close()
                connection.turn.release()
