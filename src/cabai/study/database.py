"""A database with studies in it.

A change to a study is one transaction, made by one function that is handed a connection. What a transaction has written
is durable when `write` returns, and a transaction that did not end has written nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from cabai.study import schema
from cabai.study.connections import Connection, DatabaseError
from cabai.study.errors import StorageError
from cabai.study.turns import reset_turns

T = TypeVar("T")
Work = Callable[[Connection], T]

PATIENCE = 120.0  # seconds to wait for another's transaction
opening = threading.Lock()  # one storage at a time is opened


class Storage(ABC):
    """A database with studies in it."""

    url: str  # as it may be shown
    file: str | None = None  # if it is one

    def __init__(self) -> None:
        _storages.add(self)
        try:
            self.prepare()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def write(self, work: Work[T], *, since: float | None = None) -> T:
        """Run `work` in one transaction, durable when this returns. Who has waited already says `since` when, by
        `time.monotonic`: that is part of the time that it waits for a connection."""

    @abstractmethod
    def read(self, work: Work[T]) -> T:
        """Run `work` on one consistent state of the database, even while others write."""

    def commit(self, connection: Any) -> None:
        """End the transaction of a `write`."""
        connection.commit()

    def prepare(self) -> None:
        """Make the tables, or bring them up to date; refuse those of a newer cabai."""
        if self.read(self.version) != schema.REVISION:
            self.migrate()

    @abstractmethod
    def version(self, connection: Any) -> str | None:
        """The version of the tables, or None where there are none."""

    @abstractmethod
    def migrate(self) -> None:
        """Make the tables, or bring them up to date, unless another process does."""

    @abstractmethod
    def close(self) -> None:
        """Close unused connections. The storage can be used again."""

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

    @abstractmethod
    def before_fork(self) -> None:
        """Make sure that the process can fork, until one of the following is called."""

    @abstractmethod
    def after_fork(self) -> None:
        """In the parent."""

    @abstractmethod
    def after_fork_in_child(self) -> None: ...


def version_in(connection: Connection) -> str | None:
    found = connection.fetch(f"SELECT version_num FROM {schema.VERSION_TABLE}")
    return str(found[0][0]) if found else None


_storages: weakref.WeakSet[Storage] = weakref.WeakSet()
_forking: list[Storage] = []


def _before_fork() -> None:
    opening.acquire()
    _forking.extend(_storages)
    for storage in _forking:
        storage.before_fork()


def _after_fork() -> None:
    while _forking:
        _forking.pop().after_fork()
    opening.release()


def _after_fork_in_child() -> None:
    reset_turns()  # other threads may have held their locks
    while _forking:
        _forking.pop().after_fork_in_child()
    opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
