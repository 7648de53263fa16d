"""All trajectories, in chunks, on an engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.errors import EngineFailed
from cabai.simulation.chunks import Chunks
from cabai.simulation.engines import Engine
from cabai.simulation.engines.threads import Threads
from cabai.simulation.sums import Sums
from cabai.simulation.work import Part, Work
from cabai.support.aside import heard

Progress = Callable[[int], None]
RETRIES = 3  # of a chunk whose process has died


def rows_of(work: Work, trajectories: int, engine: Engine, progress: Progress | None) -> list[NDArray[Any]]:
    """The results, pulls and paths of all trajectories, in order."""
    gathered: list[NDArray[Any]] = []

    def take(part: Part) -> None:
        if not gathered:
            gathered.extend(np.empty((trajectories, *rows.shape[1:]), rows.dtype) for rows in part.rows)
        for target, rows in zip(gathered, part.rows, strict=True):
            target[part.first : part.first + part.done] = rows

    run_all(work, trajectories, engine, take, progress)
    return gathered


def sums_of(work: Work, trajectories: int, engine: Engine, progress: Progress | None) -> list[Sums]:
    """What is kept of all trajectories instead of rows, for each level."""
    gathered: list[Sums] = []

    def take(part: Part) -> None:
        gathered[:] = [a + b for a, b in zip(gathered, part.sums, strict=True)] if gathered else part.sums

    run_all(work, trajectories, engine, take, progress)
    return gathered


def run_all(
    work: Work,
    trajectories: int,
    engine: Engine,
    take: Callable[[Part], None],
    progress: Progress | None,
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
            future = heard(ended)
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
                told = engine.explained(error)
                if told is error:
                    raise
                raise told from error
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
