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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, TypeVar

from cabai.core.goal import CHEAPEST
from cabai.errors import SourceChanged, StudyNotFound
from cabai.study.log import tables
from cabai.study.log.database import Connection, Storage, reading
from cabai.study.log.events import AMEND, EVIDENCE, LIMITS, MAY_DECIDE, REOPENING, RESULTS, STOP, Event
from cabai.study.rules import warnings
from cabai.study.settings import Settings
from cabai.study.state.cheapest import CheapestState
from cabai.study.state.race import RaceState
from cabai.study.state.sampled import SampledState
from cabai.support.version import __version__

T = TypeVar("T")
FOLD = f"{__version__}/7"  # the version of the states: a snapshot of another one is not used
SNAPSHOT_EVERY = 64  # events between two snapshots; more for large states
MOST_CALLS = 64  # calls in one transaction: other processes wait for it
AT_A_TIME = 50_000  # events that are read at once


class Row(NamedTuple):
    """A study as it was created."""

    id: int
    name: str
    token: str
    request: str | None
    created: float
    recipe: str


class Transaction:
    """A study that nobody else can change: its state takes events as they are added; they are stored at the end."""

    def __init__(self, state: Any, now: float, connection: Connection, row: Row) -> None:
        self.state, self.now, self.connection, self.row = state, now, connection, row
        self.events: list[Event] = []
        self.warned: list[UserWarning] = []  # what the user of this call is warned of

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
        self.added: list[Event] = []
        self.warned: list[UserWarning] = []

    def run(self, transaction: Transaction) -> None:
        """A call that is refused adds no event, so it does not concern the others. One that was made before is not made
        again if it is stored: the connection broke, or Ctrl-C came, as it was committed."""
        if self.added and transaction.found(tables.EVENT_AT, self.added[0].place) == self.added[0]:
            return
        before, self.warned = len(transaction.events), []
        transaction.warned = self.warned
        try:
            self.result, self.error = self.work(transaction), None
        except Exception as error:
            if len(transaction.events) > before:
                raise
            self.error = error
        self.added = transaction.events[before:]


