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
    While it is at work, samples are added at once, in the context of the task. If its task dies, no lane gets more.
    """

    def __init__(self, arm: str, samples: Mapping[Any, Sample], epochs: int, lanes: Mapping[str, Lane]) -> None:
        self.arm, self.samples, self.epochs, self.lanes = arm, samples, epochs, lanes
        self.lock = threading.Lock()
        self.wanted: deque[Any] = deque()  # ids of samples that Inspect has not got
        self.waiting: dict[Any, Future[list[EvalSample]]] = {}
        self.finished: dict[Any, dict[int, EvalSample]] = {}  # by epoch, for samples that need more
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

    def end(self, why: str) -> None:
        """Give Inspect no more samples."""
        with self.lock:
            self.over = self.over or why
        self.wake()

    def abandon(self) -> None:
        """Inspect has ended: what it has not finished has no result."""
        self.end("Inspect has ended")
        with self.lock:
            left, self.waiting = self.waiting, {}
        for future in left.values():
            future.set_exception(Ended(self.over))

    def collect(self, sample: EvalSample) -> None:
        """Take a finished epoch of a sample; the last one ends the wait for it."""
        with self.lock:
            if sample.id not in self.waiting:
                return
            epochs = self.finished.setdefault(sample.id, {})
            epochs[sample.epoch] = sample
            if len(epochs) < self.epochs:
                return
            future = self.waiting.pop(sample.id)
            del self.finished[sample.id]
        future.set_result(list(epochs.values()))

    def wake(self) -> None:
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self.deliver)

    # What Inspect calls, in its event loop.

    def deliver(self) -> None:
        if self.idle is not None:
            self.idle.set()
        elif self.wanted and not self.over and self.context is not None:
            self.context.run(enqueue_sample, self.take())

    def end_all(self, _: object) -> None:
        for lane in self.lanes.values():
            lane.end(f"the Inspect task of arm {self.arm!r} has ended; its log says why")

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
            feeder.add_done_callback(self.end_all)  # whatever ends the task: else the other lanes would wait for it
        self.idle = asyncio.Event()
        try:
            while not self.over:
                if taken := self.take():
                    return taken
                await self.idle.wait()
                self.idle.clear()
            return None
        finally:
            self.idle = None

    async def sample_complete(self, sample: EvalSample) -> list[Sample] | None:
        self.collect(sample)
        return None

    async def sample_abandoned(self, sample: Sample, epoch: int) -> list[Sample] | None:
        with self.lock:
            future = self.waiting.pop(sample.id, None)
        if future is not None:
            future.set_result([])
        return None
