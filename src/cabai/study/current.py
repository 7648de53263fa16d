"""The state of one study in this process: it follows the log, is changed in transactions, and is shared by threads.

The way of a call: `Study.ask` calls `change`, which takes the study's lock in the database, reads the events that
others have added, hands a `Transaction` to a rule, appends the events that the rule adds, and commits.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from cabai.core.goal import CHEAPEST
from cabai.study.errors import StudyNotFound
from cabai.study.log import tables
from cabai.study.log.database import Connection, DatabaseError, Storage, reading
from cabai.study.log.events import AMEND, EVIDENCE, RESULTS, STOP, WITHDRAW, Event
from cabai.study.settings import Settings
from cabai.study.state.cheapest import CheapestState
from cabai.study.state.race import RaceState
from cabai.study.state.sampled import SampledState
from cabai.support.version import __version__

T = TypeVar("T")
FOLD = f"{__version__}/1"  # the version of the states: a snapshot of another one is not used
OFTEN = 64  # events between two snapshots; more for large states
TOGETHER = 64  # calls in one transaction: other processes wait for it
MOST_AT_ONCE = 512  # events in one statement
MAY_DECIDE = (*RESULTS, WITHDRAW, AMEND)


class Row(NamedTuple):
    """A study as it was created."""

    id: int
    name: str
    token: str
    request: str | None
    created: float
    recipe: str


class Transaction:
    """A study that nobody else can change: its state, and the time. Events are taken by the state as they are added,
    and stored when the transaction ends."""

    def __init__(self, state: Any, now: float, connection: Connection, row: Row) -> None:
        self.state, self.now, self.connection, self.row = state, now, connection, row
        self.events: list[Event] = []

    def add(self, kind: str, **values: Any) -> None:
        event = Event(self.state.place + 1, kind, self.now, **values)
        self.events.append(event)
        self.state.take(event)
        if kind in MAY_DECIDE:
            self.decide()

    def decide(self) -> None:
        """A decision follows the very event that decides."""
        if self.state.ended is None:
            found = self.state.verdict()
            if found is not None:
                self.add(STOP, words=EVIDENCE, arm=found.arm, reward=found.confidence)

    def end(self, why: str) -> None:
        """Stop without a decision."""
        self.add(STOP, words=why, arm=self.state.leader, reward=self.state.confidence())

    def result_of(self, number: int) -> Event | None:
        """What a pull has returned; perhaps in this transaction."""
        for event in self.events:
            if event.pull == number and event.kind in RESULTS:
                return event
        return self.found(tables.RESULT, number)

    def found(self, statement: str, value: Any) -> Event | None:
        """The event that a statement finds, of those stored before this transaction."""
        found = self.connection.fetch(statement, (self.row.id, value))
        return Event._make(found[0]) if found else None

    def pull_id(self, number: int) -> str:
        return f"{self.row.token}-{number}"


class Call:
    """What one thread wants to be done."""

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work, self.since = work, time.monotonic()
        self.is_open = True  # until it is done, or its thread has given up
        self.result: Any = None
        self.error: Exception | None = None

    def run(self, transaction: Transaction) -> None:
        """A call that is refused adds no event, so it does not concern the others."""
        before = len(transaction.events)
        try:
            self.result, self.error = self.work(transaction), None
        except Exception as error:
            if len(transaction.events) > before:
                raise
            self.error = error


class Follower:
    """A state that follows the log."""

    def __init__(self, row: Row, storage: Storage, settings: Settings) -> None:
        self.row, self.storage, self.recipe = row, storage, settings
        self.lock = threading.RLock()
        self.state: Any = None  # None: not known

    def caught_up(self, connection: Connection, events: Sequence[Event] | None = None) -> Any:
        """The state after every event that is stored; `events` are those after the last that is known, if they were
        read already."""
        state, self.state = self.state, None  # which is not known if an event cannot be taken
        with reading(self.row.name, self.storage.url, own=bool(self.recipe.own)):
            if state is None:
                state, events = self.restored(self._snapshot(connection)), None
            if events is None:
                found = connection.fetch(tables.EVENTS, (self.row.id, state.place))
                events = list(map(Event._make, found))
            state.take_all(events)
        self.state = state
        return state

    def restored(self, snapshot: Sequence[Any] | None) -> Any:
        """The state at a snapshot, its place and its text; if there is none, or it cannot be used, before the first
        event."""
        with suppress(Exception):  # a cache: whatever is wrong with it, the log has everything
            if snapshot is not None:
                place, text = snapshot
                digest, _, content = text.partition(" ")
                if digest == digest_of(content):
                    kept = json.loads(content)
                    state = new_state(self._as_kept(kept["settings"]))
                    state.restore(kept)
                    if state.place == place:
                        return state
        return new_state(self.recipe)

    def _snapshot(self, connection: Connection) -> Any:
        with suppress(DatabaseError):  # text that is none
            return next(iter(connection.fetch(tables.SNAPSHOT, (self.row.id, FOLD))), None)
        return None

    def _as_kept(self, text: str) -> Settings:
        if text == self.recipe.to_json():
            return self.recipe
        settings = Settings.stored(text)
        return settings.imported() if self.recipe.is_present else settings


class CurrentState:
    """One study in this process. Threads that change it at the same time share a transaction: the first makes the
    changes of all that wait, so that one lock, one look at the log and one commit serve many."""

    def __init__(self, storage: Storage, row: Row) -> None:
        self.storage, self.row = storage, row
        with reading(row.name, storage.url):
            self.recipe = Settings.stored(row.recipe)
        self.settings, self.amended = self.recipe, 0  # as last seen; how often they were amended
        self.begin()
        _current.add(self)

    def begin(self) -> None:
        """With nothing known but the recipe. Readers do not wait for writers: they have a state of their own."""
        self.writer = Follower(self.row, self.storage, self.recipe)
        self.reader = Follower(self.row, self.storage, self.recipe)
        self.calls: deque[Call] = deque()
        self.since_snapshot, self.snapshot_size = 0, 0
        self.is_uncommitted = False

    def import_own(self) -> list[str]:
        """Import the user's own code of this study; returns what has changed since the study was created."""
        if self.recipe.is_present:
            return []
        recipe = self.recipe.imported()
        with self.writer.lock, self.reader.lock:
            self.recipe, self.settings = recipe, self.settings.imported()
            for each in (self.writer, self.reader):
                each.recipe, each.state = recipe, None
        now, before = recipe.sources_now(), recipe.sources
        return [str(recipe.own[kind].address) for kind in now if now[kind] != before.get(kind)]

    def change(self, work: Callable[[Transaction], T]) -> T:
        """Do something to the study, by this thread or another; it is on disk when this returns."""
        call, writer = Call(work), self.writer
        self.calls.append(call)
        try:
            with writer.lock:
                if call.is_open:
                    self._lead(call)
        finally:
            call.is_open = False
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[no-any-return]

    def _lead(self, call: Call) -> None:
        """Make this thread's change and those of waiting threads. If that fails, for whatever reason, none of it has
        been done: then this thread goes alone, and each of the others leads when its turn comes."""
        calls = [call]
        try:
            self._transact(calls, alone=False)
        except Exception:
            if len(calls) == 1:
                raise
            del calls[1:]
            self._transact(calls, alone=True)
        for each in calls:
            each.is_open = False

    def _transact(self, calls: list[Call], *, alone: bool) -> None:
        """The calls, in one transaction; unless it is to be `alone`, others join the first."""
        writer = self.writer
        if writer.state is None:  # what may take long is done before others have to wait
            self.storage.read(writer.caught_up)

        def work(connection: Connection) -> None:
            if self.is_uncommitted:  # a connection broke: begin again from the log
                writer.state, self.is_uncommitted = None, False
            found = connection.lock(self.row.id, 0 if writer.state is None else writer.state.place)
            if found is None:
                raise self.deleted()
            now, events = found
            transaction = Transaction(writer.caught_up(connection, events), now, connection, self.row)
            if not alone:
                self._join(calls)  # now that the lock is held: more may have come
            self.is_uncommitted = True
            for each in calls:
                each.run(transaction)
            if transaction.events:
                append(connection, self.row.id, transaction.events)
                self._keep_snapshot(connection, transaction)

        try:
            self.storage.write(work, since=calls[0].since)
            self.is_uncommitted = False
        finally:
            if self.is_uncommitted:  # what was taken may not be in the log
                writer.state, self.is_uncommitted = None, False
        self.settings, self.amended = writer.state.settings, len(writer.state.amendments)

    def _join(self, calls: list[Call]) -> None:
        """Add the calls of other threads that wait."""
        leader = calls[0]
        while len(calls) < TOGETHER and self.calls:
            call = self.calls.popleft()
            if call.is_open and call is not leader:
                calls.append(call)

    def _keep_snapshot(self, connection: Connection, transaction: Transaction) -> None:
        """Now and then, at a stop, and always if the state depends on a user's own code: others can then show it
        without that code."""
        self.since_snapshot += len(transaction.events)
        is_last = transaction.events[-1].kind == STOP
        if self.since_snapshot < max(OFTEN, self.snapshot_size // 100) and not is_last and not self.recipe.own:
            return
        state = transaction.state
        content = json.dumps(state.snapshot())
        connection.write(tables.KEEP_SNAPSHOT, (self.row.id, FOLD, state.place, f"{digest_of(content)} {content}"))
        self.since_snapshot, self.snapshot_size = 0, len(content)

    def look(self, work: Callable[[Any, Connection], T]) -> T:
        """`work(state, connection)` on the state as it is stored now, while others write. It must not change it."""
        reader = self.reader
        with reader.lock:

            def caught_up(connection: Connection) -> T:
                self.check_there(connection)
                state = reader.caught_up(connection)
                self.settings, self.amended = state.settings, len(state.amendments)
                return work(state, connection)

            return self.storage.read(caught_up)

    def turns(self) -> list[Event]:
        """The stops and amendments, without the rest of the log."""

        def work(connection: Connection) -> list[Event]:
            self.check_there(connection)
            return list(map(Event._make, connection.fetch(tables.TURNS, (self.row.id,))))

        found = self.storage.read(work)
        if sum(event.kind == AMEND for event in found) != self.amended:
            self.look(lambda state, _: None)  # so that the settings are at once what they are now
        return found

    def check_there(self, connection: Connection) -> None:
        if not connection.fetch(tables.IS_THERE, (self.row.id,)):
            raise self.deleted()

    def deleted(self) -> StudyNotFound:
        return StudyNotFound(f"the study {self.row.name!r} has been deleted from {self.storage.url}.")


def new_state(settings: Settings) -> Any:
    """The state of a study before its first event."""
    if settings.items is not None:
        return RaceState(settings)
    return (CheapestState if settings.goal == CHEAPEST else SampledState)(settings)


def append(connection: Connection, study: int, events: Sequence[Event]) -> None:
    """Add events to a log, many in one statement."""
    begin = 0
    while begin < len(events):
        size = min(1 << (len(events) - begin).bit_length() - 1, MOST_AT_ONCE)  # a power of two: so few statements
        some = events[begin : begin + size]
        connection.write(tables.append(size), [value for event in some for value in (study, *event)])
        begin += size


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_current: weakref.WeakSet[CurrentState] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """The threads that held the locks, or waited, do not exist in this process."""
    for each in list(_current):
        each.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
