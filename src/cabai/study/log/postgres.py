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
AT_A_TIME = 10_000  # statements in one message
CONNECTIONS = 8  # of a process, at most: many threads share them, since a server has not many


class Driver(psycopg.Connection[Any]):
    """A connection that is closed when nobody has it: Ctrl-C can come before it is given back."""

    def __del__(self) -> None:  # type: ignore[override]
        if hasattr(self, "pgconn"):  # else Ctrl-C came as it was made
            self.close()


class PostgresConnection:
    """One of the connections that the threads of a process share."""

    driver: Any = None
    is_prepared = False  # whether `tables.PREPARE` was executed

    def __init__(self) -> None:
        self.pending: list[str] = []  # sent before the next read, or with the commit: each message takes a while

    def connect(self, options: Mapping[str, Any]) -> None:
        """Commits are on the disk when they return, and transactions that hang are ended after a while, whatever the
        server's defaults. Transactions are begun by hand; psycopg prepares nothing: else, as it rolls back, it forgets
        what we prepared."""
        self.driver = driver = Driver.connect(**options, autocommit=True, prepare_threshold=None)
        patience = f"{database.PATIENCE * 1000:.0f}"
        driver.execute(f"SET lock_timeout = {patience}; SET idle_in_transaction_session_timeout = {patience}")
        if driver.execute("SHOW synchronous_commit").fetchall() == [("off",)]:
            driver.execute("SET synchronous_commit = on")

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
            self.pending.append(f"EXECUTE cabai_append ({', '.join(map(self.literal, (study, *event)))})")

    def now(self) -> float:
        return float(self.fetch(f"SELECT {tables.NOW}")[0][0])

    def prepare(self) -> None:
        """What is prepared by hand is not planned again."""
        if not self.is_prepared:
            self.execute(tables.PREPARE)
            self.is_prepared = True

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
        return (0.0, []) if now is None else (float(now[0]), cursor.fetchall() or [(None,)])

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
            return self.driver.execute(text, values)
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


class PostgresStorage(database.Storage):
    """Its connections are idle or in use. (psycopg's own pool has threads, which a fork loses, and tells a wrong
    password only as a time-out.) No lock counts them: one that Ctrl-C has made nobody's is closed, and gone."""

    kind = tables.POSTGRES

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """The URL as it may be shown, and the arguments of a connection."""
        self.url, self.options = url, {**options, "client_encoding": "UTF8"}
        self._begin()
        super().__init__()

    def _begin(self) -> None:
        self.made: weakref.WeakSet[PostgresConnection] = weakref.WeakSet()  # all that are open, or being made
        self.idle: list[PostgresConnection] = []

    def _undo(self, connection: PostgresConnection, error: BaseException) -> None:
        driver = connection.driver
        if isinstance(error, Exception) and not driver.closed:
            with suppress(psycopg.Error):
                driver.rollback()
                return
        driver.close()  # after Ctrl-C, at any moment; or it is lost, and so are the others, perhaps
        self.close()

    def _connection(self, since: float | None, begins: bool) -> PostgresConnection:
        """If this process, or the server, has none left, wait until others give one back."""
        deadline, pause = (time.monotonic() if since is None else since) + database.PATIENCE, 0.002
        while True:
            try:
                return self.connection()
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

    def connection(self) -> PostgresConnection:
        """An idle one, or a new one unless there are too many; several threads may come here at the same time."""
        with suppress(IndexError):
            return self.idle.pop()
        connection = PostgresConnection()
        try:
            self.made.add(connection)
            if len(self.made) > CONNECTIONS:
                raise psycopg.OperationalError("too many connections of this process are in use")
            connection.connect(self.options)
        except BaseException:
            self._forget(connection)
            raise
        return connection

    def _give_back(self, connection: PostgresConnection) -> None:
        if connection not in self.made:  # it was made before a fork
            return
        connection.pending = []
        if connection.driver.pgconn.transaction_status == IDLE:
            self.idle.append(connection)
        else:  # it is closed, or Ctrl-C came as it was undone
            self._forget(connection)

    def _forget(self, connection: PostgresConnection) -> None:
        self.made.discard(connection)
        if connection.driver is not None:
            connection.driver.close()

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                self._forget(self.idle.pop())

    def _abandon(self) -> None:
        """Let go of the parent's sockets without closing them, or its locks stay if it is killed."""
        nothing = os.open(os.devnull, os.O_RDWR)
        self.abandoned = list(self.made)  # never closed here
        for connection in self.abandoned:
            with suppress(Exception):
                os.dup2(nothing, connection.driver.pgconn.socket, inheritable=False)
        os.close(nothing)
        self._begin()
