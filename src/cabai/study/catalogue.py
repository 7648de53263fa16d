"""The studies of a storage: create, find, list, delete."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cabai.errors import StudyNotFound
from cabai.study.current import Row, new_state
from cabai.study.given import LONGEST_LABEL, storable
from cabai.study.log import tables
from cabai.study.log.database import DAMAGE, Conflict, Connection, Storage
from cabai.study.log.events import Event, check_event, wrong
from cabai.study.settings import Settings, checked_name
from cabai.support.validation import InvalidInput

FORMAT = 1  # of a whole log in a file


def create(
    storage: Storage, name: str, settings: Settings, first: Sequence[Event] = (), *, request: str | None = None
) -> bool:
    """Make a study whose log begins with these events; returns whether it is new, and not one of that name that there
    was before. `request` is kept: the same request, made again, finds what it has made."""
    study, token = new_id(), secrets.token_hex(8)  # the latter begins every pull's id
    check_sums(settings, first)

    def work(connection: Connection) -> bool:
        found = row_of(connection.fetch, name)
        if found is not None:
            return found.token == token  # by this very call, if the connection broke during the commit
        now = connection.now()
        connection.write(tables.ADD_STUDY, (study, name, token, request, now, settings.to_json()))
        connection.append(study, [event._replace(time=now) for event in first])
        return True

    if row_of(storage.fetch, name) is not None:
        return False
    try:
        return storage.write(work)
    except Conflict:  # another process was faster; or this very call, if the connection broke
        found = row_of(storage.fetch, name)
        return found is not None and found.token == token


def restore(storage: Storage, lines: Iterable[str], name: str | None = None) -> str:
    """A study from its whole log, as `exporting.whole_log` wrote it; returns its name. Every event is taken again, so
    that nothing is stored that a study cannot have been through."""
    rows = iter(lines)
    try:
        about = json.loads(next(rows, ""))
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ValueError(f"it is not a study that this version can read (format {FORMAT})")
        recipe = json.dumps(about["recipe"])
        state = new_state(Settings.stored(recipe))
        events = []
        for line in rows:
            event = read_event(json.loads(line))
            check_event(event, state.settings)
            state.take(event)
            events.append(event)
        chosen, created = checked_name(name or about["name"]), float(about["created"])
        tests = None if about["tests"] is None else json.dumps(dict(about["tests"]))
        mine = str(about["token"])
        if not re.fullmatch("[0-9a-f]{1,32}", mine):
            raise ValueError(f"its token is {mine!r}")
        if not math.isfinite(created):
            raise ValueError(f"it was created at {created}")
    except DAMAGE as error:
        raise InvalidInput(f"the log cannot be imported: {' '.join(str(error).split())[:300].rstrip('.')}.") from None

    study = new_id()

    def work(connection: Connection) -> None:
        if is_made(connection.fetch, chosen, study):  # by this very call, if the connection broke during the commit
            return
        is_free = not connection.fetch(tables.FIND_TOKEN, (mine,))  # else the log is imported next to its original
        token = mine if is_free else secrets.token_hex(8)
        connection.write(tables.ADD_STUDY, (study, chosen, token, None, created, recipe))
        connection.append(study, events)
        if tests is not None:
            connection.write(tables.KEEP_TESTS, (tests, study))

    try:
        storage.write(work)
    except Conflict:
        is_made(storage.fetch, chosen, study)  # perhaps another process was faster
        raise InvalidInput("the log cannot be imported: it has a pull or a period twice.") from None
    return chosen


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


def is_made(fetch: Callable[..., list[Any]], name: str, study: int) -> bool:
    """Whether there is this study; an error if another one has its name."""
    found = row_of(fetch, name)
    if found is not None and found.id != study:
        raise InvalidInput(f"study {name!r} already exists: choose another name, or delete it.")
    return found is not None


def new_id() -> int:
    """The id of a new study: random, so that no other study ever has it, even in a file that was made again."""
    return secrets.randbits(62)


def check_sums(settings: Settings, first: Iterable[Event]) -> None:
    """Refuse what is too large to be added up."""
    state = new_state(settings)
    for event in first:
        state.take(event)
    sums = [state.bill] if settings.items is not None else [
        *state.told_view.arms["rewards"].tolist(), *state.told_view.arms["costs"].tolist(), state.bill
    ]  # fmt: skip
    if not all(map(math.isfinite, sums)):
        raise InvalidInput("the rewards or costs to import add up to a number that is too large to store.")


def find(storage: Storage, name: str) -> Row:
    """A study as it was created."""
    row = row_of(storage.fetch, name)
    if row is None:
        raise StudyNotFound(f"there is no study {name!r} in {storage.url}.")
    return row


def row_of(fetch: Callable[..., list[Any]], name: str) -> Row | None:
    found = fetch(tables.FIND_STUDY, (name,))
    return Row._make(found[0]) if found else None


def names(storage: Storage) -> list[str]:
    """The oldest study first."""
    return [name for (name,) in storage.fetch(tables.NAMES)]


def row_of_id(storage: Storage, study: int) -> Row:
    found = storage.fetch(tables.STUDY_OF_ID, (study,))
    if not found:
        raise StudyNotFound(f"a study has been deleted from {storage.url}.")
    return Row._make(found[0])


def delete(storage: Storage, name: str) -> None:
    found = find(storage, name)

    def work(connection: Connection) -> None:  # once more, perhaps, if the connection broke during the commit
        connection.write(tables.DELETE_STUDY, (found.id,))

    storage.write(work)
