"""Pull until a study stops: the loop of `study.run` and of `cabai run`."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cabai.study.errors import AlreadyTold, LostPull, NoPull, RunFailed, StudyStopped
from cabai.support.validation import InvalidInput, positive, whole

if TYPE_CHECKING:
    from cabai.study.pull import Pull
    from cabai.study.status import Status
    from cabai.study.study import Study

PAUSE = 0.05  # seconds, while pulls under way have reserved what is left of the budget


@dataclass(frozen=True)
class Failed:
    """What a test returns, or a worker makes of an exception, when a pull has no reward."""

    why: str
    cost: float | None = None


def run(
    study: Study,
    test: Callable[[Pull], Any],
    *,
    workers: int = 1,
    max_failures: int = 5,
    progress: Callable[[], None] | None = None,
    over: threading.Event | None = None,
) -> Status:
    """Ask, `test`, tell, in `workers` threads, until the study stops; returns its status.

    `test(pull)` returns (reward, cost), {"reward": ..., "cost": ...}, the reward alone where the study knows the costs,
    or `Failed`. An exception, or a result that is not legal or too large to be added to the others, is told as a failed
    pull; its cost counts if it is legal and can be added. After `max_failures` in a row for one arm the run ends with
    `RunFailed`. On Ctrl-C the tests under way are waited for and told, or their
    pulls given back where they fail, and the study can be run again. `over` is set when the run is to end, for tests
    that can be cut short. `progress` is called after each pull.
    """
    if not callable(test):
        raise InvalidInput(f"test must be a function that takes a pull, got {test!r}.")
    count, limit = whole(workers, "workers", 1), whole(max_failures, "max_failures", 1)
    loop = Loop(study, test, limit, progress, over or threading.Event())
    often = study.settings.lease / 4
    with ThreadPoolExecutor(count) as executor:
        try:
            futures = [executor.submit(loop.work, i) for i in range(count)]
            loop.ready.set()
            renewed = time.monotonic()
            while wait(futures, timeout=min(0.2, often), return_when=FIRST_EXCEPTION).not_done:  # to hear Ctrl-C soon
                if any(future.done() and future.exception() for future in futures):
                    break
                if time.monotonic() - renewed >= often:
                    loop.renew()
                    renewed = time.monotonic()
        finally:
            loop.over.set()
            loop.ready.set()
    for future in futures:
        future.result()
    return study.status()


class Loop:
    """What the workers of one run share."""

    def __init__(
        self,
        study: Study,
        test: Callable[[Pull], Any],
        limit: int,
        progress: Callable[[], None] | None,
        over: threading.Event,
    ) -> None:
        self.study, self.test, self.limit, self.progress, self.over = study, test, limit, progress, over
        self.ready = threading.Event()  # an interrupt while workers start leaves some that nobody waits for: they idle
        self.failing: Counter[str] = Counter()
        self.trying: dict[int, Pull] = {}  # by worker
        self.name = f"{socket.gethostname()}:{os.getpid()}"

    def work(self, worker: int) -> None:
        self.ready.wait()
        while not self.over.is_set():
            try:
                pull = self.study.ask(worker=f"{self.name}:{worker}")
            except StudyStopped:
                return
            except NoPull:
                time.sleep(PAUSE)
                continue
            self.trying[worker] = pull
            try:
                result = self.attempt(pull)
            except BaseException:  # sys.exit in a test, say: the pull was not tried to its end
                self.give_back(pull)
                raise
            finally:
                del self.trying[worker]
            if isinstance(result, Failed) and self.over.is_set():  # no fault of the arm's
                self.give_back(pull)
                return
            self.tell(pull, result)
            if self.progress is not None:
                self.progress()

    def renew(self) -> None:
        """A pull that takes longer than its lease is not offered to others while it is being tried here."""
        for pull in list(self.trying.values()):
            with suppress(LostPull):  # too late: another worker has it; whoever tells first is counted
                self.study.renew(pull)

    def give_back(self, pull: Pull) -> None:
        with suppress(LostPull):
            self.study.release(pull)

    def attempt(self, pull: Pull) -> Any:
        try:
            return self.test(pull)
        except Exception as error:
            return Failed(f"{type(error).__name__}: {error}")

    def tell(self, pull: Pull, result: Any) -> None:
        try:
            if not isinstance(result, Failed):
                try:
                    self.study.tell(pull, **read(result))
                    self.failing[pull.arm] = 0
                    return
                except AlreadyTold:
                    raise
                except InvalidInput as error:  # paid for, but not a legal reward
                    result = Failed(str(error), paid(result))
            self.tell_failed(pull, result)
        except AlreadyTold:
            return  # the lease ran out, and another worker was quicker
        self.failing[pull.arm] += 1
        if self.failing[pull.arm] >= self.limit:
            raise RunFailed(
                f"arm {pull.arm!r} failed {self.limit} times in a row, the last time with: {result.why.rstrip('.')}. "
                f"The study {self.study.name!r} is kept; run it again to go on."
            )

    def tell_failed(self, pull: Pull, result: Failed) -> None:
        try:
            self.study.tell(pull, failed=result.why, cost=result.cost)
        except AlreadyTold:
            raise
        except InvalidInput:  # a cost that cannot be added to the bill: the pull must not stay leased for that
            self.study.tell(pull, failed=result.why, cost=0.0)


def read(result: Any) -> dict[str, Any]:
    """A test's result as the arguments of `tell`."""
    if isinstance(result, Mapping):
        if "reward" not in result or not set(result) <= {"reward", "cost"}:
            raise InvalidInput(f"a test must return a reward and a cost, got {dict(result)!r}.")
        return dict(result)
    if isinstance(result, tuple):
        if len(result) != 2:
            raise InvalidInput(f"a test must return (reward, cost), got {result!r}.")
        return {"reward": result[0], "cost": result[1]}
    if result is None:
        raise InvalidInput("a test must return (reward, cost), got None.")
    return {"reward": result}


def paid(result: Any) -> float | None:
    """The cost in a result that could not be told, if it is one."""
    try:
        return legal_cost(read(result).get("cost"))
    except InvalidInput:
        return None


def legal_cost(cost: Any) -> float | None:
    """A cost that can be told; None for anything else."""
    try:
        return positive(cost, "cost")
    except InvalidInput:
        return None
