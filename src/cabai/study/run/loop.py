"""Pull until a study stops: the loop of `study.run`, `evaluate` and `cabai run`."""

from __future__ import annotations

import os
import queue
import secrets
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cabai.errors import AlreadyTold, LostPull, NoPull, RunFailed, StudyStopped
from cabai.settings import RETRIES, STOP, checked_workers
from cabai.study.given import MOST_PULLS, checked_result
from cabai.study.run import trying
from cabai.study.run.trying import Awaiting, awaited, checked_catch, is_blamed, is_of_the_trial
from cabai.support.interruptible import plainly_interrupted
from cabai.support.validation import InvalidInput, positive, shown, whole

if TYPE_CHECKING:
    from cabai.study.given import Pull
    from cabai.study.show.status import Status
    from cabai.study.study import Study

LOOK = 0.2  # seconds between checks of the threads: Windows handles Ctrl-C only in between
LULL = 0.5  # seconds until the study is asked again, if it needs results of this run first: others may tell some
FIX_IT = "fix the test and run it again"
_runs: set[str] = set()  # of this process, by their marks


@dataclass(frozen=True)
class Failed:
    """The result of a trial that failed, returned by a test, with what it cost all the same.

    A test that raises an exception has failed too, but then nothing is known about its cost.

    >>> import cabai
    >>> def test(arm, item):
    ...     return cabai.Failed("no answer within the token limit", cost=0.02) if item == 3 else (arm == "a", 0.01)
    >>> cabai.evaluate(["a", "b"], range(100), test, seed=1).decision
    'a'
    """

    why: str
    cost: float | None = None


class Wrong(Failed):
    """The test returned an invalid result: another trial would not help, and the run ends."""


def run(study: Study, test: Callable[[Any], Any], **options: Any) -> Status:
    """Ask, `test`, tell, in threads, until the study stops; returns its status. `options`: see `Loop` and `Study.run`.

    `test(pull)` returns (reward, cost), {"reward": ..., "cost": ...}, only the reward if the study has known costs, or
    `Failed`. An invalid result, or one too large to be added to the others, is told as a failed pull, and ends the run.
    `over` is set when the run should end, for tests that can be cut short. `progress` is called after each test. Pulls
    that a run on this machine had under way when it was killed have lapsed.

    In a study with items, a test that fails is tried again, up to `retries` times. It is told as failed only when the
    same arm has succeeded on another item: an arm that fails on all of them has no score on any, and its pulls are
    released. With a `batch`, `test(pulls)` gets up to that many of one arm and returns a list with a result for each
    (`one_each`); if it fails on all of them, it is at last tried on each alone.
    """
    loop = (Loop if study.settings.items is None else ItemsLoop)(study, test, **options)
    _runs.add(loop.mark)
    interrupts = 0
    with plainly_interrupted():
        try:
            study._do("lapse", was_lost=was_killed)
            while interrupts < 2:
                try:
                    if not interrupts:
                        loop.start()
                    loop.watch()
                    break
                except KeyboardInterrupt:
                    interrupts += 1
                finally:
                    loop.end()
            if interrupts == 2:
                loop.leave()
            if interrupts:
                raise KeyboardInterrupt
            for error in loop.errors:
                raise error.with_traceback(trying.without_ours(error)) if is_blamed(error) else error
            return study.status()
        finally:
            try:
                loop.close()
            finally:
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
    except OSError as error:  # else it belongs to another user, or cannot be checked
        return isinstance(error, ProcessLookupError)
    return False


