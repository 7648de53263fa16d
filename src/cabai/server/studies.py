"""The studies of one storage, opened once each and shared by all requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote

from cabai.study import StorageError, Study, StudyNotFound, load_study
from cabai.study.catalogue import statuses
from cabai.study.ledger import EVIDENCE, Ledger
from cabai.study.status import Status
from cabai.study.storage import open_storage
from cabai.study.urls import MEMORY

T = TypeVar("T")
MOST, MOST_SCORES = 1000, 5_000_000  # studies that are kept open, and their scores: arms times items


def scores_of(study: Study) -> int:
    """How many scores a study with items holds in memory."""
    return 0 if study.settings.items is None else study.settings.items.count * len(study.arms)


class Studies:
    """Studies by name. A study that was deleted, and perhaps created again, is looked up again. With `only`, there is
    only that one."""

    def __init__(self, url: str, only: Study | None = None) -> None:
        self.url, self.only = url, only
        self._open: dict[str, Study] = {}
        self._guard = threading.Lock()

    def do(self, written: str, work: Callable[[Study], T]) -> T:
        """Do something with a study, named as in the path of a request."""
        name = unquote(written, errors="surrogateescape")
        with self._guard:
            study = self._open.get(name)
        if study is not None:
            try:
                return work(study)
            except StudyNotFound:
                self.forget(name)
            except StorageError:
                self.forget(name)
                raise
        return work(self._loaded(name))

    def _loaded(self, name: str) -> Study:
        if self.only is not None:
            if name != self.only.name:
                raise StudyNotFound(f"this page shows only the study {self.only.name!r}.")
            return self.only
        found = load_study(name, storage=self.url)
        with self._guard:
            if len(self._open) >= MOST or sum(map(scores_of, [found, *self._open.values()])) > MOST_SCORES:
                self._open.clear()
            return self._open.setdefault(name, found)

    def forget(self, name: str) -> None:
        with self._guard:
            self._open.pop(name, None)

    def overview(self, address: str) -> tuple[list[Status], list[str]]:
        """The status of every study, and what is wrong with those that cannot be read."""
        if self.only is not None:
            return [self.only.status()], []
        found, damaged = statuses(open_storage(self.url))
        return found, [self.without_place(text, address) for text in damaged]

    def without_place(self, text: str, address: str) -> str:
        """An error message that names the server instead of the storage behind it."""
        try:
            storage = open_storage(self.url) if self.only is None else self.only._storage
            places = self.url, storage.url, storage.file
        except StorageError:  # the failure that the message is about
            return (
                f"the storage behind {address} failed. Everything acknowledged before is stored; this call was not "
                "acknowledged."
            )
        for place in places:
            if place and place != MEMORY:
                text = text.replace(place, address)
        return text


def in_short(study: Study) -> dict[str, Any]:
    """Whether a study has stopped, and with which decision: from its row alone, however long it is."""
    row = study._read(Ledger.row)
    return {
        "stopped": row.stopped is not None,
        "reason": row.reason,
        "decision": study.arms[row.decision] if row.reason == EVIDENCE else None,
        "spent": row.spent,
        "amended": row.amended,
    }


def revision(study: Study) -> int:
    """A number that differs after every change."""
    return int(study._read(Ledger.row).revision)


def status_now(study: Study) -> Status:
    """The status of a study, with the last forecast that is ready."""
    status, play = study._read(lambda ledger, connection: ledger.look(connection))
    return study._forecast(status, play, wait=False)


def under_way(study: Study) -> list[dict[str, Any]]:
    """The pulls that are under way, and who has them."""

    def work(ledger: Ledger, connection: Any) -> list[dict[str, Any]]:
        ledger.row(connection)  # which notices amendments
        return ledger.under_way(connection)

    return study._read(work)


def failed(study: Study) -> dict[str, Any]:
    """Why pulls have failed, and the time by the storage's clock."""

    def work(ledger: Ledger, connection: Any) -> dict[str, Any]:
        now = float(ledger.row(connection).now)
        return {"failures": ledger.failures(connection), "now": now}

    return study._read(work)
