"""Forked processes that work on a study, what they report, and whether the study's tables agree with its log."""

from __future__ import annotations

import functools
import json
import math
import operator
import os
import random
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from cabai.errors import NoPull, StudyStopped
from cabai.study import Study, create_study, load_study
from cabai.study.current import new_state
from cabai.study.log.events import Event
from storages import before_commits, looked

Told = dict[str, tuple[float | None, float, str | None]]  # reward, cost and failed, by pull


ARMS = ["left", "middle", "right"]


def new_study(url: str, **options: Any) -> Study:
    return create_study("study", **({"arms": ARMS, "family": "gaussian(variance=1)", "storage": url} | options))


class Broken(Exception):
    """A transaction that fails as it is about to be committed."""


class Child:
    """A forked process that runs `work(report)`; what it reports arrives at once, even if it is killed."""

    def __init__(self, work: Callable[[Callable[..., None]], None]) -> None:
        self.reader, writer = os.pipe()
        self.id = os.fork()
        if self.id == 0:
            code = 1
            try:
                os.close(self.reader)
                warnings.simplefilter("ignore")
                work(lambda *words: os.write(writer, (json.dumps(words) + "\n").encode()) and None)
                code = 0
            except BaseException:
                os.write(writer, (json.dumps(["error", traceback.format_exc()[-3000:]]) + "\n").encode())
            finally:
                os._exit(code)
        os.close(writer)
        self.lines = os.fdopen(self.reader)

    def reports(self) -> Iterator[list[Any]]:
        """What it reports, until it ends; an error is raised here."""
        for line in self.lines:
            words = json.loads(line)
            assert words[0] != "error", words[1]
            yield words

    def next(self) -> list[Any]:
        return next(self.reports())

    def signal(self, number: int) -> None:
        os.kill(self.id, number)

    def end(self) -> int:
        """Wait for its end; 0 or the signal that ended it."""
        self.lines.close()
        _, status = os.waitpid(self.id, 0)
        return os.waitstatus_to_exitcode(status)


def join(children: list[Child]) -> list[list[Any]]:
    """Everything that several processes reported; all of them ended well."""
    reports = [words for child in children for words in child.reports()]
    assert [child.end() for child in children] == [0] * len(children)
    return reports


def result(random: random.Random) -> tuple[float | None, float, str | None]:
    """Reward, cost and failure of a pull, whatever the arm: all arms are tied, so that the study does not stop."""
    cost = random.uniform(0.1, 2.0)
    return (None, cost, "out of luck") if random.random() < 0.03 else (random.gauss(0.0, 1.0), cost, None)


def work_on(url: str, name: str, seed: int, pulls: int, report: Callable[..., None]) -> None:
    """Ask and tell, and report each tell that has returned."""
    study, chance = load_study(name, storage=url), random.Random(seed)
    for _ in range(pulls):
        report("asking")
        try:
            pull = study.ask(worker=str(os.getpid()))
        except StudyStopped:
            return
        except NoPull:
            time.sleep(0.01)
            continue
        reward, cost, failed = result(chance)
        report("telling", pull.id)
        study.tell(pull, reward, cost, failed=failed)
        report("told", pull.id, reward, cost, failed)


def announce_commits(storage: Any, report: Callable[..., None]) -> None:
    """Report as the commit of each change begins."""

    before_commits(storage, lambda _: report("committing"))


def killed(child: Child, delay: float, *, at_commit: int | None = None) -> list[list[Any]]:
    """What a process reported until it was killed, `delay` seconds from now or after its n-th commit began."""
    seen = []
    if at_commit is not None:
        for words in child.reports():
            seen.append(words)
            at_commit -= words[0] == "committing"
            if at_commit == 0:
                break
    time.sleep(delay)
    child.signal(signal.SIGKILL)
    seen.extend(child.reports())
    assert child.end() == -signal.SIGKILL
    return seen


def told_in(reports: list[list[Any]]) -> Told:
    """What was acknowledged; a pull that was acknowledged twice would be an error of its own."""
    told = [words[1:] for words in reports if words[0] == "told"]
    assert len({pull for pull, *_ in told}) == len(told)
    return {pull: (reward, cost, failed) for pull, reward, cost, failed in told}


