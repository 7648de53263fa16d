"""Pull until a study stops: the loop of `study.run` and of `cabai run`."""

from __future__ import annotations

import os
import queue
import secrets
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cabai.settings import RETRIES, STOP
from cabai.study.errors import AlreadyTold, LostPull, NoPull, RunFailed, StudyStopped
from cabai.study.given import checked_result
from cabai.study.run.awaiting import PATIENCE, Awaiting, awaited
from cabai.study.run.failing import Caught, blame, checked_catch, is_blamed, is_of_the_trial, without_ours
from cabai.support.interrupted import plainly_interrupted
from cabai.support.validation import InvalidInput, positive, shown, whole

if TYPE_CHECKING:
    from cabai.study.given import Pull
    from cabai.study.show.status import Status
    from cabai.study.study import Study

LOOK = 0.2  # seconds between checks of the threads: Windows handles Ctrl-C only in between
_runs: set[str] = set()  # of this process, by their marks


@dataclass(frozen=True)
class Failed:
    """The result of a pull without a reward: returned by a test, or made from an exception."""

    why: str
    cost: float | None = None
    is_wrong: bool = False  # the test returned an invalid result: another trial would not help, and the run ends


def run(
    study: Study,
    test: Callable[[Pull], Any],
    *,
    workers: int = 1,
    max_failures: int = 5,
    progress: Callable[[], None] | None = None,
    over: threading.Event | None = None,
    retries: int = RETRIES,
    catch: Any = None,
    leave: Callable[[], None] | None = None,
) -> Status:
    """Ask, `test`, tell, in `workers` threads, until the study stops; returns its status.

    `test(pull)` returns (reward, cost), {"reward": ..., "cost": ...}, only the reward if the study has known costs, or
    `Failed`. An exception that counts as a failed trial (`catch`; see `study.run`) is told as a failed pull; after
    `max_failures` in a row for one arm the run ends with `RunFailed`. Any other exception ends the run, and its pull is
    released. An invalid result, or one too large to be added to the others, is told as a failed pull, whose cost counts
    if it is valid and can be added, and ends the run with `RunFailed`.

    On Ctrl-C, the run waits for the tests under way and tells their results; pulls of tests that fail are released, and
    the study can be run again. A second Ctrl-C leaves the tests, or ends them with `leave`, and releases their pulls.
    `over` is set when the run should end, for tests that can be cut short. `progress` is called after each pull. Pulls
    that a run on this machine had under way when it was killed have lapsed.

    In a study with items, a test that fails is tried again, up to `retries` times. It is told as failed only when the
    same arm has succeeded on another item: an arm that fails on all of them has no score on any, and its pulls are
    released.
    """
    if not callable(test):
        raise InvalidInput(f"test must be a function that takes a pull, got {test!r}.")
    count, limit = whole(workers, "workers", 1), whole(max_failures, "max_failures", 1)
    kind = Loop if study.settings.items is None else ItemsLoop
    caught = checked_catch(catch)
    loop = kind(study, test, limit, progress, over or threading.Event(), whole(retries, "retries", 0), caught)
    crew = Crew(count, loop.work)
    with plainly_interrupted(), begun(study, loop):
        interrupts = 0
        while True:
            try:
                if not interrupts:
                    crew.start()
                    loop.ready.set()
                loop.watch(crew)
                break
            except KeyboardInterrupt:
                interrupts += 1
                loop.end()
                if interrupts > 1:
                    loop.leave(crew, leave)
                    break
            finally:
                loop.end()
        if interrupts:
            raise KeyboardInterrupt
        for error in crew.errors:
            raise error.with_traceback(without_ours(error)) if is_blamed(error) else error
        return study.status()


@contextmanager
def begun(study: Study, loop: Loop) -> Iterator[None]:
    """Let the pulls of killed runs lapse, and mark this run as alive while it lasts."""
    _runs.add(loop.mark)
    try:
        study._lapse(was_killed)
        yield
    finally:
        loop.close()
        loop.awaiting.close()
        _runs.discard(loop.mark)


