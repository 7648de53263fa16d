"""The samples of one arm, given to its Inspect task one by one, as the race asks for them."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from inspect_ai import SampleSource, enqueue_sample
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample


class InspectEnded(BaseException):
    """Inspect has ended: what still waits for a sample must stop waiting."""


class Lane(SampleSource):
    """Feeds the Inspect task of one arm.

    Samples are added in the context of the task. When it has nothing to do, Inspect calls `next_samples`, and is kept
    waiting there until some are added, or the race is over. If a task dies, no lane gets more.
    """

    def __init__(self, arm: str, samples: Mapping[Any, Sample], epochs: int, lanes: Mapping[str, Lane]) -> None:
        self.arm, self.samples, self.epochs, self.lanes = arm, samples, epochs, lanes
        self.lock = threading.Lock()
        self.waiting: dict[Any, tuple[Future[list[EvalSample]], dict[int, EvalSample]]] = {}  # with finished epochs
        self.over = ""  # why no more samples are wanted, once they are not
        self.begun = threading.Event()  # Inspect has begun the task, or will not
        self.loop: asyncio.AbstractEventLoop | None = None  # Inspect's, as is the context
        self.context: Context | None = None
        self.changed = asyncio.Event()  # a sample was added, or no more will be

    # What the race calls, in its own threads.

    def run(self, item: Any) -> list[EvalSample]:
        """Run a sample; returns all its epochs."""
        self.begun.wait()
        future: Future[list[EvalSample]] = Future()
        with self.lock:
            if self.over:
                raise InspectEnded(self.over)
            self.waiting[item] = future, {}
        self.call(self.add, item)
        return future.result()

    def end(self, why: str) -> None:
        """Give Inspect no more samples."""
        with self.lock:
            self.over = self.over or why
        self.begun.set()
        self.call(self.changed.set)

    def abandon(self) -> None:
        """Inspect has ended: what it has not finished has no result."""
        self.end("Inspect has ended")
        with self.lock:
            left, self.waiting = self.waiting, {}
        for future, _ in left.values():
            future.set_exception(InspectEnded(self.over))

    def collect(self, sample: EvalSample) -> None:
        """Take a finished epoch of a sample; the last one ends the wait for it."""
        with self.lock:
            future, epochs = self.waiting.get(sample.id, (None, {}))
            epochs[sample.epoch] = sample
            if future is None or len(epochs) < self.epochs:
                return
            del self.waiting[sample.id]
        future.set_result(list(epochs.values()))

    def call(self, function: Callable[..., None], *given: Any) -> None:
        """Call a function in Inspect's event loop."""
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(function, *given)

    # What runs in Inspect's event loop.

    def add(self, item: Any) -> None:
        assert self.context is not None
        if not self.over:
            self.context.run(enqueue_sample, copy.copy(self.samples[item]))
            self.changed.set()

    def end_all(self, _: object) -> None:
        for lane in self.lanes.values():
            lane.end(f"the Inspect task of arm {self.arm!r} has ended; its log says why")

    def initial_samples(self) -> list[Sample]:
        return []

    async def next_samples(self) -> list[Sample] | None:
        if self.loop is None:
            self.loop, self.context, feeder = asyncio.get_running_loop(), copy_context(), asyncio.current_task()
            assert feeder is not None
            feeder.add_done_callback(self.end_all)  # whatever ends the task: else the other lanes would wait for it
            self.begun.set()
        if not self.over:
            await self.changed.wait()
        self.changed.clear()
        return None if self.over else []

    async def sample_complete(self, sample: EvalSample) -> list[Sample] | None:
        self.collect(sample)
        return None

    async def sample_abandoned(self, sample: Sample, epoch: int) -> list[Sample] | None:
        with self.lock:
            future, _ = self.waiting.pop(sample.id, (None, {}))
        if future is not None:
            future.set_result([])
        return None
