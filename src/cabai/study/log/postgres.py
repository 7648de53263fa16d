"""Studies on a PostgreSQL server: a transaction that changes a study locks its row."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import psycopg

from cabai.study.errors import StorageError
from cabai.study.log import database, tables
from cabai.study.log.database import INTERRUPTS, Conflict, DatabaseError
from cabai.study.log.events import Event
from cabai.study.log.urls import ServerURL
from cabai.support.validation import InvalidInput

T = TypeVar("T")

# What PostgreSQL and PgBouncer say; there is no code for it where a connection cannot be made.
NO_CONNECTION_LEFT = ("too many clients", "too many connections", "slots are reserved", "no more connections allowed")
WRITES, READS = "BEGIN ISOLATION LEVEL READ COMMITTED", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
IDLE, INERROR = psycopg.pq.TransactionStatus.IDLE, psycopg.pq.TransactionStatus.INERROR
CONNECTIONS = 8  # of a process, at most: many threads share them, since a server has not many
OPTIONS = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}  # of a connection, in a URL


class PostgresConnection:
    """One of the connections that the threads of a process share."""

    kind = tables.POSTGRES

    def __init__(self, driver: Any, begin: str) -> None:
        self.driver = driver
        self.begin: str | None = begin  # the statement that begins the transaction, until it has begun
        self.writes: list[tuple[str, Sequence[Any]]] = []  # sent with the commit: each message takes a while

    def fetch(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        with self.plain():
            self.start()
            found: list[Any] = self.driver.execute(tables.to_sql(text, tables.POSTGRES), values).fetchall()
            return found

    def write(self, text: str, values: Sequence[Any] = ()) -> None:
        self.writes.append((tables.to_sql(text, tables.POSTGRES), values))

    def stream(self, text: str, values: Sequence[Any], size: int) -> Iterator[list[Any]]:
        # Not with a cursor of psycopg's: that says CLOSE when it is forgotten, perhaps in another's transaction.
        text = tables.to_sql(text, tables.POSTGRES)
        with self.plain():
            self.start()
            self.driver.execute(f"DECLARE cabai_stream NO SCROLL CURSOR FOR {text}", values, prepare=False)
            while rows := self.driver.execute(f"FETCH {size} FROM cabai_stream", prepare=False).fetchall():
                yield rows
            self.driver.execute("CLOSE cabai_stream", prepare=False)

    def now(self) -> float:
        return float(self.fetch(f"SELECT {tables.NOW}")[0][0])

    def start(self) -> None:
        """Begin the transaction, if it has not begun."""
        if self.begin is not None:
            begin, self.begin = self.begin, None
            self.driver.execute(begin)

    def lock(self, study: int, after: int) -> tuple[float, list[Event]] | None:
        """All in one message. Not by a pipeline: after that, the server would not end a transaction that hangs."""
        begin, self.begin = self.begin, None
        lock, events = tables.LOCK.replace("?", str(int(study))), tables.EVENTS.replace("?", "{}")
        texts = [begin, lock, events.format(int(study), int(after))]
        with self.plain():
            cursor = self.driver.execute("; ".join(text for text in texts if text is not None), prepare=False)
            if begin is not None:
                cursor.nextset()
            now = cursor.fetchone()
            cursor.nextset()
            return None if now is None else (float(now[0]), list(map(Event._make, cursor.fetchall())))

    def commit(self) -> None:
        """What is to be written, and the end of the transaction, in one message."""
        writes, self.writes = self.writes, []
        with self.plain():
            if self.driver.info.transaction_status == INERROR:  # PostgreSQL would roll back, and psycopg say nothing
                raise psycopg.errors.InFailedSqlTransaction("the transaction has failed")
            if writes:
                self.start()
            with self.driver.pipeline() if writes and psycopg.Pipeline.is_supported() else nullcontext():
                for text, values in writes:
                    self.driver.execute(text, values)
                self.driver.commit()

    @contextmanager
    def plain(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            kind = Conflict if isinstance(error, psycopg.IntegrityError) else DatabaseError
            raise kind(error, is_lost=bool(self.driver.closed)) from error


class PostgresStorage(database.Storage):
    """A database of a PostgreSQL server with studies in it."""

    file = None

    def __init__(self, url: ServerURL) -> None:
        self.url = str(url)
        if not (set(url.options) <= OPTIONS and re.fullmatch("[0-9]*", url.options.get("port", ""))):
            # psycopg has others, such as `autocommit`
            raise InvalidInput(f"storage {self.url} has options that the database does not know.")
        self.pool = Pool(url.connection())
        super().__init__()

    def write(self, work: database.Work[T], *, since: float | None = None) -> T:
        """If the connection breaks, `work` is run once more on a new one: so it must be safe to repeat, as asking and
        telling are."""
        return self._run(work, WRITES, since)

    def read(self, work: database.Work[T]) -> T:
        return self._run(work, READS)

    def _run(self, work: database.Work[T], begin: str, since: float | None = None) -> T:
        try:
            try:
                return self._once(work, begin, since)
            except DatabaseError as error:
                if not error.is_lost:
                    raise
            return self._once(work, begin, since)  # the server may be back
        except Conflict:
            raise
        except DatabaseError as error:
            raise self.failed(error) from error

    def _once(self, work: database.Work[T], begin: str, since: float | None) -> T:
        """Run `work` in one transaction."""
        with self._connected(since) as driver:
            connection = PostgresConnection(driver, begin)
            try:
                result = work(connection)
                if begin == WRITES:
                    self.commit(connection)
                else:
                    connection.commit()
                return result
            except BaseException as error:
                self._undo(driver, error)
                raise

    def _undo(self, driver: Any, error: BaseException) -> None:
        """Leave nothing of a failed transaction, and no connection in an unknown state."""
        if driver.closed:
            self.pool.close()  # the others are lost too, perhaps
        elif isinstance(error, INTERRUPTS):
            driver.close()
        else:
            try:
                driver.rollback()
            except psycopg.Error:
                driver.close()

    @contextmanager
    def _connected(self, since: float | None) -> Iterator[Any]:
        """A connection. If this process, or the server, has none left, wait until others release one."""
        deadline, pause = (time.monotonic() if since is None else since) + database.PATIENCE, 0.05
        while not self.pool.free.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            raise StorageError(
                f"storage {self.url} failed: all connections of this process were in use for {database.PATIENCE:g} "
                "seconds. Everything acknowledged before is stored; this call was not acknowledged."
            )
        free = self.pool.free
        try:
            while True:
                try:
                    driver = self.pool.connection()
                    break
                except UnicodeError:
                    raise InvalidInput(f"storage {self.url} names a host that cannot exist.") from None
                except psycopg.ProgrammingError:
                    raise InvalidInput(f"storage {self.url} has options that the database does not know.") from None
                except psycopg.Error as error:
                    if not any(words in str(error) for words in NO_CONNECTION_LEFT):
                        raise DatabaseError(error) from error
                    if time.monotonic() > deadline:
                        raise StorageError(
                            f"storage {self.url} had no free connection for {database.PATIENCE:g} seconds: run fewer "
                            "processes at a time, or raise the server's max_connections. Everything acknowledged "
                            "before is stored; this call was not acknowledged."
                        ) from error
                time.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, 2.0)
            try:
                yield driver
            finally:
                self.pool.give_back(driver)
        finally:
            free.release()

    def make_tables(self) -> None:
        def work(connection: database.Connection) -> None:
            connection.fetch(tables.ONE_MAKER)
            if not self.is_prepared(connection):  # else another process has just made them
                for text in tables.MAKE:
                    connection.write(text)

        self.write(work)

    def close(self) -> None:
        """Close unused connections."""
        self.pool.close()

    def before_fork(self) -> None:
        """There is nothing to wait for."""

    def after_fork(self) -> None:
        """The parent's connections are its own."""

    def after_fork_in_child(self) -> None:
        self.pool.abandon()