class Loop:
    """The workers of one run, and what they share.

    One idle worker at a time asks the study, for all that are idle; the others wait until it has something for them.
    The threads are daemons: some tests never return.
    """

    def __init__(
        self,
        study: Study,
        test: Callable[[Any], Any],
        *,
        workers: int = 1,
        max_failures: int = 5,
        progress: Callable[[], None] | None = None,
        over: threading.Event | None = None,
        retries: int = RETRIES,
        catch: Any = None,
        batch: int | None = None,
    ) -> None:
        if batch is not None and (whole(batch, "batch", 1) >= MOST_PULLS or study.settings.items is None):
            raise InvalidInput(f"batch is for a study with items, and less than {MOST_PULLS}, got {shown(batch)}.")
        self.study, self.test, self.progress, self.batch = study, test, progress, batch
        self.over = over or threading.Event()
        self.limit, self.retries = whole(max_failures, "max_failures", 1), whole(retries, "retries", 0)
        self.caught = checked_catch(catch)
        self.awaiting = Awaiting()
        self.mark = secrets.token_hex(3)
        self.name = f"{socket.gethostname()[:150]}:{os.getpid()}:{self.mark}"
        self.ready = threading.Event()  # an interrupt during the start leaves some workers that nobody waits for: idle
        self.asking = threading.Lock()  # held by the worker that asks
        self.asked: deque[list[Pull]] = deque()  # for workers that wait
        self.told = threading.Event()  # something was told, or the run should end
        self.trying: set[int] = set()  # workers
        self.leases: dict[str, Pull] = {}  # by id, as leased last: what waits for a worker, is being tried, or is held
        self.held: dict[str, list[tuple[Pull, Failed]]] = {}  # with items, by arm: what failed since it last succeeded
        self.failing: Counter[str] = Counter()  # without items: how often it did
        self.guard = threading.Lock()  # of what is held
        self.errors: list[BaseException] = []
        self.ended: queue.SimpleQueue[None] = queue.SimpleQueue()  # one for each thread that has ended
        self.threads = [
            threading.Thread(target=self.work, args=(i,), name=f"cabai worker {i}", daemon=True)
            for i in range(checked_workers(workers))
        ]

    # What the caller's thread does.

    def start(self) -> None:
        for thread in self.threads:
            thread.start()
        self.ready.set()

    def end(self) -> None:
        for each in (self.over, self.ready, self.told):
            each.set()

    def watch(self) -> None:
        """Wait until all workers have ended; renew the leases of what takes long."""
        renewed = began = time.monotonic()
        says = self.over.is_set() and sys.stderr.isatty()
        while any(thread.is_alive() for thread in self.threads):
            often = self.study.settings.lease / 4  # which may be amended
            with suppress(queue.Empty):
                self.ended.get(timeout=min(LOOK, often))
            if time.monotonic() - renewed >= often:
                renewed = time.monotonic()
                try:
                    self.renew()
                except Exception as error:
                    self.errors.append(error)
            if says and time.monotonic() - began >= 1.0:
                says = False
                words = "cabai is waiting for the tests under way; press Ctrl-C again to leave them."
                print(words, file=sys.stderr, flush=True)

    def renew(self) -> None:
        """Renew leases, so that a long pull is not offered to others while it is being tried here."""
        for pull in list(self.leases.values()):
            with suppress(LostPull):  # too late: another worker has it; the first result told counts
                self.study.renew(pull)

    def leave(self) -> None:
        """Stop waiting for tests: release their pulls. What one still returns counts if it is the first result."""
        try:
            if self.awaiting.loop is not None:
                self.awaiting.cancel()
                deadline = time.monotonic() + trying.PATIENCE
                for thread in self.threads:
                    if thread.ident is not None:
                        thread.join(max(deadline - time.monotonic(), 0.0))
            self.give_back(self.leases.values())
        except KeyboardInterrupt:  # a third Ctrl-C: their leases end by themselves
            self.leases.clear()

    def close(self) -> None:
        """All workers have ended, or are left to themselves: release what none of them has begun, or told."""
        self.give_back(self.leases.values())
        self.awaiting.close()

    def give_back(self, pulls: Iterable[Pull]) -> None:
        for pull in list(pulls):
            with suppress(LostPull):
                self.study.release(self.leases.pop(pull.id, pull))

    # What the workers do.

    def work(self, worker: int) -> None:
        try:
            self.awaiting.serve()
            self.ready.wait()
            while pulls := self.next(worker):
                try:
                    self.finish(pulls)
                finally:
                    self.trying.remove(worker)
                    self.told.set()
        except BaseException as error:
            self.errors.append(error)
            self.end()  # the others begin nothing new
        finally:
            self.ended.put(None)

    def next(self, worker: int) -> list[Pull]:
        """What this worker should try; empty: nothing more."""
        with self.asking:
            while self.asked or not self.over.is_set():
                if self.asked:
                    self.trying.add(worker)
                    return self.asked.popleft()
                self.told.clear()
                try:
                    self.asked.extend(self.ask(f"{self.name}:{worker}"))
                except StudyStopped:
                    break
                except NoPull:
                    self.wait()
        return []

    def ask(self, worker: str) -> list[list[Pull]]:
        """Something for each idle worker, or a batch for one of them."""
        count, is_batch = self.batch or len(self.threads) - len(self.trying), self.batch is not None
        extra = sum(map(len, list(self.held.values())))  # pulls with a result that is not told
        found = self.study._ask(count, worker, extra=extra, batch=is_batch)
        new = [pull for pull in found if pull.id not in self.leases]  # of others, the leases ended as all stood still
        self.leases |= {pull.id: pull for pull in found}
        return [new] if is_batch and new else [[pull] for pull in new]

    def wait(self) -> None:
        """There is nothing to pull before something is told, here or elsewhere."""
        self.told.wait(LULL if self.trying else self.study._pause)

    def finish(self, pulls: list[Pull]) -> None:
        try:
            results = self.attempt(pulls)
        except BaseException:  # such as sys.exit in a test: the trial did not finish
            self.give_back(pulls)
            raise
        ended = [(self.leases.get(pull.id, pull), result) for pull, result in zip(pulls, results, strict=True)]
        if self.over.is_set():  # what fails now is no fault of the arm's
            self.give_back(pull for pull, result in ended if type(result) is Failed)
            ended = [(pull, result) for pull, result in ended if type(result) is not Failed]
        if ended:
            self.tell(ended)
            if self.progress is not None:
                self.progress()

    def call(self, pulls: list[Pull]) -> list[Any]:
        """The results of pulls of one arm."""
        try:
            found = awaited(self.test(pulls[0] if self.batch is None else pulls))
            return [found] if self.batch is None else found
        except RunFailed:  # a command that cannot be started
            raise
        except Exception as error:
            if not is_of_the_trial(error, self.caught):
                trying.blame(error, pulls[0].arm, self.caught)
                raise
            return [Failed(f"{type(error).__name__}: {error}")] * len(pulls)

    attempt = call

    def tell(self, ended: Sequence[tuple[Pull, Any]]) -> None:
        for pull, result in ended:
            with self.until_told(pull):
                self.tell_one(pull, result)

    @contextmanager
    def until_told(self, *pulls: Pull) -> Iterator[None]:
        """Leases are renewed until results are stored: a database may be slow."""
        try:
            with suppress(AlreadyTold):  # the lease ended, and another worker was faster
                yield
        finally:
            for pull in pulls:
                self.leases.pop(pull.id, None)

    def tell_one(self, pull: Pull, result: Any) -> None:
        if isinstance(result, Wrong) or not isinstance(result, Failed):
            try:
                self.study.tell(pull, **read(result))
                self.failing[pull.arm] = 0
                return
            except AlreadyTold:
                raise
            except InvalidInput as error:  # paid for, but not a legal reward
                result = Wrong(str(error), paid_in(result))
        billed = self.tell_failed(pull, result)
        if isinstance(result, Wrong):
            raise self.failed(
                f"the test of arm {pull.arm!r} did not return a reward and a cost: {result.why.rstrip('.')}. It is "
                f"recorded as a failed pull{f' that cost {billed:g}' if billed else ''}.", FIX_IT,
            )  # fmt: skip
        self.failing[pull.arm] += 1
        if self.failing[pull.arm] >= self.limit:
            raise self.often_failed(pull.arm, self.limit, result)

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

    def often_failed(self, arm: str, times: int, last: Failed, more: str = "") -> RunFailed:
        often = "failed" if times == 1 else f"failed {times} times in a row, the last time"
        return self.failed(f"arm {arm!r} {often} with: {last.why.rstrip('.')}.{more}")

    def failed(self, words: str, do: str = "run it again") -> RunFailed:
        return RunFailed(f"{words} The study {self.study.name!r} is kept; {do} to go on.")