def stored(study: Study) -> list[Event]:
    """The study's log, read without the study's own code."""
    fields = ", ".join(Event._fields)
    rows = looked(
        study._storage,
        f"SELECT {fields} FROM cabai_event WHERE study = (SELECT id FROM cabai_study WHERE name = ?) ORDER BY place",
        (study.name,),
    )
    return [Event(*row) for row in rows]


def token(study: Study) -> str:
    return looked(study._storage, "SELECT token FROM cabai_study WHERE name = ?", (study.name,))[0][0]


def check_log(study: Study, told: Told) -> None:
    """Everything acknowledged is in the log, exactly once and as it was told; the sums are those of the log."""
    log, status, mine = stored(study), study.status(), token(study)
    results = [event for event in log if event.kind in ("tell", "lose")]
    logged = {f"{mine}-{each.pull}": (each.reward, each.cost, each.words) for each in results}
    assert len(logged) == len(results)
    assert [event.place for event in log] == list(range(1, len(log) + 1))
    assert {pull: logged.get(pull) for pull in told} == told
    assert math.isclose(status.spent, math.fsum(each.cost for each in results), rel_tol=1e-12)
    missing = min((pull.number for pull in under_way(study)), default=math.inf)
    through = study._current.look(lambda state: state.through)
    in_order = sorted((each for each in results if each.pull < missing and each.words is None), key=lambda e: e.pull)
    if not status.stopped:  # everything counts that waits for nothing
        assert through <= (missing if math.isfinite(missing) else sum(event.kind == "ask" for event in log))
        assert not in_order or through >= in_order[-1].pull
    in_order = [each for each in in_order if each.pull <= through]
    for a, arm in enumerate(status.arms):
        counted = [each.reward for each in in_order if each.arm == a]
        total = functools.reduce(operator.add, counted, 0.0)
        assert (arm.pulls, arm.mean) == (len(counted), total / len(counted) if counted else None)
        of_arm = [each for each in results if each.arm == a]
        rewards = [each.reward for each in of_arm if each.words is None]
        assert (arm.pulls + arm.waiting, arm.failures) == (len(rewards), len(of_arm) - len(rewards))
        assert math.isclose(arm.spent, math.fsum(each.cost for each in of_arm), rel_tol=1e-12)
        largest = study._current.look(lambda state, a=a: state.largest_cost[a])
        assert largest == max((each.cost for each in of_arm), default=0.0)


def under_way(study: Study) -> list[Any]:
    """The pulls that the study waits for, from its log alone."""
    found: dict[int, SimpleNamespace] = {}
    for event in stored(study):
        if event.kind == "ask":
            found[event.pull] = SimpleNamespace(number=event.pull, arm=event.arm, worker=event.worker, offers=1)
        elif event.kind == "offer":
            found[event.pull].worker, found[event.pull].offers = event.worker, found[event.pull].offers + 1
        elif event.kind in ("tell", "lose", "withdraw"):
            found.pop(event.pull, None)
    return list(found.values())


def check_replay(study: Study) -> None:
    """The state is, to the last bit, that of one process which asked and told the same in the same order, from the
    first event on: and it would have been handed the same arms, and have decided at the same event."""
    log = stored(study)
    state = new_state(study._current.recipe)
    for event, following in zip(log, [*log[1:], None], strict=True):
        if event.kind == "ask":
            assert state.choose() == (event.arm, event.item)
        state.take(event)
        if event.kind not in ("stop", "amend"):
            decides = state.ended is None and state.verdict() is not None
            assert decides == (following is not None and following.kind == "stop" and following.words == "evidence")
    assert json.dumps(state.snapshot()) == study._current.look(lambda found: json.dumps(found.snapshot()))


def check_known(study: Study) -> bool:
    """Whether the whole log is known here, for the next change; what is known is then as it is stored."""
    known, log = study._current.writer.state, stored(study)
    if known is None:
        return False
    state = new_state(study._current.recipe)
    for event in log[: known.place]:
        state.take(event)
    assert json.dumps(known.snapshot()) == json.dumps(state.snapshot())
    return known.place == len(log)
