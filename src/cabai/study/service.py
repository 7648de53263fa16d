"""What a server needs of a study, and its users do not: short answers, and calls on behalf of remote workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from cabai.study import catalogue
from cabai.study.current import FOLD, CurrentState, Row
from cabai.study.errors import StorageError, StudyNotFound
from cabai.study.given import Pull
from cabai.study.log import tables
from cabai.study.log.database import Connection, Storage, reading
from cabai.study.log.events import EVIDENCE, Event
from cabai.study.log.storage import open_storage
from cabai.study.log.urls import MEMORY
from cabai.study.settings import Settings
from cabai.study.show.exporting import spooled as spooled
from cabai.study.show.looking import status_of
from cabai.study.show.status import Status
from cabai.study.stored import StoredStudy as StoredStudy
from cabai.support.validation import InvalidInput
from cabai.views.seen import Seen


def in_short(study: StoredStudy) -> dict[str, Any]:
    """Whether a study has stopped, with which decision, its bill, and how often it was amended."""

    def work(state: Any, _: Connection) -> dict[str, Any]:
        ended = state.ended
        decided = ended is not None and ended.words == EVIDENCE
        return {
            "stopped": ended is not None, "reason": None if ended is None else ended.words,
            "decision": state.settings.arms[ended.arm] if decided else None, "spent": state.bill,
            "amended": len(state.amendments),
        }  # fmt: skip

    return study._current.look(work)


def about(study: StoredStudy) -> tuple[Settings, int]:
    """A study's settings now, and how often they were amended."""
    return study._current.look(lambda state, _: (state.settings, len(state.amendments)))


def revision(study: StoredStudy) -> int:
    """A number that differs after every change."""

    def work(connection: Connection) -> int:
        study._current.check_there(connection)
        return int(connection.fetch(tables.LAST_PLACE, (study._row.id,))[0][0] or 0)

    return study._storage.read(work)


def status_now(study: StoredStudy) -> Status:
    """The status of a study, with the last forecast that is ready."""
    status, moment = study._current.look(study._status)
    return study._forecast(status, moment, wait=False)


def seen_now(study: StoredStudy) -> Seen:
    """What its page shows, with the last forecast that is ready."""
    return study._seen(wait=False)


def last_forecast(study: StoredStudy) -> Any:
    """Something that changes with every new forecast."""
    return study._forecasts.last


def under_way(study: StoredStudy) -> list[dict[str, Any]]:
    """The pulls that are under way, and who has them."""
    return study._current.look(lambda state, _: study._under_way(state))


def failures(study: StoredStudy) -> dict[str, Any]:
    """Why pulls have failed, and the time by the storage's clock."""
    return study._current.look(
        lambda state, connection: {"failures": study._failures(state, connection), "now": connection.now()}
    )


def ask(study: StoredStudy, count: int, worker: str | None, request: str | None, extra: int) -> list[Pull]:
    """Pulls, for a worker elsewhere that may have `extra` results in hand which it has not told."""
    return study._ask(count, worker, request, extra=extra)[0]


def lapse(study: StoredStudy, workers: Collection[str]) -> None:
    """Offer the pulls of lost workers again now."""
    study._lapse(workers.__contains__)


def overview(storage: str, *, make: bool = True) -> tuple[list[Status], list[str]]:
    """The status of every study, the oldest first, and what is wrong with those that cannot be read."""
    opened, found, damaged = open_storage(storage, make=make), list[Status](), list[str]()
    with suppress(StorageError):  # something that the database itself cannot read; perhaps in one study only
        return found_together(opened)
    for study in catalogue.ids(opened):
        try:
            found.append(StoredStudy(opened, catalogue.row_of_id(opened, study)).status())
        except StudyNotFound:  # deleted in the meantime
            continue
        except (StorageError, InvalidInput) as error:  # the others are shown all the same
            damaged.append(str(error))
    return found, damaged


def found_together(opened: Storage) -> tuple[list[Status], list[str]]:
    """The same, with as many questions to the database for many studies as for one."""
    rows, snapshots, tails, now = opened.read(
        lambda connection: (
            list(map(Row._make, connection.fetch(tables.STUDIES))),
            {study: rest for study, *rest in connection.fetch(tables.SNAPSHOTS, (FOLD,))},
            connection.fetch(tables.TAILS, (FOLD,)),
            connection.now(),
        )
    )
    events: dict[int, list[Event]] = defaultdict(list)
    for study, *event in tails:
        events[study].append(Event._make(event))
    found, damaged = list[Status](), list[str]()
    for row in rows:
        try:
            current = CurrentState(opened, row)
            state = current.reader.restored(snapshots.get(row.id))
            if state.place == (snapshots[row.id][0] if row.id in snapshots else 0):
                with reading(row.name, opened.url, own=bool(current.recipe.own)):
                    state.take_all(events[row.id])
                found.append(status_of(state, row, now))
            else:  # its snapshot cannot be used: it is read from the beginning
                found.append(StoredStudy(opened, row).status())
        except StudyNotFound:
            continue
        except (StorageError, InvalidInput) as error:
            damaged.append(str(error))
    return found, damaged


def places(storage: str, study: StoredStudy | None = None) -> list[str]:
    """What an error may call the storage of studies."""
    opened = open_storage(storage) if study is None else study._storage
    return [place for place in (storage, opened.url, opened.file) if place and place != MEMORY]
