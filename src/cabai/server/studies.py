"""The studies of one storage, opened once each and shared by all requests."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote

from cabai.errors import StorageError, StudyNotFound
from cabai.study import catalogue, load_study
from cabai.study.log.storage import MEMORY, open_storage

T = TypeVar("T")
REASON = re.compile(r"failed: .* (Everything acknowledged before)", re.S)
MOST_OPEN, MOST_SCORES = 1000, 5_000_000  # studies that are kept open, and their scores: arms times items


def scores_of(study: Any) -> int:
    """How many scores a study with items holds in memory."""
    return 0 if study.settings.items is None else study.settings.items.count * len(study.arms)


class OpenStudies:
    """Studies by name. A study that was deleted, and perhaps created again, is looked up again. With `only`, there is
    only that one."""

    def __init__(self, url: str, only: Any = None) -> None:
        self.url, self.only = url, only
        self._open: dict[str, Any] = {}
        self._listed: dict[int, Any] = {}  # by id: the last place, and what the page lists
        self._guard = threading.Lock()

    def do(self, written: str, work: Callable[[Any], T]) -> T:
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

    def _loaded(self, name: str) -> Any:
        if self.only is not None:
            if name != self.only.name:
                raise StudyNotFound(f"this page shows only the study {self.only.name!r}.")
            return self.only
        found = load_study(name, storage=self.url)
        with self._guard:
            if len(self._open) >= MOST_OPEN or sum(map(scores_of, [found, *self._open.values()])) > MOST_SCORES:
                self._open.clear()
            return self._open.setdefault(name, found)

    def forget(self, name: str) -> None:
        with self._guard:
            self._open.pop(name, None)

    def every(self, what: str, address: str) -> tuple[list[Any], list[str]]:
        """The `status` of each study, or what is `listed` of it on the page, which many viewers load often; and what is
        wrong with those that cannot be read."""
        if self.only is not None:
            return [self.only.status()], []
        found, damaged = catalogue.every(what, self.url, self._listed if what == "listed" else None)
        self._listed = found if what == "listed" else self._listed
        return [each for _, each in found.values()], [self.without_place(text, address) for text in damaged]

    def without_place(self, text: str, address: str) -> str:
        """An error message that names the server instead of the storage behind it."""
        try:
            opened = open_storage(self.url) if self.only is None else self.only._storage
        except StorageError:  # the failure that the message is about
            return (
                f"the storage behind {address} failed. Everything acknowledged before is stored; this call was not "
                "acknowledged."
            )
        for place in (self.url, opened.url, opened.file):
            text = text.replace(place, address) if place and place != MEMORY else text
        return REASON.sub(r"failed. \1", text)  # which may name the database's host
