"""A database with studies in it.

A change to a study is one transaction, made by one function that is handed a connection. What it has written is durable
when `write` returns, and a transaction that did not end has written nothing. Readers fetch one statement at a time:
logs only grow, so nothing has to stand still in between.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

from cabai.errors import StorageError
from cabai.study.log import tables
from cabai.study.log.events import Event
from cabai.support.validation import InvalidInput

T = TypeVar("T")
PATIENCE = 120.0  # seconds to wait for another's transaction
opening = threading.Lock()  # one storage at a time is opened


def now() -> float:
    """The machine's time, read nowhere else, so that tests can move it: SQLite's clock; PostgreSQL has its own."""
    return time.time()


class DatabaseError(Exception):
    """What a database's driver says is wrong; `is_lost` if the connection is gone with it."""

    def __init__(self, error: BaseException | str, *, is_lost: bool = False) -> None:
        super().__init__(" ".join(str(error).split()))
        self.is_lost = is_lost


class Conflict(DatabaseError):
    """Two transactions had the same idea: for the caller to settle."""


class Connection(Protocol):
    """A connection in the middle of a transaction. Each method raises DatabaseError for whatever goes wrong.

    `write` is for a statement that returns nothing, executed by the end of the transaction. After `lock`, nobody else
    can change a study until the transaction ends; it returns the time by the database's clock, and the rows of
    `tables.EVENTS` after this place.
    """

    def begin(self) -> None: ...  # at the latest with the next statement
    def fetch(self, text: str, values: Sequence[Any] = ...) -> list[Any]: ...
    def write(self, text: str, values: Sequence[Any] = ...) -> Any: ...
    def append(self, study: int, events: Iterable[Event]) -> None: ...
    def now(self) -> float: ...
    def lock(self, study: int, after: int) -> tuple[float, list[Any]]: ...


Work = Callable[[Connection], T]


class Storage(ABC):
    """A database with studies in it."""

    url: str  # as it may be shown
    kind: str  # tables.SQLITE or tables.POSTGRES
    file: str | None = None  # if it is one
    locks: tuple[Any, ...] = ()  # that this process holds during transactions

    def __init__(self) -> None:
        _storages.add(self)
        try:
            if not self.is_prepared(self.fetch):
                self.write(self.make_tables)
        except BaseException:
            self.close()
            raise

    def write(self, work: Work[T], *, since: float | None = None) -> T:
        """Run `work` in one transaction, durable when this returns. A caller that has waited already says `since` when,
        by `time.monotonic`: that is part of the time that it waits for a connection."""
        return self._twice(work, since, begins=True)

    def fetch(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that a statement returns by what is stored now, even while others write."""
        return self._twice(lambda connection: connection.fetch(text, values))

    def now(self) -> float:
        return self._twice(lambda connection: connection.now())

    def _twice(self, work: Work[T], since: float | None = None, *, begins: bool = False) -> T:
        """If the connection breaks, `work` is run once more on a new one: so it must be safe to repeat."""
        may_be_back = True  # the server
        while True:
            try:
                return self._once(work, since, begins)
            except Conflict:
                raise
            except DatabaseError as error:
                if not (error.is_lost and may_be_back):
                    raise self.failed(error) from error
                may_be_back = False

    def _once(self, work: Work[T], since: float | None, begins: bool) -> T:
        with self._turn(begins):
            connection = self._connection(since, begins)
            try:
                if begins:
                    connection.begin()
                result = work(connection)
                if begins:
                    self.commit(connection)
                return result
            except BaseException as error:
                try:
                    self._undo(connection, error)
                except BaseException as another:  # Ctrl-C, meanwhile: others wait for the lock
                    self._undo(connection, another)
                    raise
                raise
            finally:
                self._give_back(connection)

    def _turn(self, begins: bool) -> AbstractContextManager[Any]:
        """Held by one thread at a time."""
        return nullcontext()

    @abstractmethod
    def _connection(self, since: float | None, begins: bool) -> Any:
        """A connection that nobody else has and that is in no transaction; to read from, or to begin one."""

    @abstractmethod
    def _undo(self, connection: Any, error: BaseException) -> None:
        """Leave nothing of what failed, and no connection in an unknown state."""

    def _give_back(self, connection: Any) -> None:  # noqa: B027
        """Keep it for the next transaction."""

    def commit(self, connection: Any) -> None:
        connection.commit()

    def is_prepared(self, fetch: Callable[[str], list[Any]]) -> bool:
        """Whether the tables are there; an error if another version of cabai made them."""
        names = {name for (name,) in fetch(tables.NAMES_OF_TABLES[self.kind])}
        if "cabai_tables" in names:
            if fetch(tables.TABLES_VERSION) == [(tables.VERSION,)]:
                return True
        elif not names & {"cabai_study", "cabai_version"}:
            return False
        why = f"storage {self.url} was made by another version of cabai"
        raise StorageError(f"{why}: export its studies with that version, and import them here. Nothing was changed.")

    def make_tables(self, connection: Connection) -> None:
        """Make the tables, unless another process has just made them."""
        if self.kind == tables.POSTGRES:
            connection.fetch(tables.ONE_MAKER)
        if not self.is_prepared(connection.fetch):
            for text in tables.MAKE:
                connection.write(text.format(**tables.WORDS[self.kind]))

    @abstractmethod
    def close(self) -> None:
        """Close unused connections. The storage can be used again."""

    def _abandon(self) -> None:  # noqa: B027
        """In a child of a fork: let go of what is its parent's."""

    def is_gone(self) -> bool:
        """Whether the database's file was deleted, or another put in its place, so that what is written is lost."""
        return False

    def failed(self, error: DatabaseError) -> StorageError:
        """What the database says, as one line."""
        lost = " If it was telling a pull, tell it again: that is safe." if error.is_lost else ""
        reason = str(error) if str(error).endswith((".", "?", "!")) else f"{error}."
        return StorageError(
            f"storage {self.url} failed: {reason} Everything acknowledged before is stored; this call was not "
            f"acknowledged.{lost}"
        )


DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, AssertionError)


@contextmanager
def reading(name: str, storage: str, *, own: bool = False) -> Iterator[None]:
    """Errors inside are reported as damage of the stored study; not those of a user's `own` code."""
    try:
        yield
    except DAMAGE as error:
        if own and isinstance(error, InvalidInput):
            raise
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        what = f"the study {name!r} in {storage} is damaged: {reason}"
        raise StorageError(f"{what}. Restore the storage from a copy, or delete the study.") from error


_storages: weakref.WeakSet[Storage] = weakref.WeakSet()
_forking: list[Storage] = []


def _before_fork() -> None:
    """Wait for transactions to end, and close the connections to files: one that is open in two processes would have
    the child believe that it holds locks which only its parent has, and write to a log that the parent removed."""
    opening.acquire()
    _forking.extend(_storages)
    for storage in _forking:
        for lock in storage.locks:
            lock.acquire()
        if storage.file is not None:
            storage.close()


def _after_fork(in_child: bool = False) -> None:
    while _forking:
        storage = _forking.pop()
        for lock in storage.locks:
            lock.release()
        if in_child:
            storage._abandon()
    opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=lambda: _after_fork(True))
