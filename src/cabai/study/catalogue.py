"""The studies of a storage: create, find, list, delete."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cabai.study import schema, statements
from cabai.study.cheapest_play import kind_of
from cabai.study.connections import Conflict, Connection
from cabai.study.database import Storage
from cabai.study.errors import StorageError, StudyNotFound
from cabai.study.items_ledger import ItemsLedger
from cabai.study.items_play import ItemsPlay
from cabai.study.ledger import Ledger
from cabai.study.settings import Settings
from cabai.study.status import Status
from cabai.support.validation import InvalidInput

if TYPE_CHECKING:
    from cabai.study.importing import Imported

REUSED = "reused"  # the worker of scores that were told in another study


def create(
    storage: Storage,
    name: str,
    settings: Settings,
    known: Sequence[tuple[int, int, float]] = (),
    token: str | None = None,
    imported: Sequence[Imported] = (),
    origin: str | None = None,
) -> bool:
    """Make a study; returns whether it is new, and not one of that name that there was before. What is `known` of it,
    arms, items and scores, was told and paid for in another study; what is `imported`, from that origin, is on the
    bill. A study with the same `token` is the one that this call, made before, has made."""
    token = token or secrets.token_hex(4)

    def work(connection: Connection) -> bool:
        found = row_of(connection, name)
        if found is not None:
            return bool(found.token == token)  # by this very call, if the connection broke during the commit
        now = statements.NOW.row(connection, {}).now
        new = schema.study.new(name=name, token=token, created=now, settings=settings.to_json())
        statements.ADD_STUDY.run(connection, new)
        key = row_of(connection, name).id
        arms = [schema.arm.new(study=key, number=a, name=arm) for a, arm in enumerate(settings.arms)]
        statements.ADD_ARM.run_many(connection, arms)
        if known:
            enter(connection, key, settings, known, now)
        if imported:
            enter_imported(connection, key, settings, imported, origin, now)
        return True

    found = storage.read(lambda connection: row_of(connection, name))
    if found is not None:
        return bool(found.token == token)
    try:
        return storage.write(work)
    except Conflict:  # another process was faster
        return False


def enter(
    connection: Connection, key: int, settings: Settings, known: Sequence[tuple[int, int, float]], now: float
) -> None:
    """Log scores that a new study has from another."""
    play, log = ItemsPlay(settings), []
    for number, (arm, item, score) in enumerate(known, 1):
        play.observe(arm, item, score, 0.0, reused=True)
        log.append({"study": key, "number": number, "place": number, "arm": arm, "item": item, "reward": score,
                    "cost": 0.0, "asked": now, "told": now, "worker": REUSED, "offers": 0})  # fmt: skip
    statements.ADD_TO_LOG.run_many(connection, log)
    for a in sorted(play.changed):
        statements.CHANGE_ARM.run(connection, {"of_study": key, "of_number": a, **play.sums(a)})
    number = len(known)
    statements.CHANGE_STUDY.run(connection, {"of_study": key, "asked": number, "told": number})


def enter_imported(
    connection: Connection,
    key: int,
    settings: Settings,
    imported: Sequence[Imported],
    origin: str | None,
    now: float,
) -> None:
    """Log observations that a new study has from elsewhere, and count them in their order."""
    play, log = kind_of(settings)(settings), []
    for number, each in enumerate(imported, 1):
        if each.pulls > 1:
            play.observe_sum(each.arm, each.pulls, settings.seen_sum(each.pulls, each.reward or 0.0), each.cost)
        elif each.reward is None:
            play.fail(each.arm, each.cost)
        else:
            play.observe(each.arm, settings.seen(each.reward), each.cost)
        log.append({"study": key, "number": number, "place": number, "arm": each.arm, "reward": each.reward,
                    "cost": each.cost, "failed": each.failed, "asked": now, "told": now, "worker": None, "offers": 0,
                    "pulls": each.pulls, "origin": origin})  # fmt: skip
    if any(play.has_overflown(a) for a in range(len(settings.arms))):
        raise InvalidInput("the rewards or costs to import add up to a number that is too large to store.")
    statements.ADD_TO_LOG.run_many(connection, log)
    for a in sorted(play.changed):
        statements.CHANGE_ARM.run(connection, {"of_study": key, "of_number": a, **play.sums(a)})
    number, beyond = len(imported), sum(each.pulls - 1 for each in imported)
    values = {"asked": number, "told": number, "through": number, "beyond": beyond, "spent": play.bill,
              "counted": play.counted_costs, "memory": play.memory()}  # fmt: skip
    statements.CHANGE_STUDY.run(connection, {"of_study": key, **values})


def find(storage: Storage, name: str) -> Ledger:
    """What is stored of a study."""
    row = storage.read(lambda connection: row_of(connection, name))
    if row is None:
        raise StudyNotFound(f"there is no study {name!r} in {storage.url}.")
    return ledger_of(row, storage.url)


def ledger_of(row: Any, where: str) -> Ledger:
    """What is stored of a study, of the kind that it is."""
    ledger = Ledger(row, where)
    return ledger if ledger.settings.items is None else ItemsLedger(row, where)


def row_of(connection: Connection, name: str) -> Any:
    return statements.STUDY_BY_NAME.row(connection, {"of_name": name})


def names(storage: Storage) -> list[str]:
    """The oldest study first."""
    return storage.read(lambda connection: [str(row.name) for row in statements.NAMES.rows(connection, {})])


def delete(storage: Storage, name: str) -> None:
    def work(connection: Connection) -> None:
        if statements.DELETE_STUDY.row(connection, {"of_name": name}) is None:
            raise StudyNotFound(f"there is no study {name!r} in {storage.url}.")

    storage.write(work)


def statuses(storage: Storage) -> tuple[list[Status], list[str]]:
    """The status of every study, the oldest first, and what is wrong with those that cannot be read."""
    tables = statements.STUDIES, statements.ALL_ARMS, statements.ALL_PULLS
    try:
        studies, arms, pulls = storage.read(lambda connection: [each.rows(connection, {}) for each in tables])
    except StorageError:  # something that the database itself cannot read; perhaps in one study only
        return statuses_one_by_one(storage)
    arms_of, pulls_of = by_study(arms), by_study(pulls)
    found, damaged = [], []
    for row in studies:
        try:
            ledger = ledger_of(row, storage.url)
            if isinstance(ledger, ItemsLedger):  # its state is in its log
                found.append(storage.read(ledger.status))
            else:
                found.append(ledger.status_of(row, arms_of[row.id], pulls_of[row.id]))
        except (StorageError, InvalidInput) as error:  # the others are shown all the same
            damaged.append(str(error))
    return found, damaged


def by_study(rows: Iterable[Any]) -> dict[int, list[Any]]:
    """The rows of each study, in the same order."""
    found: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        found[row.study].append(row)
    return found


def statuses_one_by_one(storage: Storage) -> tuple[list[Status], list[str]]:
    found, damaged = [], []
    for name in names(storage):
        try:
            found.append(storage.read(find(storage, name).status))
        except StudyNotFound:  # deleted in the meantime
            continue
        except (StorageError, InvalidInput) as error:
            damaged.append(str(error))
    return found, damaged