class ItemsLoop(Loop):
    def wait(self) -> None:
        """Tell what failed if nothing else can be tried before that."""
        for arm in [] if self.trying else list(self.held):
            self.tell_held(arm)
        super().wait()

    def attempt(self, pulls: list[Pull]) -> list[Any]:
        """Run the test, and again on what fails; the known costs of failed tries are added up."""
        found: dict[str, Any] = {}
        paid, left = dict.fromkeys((pull.id for pull in pulls), 0.0), pulls
        for _ in range(1 + self.retries):
            for pull, result in zip(left, self.call(left), strict=True):
                found[pull.id] = self.read(pull, result, paid)
            left = [pull for pull in left if isinstance(found[pull.id], Failed)]
            if not left or self.over.is_set():
                break
        if len(left) == len(pulls) > 1 and not self.over.is_set():
            found |= {pull.id: self.read(pull, self.call([pull])[0], paid) for pull in pulls}
        return [found[pull.id] for pull in pulls]

    def read(self, pull: Pull, result: Any, paid: dict[str, float]) -> Any:
        """A result with what earlier tries of the pull have cost."""
        before = paid[pull.id]
        if isinstance(result, Failed) and not isinstance(result, Wrong):
            paid[pull.id] += legal_cost(result.cost) or 0.0
            return Failed(result.why, paid[pull.id] or None)
        try:
            told = checked_result(self.study.settings, **read(result))
        except InvalidInput as error:  # not the arm's fault: it must not count as the worst score
            lost = (paid_in(result) or 0.0) + before
            raise self.failed(
                f"the test of arm {pull.arm!r} on item {pull.item!r} did not return a score and a cost: "
                f"{str(error).rstrip('.')}. It does not count"
                f"{f', and its cost of {lost:g} is not on the bill' if lost else ''}.", FIX_IT,
            ) from error  # fmt: skip
        return {"reward": told.reward, **({} if told.cost is None else {"cost": told.cost + before})}

    def tell(self, ended: Sequence[tuple[Pull, Any]]) -> None:
        arm, failed = ended[0][0].arm, [(pull, result) for pull, result in ended if isinstance(result, Failed)]
        scored = [(pull, result) for pull, result in ended if not isinstance(result, Failed)]
        with self.until_told(*(pull for pull, _ in scored)):
            try:
                self.study.tell_many({"pull": pull, **result} for pull, result in scored)
            except InvalidInput:  # one of them was told elsewhere, or is too large: each for itself
                super().tell(scored)
        with self.guard:
            held = self.held.setdefault(arm, [])
            held += failed
            times = len(held)
        assert self.study.settings.items is not None
        may_count = self.study.settings.items.failed != STOP
        if scored and may_count:
            self.tell_held(arm)
        elif times >= (self.limit if may_count else 1):
            self.give_up(arm)

    def take_held(self, arm: str) -> list[tuple[Pull, Failed]]:
        with self.guard:
            return self.held.pop(arm, [])

    def tell_held(self, arm: str) -> None:
        """It was the items, not the arm, that made these fail."""
        for pull, result in self.take_held(arm):
            with self.until_told(pull):
                self.tell_failed(pull, result)

    def give_up(self, arm: str) -> None:
        """It was the arm: nothing that failed since it last succeeded has a score."""
        held = self.take_held(arm)
        self.give_back(pull for pull, _ in held)
        if held:
            raise self.often_failed(
                arm, len(held), held[-1][1], " None of these failures counts; a larger max_failures lets them count."
            )


