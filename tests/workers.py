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
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from cabai.study import NoPull, Study, StudyStopped, load_study
from cabai.study.migrations import metadata as schema
from cabai.study.play import Play
from storages import before_commits, looked

Told = dict[str, tuple[float | None, float, str | None]]  # reward, cost and failed, by pull


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


def stored(study: Study) -> tuple[Any, list[Any], list[Any]]:
    """The study's row, its arms' rows and its log, read without the study's own code."""

    def work(connection: sa.Connection) -> tuple[Any, list[Any], list[Any]]:
        row = connection.execute(sa.select(schema.study).where(schema.study.c.name == study.name)).one()
        arms = connection.execute(
            sa.select(schema.arm).where(schema.arm.c.study == row.id).order_by(schema.arm.c.number)
        ).all()
        log = connection.execute(
            sa.select(schema.observation)
            .where(schema.observation.c.study == row.id)
            .order_by(schema.observation.c.place)
        ).all()
        return row, list(arms), list(log)

    return looked(study._storage, work)


def check_log(study: Study, told: Told) -> None:
    """Everything acknowledged is in the log, exactly once and as it was told; the sums are those of the log."""
    row, arms, log = stored(study)
    logged = {f"{row.token}-{each.number}": (each.reward, each.cost, each.failed) for each in log}
    assert len(logged) == len(log) == row.told
    assert [each.place for each in log] == list(range(1, len(log) + 1))
    assert {pull: logged.get(pull) for pull in told} == told
    assert math.isclose(row.spent, math.fsum(each.cost for each in log), rel_tol=1e-12)
    assert math.isclose(row.counted, math.fsum(arm.costs for arm in arms), rel_tol=1e-12)
    missing = min((pull.number for pull in under_way(study)), default=math.inf)
    in_order = sorted((each for each in log if each.number < missing and each.failed is None), key=lambda e: e.number)
    if row.stopped is None:  # everything counts that waits for nothing
        assert row.through <= (missing if math.isfinite(missing) else row.asked)
        assert not in_order or row.through >= in_order[-1].number
    in_order = [each for each in in_order if each.number <= row.through]
    for arm in arms:
        counted = [each.reward for each in in_order if each.arm == arm.number]
        assert (arm.ordered_pulls, arm.ordered_rewards) == (len(counted), functools.reduce(operator.add, counted, 0.0))
        assert arm.ordered_first == (counted[0] if counted else 0.0)
        mine = [each for each in log if each.arm == arm.number]
        rewards = [each.reward for each in mine if each.failed is None]
        assert (arm.pulls, arm.failures) == (len(rewards), len(mine) - len(rewards))
        assert math.isclose(arm.rewards, math.fsum(rewards), rel_tol=1e-10, abs_tol=1e-10)
        assert math.isclose(arm.spent, math.fsum(each.cost for each in mine), rel_tol=1e-12)
        assert arm.largest_cost == max((each.cost for each in mine), default=None)
        assert math.isclose(arm.costs, arm.spent, rel_tol=1e-12)  # here they are learned, and failed pulls count
        assert arm.first in (rewards or [0.0])


def under_way(study: Study) -> list[Any]:
    """The pulls that the study waits for, read without its own code."""
    query = sa.select(schema.pull).where(schema.pull.c.study == study._ledger.id, schema.pull.c.withdrawn.is_(None))
    return looked(study._storage, lambda connection: list(connection.execute(query)))


def check_replay(study: Study) -> None:
    """The stored state is, to the last bit, that of one process which asked and told the same in the same order: and
    it would have been handed the same arms. For studies with one worker at a time and no arm dropped on the way."""
    row, arms, log = stored(study)
    events = [(each.asked, 1, each) for each in log] + [(each.told, 0, each) for each in log]
    play, out, waiting, through, stopped = Play(study.settings), dict[int, int](), dict[int, Any](), 0, None
    for _, asks, each in sorted(events, key=lambda event: (event[0], event[1])):
        if asks:
            pending = Counter(out.values())
            assert play.choose([pending[a] for a in range(len(arms))]) == each.arm
            out[each.number] = each.arm
            continue
        del out[each.number]
        play.offers[each.arm] += each.offers
        play.lapses[each.arm] += each.offers - 1
        if each.failed is not None:
            play.fail(each.arm, each.cost)
            through += through + 1 == each.number and not waiting
        elif through + 1 == each.number and not waiting and stopped is None:
            play.observe(each.arm, each.reward, each.cost)
            through = each.number
            stopped = each.place if play.stops() else None
        else:
            play.observe(each.arm, each.reward, each.cost, waits=True)
            waiting[each.number] = each
        while waiting and stopped is None and min(waiting) < min(out, default=math.inf):
            through = min(waiting)
            play.count(waiting[through].arm, waiting[through].reward, waiting[through].cost)
            del waiting[through]
            stopped = each.place if play.stops() else None
            if not waiting and stopped is None:
                play.catch_up()
    names = [column.name for column in schema.arm.c if column.name not in ("study", "number", "name")]
    assert [play.sums(a) for a in range(len(arms))] == [{name: getattr(arm, name) for name in names} for arm in arms]
    assert (float(play.run["spent"]), float(play.run["counted"])) == (row.spent, row.counted)
    assert json.loads(row.memory) == json.loads(play.memory())
    assert row.told_at_stop == stopped
    if stopped is not None:
        assert (row.reason, row.decision) == ("evidence", play.leader)
