"""All trajectories, in chunks, on an engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from queue import SimpleQueue
from typing import Any

import numpy as np

from cabai.errors import EngineFailed
from cabai.simulation.engines import Engine
from cabai.simulation.engines.threads import Threads
from cabai.simulation.work import Part, Work
from cabai.support.interruptible import next_item

Progress = Callable[[int], None]
RETRIES = 3  # of a chunk whose process has died
GROWTH = 16  # how many times larger a task is than those measured, at most: a few short trajectories may mislead


def gathered(work: Work, trajectories: int, engine: Engine, progress: Progress | None = None) -> list[Any]:
    """The results, pulls and paths of all trajectories, in order; or what is kept instead of rows, for each level."""
    found: list[Any] = []

    def take(part: Part) -> None:
        if not work.keeps_rows:
            found[:] = [a + b for a, b in zip(found, part.sums, strict=True)] if found else part.sums
            return
        if not found:
            found.extend(np.empty((trajectories, *rows.shape[1:]), rows.dtype) for rows in part.rows)
        for target, rows in zip(found, part.rows, strict=True):
            target[part.first : part.first + part.done] = rows

    run_all(work, trajectories, engine, take, progress)
    return found


class Chunks:
    """Which trajectories a task runs: as many as take about the time that the engine prefers, judged by earlier tasks.

    Trajectories 0 ... n - 1 are cut as they are handed out. How they are cut changes no result.
    """

    def __init__(self, trajectories: int, aim: float, shortest: float, most: int, pilot: int) -> None:
        self.left, self.next_first = trajectories, 0
        self.aim, self.shortest, self.most, self.pilot = aim, shortest, most, pilot  # seconds, and trajectories
        self.measured, self.seconds, self.largest = 0, 0.0, 0

    def next(self, cores: int) -> tuple[int, int]:
        """The first trajectory of the next chunk, and its size: 0 when none is left."""
        first, count = self.next_first, min(self.size(cores), self.left)
        self.next_first, self.left = first + count, self.left - count
        return first, count

    def size(self, cores: int) -> int:
        """What takes `aim` seconds; less towards the end, so that all cores end together, but not below `shortest`."""
        if not self.measured:  # a few that may be long are shared by all cores
            return max(1, min(self.pilot, math.ceil(self.left / (4 * cores))))
        per_second = self.measured / max(self.seconds, 1e-9)
        even = max(self.left / (2 * cores), self.shortest * per_second)
        return max(1, min(math.ceil(min(self.aim * per_second, even)), GROWTH * self.largest, self.most))

    def took(self, count: int, seconds: float) -> None:
        """Record how long a task of this many trajectories took."""
        self.measured, self.seconds = self.measured + count, self.seconds + seconds
        self.largest = max(self.largest, count)


def run_all(
    work: Work, trajectories: int, engine: Engine, take: Callable[[Part], None], progress: Progress | None
) -> None:
    """Run chunks until all trajectories are done; none of it in this thread, which stays free to handle Ctrl-C."""
    chunks = Chunks(trajectories, engine.aim, engine.shortest, engine.most(work), engine.pilot)
    shared = engine.share(work)
    ended: SimpleQueue[Future[Part]] = SimpleQueue()
    under_way: dict[Future[Part], tuple[int, int, int]] = {}
    done = 0

    def start(first: int, count: int, attempt: int = 1) -> None:
        future = engine.submit(shared, first, count)
        under_way[future] = first, count, attempt
        future.add_done_callback(ended.put)

    try:
        while done < trajectories:
            while chunks.left and len(under_way) < (engine.room if chunks.measured else engine.cores):
                start(*chunks.next(engine.cores))
            future = next_item(ended)
            first, count, attempt = under_way.pop(future)
            try:
                part = future.result()
            except BrokenExecutor as error:
                if attempt > RETRIES:
                    raise EngineFailed(
                        f"trajectories {first} to {first + count - 1} were tried {attempt} times, and each time a "
                        "process died."
                    ) from error
                start(first, count, attempt + 1)
                continue
            except Exception as error:
                explained = engine.explained(error)
                if explained is error:
                    raise
                raise explained from error
            if part.done != count:
                raise EngineFailed(f"a task {engine.where} stopped before it finished.")
            chunks.took(count, part.seconds)
            take(part)
            done += count
            if progress is not None:
                progress(done)
    except BaseException as error:
        what = f"{len(under_way)} tasks that were under way or queued {engine.where}"
        try:
            engine.cancel()
        except Exception as failure:  # for example because the cluster is gone
            error.add_note(f"{what} could not be cancelled: {failure}")
        else:
            if under_way and not isinstance(engine, Threads):
                error.add_note(f"{what} were cancelled.")
        raise
