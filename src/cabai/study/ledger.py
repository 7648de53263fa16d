"""What is stored of one study: read, and checked as it is read, and written.

Its methods run inside a transaction, on the connection that they are handed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from cabai.study import clock, damage, statements
from cabai.study.cheapest_play import kind_of
from cabai.study.connections import SQLITE, Connection
from cabai.study.errors import StudyNotFound
from cabai.study.history import Point, Recorder, points_of
from cabai.study.play import Play
from cabai.study.pull import Pull
from cabai.study.status import Status
from cabai.support.validation import InvalidInput

EVIDENCE, MAX_COST, MAX_PULLS, CERTIFICATE = "evidence", "max_cost", "max_pulls", "certificate"  # why a study stopped
BY_HAND = "by hand"
DIGITS = re.compile(r"[1-9][0-9]{0,17}")  # of a pull's number, in its id
REASONS = (EVIDENCE, MAX_COST, MAX_PULLS, CERTIFICATE, BY_HAND)


class Amended(Exception):
    """The study has been amended since its settings were read: `Current` reads them again."""


class Known(NamedTuple):
    """A study as this process left it: its row, its state, the pulls under way by number, if they were read, and the
    mark of the database at that moment."""

    row: Any
    play: Any
    pulls: dict[int, Any] | None
    mark: Any


class Locked(NamedTuple):
    """A study that nobody else can change until the transaction ends: its row, the time, the pulls under way, if they
    are known, and those that were taken as it was locked."""

    row: Any
    now: float
    pulls: dict[int, Any] | None
    taken: dict[int, Any]


class Ledger:
    """The rows of one study, with its settings as of an amendment; `where` names its storage in errors."""

    def __init__(self, row: Any, where: str) -> None:
        self.name, self.where = str(row.name), where
        self.id, self.token, self.amended = int(row.id), str(row.token), int(row.amended)
        with self.reading():
            self.settings = damage.settings_of(row.settings)
        self.of = {"of_study": self.id}
        self.recorder = Recorder()
        self._known: Known | None = None  # to spare reading it again

    def reading(self) -> AbstractContextManager[None]:
        """What goes wrong in here is the fault of what is stored."""
        return damage.reading(self.name, self.where)

    def import_own(self) -> list[str]:
        """Import the user's own code of this study; returns what has changed since the study was created."""
        if self.settings.is_present:
            return []
        self.settings = self.settings.imported()
        now, before = self.settings.sources_now(), self.settings.sources
        return [str(self.settings.own[kind].address) for kind in now if now[kind] != before.get(kind)]

    def row(self, connection: Connection, *, lock: bool = False) -> Any:
        """The study's own row; with `lock`, nobody else can change the study until the transaction ends."""
        statement = statements.LOCKED_STUDY if lock else statements.STUDY
        return self.checked_row(statement.row(connection, self.found_by()))

    def locked(self, connection: Connection, number: int | None = None) -> Locked:
        """The study, locked; the pull of that number may be taken in the same statement."""
        known = self._known
        if known is not None and known.mark is not None and known.mark == connection.mark():  # nobody has written since
            return Locked(known.row, clock.now(), known.pulls, {})
        if number is None or connection.kind == SQLITE:
            row = self.row(connection, lock=True)
            return Locked(row, float(row.now), None, {})
        found = statements.LOCK_AND_TAKE.row(connection, self.found_by() | self.key(number))
        width = len(statements.LOCKED_STUDY.row_type._fields)
        row = self.checked_row(found and statements.LOCKED_STUDY.row_type._make(found[:width]))
        pull = statements.TAKE_PULL.row_type._make(found[width:])
        taken = None if pull.number is None else self.checked_pulls([pull])[0]
        return Locked(row, float(row.now), None, {number: taken})

    def found_by(self) -> dict[str, Any]:
        """What finds the study's row, and says which of its revisions is known."""
        known = self._known
        return {**self.of, "of_token": self.token, "of_revision": -1 if known is None else known.row.revision}

    def play(self, connection: Connection, row: Any) -> Play:
        """The state of the study, as it is stored."""
        return self.restored(row, statements.ARMS.rows(connection, self.of))

    def play_on(self, connection: Connection, row: Any) -> Any:
        """The state of a locked study, to be changed and saved: not read again if it is known, and unknown until it is
        saved."""
        known, self._known = self._known, None
        if known is not None and known.row.revision == row.revision:
            return known.play
        if row.memory is None:  # it was known when the row was asked for
            row = self.row(connection)
        return self.play_since(connection, row, None if known is None else known.play)

    def play_since(self, connection: Connection, row: Any, known: Any) -> Play:
        """The state of the study, as others have left it since it was as `known`."""
        return self.play(connection, row)

    def pulls(self, connection: Connection) -> Sequence[Any]:
        """The pulls that are under way."""
        return self.checked_pulls(statements.PULLS.rows(connection, self.of))

    def pull(self, connection: Connection, number: int) -> Any:
        """The pull of that number, or None if it is not under way."""
        pull = statements.PULL.row(connection, self.key(number))
        return None if pull is None else self.checked_pulls([pull])[0]

    def take_pull(self, connection: Connection, number: int) -> Any:
        """The pull of that number, which is no longer under way; None if it was not."""
        pull = statements.TAKE_PULL.row(connection, self.key(number))
        return None if pull is None else self.checked_pulls([pull])[0]

    def status(self, connection: Connection) -> Status:
        """What is known now."""
        return self.look(connection)[0]

    def look(self, connection: Connection) -> tuple[Status, Any]:
        """What is known now, and the state that it is known from."""
        row = self.row(connection)
        arms, pulls = (each.rows(connection, self.of) for each in (statements.ARMS, statements.PULLS))
        play = self.restored(row, arms)
        return Status.of(row, play, self.checked_pulls(pulls), self.pull_id), play

    def next_in_order(self, connection: Connection, row: Any, through: int) -> Sequence[Any]:
        """The rewards told of pulls after number `through`, in the order of asking, up to the first that is missing."""
        after = {**self.of, "of_through": through, "of_unordered": row.unordered}
        found = statements.NEXT_IN_ORDER.rows(connection, after)
        with self.reading():
            damage.check_log(found, self.settings)
        return found

    def handed(self, number: int, arm: int, expires: float, offers: int = 1, item: int | None = None) -> Pull:
        """A pull, as it is handed out."""
        name, items = self.settings.arms[arm], self.settings.items
        about = self.settings.metadata.get(name), None if items is None or item is None else items.id(item)
        return Pull(self.pull_id(number), name, number, expires, offers, *about)

    def log(self, connection: Connection) -> Sequence[Any]:
        """Everything that was told, in the order of telling."""
        log = statements.LOG.rows(connection, self.of)
        with self.reading():
            damage.check_log(log, self.settings)
        return log

    def amendments_now(self, connection: Connection) -> list[Any]:
        """Every amendment, the oldest first."""
        self.row(connection)  # which says whether there are more than is known here
        found = statements.AMENDMENTS.rows(connection, self.of)
        with self.reading():
            damage.check_amendments(found, self.amended)
        return found

    def history(self, connection: Connection) -> list[Point]:
        """Some points of the past, in their order."""
        found = statements.POINTS.rows(connection, self.of)
        with self.reading():
            damage.check_points(found, self.settings)
        return points_of(found, self.settings.arms)

    def failures(self, connection: Connection) -> list[dict[str, Any]]:
        """Why pulls have failed, and how often: the most frequent reasons, by arm."""
        rows = statements.FAILURES.rows(connection, self.of)
        with self.reading():
            arms = self.settings.arms
            return [
                {"arm": arms[row.arm], "reason": str(row.reason), "count": int(row.count), "last": float(row.last)}
                for row in rows
            ]

    def under_way(self, connection: Connection) -> list[dict[str, Any]]:
        """The pulls that are under way, and who has them."""
        items, arms = self.settings.items, self.settings.arms
        return [
            {
                "id": self.pull_id(pull.number), "arm": arms[pull.arm],
                "item": None if items is None else items.id(pull.item), "number": pull.number, "asked": pull.asked,
                "expires": pull.expires, "offers": pull.offers, "worker": pull.worker,
            }
            for pull in self.pulls(connection)
        ]  # fmt: skip

    def tests(self, row: Any) -> dict[str, Any] | None:
        """How each arm is tried, if that is known."""
        with self.reading():
            return None if row.tests is None else damage.tests_of(row.tests, self.settings)

    def save_tests(self, connection: Connection, tests: dict[str, Any]) -> None:
        statements.CHANGE_STUDY.run(connection, {**self.of, "tests": json.dumps(tests)})

    def save(
        self,
        connection: Connection,
        row: Any,
        play: Play,
        values: dict[str, Any],
        writes: Sequence[statements.Write],
        pulls: dict[int, Any] | None,
    ) -> None:
        """Keep the state, what its policy remembers, and other columns of the study's row that have changed; and first
        what else is to be written. `pulls` are those under way then, if they are known."""
        revision = int.from_bytes(os.urandom(8), "big") >> 2
        arms = [(statements.CHANGE_ARM, {**self.key(a), **play.sums(a)}) for a in sorted(play.changed)]
        play.changed.clear()
        changed = {name: value for name, value in values.items() if value != getattr(row, name)}
        changed |= {"revision": revision, "memory": play.memory()}
        own = (statements.CHANGE_STUDY, {**self.of, **changed})
        statements.write_all(connection, [*writes, *arms, own])
        if play.settings is self.settings:  # else it was amended: another ledger goes on
            self._known = Known(row._replace(**changed), play, pulls, connection.mark())

    def checked_row(self, row: Any) -> Any:
        if row is None:
            raise StudyNotFound(f"the study {self.name!r} has been deleted from {self.where}.")
        if row.amended != self.amended:
            raise Amended
        with self.reading():
            damage.check_row(row, self.settings, REASONS)
        return row

    def checked_pulls(self, pulls: Sequence[Any]) -> Sequence[Any]:
        if not all(damage.looks_under_way(pull, self.settings) for pull in pulls):
            with self.reading():
                damage.check_pulls(pulls, self.settings)
        return pulls

    def restored(self, row: Any, arms: Sequence[Any]) -> Play:
        """The state that the study's row and those of its arms describe."""
        with self.reading():
            damage.check_arms(arms, self.settings, row.told + row.beyond)
            play = kind_of(self.settings).restored(self.settings, arms, row.spent, row.counted, row.memory)
            damage.check_play(play)
        return play

    def status_of(self, row: Any, arms: Sequence[Any], pulls: Sequence[Any]) -> Status:
        """What the study's row and those of its arms and of its pulls under way say of it now."""
        play = self.restored(self.checked_row(row), arms)
        return Status.of(row, play, self.checked_pulls(pulls), self.pull_id)

    def key(self, number: int) -> dict[str, int]:
        """What finds a pull, or an arm, in a statement."""
        return {**self.of, "of_number": number}

    def pull_id(self, number: int) -> str:
        return f"{self.token}-{number}"

    def number(self, pull: Pull | str) -> int:
        """The number of a pull of this study, from the pull or its id."""
        if isinstance(pull, Pull) and pull.id == self.pull_id(pull.number):
            return pull.number
        given = pull.id if isinstance(pull, Pull) else pull
        token, _, digits = given.partition("-") if isinstance(given, str) else ("", "", "")
        if token != self.token or not DIGITS.fullmatch(digits):
            raise InvalidInput(f"{given!r} is not the id of a pull of study {self.name!r}.")
        return int(digits)

    def never_asked(self, number: int) -> InvalidInput:
        return InvalidInput(f"study {self.name!r} has handed out no pull {self.pull_id(number)}.")
