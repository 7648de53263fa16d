"""What a server needs of a study, and its users do not: short answers, and calls on behalf of remote workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from cabai.errors import StorageError, StudyNotFound
from cabai.study import catalogue
from cabai.study.current import FOLD, Row
from cabai.study.given import Pull
from cabai.study.log import tables
from cabai.study.log.events import Event
from cabai.study.log.storage import MEMORY, open_storage
from cabai.study.show.exporting import spooled as spooled
from cabai.study.show.looking import Listed, status_of
from cabai.study.show.status import Status
from cabai.study.stored import StoredStudy as StoredStudy
from cabai.support.validation import InvalidInput


def read(study: StoredStudy, what: str) -> Any:
    """What is known of a study now: one of `stored.READS`."""
    return study._read(what)


def in_short(study: StoredStudy) -> dict[str, Any]:
    """Whether a study has stopped, with which decision, its bill, and how often it was amended."""
    return read(study, "short")  # type: ignore[no-any-return]


def revision(study: StoredStudy) -> tuple[int, int]:
    """What differs after every change, also if the study was deleted and another one has its name now."""
    found = study._storage.fetch(tables.LAST_PLACE, (study._row.id,))
    if not found:
        raise study._current.reader.deleted()
    return study._row.id, int(found[0][0] or 0)


def ask(
    study: StoredStudy, count: int, worker: str | None, request: str | None, extra: int, *, batch: bool
) -> list[Pull]:
    """Pulls, for a worker elsewhere that may have `extra` results in hand which it has not told."""
    return study._ask(count, worker, request, extra=extra, batch=batch)[0]


def lapse(study: StoredStudy, workers: Collection[str]) -> None:
    """Offer the pulls of lost workers again now."""
    study._do("lapse", was_lost=workers.__contains__)


def overview(storage: str, *, make: bool = True) -> tuple[list[Status], list[str]]:
    """The status of every study, the oldest first, and what is wrong with those that cannot be read. Many studies take
    as many questions to the database as one."""
    opened, found, damaged = open_storage(storage, make=make), list[Status](), list[str]()
    tails: dict[int, list[Any]] = defaultdict(list)
    try:
        rows = opened.fetch(tables.STUDIES, (FOLD,))
        for study, *event in opened.fetch(tables.TAILS, (FOLD,)):
            tails[study].append(event)
    except StorageError:  # something that the database itself cannot read; perhaps in one study only
        rows = opened.fetch(tables.IDS)
    now = opened.now()
    for study, *rest in rows:
        try:
            row = Row(study, *rest[:5]) if rest else catalogue.row_of_id(opened, study)
            found.append(status_from(StoredStudy(opened, row), rest[5:], tails[study], now))
        except StudyNotFound:  # deleted in the meantime
            continue
        except (StorageError, InvalidInput) as error:  # the others are shown all the same
            damaged.append(str(error))
    return found, damaged


def listed(storage: str, kept: Mapping[int, tuple[int, Listed]]) -> tuple[dict[int, tuple[int, Listed]], list[str]]:
    """Every study as a list shows it, by its id and with its last place, the oldest first, and what is wrong with those
    that cannot be read. Only studies that have changed since they were `kept` are read."""
    opened, found, damaged = open_storage(storage), dict[int, tuple[int, Listed]](), list[str]()
    for study, place in opened.fetch(tables.LAST_PLACES):
        if study in kept and kept[study][0] == place:
            found[study] = kept[study]
            continue
        try:
            found[study] = listed_now(StoredStudy(opened, catalogue.row_of_id(opened, study)))
        except StudyNotFound:  # deleted in the meantime
            continue
        except (StorageError, InvalidInput) as error:  # the others are shown all the same
            damaged.append(str(error))
    return found, damaged


def listed_now(study: StoredStudy) -> tuple[int, Listed]:
    return study._current.look(lambda state: (state.place, Listed.of(state, study._row)))


def status_from(study: StoredStudy, snapshot: Sequence[Any], tail: Sequence[Any], now: float) -> Status:
    """The status of a study whose snapshot and later events were read already."""
    if snapshot:
        with suppress(StorageError):  # the snapshot cannot be used, or is older than the events are
            reader = study._current.reader
            reader.known(lambda *_: [] if snapshot[0] is None else [snapshot])
            return status_of(reader.take(list(map(Event._make, tail))), study._row, now)
    return study.status()


def places(storage: str, study: StoredStudy | None = None) -> list[str]:
    """What an error may call the storage of studies."""
    opened = open_storage(storage) if study is None else study._storage
    return [place for place in (storage, opened.url, opened.file) if place and place != MEMORY]
