"""How a study stands, sent whenever it has changed (server-sent events)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator

import anyio

from cabai.server.studies import Studies, revision
from cabai.study import StorageError, Study, StudyNotFound
from cabai.support.validation import InvalidInput

LOOK, QUIET = 0.5, 15.0  # seconds between two looks at a study, and until something is said though nothing has changed
MOST = 100  # streams at a time


class Streams:
    """The streams that are open; all end when the server does."""

    def __init__(self, studies: Studies) -> None:
        self.studies, self.over, self.open = studies, threading.Event(), 0

    @property
    def is_full(self) -> bool:
        return self.open >= MOST

    async def of(self, name: str) -> AsyncIterator[str]:
        self.open += 1
        try:
            async for text in self._of(name):
                yield text
        finally:
            self.open -= 1

    async def _of(self, name: str) -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        known: int | None = None
        said = due = time.monotonic()
        while not self.over.is_set():
            started = time.monotonic()
            if started >= due:
                try:
                    found = await anyio.to_thread.run_sync(self.studies.do, name, revision)
                    if found != known:
                        known, said = found, started
                        yield await anyio.to_thread.run_sync(self.studies.do, name, event)
                except StorageError:  # it may come back
                    known = None
                except (StudyNotFound, InvalidInput):  # it was deleted
                    return
                due = started + 20 * (time.monotonic() - started)  # looking must not take longer than working
            if time.monotonic() - said >= QUIET:
                said = time.monotonic()
                yield ": nothing new\n\n"
            await anyio.sleep(LOOK)


def event(study: Study) -> str:
    """The status of a study, as an event."""
    return f"event: status\ndata: {json.dumps(study.status(forecast=True).to_dict(), allow_nan=False)}\n\n"
