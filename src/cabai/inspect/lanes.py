"""The samples of one arm, given to its Inspect task one by one, as the race asks for them."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from inspect_ai import SampleSource, enqueue_sample
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample


class Ended(BaseException):
    """Inspect has ended: what still waits for a sample must stop waiting."""


class Lane(SampleSource):
    """Feeds the Inspect task of one arm.

    Inspect calls `next_samples` when it has nothing to do, and is kept waiting there until the race wants a sample.
    While it is at work, samples are added at once, in the context of the task.
    """

    def __init__(self, arm: str, samples: Mapping[Any, Sample], epochs: int) -> None:
        self.arm, self.samples, self.epochs = arm, samples, epochs
        self.lock = threading.Lock()
        self.wanted: deque[Any] = deque()  # ids of samples that Inspect has not got
        self.waiting: dict[Any, Future[list[EvalSample]]] = {}
        self.finished: dict[Any, list[EvalSample]] = {}  # some epochs of samples that need more
        self.over = ""  # why no more samples are wanted, once they are not
        self.loop: asyncio.AbstractEventLoop | None = None  # Inspect's, as are the context and the event
        self.context: Context | None = None
        self.idle: asyncio.Event | None = None  # set to wake `next_samples`

    # What the race calls, in its own threads.

    def run(self, item: Any) -> list[EvalSample]:
        """Run a sample; returns all its epochs."""
        future: Future[list[EvalSample]] = Future()
        with self.lock:
            if self.over:
                raise Ended(self.over)
            self.waiting[item] = future
            self.wanted.append(item)
        self.wake()
        return future.result()

    def end(self) -> None:
        """No more samples are wanted."""
        with self.lock:
            self.over = self.over or "the race is over"
        self.wake()

    def abandon(self, why: str) -> None:
        """Inspect runs no more samples."""
        with self.lock:
            self.over = self.over or why
            left, self.waiting = self.waiting, {}
        for future in left.values():
            future.set_exception(Ended(why))

    def wake(self) -> None:
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self.deliver)

    # What Inspect calls, in its event loop.

    def deliver(self) -> None:
        if self.idle is not None:
            self.idle.set()
        elif self.wanted and self.context is not None:
            self.context.run(enqueue_sample, self.take())

    def take(self) -> list[Sample]:
        taken = []
        while self.wanted:
            taken.append(copy.copy(self.samples[self.wanted.popleft()]))
        return taken

    def initial_samples(self) -> list[Sample]:
        return []

    async def next_samples(self) -> list[Sample] | None:
        if self.loop is None:
            self.loop, self.context, feeder = asyncio.get_running_loop(), copy_context(), asyncio.current_task()
            assert feeder is not None
            why = f"the Inspect task of arm {self.arm!r} has ended; its log says why"
            feeder.add_done_callback(lambda _: self.abandon(why))  # whatever ends the task: else all would wait
        self.idle = asyncio.Event()
        try:
            while not (taken := self.take()):
                if self.over:
                    return None
                await self.idle.wait()
                self.idle.clear()
            return taken
        finally:
            self.idle = None

    async def sample_complete(self, sample: EvalSample) -> list[Sample] | None:
        epochs = self.finished.setdefault(sample.id, [])
        epochs.append(sample)
        if len(epochs) == self.epochs:
            del self.finished[sample.id]
            with self.lock:
                future = self.waiting.pop(sample.id, None)
            if future is not None:
                future.set_result(epochs)
        return None

    async def sample_abandoned(self, sample: Sample, epoch: int) -> list[Sample] | None:
        with self.lock:
            future = self.waiting.pop(sample.id, None)
        if future is not None:
            future.set_result([])
        return None
