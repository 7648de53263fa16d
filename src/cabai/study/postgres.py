"""Studies on a PostgreSQL server: a transaction that changes a study locks its row. Importing this imports SQLAlchemy,
which keeps the connections."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

from cabai.study import database, schema
from cabai.study.connections import INTERRUPTS, POSTGRES, Conflict, DatabaseError, Values
from cabai.study.errors import StorageError
from cabai.study.urls import shown
from cabai.support.validation import InvalidInput

T = TypeVar("T")

# What PostgreSQL and PgBouncer say; there is no code for it where a connection cannot be made.
NO_CONNECTION_LEFT = ("too many clients", "too many connections", "slots are reserved", "no more connections allowed")
WRITES, READS = psycopg.IsolationLevel.READ_COMMITTED, psycopg.IsolationLevel.REPEATABLE_READ
IDLE, INERROR = psycopg.pq.TransactionStatus.IDLE, psycopg.pq.TransactionStatus.INERROR
NOTHING = ()
OPTIONS = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}  # of a connection, in a URL


class PostgresConnection:
    """One of the connections that the threads of a process share."""

    kind = POSTGRES

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def execute(self, text: str, values: Values = NOTHING) -> None:
        with self.plain():
            self.driver.execute(text, values)

    def execute_many(self, text: str, values: Sequence[Values]) -> None:
        with self.plain(), self.driver.cursor() as cursor:
            cursor.executemany(text, values)

    def fetch(self, text: str, values: Values = NOTHING) -> list[Any]:
        with self.plain():
            found: list[Any] = self.driver.execute(text, values).fetchall()
            return found

    def mark(self) -> None:
        """Not known: others write to the same database."""

    def stream(self, text: str, values: Values, size: int) -> Iterator[list[Any]]:
        # Not with a cursor of psycopg's: that says CLOSE when it is forgotten, perhaps in another's transaction.
        with self.plain():
            self.driver.execute(f"DECLARE cabai_stream NO SCROLL CURSOR FOR {text}", values, prepare=False)
            while rows := self.driver.execute(f"FETCH {size} FROM cabai_stream", prepare=False).fetchall():
                yield rows
            self.driver.execute("CLOSE cabai_stream", prepare=False)

    def commit(self) -> None:
        with self.plain():
            if self.driver.info.transaction_status == INERROR:  # PostgreSQL would roll back, and psycopg say nothing
                raise psycopg.errors.InFailedSqlTransaction("the transaction has failed")
            self.driver.commit()

    @contextmanager
    def plain(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            kind = Conflict if isinstance(error, psycopg.IntegrityError) else DatabaseError
            raise kind(error, is_lost=bool(self.driver.closed)) from error


def plain_error(error: Exception) -> DatabaseError:
    """The error of the driver, also where SQLAlchemy has wrapped it."""
    if isinstance(error, sa.exc.DBAPIError):
        return DatabaseError(error.orig or error, is_lost=error.connection_invalidated)
    return DatabaseError(error)


class PostgresStorage(database.Storage):
    """A database of a PostgreSQL server with studies in it."""

    file = None

    def __init__(self, url: sa.URL) -> None:
        self.url = shown(url)
        try:
            if not set(url.query) <= OPTIONS:  # psycopg has others, such as `autocommit`: there must be transactions
                raise sa.exc.ArgumentError
            self.engine = engine_of(url)
        except sa.exc.ArgumentError:
            raise InvalidInput(f"storage {self.url} has options that the database does not know.") from None
        super().__init__()

    def write(self, work: database.Work[T], *, since: float | None = None) -> T:
        """If the connection breaks, `work` is run once more on a new one: so it must be safe to repeat, as asking and
        telling are."""
        return self._run(work, WRITES, since)

    def read(self, work: database.Work[T]) -> T:
        return self._run(work, READS)

    def _run(self, work: database.Work[T], level: psycopg.IsolationLevel, since: float | None = None) -> T:
        try:
            try:
                return self._once(work, level, since)
            except DatabaseError as error:
                if not error.is_lost:
                    raise
            return self._once(work, level, since)  # the server may be back
        except Conflict:
            raise
        except DatabaseError as error:
            raise self.failed(error) from error
        except sa.exc.TimeoutError as error:
            raise StorageError(
                f"storage {self.url} failed: all connections of this process were in use for {database.PATIENCE:g} "
                "seconds. Everything acknowledged before is stored; this call was not acknowledged."
            ) from error

    def _once(self, work: database.Work[T], level: psycopg.IsolationLevel, since: float | None) -> T:
        """Run `work` in one transaction."""
        lent = self._connected(since)
        while lent.dbapi_connection.info.transaction_status != IDLE:  # left so by one who was interrupted
            lent.invalidate()
            lent = self._connected(since)
        connection = PostgresConnection(lent.dbapi_connection)
        try:
            if connection.driver.isolation_level != level:
                connection.driver.isolation_level = level
            result = work(connection)
            if level == WRITES:
                self.commit(connection)
            else:
                connection.commit()
            return result
        except BaseException as error:
            self._undo(lent, connection, error)
            raise
        finally:
            try:
                if lent.is_valid and connection.driver.info.transaction_status != IDLE:  # Ctrl-C, as it was undone
                    lent.invalidate()
            finally:
                lent.close()

    def _undo(self, lent: Any, connection: PostgresConnection, error: BaseException) -> None:
        """Leave nothing of a failed transaction, and no connection in an unknown state."""
        if connection.driver.closed:
            lent.invalidate()
            self.engine.dispose()  # the others are lost too, perhaps
        elif isinstance(error, INTERRUPTS):
            lent.invalidate()
        else:
            try:
                connection.driver.rollback()
            except psycopg.Error:
                lent.invalidate()

    def _connected(self, since: float | None) -> Any:
        """A connection. If the server has none left, wait until others release one."""
        deadline, pause = (time.monotonic() if since is None else since) + database.PATIENCE, 0.05
        while True:
            try:
                return self.engine.raw_connection()
            except UnicodeError:
                raise InvalidInput(f"storage {self.url} names a host that cannot exist.") from None
            except (psycopg.Error, sa.exc.DBAPIError) as error:  # the latter where SQLAlchemy asks for the version
                if not any(words in str(error) for words in NO_CONNECTION_LEFT):
                    raise plain_error(error) from error
                if time.monotonic() > deadline:
                    raise StorageError(
                        f"storage {self.url} had no free connection for {database.PATIENCE:g} seconds: run fewer "
                        "processes at a time, or raise the server's max_connections. Everything acknowledged before "
                        "is stored; this call was not acknowledged."
                    ) from error
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, 2.0)

    def version(self, connection: Any) -> str | None:
        if connection.fetch("SELECT to_regclass(%(name)s)", {"name": schema.VERSION_TABLE})[0][0] is None:
            return None
        return database.version_in(connection)

    def migrate(self) -> None:
        try:
            try:
                self._migrate()
            except (DatabaseError, sa.exc.DBAPIError) as error:
                found = error if isinstance(error, DatabaseError) else plain_error(error)
                if not found.is_lost:
                    raise found from error
                self.engine.dispose()
                self._migrate()  # the server may be back
        except (DatabaseError, sa.exc.DBAPIError) as error:
            raise self.failed(error if isinstance(error, DatabaseError) else plain_error(error)) from error

    def _migrate(self) -> None:
        from cabai.study.migrating import upgrade

        with self.engine.execution_options(isolation_level="READ COMMITTED").begin() as connection:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7402117)"))  # one at a time
            found = self.version(PostgresConnection(connection.connection.dbapi_connection))
            if found != schema.REVISION:  # else another process has just done it
                upgrade(connection, found, self.url)

    def close(self) -> None:
        """Close unused connections."""
        self.engine.dispose()

    def before_fork(self) -> None:
        """There is nothing to wait for."""

    def after_fork(self) -> None:
        """The parent's connections are its own."""

    def after_fork_in_child(self) -> None:
        """A forked process must not use, nor close, its parent's connections to a server."""
        self.engine.dispose(close=False)


def engine_of(url: sa.URL) -> sa.Engine:
    """Many threads share a few connections, since a server has not many; and transactions see what others have
    committed (READ COMMITTED), whatever the server's default: who waited for a study's lock must see what was done."""
    engine = sa.create_engine(
        url, pool_size=8, max_overflow=0, pool_timeout=database.PATIENCE, isolation_level="READ COMMITTED",
        pool_reset_on_return=None,  # every transaction has ended
        connect_args={"connect_timeout": 10} if "connect_timeout" not in url.query else {},
    )  # fmt: skip

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        """Commits are on the disk when they return, whatever the server's default; and a process that hangs in the
        middle of a transaction does not keep the others waiting for ever."""
        patience = f"{database.PATIENCE * 1000:.0f}"
        connection.execute(f"SET lock_timeout = {patience}; SET idle_in_transaction_session_timeout = {patience}")
        if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
            connection.execute("SET synchronous_commit = on")
        connection.commit()

    return engine
