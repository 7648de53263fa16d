"""Studies on a PostgreSQL server: a transaction that changes a study locks its row."""

from __future__ import annotations

import os
import random
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from cabai.errors import StorageError
from cabai.study.log import database, tables
from cabai.study.log.database import Conflict, DatabaseError
from cabai.study.log.events import Event
from cabai.support.validation import InvalidInput

# What PostgreSQL and PgBouncer say; there is no code for it where a connection cannot be made.
NO_CONNECTION_LEFT = ("too many clients", "too many connections", "slots are reserved", "no more connections allowed")
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
IDLE, INERROR = psycopg.pq.TransactionStatus.IDLE, psycopg.pq.TransactionStatus.INERROR
NO_EVENT = (None,)
AT_A_TIME = 10_000  # statements in one message
CONNECTIONS = 8  # of a process, at most: many threads share them, since a server has not many
prepared: weakref.WeakSet[Any] = weakref.WeakSet()  # connections for which `tables.PREPARE` was executed


class Driver(psycopg.Connection[Any]):
    """A connection that is closed when nobody has it: Ctrl-C can come before it is given back."""

    permit: Permit | None = None

    def __del__(self) -> None:  # type: ignore[override]
        if hasattr(self, "pgconn"):  # else Ctrl-C came as it was made
            self.close()


class Permit:
    """To make one of the connections that a process may have."""


