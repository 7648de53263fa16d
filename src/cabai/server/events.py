"""The status or the page of a study, sent whenever it has changed (server-sent events)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cabai import views
from cabai.errors import StorageError, StudyNotFound
from cabai.server.problems import SOON, problem
from cabai.server.studies import OpenStudies
from cabai.study.catalogue import revision
from cabai.study.stored import StoredStudy
from cabai.support.lazy import lazy
from cabai.support.validation import InvalidInput
from cabai.views import StudyView

LOOK, QUIET = 0.5, 15.0  # seconds between two checks of a study, and until a sign of life if nothing has changed
MOST_STREAMS, AT_A_TIME = 100, 4  # streams, and how many of them check for changes at the same time
MOST_PAGES = 100  # studies of which the parts are kept
AGE = 10.0  # seconds after which they are made again even without a change: pulls under way grow older


class Page:
    """The parts of a study's page and what is new in words, made once for all viewers."""

    def __init__(self) -> None:
        self.maker = threading.Lock()
        self.made: tuple[Any, dict[str, str], str] | None = None  # as of what, and the rest

    def parts(self, study: StoredStudy) -> tuple[dict[str, str], str]:
        as_of = revision(study), time.monotonic() // AGE
        made = self.made
        if (made is None or made[0] != as_of) and self.maker.acquire(blocking=made is None):
            try:  # the others get the previous parts until it is done
                made = self.made
                if made is None or made[0] != as_of:
                    view = study._read("seen")
                    made = self.made = as_of, views.fragments(view), news(view)
            finally:
                self.maker.release()
        assert made is not None
        return made[1], made[2]


class Streams:
    """The streams that are open; all end when the server does."""

    def __init__(self, studies: OpenStudies) -> None:
        self.studies, self.over = studies, threading.Event()
        self.open = 0
        self.pages: dict[str, Page] = {}
        self.last_words: str | None = None  # for viewers, if nothing comes after the end

    @lazy
    def looking(self) -> anyio.CapacityLimiter:
        """However many viewers there are, few threads check: the others are for workers."""
        return anyio.CapacityLimiter(AT_A_TIME)

    def of(self, name: str) -> AsyncIterator[str]:
        def look(known: dict[str, Any]) -> str:
            found = self.studies.do(name, revision)
            if known.get("revision") == found:
                return ""
            known["revision"] = found
            return self.studies.do(name, lambda study: event("status", study.status().to_dict()))

        return self._stream(look)

    def of_page(self, name: str) -> AsyncIterator[str]:
        def look(known: dict[str, str]) -> str:
            if name not in self.pages and len(self.pages) >= MOST_PAGES:
                self.pages.clear()
            page = self.pages.setdefault(name, Page())
            return self.studies.do(name, lambda study: changes(known, *page.parts(study)))

        return self._stream(look)

    async def _stream(self, look: Callable[[dict[str, Any]], str]) -> AsyncIterator[str]:
        """What is new at every check, until the server ends. `look` keeps there what the viewer knows already."""
        known: dict[str, Any] = {}
        yield "retry: 2000\n\n"
        sent = due = time.monotonic()
        while True:
            is_over, started = self.over.is_set(), time.monotonic()
            if started >= due or is_over:
                try:
                    text = await anyio.to_thread.run_sync(look, known, limiter=self.looking)
                    if text:
                        sent = started
                        yield text
                except StorageError:  # it may come back
                    known.clear()
                except (StudyNotFound, InvalidInput):  # it was deleted
                    return
                due = started + 20 * (time.monotonic() - started)  # checking must not take more time than working
            if is_over:  # that was the last check
                if self.last_words is not None:
                    yield event("end", self.last_words)
                return
            if time.monotonic() - sent >= QUIET:
                sent = time.monotonic()
                yield ": nothing new\n\n"
            await anyio.sleep(LOOK)


class EventStream(StreamingResponse):
    """A stream, or a refusal if there are too many: it is counted in one step with the check, before it is sent."""

    def __init__(self, streams: Streams, events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self.streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.streams.open >= MOST_STREAMS:
            refusal = problem("too-many-streams", "too many event streams are open.", SOON)
            await refusal(scope, receive, send)
            return
        self.streams.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.streams.open -= 1


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
