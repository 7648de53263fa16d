"""What is stored of a study, with the latest amendments of any process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cabai.study import statements
from cabai.study.catalogue import ledger_of
from cabai.study.database import Storage
from cabai.study.errors import StudyNotFound
from cabai.study.ledger import Amended, Ledger

T = TypeVar("T")


class Current:
    """The ledger of a study. A ledger's settings never change: a transaction that finds that the study was amended does
    nothing, and is repeated with the current ledger."""

    def __init__(self, storage: Storage, ledger: Ledger) -> None:
        self.storage, self.ledger = storage, ledger

    def do(self, work: Callable[[Ledger], T]) -> T:
        while True:
            ledger = self.ledger
            try:
                return work(ledger)
            except Amended:
                self.renew(ledger)

    def renew(self, old: Ledger) -> None:
        row = self.storage.read(lambda connection: statements.STUDY.row(connection, old.found_by()))
        if row is None:
            raise StudyNotFound(f"the study {old.name!r} has been deleted from {old.where}.")
        fresh = ledger_of(row, old.where)
        if old.settings.is_present:
            fresh.settings = fresh.settings.imported()
        self.ledger = fresh