class PostgresConnection:
    """One of the connections that the threads of a process share."""

    def __init__(self, driver: Any, pool: Pool) -> None:
        self.driver, self.pool, self.cursor = driver, pool, driver.cursor()
        self.pending: list[str] = []  # sent before the next read, or with the commit: each message takes a while

    def begin(self) -> None:
        self.pending = [BEGIN]

    def fetch(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        self.send()
        return self.execute(text.replace("?", "%s"), values).fetchall()  # type: ignore[no-any-return]

    def write(self, text: str, values: Sequence[Any] = ()) -> None:
        first, *rest = text.split("?")
        parts = [f"{self.literal(value)}{part}" for value, part in zip(values, rest, strict=True)]
        self.pending.append(first + "".join(parts))

    def append(self, study: int, events: Iterable[Event]) -> None:
        self.prepare()
        for event in events:
            if len(self.pending) == AT_A_TIME:
                self.send()
            values = ", ".join(["NULL" if each is None else self.literal(each) for each in event])
            self.pending.append(f"EXECUTE cabai_append ({study}, {values})")

    def now(self) -> float:
        return float(self.fetch(f"SELECT {tables.NOW}")[0][0])

    def prepare(self) -> None:
        """What is prepared by hand is not planned again."""
        if self.driver not in prepared:
            self.execute(tables.PREPARE)
            prepared.add(self.driver)

    def lock(self, study: int, after: int) -> tuple[float, list[Any]]:
        """All in one message. Not by a pipeline: after that, the server would not end a transaction that hangs."""
        self.prepare()
        before, self.pending = self.pending, []
        texts = f"EXECUTE cabai_lock ({int(study)})", f"EXECUTE cabai_tail ({int(study)}, {int(after)})"
        cursor = self.execute("; ".join([*before, *texts]))
        for _ in before:
            cursor.nextset()
        now = cursor.fetchone()
        cursor.nextset()
        return (0.0, []) if now is None else (float(now[0]), cursor.fetchall() or [NO_EVENT])

    def commit(self) -> None:
        """Write, and end the transaction, in one message. (A pipeline takes the client half as long again.)"""
        if self.driver.pgconn.transaction_status == INERROR:  # PostgreSQL would roll back, and psycopg say nothing
            raise DatabaseError("the transaction has failed")
        self.send("COMMIT")

    def send(self, *last: str) -> None:
        texts, self.pending = [*self.pending, *last], []
        if texts:
            self.execute("; ".join(texts))

    def execute(self, text: str, values: Sequence[Any] | None = None) -> Any:
        try:
            return self.cursor.execute(text, values)
        except psycopg.Error as error:
            kind = Conflict if isinstance(error, psycopg.IntegrityError) else DatabaseError
            raise kind(error, is_lost=bool(self.driver.closed)) from error

    def literal(self, value: Any) -> str:
        """A value within a statement. (psycopg's own way takes ten times as long.)"""
        if value is None:
            return "NULL"
        if not isinstance(value, str):
            return repr(float(value)) if isinstance(value, float) else str(int(value))
        if "\0" in value:
            raise DatabaseError("text cannot contain NUL.")
        return psycopg.pq.Escaping(self.driver.pgconn).escape_literal(value.encode()).decode()

    def give_back(self) -> None:
        self.pool.give_back(self.driver)


class PostgresStorage(database.Storage):
    kind = tables.POSTGRES

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """The URL as it may be shown, and the arguments of a connection."""
        self.url, self.pool = url, Pool(options)
        super().__init__()

    def _undo(self, connection: PostgresConnection, error: BaseException) -> None:
        driver = connection.driver
        if driver.closed:
            self.pool.close()  # the others are lost too, perhaps
        elif isinstance(error, Exception):
            try:
                driver.rollback()
            except psycopg.Error:
                driver.close()
        else:  # Ctrl-C, at any moment
            driver.close()

    def _connection(self, since: float | None, begins: bool) -> PostgresConnection:
        """If this process, or the server, has none left, wait until others give one back."""
        deadline, pause = (time.monotonic() if since is None else since) + database.PATIENCE, 0.002
        while True:
            try:
                return PostgresConnection(self.pool.connection(), self.pool)
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
            pause = min(2 * pause, 1.0)

    def close(self) -> None:
        self.pool.close()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:  # the parent's connections are its own
            self.pool.abandon()


class Pool:
    """The connections of a process to one server. (psycopg's own pool has threads, which a fork loses, and tells a
    wrong password only as a time-out.) No lock counts them: one that Ctrl-C has made nobody's is closed, and gone."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.made: weakref.WeakSet[Any] = weakref.WeakSet()  # all that are open
        self.permits: weakref.WeakSet[Permit] = weakref.WeakSet()  # of these, and of those that are being made
        self.idle: list[Any] = []

    def connection(self) -> Any:
        while True:
            try:
                driver = self.idle.pop()
            except IndexError:
                return self.connect()
            if not driver.closed and driver.pgconn.transaction_status == IDLE:
                return driver
            self.forget(driver)

    def connect(self) -> Any:
        """A new one, unless there are too many; several threads may come here at the same time. Commits are on the disk
        when they return, and transactions that hang are ended after a while, whatever the server's defaults."""
        permit, driver = Permit(), None
        try:
            self.permits.add(permit)
            if len(self.permits) > CONNECTIONS:
                raise psycopg.OperationalError("too many connections of this process are in use")
            # Transactions are begun by hand. Psycopg prepares nothing: else, as it rolls back, it forgets what we
            # prepared.
            options = {**self.options, "client_encoding": "UTF8"}
            driver = Driver.connect(**options, autocommit=True, prepare_threshold=None)
            driver.permit = permit
            self.made.add(driver)
            patience = f"{database.PATIENCE * 1000:.0f}"
            driver.execute(f"SET lock_timeout = {patience}; SET idle_in_transaction_session_timeout = {patience}")
            if driver.execute("SHOW synchronous_commit").fetchall() == [("off",)]:
                driver.execute("SET synchronous_commit = on")
        except BaseException:
            self.permits.discard(permit)
            if driver is not None:
                self.forget(driver)
            raise
        return driver

    def give_back(self, driver: Any) -> None:
        if driver not in self.made:  # it was made before a fork
            return
        if driver.closed or driver.pgconn.transaction_status != IDLE:  # Ctrl-C, as it was undone
            self.forget(driver)
        else:
            self.idle.append(driver)

    def forget(self, driver: Any) -> None:
        self.made.discard(driver)
        driver.permit = None
        with suppress(psycopg.Error):
            driver.close()

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                self.forget(self.idle.pop())

    def abandon(self) -> None:
        """In a fork: let go of the parent's sockets without closing them, or its locks stay if it is killed."""
        nothing = os.open(os.devnull, os.O_RDWR)
        self.abandoned = list(self.made)  # never closed here
        for driver in self.abandoned:
            with suppress(Exception):
                os.dup2(nothing, driver.pgconn.socket, inheritable=False)
        os.close(nothing)
        self.made, self.permits, self.idle = weakref.WeakSet(), weakref.WeakSet(), []
