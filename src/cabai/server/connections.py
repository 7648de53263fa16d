"""Connections that wait: a request must begin soon and be read soon, and not too many may wait at a time."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

SLOWEST = 20.0  # seconds from the first byte of a request, or from the start of a connection, to the end of its headers
MOST_WAITING = 500  # connections without a request; each is a file of the process, which may often have 1024


class TimedConnection(H11Protocol):
    """A connection of the server. uvicorn itself waits for headers without a limit."""

    waiting_since: float | None = None  # None: a request is being answered
    limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.wait(for_headers=True)
        if len(self.connections) > MOST_WAITING:
            waiting = [each for each in self.connections if isinstance(each, TimedConnection) and each.waiting_since]
            if len(waiting) > MOST_WAITING:
                longest = min(waiting, key=lambda each: each.waiting_since or 0.0)
                longest.waiting_since = None
                longest.transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self.wait(for_headers=True)
        else:
            self.waiting_since = None
            self.unlimit()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # and the next request is not there yet
            self.wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self.unlimit()
        super().connection_lost(exc)

    def wait(self, *, for_headers: bool = False) -> None:
        """Wait for a request, from now on unless it waits already. uvicorn closes what is idle after an answer."""
        if self.waiting_since is None:
            self.waiting_since = self.loop.time()
        if for_headers and self.limit is None:
            self.limit = self.loop.call_later(SLOWEST, self.transport.close)

    def unlimit(self) -> None:
        if self.limit is not None:
            self.limit.cancel()
            self.limit = None
