"""The studies of a storage: create, restore, find, look at every one."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cabai.errors import StorageError, StudyNotFound
from cabai.study.current import Row, new_state
from cabai.study.given import LONGEST_LABEL, storable
from cabai.study.log import tables
from cabai.study.log.database import DAMAGE, Conflict, Connection, Storage
from cabai.study.log.events import Event, wrong
from cabai.study.log.storage import open_storage
from cabai.study.settings import Settings, checked_name
from cabai.study.stored import StoredStudy
from cabai.support.validation import InvalidInput

Found = dict[int, tuple[int, Any]]  # by the id of a study: its last place, and what is known of it


def create(
    storage: Storage, name: str, settings: Settings, first: Sequence[Event] = (), *, request: str | None = None
) -> bool:
    """Make a study whose log begins with these events; whether it is new. The same `request` finds it again."""
    state = new_state(settings)
    for event in first:
        state.take(event)
    sums = [state.bill]
    if settings.items is None:
        sums += [*state.told_view.arms["rewards"], *state.told_view.arms["costs"]]
    if not all(map(math.isfinite, sums)):
        raise InvalidInput("the rewards or costs to import add up to a number that is too large to store.")
    return add(storage, Row(0, name, secrets.token_hex(8), request, 0.0, settings.to_json()), first)


def restore(storage: Storage, lines: Iterable[str], name: str | None = None) -> str:
    """Store a study from its whole log (`exporting.whole_log`), every event taken again; returns its name."""
    rows = iter(lines)
    try:
        about = json.loads(next(rows, ""))
        if not isinstance(about, dict) or about.get("format") != tables.FORMAT:
            raise ValueError(f"it is not a study that this version can read (format {tables.FORMAT})")
        recipe = json.dumps(about["recipe"])
        state, events = new_state(Settings.stored(recipe)), list[Event]()
        for line in rows:
            events.append(read_event(json.loads(line)))
            state.take_all(events[-1:])
        chosen, created = checked_name(name or about["name"]), float(about["created"])
        tests = None if about["tests"] is None else json.dumps(dict(about["tests"]))
        token = str(about["token"])
        if not re.fullmatch("[0-9a-f]{1,32}", token):
            raise ValueError(f"its token is {token!r}")
        if not math.isfinite(created):
            raise ValueError(f"it was created at {created}")
    except DAMAGE as error:
        raise InvalidInput(f"the log cannot be imported: {' '.join(str(error).split())[:300].rstrip('.')}.") from None
    if not add(storage, Row(0, chosen, token, None, created, recipe), events, is_new=False, tests=tests):
        raise InvalidInput(f"study {chosen!r} already exists: choose another name, or delete it.")
    return chosen


def add(storage: Storage, row: Row, events: Sequence[Event], *, is_new: bool = True, tests: str | None = None) -> bool:
    """Store a study, with its events, unless there is one of that name; returns whether this very call has done it."""
    row = row._replace(id=secrets.randbits(62))  # which no study ever had, even in a file that was made again

    def is_mine(fetch: Callable[..., list[Any]]) -> bool | None:
        found = row_of(fetch, row.name)
        return None if found is None else found.id == row.id

    def work(connection: Connection) -> bool:
        mine = is_mine(connection.fetch)
        if mine is not None:  # it may be, if the connection broke during the commit
            return mine
        now = connection.now()
        # Each pull's id begins with the token. A log that is imported next to its original gets another.
        token = secrets.token_hex(8) if connection.fetch(tables.FIND_TOKEN, (row.token,)) else row.token
        made = row._replace(token=token, created=now if is_new else row.created)
        connection.write(tables.ADD_STUDY, (*made, tests))
        connection.append(row.id, [event._replace(time=now) for event in events] if is_new else events)
        return True

    if is_mine(storage.fetch) is not None:  # the write lock is not needed
        return False
    try:
        return storage.write(work)
    except Conflict:  # another process was faster; or this very call, if the connection broke
        mine = is_mine(storage.fetch)
        if mine is None and not is_new:
            raise InvalidInput("the log cannot be imported: it has a pull or a period twice.") from None
        return bool(mine)


def read_event(values: dict[str, Any]) -> Event:
    """An event from a file. Its fields must be what a database can have kept."""
    event = Event(**values)
    numbers, amounts = (event.place, event.pull, event.arm, event.item), (event.reward, event.cost)
    texts = event.kind, event.worker, event.request, event.words
    if not (
        all(each is None or (type(each) is int and 0 <= each < 2**53) for each in numbers)
        and all(each is None or (type(each) is float and math.isfinite(each)) for each in amounts)
        and all(each is None or storable(each) == each for each in texts)
        and all(len(each or "") <= LONGEST_LABEL for each in (event.worker, event.request))
    ):
        raise wrong(event, *Event._fields[3:])
    return event


def find(storage: Storage, name: str) -> Row:
    row = row_of(storage.fetch, name)
    if row is None:
        raise StudyNotFound(f"there is no study {name!r} in {storage.url}.")
    return row


def row_of(fetch: Callable[..., list[Any]], value: Any, statement: str = tables.FIND_STUDY) -> Row | None:
    """The study of a name, or of another value that a statement takes."""
    found = fetch(statement, (value,))
    return Row._make(found[0]) if found else None


def revision(study: StoredStudy) -> tuple[int, int]:
    """What differs after every change, also if the study was deleted and another one has its name now."""
    found = study._storage.fetch(tables.LAST_PLACE, (study._row.id,))
    if not found:
        raise study._current.reader.deleted()
    return study._row.id, int(found[0][0] or 0)


def every(what: str, storage: str, kept: Found | None = None, *, make: bool = True) -> tuple[Found, list[str]]:
    """What is known of each study, read unless it was `kept`, and what is wrong with those that cannot be read."""
    opened, found, damaged = open_storage(storage, make=make), Found(), list[str]()
    for study, place in opened.fetch(tables.LAST_PLACES):
        if kept and study in kept and kept[study][0] == place:
            found[study] = kept[study]
            continue
        try:
            row = row_of(opened.fetch, study, tables.STUDY_OF_ID)
            if row is not None:
                found[study] = place, StoredStudy(opened, row)._read(what)
        except StudyNotFound:  # deleted in the meantime
            continue
        except (StorageError, InvalidInput) as error:  # the others are shown all the same
            damaged.append(str(error))
    return found, damaged
