"""A connection to a database, in the middle of a transaction, whatever the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

SQLITE, POSTGRES = "sqlite", "postgresql"
Values = Sequence[Any] | Mapping[str, Any]  # in the order of a statement, or by their names in it
INTERRUPTS = (KeyboardInterrupt, SystemExit)  # may come at any moment: the state of a connection is unknown then


class DatabaseError(Exception):
    """What a database's driver says is wrong; `is_lost` if the connection is gone with it."""

    def __init__(self, error: BaseException, *, is_lost: bool = False) -> None:
        super().__init__(" ".join(str(error).split()))
        self.is_lost = is_lost


class Conflict(DatabaseError):
    """Two transactions had the same idea: for the caller to settle."""


class Connection(Protocol):
    """Each method raises DatabaseError for whatever goes wrong."""

    kind: str  # SQLITE or POSTGRES
    driver: Any  # the driver's own connection

    def execute(self, text: str, values: Values = ...) -> None: ...

    def execute_many(self, text: str, values: Sequence[Values]) -> None: ...

    def fetch(self, text: str, values: Values = ...) -> list[Any]:
        """The rows that a statement returns."""
        ...

    def mark(self) -> Any:
        """Something that is not the same once anybody has written to the database; None where that is not known."""
        ...

    def stream(self, text: str, values: Values, size: int) -> Iterator[list[Any]]:
        """The same, so many at a time: the others are not in memory."""
        ...