def was_killed(worker: str | None) -> bool:
    """Whether a worker belonged to a run on this machine that has ended."""
    host, pid, mark, *rest = (*(worker or "").rsplit(":", 3), "", "", "")
    if not rest or host != socket.gethostname() or not pid.isdigit():
        return False
    if int(pid) == os.getpid():
        return mark not in _runs
    if os.name != "posix":  # on Windows, signal 0 is Ctrl-C: do not send it; the lease ends by itself
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it belongs to another user, or cannot be checked
        return False
    return False


class Loop:
    """What the workers of one run share."""

    def __init__(
        self,
        study: Study,
        test: Callable[[Pull], Any],
        limit: int,
        progress: Callable[[], None] | None,
        over: threading.Event,
        retries: int = 0,
        caught: Caught = None,
    ) -> None:
        self.study, self.test, self.limit, self.progress, self.over = study, test, limit, progress, over
        self.retries, self.caught, self.awaiting = retries, caught, Awaiting()
        self.ready = threading.Event()  # an interrupt during the start leaves some workers that nobody waits for: idle
        self.failing: Counter[str] = Counter()
        self.trying: dict[int, Pull] = {}  # by worker
        self.mark = secrets.token_hex(3)
        self.name = f"{socket.gethostname()[:150]}:{os.getpid()}:{self.mark}"

    def end(self) -> None:
        """Begin nothing new."""
        self.over.set()
        self.ready.set()

    def watch(self, crew: Crew) -> None:
        """Wait until all workers have ended; renew the leases of what takes long."""
        often = self.study.settings.lease / 4
        renewed = began = time.monotonic()
        says = self.over.is_set() and sys.stderr.isatty()
        while crew.is_at_work:
            crew.wait(min(LOOK, often))
            often = self.study.settings.lease / 4  # which may be amended
            if time.monotonic() - renewed >= often:
                renewed = time.monotonic()
                try:
                    self.renew()
                except Exception as error:
                    crew.errors.append(error)
            if says and time.monotonic() - began >= 1.0:
                says = False
                print(
                    "cabai is waiting for the tests under way; press Ctrl-C again to leave them.",
                    file=sys.stderr,
                    flush=True,
                )

    def leave(self, crew: Crew, leave: Callable[[], None] | None) -> None:
        """Stop waiting for tests: release their pulls. If one still returns a result, it is told, and counts if it is
        the first."""
        with suppress(KeyboardInterrupt):  # a third Ctrl-C: their leases end by themselves
            if leave is not None or self.awaiting.loop is not None:
                self.awaiting.cancel()
                if leave is not None:
                    leave()
                crew.join()
            for pull in self.kept():
                self.give_back(pull)

    def work(self, worker: int) -> None:
        try:
            self.pull_until_the_end(worker)
        except BaseException:
            self.end()  # the others begin nothing new
            raise

    def pull_until_the_end(self, worker: int) -> None:
        self.awaiting.serve()
        self.ready.wait()
        while not self.over.is_set():
            try:
                pull = self.ask(f"{self.name}:{worker}")
            except StudyStopped:
                return
            except NoPull:
                self.wait()
                continue
            if self.is_tried_here(pull):
                continue
            self.trying[worker] = pull
            try:
                self.finish(pull)
            finally:
                del self.trying[worker]

    def ask(self, worker: str) -> Pull:
        return self.study.ask(worker=worker)

    def is_tried_here(self, pull: Pull) -> bool:
        """Whether another worker of this run has this pull, whose lease ended because the process stood still. If so,
        it is renewed."""
        for worker, other in list(self.trying.items()):
            if other.id == pull.id:
                self.trying[worker] = pull
                return True
        return False

    def finish(self, pull: Pull) -> None:
        """Try a pull, and tell the result."""
        try:
            result = self.attempt(pull)
        except BaseException:  # such as sys.exit in a test: the trial did not finish
            self.give_back(pull)
            raise
        if isinstance(result, Failed) and not result.is_wrong and self.over.is_set():  # no fault of the arm's
            self.give_back(pull)
            return
        self.tell(pull, result)
        if self.progress is not None:
            self.progress()

    def close(self) -> None:
        """All workers have ended."""

    def wait(self) -> None:
        """There is nothing to pull now."""
        time.sleep(self.study._pause)

    def kept(self) -> list[Pull]:
        """The pulls that are still to be told."""
        return list(self.trying.values())

    def renew(self) -> None:
        """Renew leases, so that a long pull is not offered to others while it is being tried here."""
        for pull in self.kept():
            with suppress(LostPull):  # too late: another worker has it; the first result told counts
                self.study.renew(pull)

    def give_back(self, pull: Pull) -> None:
        with suppress(LostPull):
            self.study.release(pull)

    def attempt(self, pull: Pull) -> Any:
        try:
            return awaited(self.test(pull))
        except RunFailed:  # a command that cannot be started
            raise
        except Exception as error:
            if not is_of_the_trial(error, self.caught):
                blame(error, pull.arm, self.caught)
                raise
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
                    result = Failed(str(error), paid_in(result), is_wrong=True)
            billed = self.tell_failed(pull, result)
        except AlreadyTold:
            return  # the lease ended, and another worker was faster
        if result.is_wrong:
            raise RunFailed(
                f"the test of arm {pull.arm!r} did not return a reward and a cost: {result.why.rstrip('.')}. It is "
                f"recorded as a failed pull{f' that cost {billed:g}' if billed else ''}. The study {self.study.name!r} "
                "is kept; fix the test and run it again to go on."
            )
        self.failing[pull.arm] += 1
        if self.failing[pull.arm] >= self.limit:
            raise self.failure(pull.arm, self.limit, result)

    def failure(self, arm: str, times: int, last: Failed, more: str = "") -> RunFailed:
        often = "failed" if times == 1 else f"failed {times} times in a row, the last time"
        return RunFailed(
            f"arm {arm!r} {often} with: {last.why.rstrip('.')}.{more} The study {self.study.name!r} is kept; run it "
            "again to go on."
        )

    def tell_failed(self, pull: Pull, result: Failed) -> float | None:
        """Returns the cost that was told."""
        try:
            self.study.tell(pull, failed=result.why, cost=result.cost)
            return result.cost
        except AlreadyTold:
            raise
        except InvalidInput:  # a cost that cannot be added to the bill: the pull must not stay leased for that
            self.study.tell(pull, failed=result.why, cost=0.0)
            return None