class Pool:
    """The connections of a process to one server. (psycopg's own pool has threads, which a fork loses, and tells a
    wrong password only as a time-out.)"""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.made: dict[int, Any] = {}  # all that are open, by their identity
        self.idle: list[Any] = []
        self.free = threading.BoundedSemaphore(CONNECTIONS)

    def connection(self) -> Any:
        """One that is not in use, in no transaction."""
        while True:
            try:
                driver = self.idle.pop()
            except IndexError:
                return self.connect()
            if not driver.closed and driver.info.transaction_status == IDLE:
                return driver
            self.forget(driver)

    def connect(self) -> Any:
        """Commits are on the disk when they return, and transactions that hang are ended after a while, whatever the
        server's defaults."""
        driver = psycopg.connect(**self.options, autocommit=True)  # transactions are begun by hand
        self.made[id(driver)] = driver
        try:
            patience = f"{database.PATIENCE * 1000:.0f}"
            driver.execute(f"SET lock_timeout = {patience}; SET idle_in_transaction_session_timeout = {patience}")
            if driver.execute("SHOW synchronous_commit").fetchall() == [("off",)]:
                driver.execute("SET synchronous_commit = on")
        except BaseException:
            self.forget(driver)
            raise
        return driver

    def give_back(self, driver: Any) -> None:
        if id(driver) not in self.made:  # it was made before a fork
            return
        if driver.closed or driver.info.transaction_status != IDLE:  # Ctrl-C, as it was undone
            self.forget(driver)
        else:
            self.idle.append(driver)

    def forget(self, driver: Any) -> None:
        self.made.pop(id(driver), None)
        with suppress(psycopg.Error):
            driver.close()

    def close(self) -> None:
        """Close those that are not in use."""
        with suppress(IndexError):
            while True:
                self.forget(self.idle.pop())

    def abandon(self) -> None:
        """In a forked process: neither use nor close the parent's connections. Their sockets are let go of, or the
        server would not notice that the parent was killed, and keep its locks."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for driver in self.made.values():
            with suppress(Exception):
                os.dup2(nothing, driver.pgconn.socket, inheritable=False)
        os.close(nothing)
        self.abandoned = list(self.made.values())  # never closed here
        self.made, self.idle = {}, []
        self.free = threading.BoundedSemaphore(CONNECTIONS)