def one_each(found: Any, pulls: Sequence[Pull]) -> list[Any]:
    """The results of a batch, in the order of its pulls: a test returns them in this order, or by the items' ids."""
    if isinstance(found, Mapping):
        found = [found[pull.item] for pull in pulls if pull.item in found]
    is_list = isinstance(found, Iterable) and not isinstance(found, (str, bytes))
    results = list(found) if is_list else []
    if not is_list or len(results) != len(pulls):
        what = f"{len(results)} results" if is_list else shown(found)
        raise RunFailed(
            f"the test of arm {pulls[0].arm!r} got a batch of {len(pulls)} items and returned {what}: it must return a "
            "list with a result for each item, in their order, or a dictionary by the items' ids. None of them counts. "
            "The study is kept; fix the test and run it again to go on."
        )
    return results


def read(result: Any) -> dict[str, Any]:
    """A test's result as the arguments of `tell`."""
    if isinstance(result, Wrong):
        raise InvalidInput(result.why)
    if isinstance(result, Mapping):
        if "reward" not in result or not set(result) <= {"reward", "cost"}:
            raise InvalidInput(f"a test must return a reward and a cost, got {shown(dict(result))}.")
        found = dict(result)
    elif isinstance(result, tuple) and len(result) == 2:
        found = {"reward": result[0], "cost": result[1]}
    else:
        found = {"reward": None if isinstance(result, tuple) else result}
    if found["reward"] is None:
        raise InvalidInput(f"a test must return (reward, cost), got {shown(result)}.")
    return found


def paid_in(result: Any) -> float | None:
    try:
        return legal_cost(result.cost if isinstance(result, Wrong) else read(result).get("cost"))
    except InvalidInput:
        return None


def legal_cost(cost: Any) -> float | None:
    """A cost that can be told; None for anything else."""
    try:
        return positive(cost, "cost")
    except InvalidInput:
        return None