class ItemsLoop(Loop):
    """What the workers share in a study with items."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.guard = threading.Lock()
        self.held: dict[str, list[tuple[Pull, Failed]]] = {}  # by arm: what failed since it last succeeded

    def kept(self) -> list[Pull]:
        with self.guard:
            return [*super().kept(), *(pull for held in self.held.values() for pull, _ in held)]

    def ask(self, worker: str) -> Pull:
        with self.guard:
            held = sum(map(len, self.held.values()))
        if not held:
            return super().ask(worker)
        pulls, _ = self.study._ask(1, worker, extra=held)
        return pulls[0]

    def is_tried_here(self, pull: Pull) -> bool:
        with self.guard:
            for held in self.held.values():
                for place, (other, result) in enumerate(held):
                    if other.id == pull.id:
                        held[place] = (pull, result)
                        return True
        return super().is_tried_here(pull)

    def attempt(self, pull: Pull) -> Any:
        """Run the test, and again if it fails; the known costs of failed tries are added up."""
        paid = 0.0
        for _ in range(1 + self.retries):
            result = super().attempt(pull)
            if isinstance(result, Failed) and result.is_wrong:
                raise self.no_score(pull, result.why, result.cost, paid)
            if not isinstance(result, Failed):
                try:
                    told = checked_result(self.study, pull, **read(result))
                except InvalidInput as error:  # not the arm's fault: it must not count as the worst score
                    raise self.no_score(pull, str(error), paid_in(result), paid) from error
                cost = None if told.cost is None else told.cost + paid
                return {"reward": told.reward, **({} if cost is None else {"cost": cost})}
            paid += result.cost or 0.0
            if self.over.is_set():
                break
        return Failed(result.why, paid or None)

    def no_score(self, pull: Pull, why: str, cost: float | None, paid: float) -> RunFailed:
        lost = (cost or 0.0) + paid
        return RunFailed(
            f"the test of arm {pull.arm!r} on item {pull.item!r} did not return a score and a cost: {why.rstrip('.')}. "
            f"It does not count{f', and its cost of {lost:g} is not on the bill' if lost else ''}. The study "
            f"{self.study.name!r} is kept; fix the test and run it again to go on."
        )

    def tell(self, pull: Pull, result: Any) -> None:
        if not isinstance(result, Failed):
            super().tell(pull, result)
            self.tell_held(pull.arm)
            return
        with self.guard:
            held = self.held.setdefault(pull.arm, [])
            held.append((pull, result))
            times = len(held)
        assert self.study.settings.items is not None
        if times >= self.limit or self.study.settings.items.failed == STOP:
            self.give_up(pull.arm)

    def tell_held(self, arm: str) -> None:
        """It was the items, not the arm, that made these fail."""
        with self.guard:
            held = self.held.pop(arm, [])
        for pull, result in held:
            with suppress(AlreadyTold):
                self.tell_failed(pull, result)

    def give_up(self, arm: str) -> None:
        """It was the arm: nothing that failed since it last succeeded has a score."""
        with self.guard:
            held = self.held.pop(arm, [])
        for pull, _ in held:
            self.give_back(pull)
        if held:
            raise self.failure(
                arm, len(held), held[-1][1], " None of these failures counts; a larger max_failures lets them count."
            )

    def wait(self) -> None:
        """Tell what failed if nothing else can be tried before that."""
        with self.guard:
            stalled = [] if self.trying else list(self.held)
        for arm in stalled:
            self.tell_held(arm)
        time.sleep(self.study._pause)

    def close(self) -> None:
        with self.guard:
            held = [pull for each in self.held.values() for pull, _ in each]
            self.held.clear()
        for pull in held:
            self.give_back(pull)


class Crew:
    """Several threads with the same task. They are daemon threads: some tests never return."""

    def __init__(self, count: int, work: Callable[[int], None]) -> None:
        self.ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.errors: list[BaseException] = []
        self.threads = [
            threading.Thread(target=self._run, args=(work, i), name=f"cabai worker {i}", daemon=True)
            for i in range(count)
        ]

    def _run(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            self.errors.append(error)
        finally:
            self.ended.put(number)

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    @property
    def is_at_work(self) -> bool:
        return any(thread.is_alive() for thread in self.threads)

    def wait(self, seconds: float) -> None:
        """Wait until one of the threads ends, or for so long."""
        with suppress(queue.Empty):
            self.threads[self.ended.get(timeout=seconds)].join()

    def join(self, seconds: float = PATIENCE) -> None:
        """Wait until all have ended, or for so long."""
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))


def read(result: Any) -> dict[str, Any]:
    """A test's result as the arguments of `tell`."""
    if isinstance(result, Mapping):
        if "reward" not in result or not set(result) <= {"reward", "cost"}:
            raise InvalidInput(f"a test must return a reward and a cost, got {shown(dict(result))}.")
        return dict(result)
    if isinstance(result, tuple):
        if len(result) != 2:
            raise InvalidInput(f"a test must return (reward, cost), got {shown(result)}.")
        return {"reward": result[0], "cost": result[1]}
    if result is None:
        raise InvalidInput("a test must return (reward, cost), got None.")
    return {"reward": result}


def paid_in(result: Any) -> float | None:
    """The cost in a result that could not be told, if it is valid."""
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
