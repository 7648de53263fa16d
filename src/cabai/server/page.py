"""The page: all studies, and one study, which updates itself."""

from __future__ import annotations

import json
import threading
from typing import Any

from cabai import views
from cabai.server.studies import OpenStudies
from cabai.study import catalogue
from cabai.study.stored import StoredStudy
from cabai.views import StudyView

TYPES = {
    "style.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
MOST_PAGES = 100  # studies of which the parts are kept
AGE = 10.0  # seconds after which they are made again even without a change: pulls under way grow older


class Pages:
    """The parts of studies' pages, made once for all viewers."""

    def __init__(self, studies: OpenStudies) -> None:
        self.studies = studies
        self._made: dict[str, tuple[Any, dict[str, str], str]] = {}
        self._makers: dict[str, threading.Lock] = {}  # of each study, who makes its parts
        self._guard = threading.Lock()

    def whole(self, name: str) -> str:
        return self.studies.do(name, lambda study: views.page(study._read("seen")))

    def parts(self, name: str, moment: float) -> tuple[dict[str, str], str]:
        """The parts as they are now, and what is new in words; of `moment` the time on any clock."""
        return self.studies.do(name, lambda study: self._parts(study, moment))

    def _parts(self, study: StoredStudy, moment: float) -> tuple[dict[str, str], str]:
        key = catalogue.revision(study), moment // AGE
        with self._guard:
            made, maker = self._made.get(study.name), self._makers.setdefault(study.name, threading.Lock())
        if (made is None or made[0] != key) and maker.acquire(blocking=made is None):
            try:  # the others get the previous parts until it is done
                made = self._made.get(study.name)
                if made is None or made[0] != key:
                    made = self._make(study, key)
            finally:
                maker.release()
        assert made is not None
        return made[1], made[2]

    def _make(self, study: StoredStudy, key: Any) -> tuple[Any, dict[str, str], str]:
        view = study._read("seen")
        made = key, views.fragments(view), news(view)
        with self._guard:
            if len(self._made) >= MOST_PAGES:
                self._made.clear()
                self._makers.clear()
            self._made[study.name] = made
        return made


def news(view: StudyView) -> str:
    """What a screen reader announces after a change: not every pull."""
    status = view.status
    if status.stopped:
        return status.sentence
    return f"{status.leader} leads." if status.leader is not None else ""


def event(kind: str, value: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(value, allow_nan=False)}\n\n"


def changes(known: dict[str, str], parts: dict[str, str], text: str) -> str:
    """The events that update a page with the parts `known`; `known` is updated, too."""
    now = {**parts, "": text}
    found = [event("part", {"id": name, "html": html}) for name, html in parts.items() if known.get(name) != html]
    if known.get("") != text:
        found.append(event("news", text))
    known.update(now)
    return "".join(found)