class Follower:
    """A state that follows the log."""

    def __init__(self, row: Row, storage: Storage, recipe: Settings) -> None:
        self.row, self.storage, self.recipe = row, storage, recipe
        self.lock = threading.RLock()
        self.state: Any = None  # None: not known

    def caught_up(self) -> Any:
        """The state after every event that is stored."""
        for events in self.after(self.known(self.storage.fetch).place, AT_A_TIME):
            self.take(events)
        return self.state

    def after(self, place: int, at_a_time: int) -> Iterator[list[Event]]:
        """The events after a place, some at a time: there may be millions."""
        while True:
            events = self.events(self.storage.fetch(tables.SOME_EVENTS, (place, self.row.id, at_a_time)))
            yield events
            if len(events) < at_a_time:
                return
            place = events[-1].place

    def known(self, fetch: Callable[..., list[Any]]) -> Any:
        """The state as far as it is known: if it is not, that of the snapshot or, if that cannot be used, the first."""
        if self.state is None:
            with suppress(Exception):  # a cache: whatever is wrong with it, the log has everything
                [(place, text)] = fetch(tables.SNAPSHOT, (self.row.id, FOLD))
                digest, _, content = text.partition(" ")
                if digest == digest_of(content):
                    kept, settings = json.loads(content), self.recipe
                    if kept["settings"] != settings.to_json():
                        settings = Settings.stored(kept["settings"])
                        settings = settings.imported() if self.recipe.is_present else settings
                    state = new_state(settings)
                    state.restore(kept)
                    self.state = state if state.place == place else None
            if self.state is None:
                with self.damage():
                    self.state = new_state(self.recipe)
        return self.state

    def take(self, events: Sequence[Event]) -> Any:
        """The state after the next events."""
        state = self.state
        if events:
            self.state = None  # not known if an event cannot be taken
            with self.damage():
                state.take_all(events)
            self.state = state
        return state

    def events(self, rows: Sequence[Any]) -> list[Event]:
        """Rows of `tables.EVENTS`: one of nulls if there are no events, and none if there is no study."""
        if not rows:
            raise self.deleted()
        return [] if rows[0][0] is None else list(map(Event._make, rows))

    def deleted(self) -> StudyNotFound:
        return StudyNotFound(f"the study {self.row.name!r} has been deleted from {self.storage.url}.")

    def damage(self) -> AbstractContextManager[None]:
        return reading(self.row.name, self.storage.url, own=bool(self.recipe.own))


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

    def import_own(self) -> None:
        """Import the user's own code of this study; warn, once, if its source has changed."""
        if self.recipe.is_present:
            return
        recipe = self.recipe.imported()
        with self.writer.lock, self.reader.lock:
            self.recipe, self.settings = recipe, self.settings.imported()
            for each in (self.writer, self.reader):
                each.recipe, each.state = recipe, None
        now, before = recipe.sources_now(), recipe.sources
        changed = [str(recipe.own[kind].address) for kind in now if now[kind] != before.get(kind)]
        if changed:
            words = f"the source of {', '.join(changed)} has changed since study {self.row.name!r} was created: "
            warnings.show([SourceChanged(f"{words}the guarantee holds only if it still computes the same.")])

    def change(self, work: Callable[[Transaction], T]) -> T:
        """Do something to the study, by this thread or another; it is on disk when this returns."""
        call, writer = Call(work), self.writer
        try:
            self.calls.append(call)
            with writer.lock:
                if call.is_open:
                    self._lead(call)
        finally:
            call.is_open = False
        if call.error is not None:
            raise call.error
        if call.warned:
            warnings.show(call.warned)
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
            writer.caught_up()

        def work(connection: Connection) -> None:
            if self.is_uncommitted:  # a connection broke: begin again from the log
                writer.state, self.is_uncommitted = None, False
            now, rows = connection.lock(self.row.id, writer.known(connection.fetch).place)
            transaction = Transaction(writer.take(writer.events(rows)), now, connection, self.row)
            while not alone and self.calls and len(calls) < MOST_CALLS:  # now that the lock is held: more may have come
                call = self.calls.popleft()
                if call.is_open and call is not calls[0]:
                    calls.append(call)
            self.is_uncommitted = True
            for each in calls:
                each.run(transaction)
            if transaction.events:
                connection.append(self.row.id, transaction.events)
                self._keep_snapshot(connection, transaction)

        try:
            self.storage.write(work, since=calls[0].since)
            self.is_uncommitted = False
        finally:
            if self.is_uncommitted:  # what was taken may not be in the log
                writer.state, self.is_uncommitted = None, False
        self._see(writer.state)

    def _see(self, state: Any) -> None:
        if len(state.amendments) >= self.amended:  # another thread may have seen more
            self.settings, self.amended = state.settings, len(state.amendments)

    def _keep_snapshot(self, connection: Connection, transaction: Transaction) -> None:
        """Now and then, at a stop, and always with a user's own code: others can then show the state without it."""
        self.since_snapshot += len(transaction.events)
        is_last = transaction.events[-1].kind == STOP
        if self.since_snapshot < max(SNAPSHOT_EVERY, self.snapshot_size // 500) and not is_last and not self.recipe.own:
            return
        state = transaction.state
        content = json.dumps(state.snapshot())
        connection.write(tables.KEEP_SNAPSHOT, (self.row.id, FOLD, state.place, f"{digest_of(content)} {content}"))
        self.since_snapshot, self.snapshot_size = 0, len(content)

    def look(self, work: Callable[[Any], T]) -> T:
        """`work(state)` on the state as it is stored now, while others write. It must not change it."""
        with self.reader.lock:
            state = self.reader.caught_up()
            self._see(state)
            return work(state)

    def ended(self) -> Event | None:
        """The event that stopped the study, if it has; without the rest of the log."""
        found, ended = self.reader.events(self.storage.fetch(tables.STOPS_AND_AMENDMENTS, (self.row.id,))), None
        if sum(event.kind == AMEND for event in found) != self.amended:
            self.look(lambda state: None)  # so that the settings are at once what they are now
        for event in found:
            if event.kind == STOP:
                ended = event
            elif ended is not None and ended.words in LIMITS and set(json.loads(event.words or "")) & REOPENING:
                ended = None  # it was raised
        return ended


def new_state(settings: Settings) -> Any:
    """The state of a study before its first event."""
    if settings.items is not None:
        return RaceState(settings)
    return (CheapestState if settings.goal == CHEAPEST else SampledState)(settings)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_current: weakref.WeakSet[CurrentState] = weakref.WeakSet()


def _begin_again() -> None:
    for each in list(_current):
        each.begin()


if hasattr(os, "register_at_fork"):  # in the child, the threads that held the locks, or waited, do not exist
    os.register_at_fork(after_in_child=_begin_again)
