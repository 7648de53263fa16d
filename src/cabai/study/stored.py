"""A study in a database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from cabai.errors import StudyStopped
from cabai.study.current import CurrentState, Row, Transaction
from cabai.study.given import Pull
from cabai.study.log import tables
from cabai.study.log.database import Storage, reading
from cabai.study.log.events import DECISIONS, Event, check_event
from cabai.study.rules import amending, asking, telling
from cabai.study.rules import counts as counting
from cabai.study.settings import Settings
from cabai.study.state.accounts import Lease
from cabai.study.study import Study
from cabai.support.validation import InvalidInput

AT_A_TIME = 1000  # events in memory at a time
AMENDMENT = ("made", "by", "changes", "reopened")
OF_PULL, OF_LEASE = ("id", "arm", "item", "number"), ("asked", "expires", "offers", "worker")  # of a pull under way


class StoredStudy(Study):
    """A study in a database: its row, and its state as this process knows it."""

    def __init__(self, storage: Storage, row: Row) -> None:
        self._storage, self._row, self._name, self._url = storage, row, row.name, storage.url
        self._ids = re.compile(f"{row.token}-([1-9][0-9]{{0,17}})")
        self._current = CurrentState(storage, row)

    @property
    def settings(self) -> Settings:
        return self._current.settings

    def _decided(self) -> tuple[bool, str | None]:
        return decided(self._current.ended(), self.settings)

    def _do(self, rule: str, **given: Any) -> Any:
        self._prepare()
        return self._current.change(lambda transaction: CHANGES[rule](transaction, **given))

    def _read(self, what: str, **given: Any) -> Any:
        return self._current.look(lambda state: READS[what](self, state, **given))

    def events(self) -> list[dict[str, Any]]:
        from cabai.study.show.exporting import shown_event

        end = self._read("end")
        return [shown_event(event, end.settings, self._row) for event in self._log(end.place)]

    def observations(self) -> list[dict[str, Any]]:
        from cabai.study.show.exporting import observations

        end = self._read("end")
        return list(observations(self._log(end.place), end, self._row))

    def _log(self, last: int) -> Iterator[Event]:
        """The events up to that place."""
        for events in self._current.reader.after(0, AT_A_TIME):
            for event in events:
                if event.place > last:
                    return
                with reading(self.name, self.storage):
                    check_event(event, self.settings)
                yield event

    def _prepare(self) -> None:
        self._current.import_own()


def decided(ended: Event | None, settings: Settings) -> tuple[bool, str | None]:
    """Whether a study has stopped, and with which decision."""
    if ended is None or ended.words not in DECISIONS or ended.arm is None:
        return ended is not None, None
    return True, settings.arms[ended.arm]


def ask(transaction: Transaction, asked: asking.Asked) -> tuple[list[Pull], str | None]:
    """The pulls, as they are when they are handed out; if there are none, why not."""
    leases, why = asking.ask(transaction, asked)
    return [handed(transaction.row, each, transaction.state.settings) for each in leases], why


def handed(row: Row, lease: Lease, settings: Settings) -> Pull:
    arm, items = settings.arms[lease.arm], settings.items
    item = None if items is None or lease.item is None else items.id(lease.item)
    return Pull(f"{row.token}-{lease.number}", arm, lease.number, lease.expires, lease.offers,
                settings.metadata.get(arm), item)  # fmt: skip


CHANGES: dict[str, Callable[..., Any]] = {
    "ask": ask, "tell": telling.tell, "tell_counts": counting.tell, "renew": telling.renew,
    "release": telling.release, "lapse": telling.lapse, "stop": telling.stop, "accept": amending.accept,
    "amend": amending.amend, "drop": amending.drop, "add_arm": amending.add_arm, "keep_tests": telling.keep_tests,
    "look": telling.look,  # decide, or stop at a limit, by what was imported
}  # fmt: skip


# What is read. What is only shown is imported when it is: `ask` and `tell` start sooner.


def status(study: StoredStudy, state: Any) -> Any:
    from cabai.study.show.looking import status_of

    return status_of(state, study._row, study._storage.now())


def seen(study: StoredStudy, state: Any) -> Any:
    from cabai.views.study_view import StudyView

    now, found = study._storage.now(), status(study, state)
    why = failures(study, state)["failures"] if found.failures else []
    return StudyView(found, list(state.points), under_way(study, state), why, now)


def listed(study: StoredStudy, state: Any) -> Any:
    from cabai.study.show.looking import Look

    return Look(state).listed(study._row)


def in_short(study: StoredStudy, state: Any) -> dict[str, Any]:
    """Whether a study has stopped, with which decision, its bill, and how often it was amended."""
    why, (stopped, decision) = state.ended and state.ended.words, decided(state.ended, state.settings)
    about = {"stopped": stopped, "reason": why, "decision": decision}
    return about | {"spent": state.bill, "amended": len(state.amendments)}


def failures(study: StoredStudy, state: Any) -> dict[str, Any]:
    """Why pulls have failed, and how often: the most frequent reasons, by arm; and the time by the storage's clock."""
    rows = study._storage.fetch(tables.FAILURES, (study._row.id, state.place))
    names = "arm", "reason", "count", "last"
    found = [dict(zip(names, (state.settings.arms[arm], *rest), strict=True)) for arm, *rest in rows]
    return {"failures": found, "now": study._storage.now()}


def under_way(study: StoredStudy, state: Any) -> list[dict[str, Any]]:
    pulls = [(handed(study._row, lease, state.settings), lease) for lease in state.pulls.values()]
    return [
        {name: getattr(pull, name) for name in OF_PULL} | {name: getattr(lease, name) for name in OF_LEASE}
        for pull, lease in pulls
    ]


def scores(study: StoredStudy, state: Any) -> dict[str, dict[str | int, float]]:
    if state.settings.items is None:
        raise InvalidInput(f"study {study.name!r} has no items, so no scores on them: see observations().")
    return dict(state.scores())


def split(study: StoredStudy, state: Any, pulls: int) -> dict[str, int]:
    """Within what the pulls under way leave of the study's limits."""
    if state.ended is not None:
        raise StudyStopped(f"study {study.name!r} has stopped: there is nothing left to pull.")
    settings, money = state.settings, state.rest_of_budget
    for limit in (settings.max_pulls, settings.certified_pulls):
        pulls = pulls if limit is None else min(pulls, max(limit - state.asked - state.in_sums, 0))
    if money is not None:
        pending = (state.live + state.gone).tolist()
        money -= sum(number * price for number, price in zip(pending, counting.prices_of(state), strict=True))
    return dict(zip(settings.arms, counting.split(state, pulls, money), strict=True))


def end(_: StoredStudy, state: Any) -> Any:
    from cabai.study.show.exporting import End

    stop = None if state.ended is None else state.ended.place
    return End(state.settings, state.place, stop, getattr(state, "through", 0))


READS: dict[str, Callable[..., Any]] = {
    "status": status, "seen": seen, "short": in_short, "failures": failures, "pulls": under_way, "scores": scores,
    "split": split, "end": end, "listed": listed,
    "history": lambda _, state: list(state.points),
    "amendments": lambda _, state: [{name: each[name] for name in AMENDMENT} for each in state.amendments],
    "settings": lambda _, state: (state.settings, len(state.amendments)),
}  # fmt: skip
