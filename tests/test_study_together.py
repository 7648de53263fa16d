"""Threads of one process that change a study at once share a transaction; and what a lock that was waited for shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from cabai import AlreadyTold, InvalidInput, StorageError
from cabai.study import Study, load_study
from cabai.study.log import database, tables
from cabai.study.log.events import OFFER, TELL, WITHDRAW, Event
from storages import BOTH, POSTGRES, before_commits
from workers import check_log, check_replay, new_study, token, under_way


class Held:
    """A study whose lock is held while threads come to wait for it; then all are let go at once, in any order."""

    def __init__(self, study: Study) -> None:
        self.study, self.threads, self.results = study, list[threading.Thread](), dict[Any, Any]()

    def __enter__(self) -> Held:
        self.study._current.writer.lock.acquire()
        return self

    def call(self, name: Any, work: Callable[[], Any]) -> None:
        """Have a thread do it, and wait until it waits."""

        def run() -> None:
            try:
                self.results[name] = work()
            except BaseException as error:
                self.results[name] = error

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()
        while len(self.study._current.calls) < len(self.threads):
            time.sleep(0.001)

    def __exit__(self, *_: Any) -> None:
        self.study._current.writer.lock.release()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def count_commits(study: Study) -> list[int]:
    commits = [0]

    def count(_: Any) -> None:
        commits[0] += 1

    before_commits(study._storage, count)
    return commits


@BOTH
def test_threads_that_wait_share_a_transaction_and_each_has_its_own_result(url: str) -> None:
    study, told = new_study(url), {}
    first = study.ask(6)
    commits = count_commits(study)
    with Held(study) as held:
        for i, pull in enumerate(first[:4]):
            held.call(("tell", i), lambda pull=pull: study.tell(pull, float(pull.number), cost=1.0))
            held.call(("ask", i), lambda i=i: study.ask(i + 1, worker=str(i)))
            told[pull.id] = (float(pull.number), 1.0, None)
    assert commits == [1]
    handed = [held.results["ask", i] for i in range(4)]
    assert [len(pulls) for pulls in handed] == [1, 2, 3, 4]
    assert sorted(pull.number for pulls in handed for pull in pulls) == list(range(7, 17))
    assert all(pulls[-1].number - pulls[0].number == len(pulls) - 1 for pulls in handed)
    waited_for = {pull.number: pull.worker for pull in under_way(study)}
    assert waited_for == {5: None, 6: None} | {pull.number: str(i) for i in range(4) for pull in handed[i]}
    assert sorted(each["pull"] for each in study.observations()) == sorted(told)
    check_log(study, told)
    check_replay(study)


@BOTH
def test_a_call_that_is_refused_takes_no_other_with_it(url: str) -> None:
    study = new_study(url)
    first = study.ask(4)
    study.tell(first[0], 1.0, cost=1.0)
    with Held(study) as held:
        held.call("good", lambda: study.tell(first[1], 2.0, cost=1.0))
        held.call("another", lambda: study.tell(first[0], 5.0, cost=1.0))
        held.call("again", lambda: study.tell(first[0], 1.0, cost=1.0))
        held.call("never", lambda: study.tell(f"{token(study)}-99", 5.0, cost=1.0))
        held.call("twice", lambda: study.tell(first[2], 3.0, cost=1.0))
        held.call("twice more", lambda: study.tell(first[2], 3.0, cost=1.0))
        held.call("ask", study.ask)
    assert isinstance(held.results.pop("another"), AlreadyTold)
    assert isinstance(held.results.pop("never"), InvalidInput)
    assert held.results.pop("ask").number == 5
    assert set(held.results.values()) == {None}
    check_log(study, {pull.id: (i + 1.0, 1.0, None) for i, pull in enumerate(first[:3])})
    assert len(study.observations()) == 3


def test_an_interrupted_thread_leaves_the_calls_of_others_to_be_done(tmp_path: Any) -> None:
    study = new_study(f"sqlite:///{tmp_path}/cabai.db")
    first, interrupts = study.ask(3), [KeyboardInterrupt()]

    def interrupt(_: Any) -> None:
        if interrupts:
            raise interrupts.pop()

    before_commits(study._storage, interrupt)
    with Held(study) as held:
        for i, pull in enumerate(first):
            held.call(i, lambda pull=pull: study.tell(pull, 1.0, cost=1.0))
    [mine] = [i for i, result in held.results.items() if isinstance(result, KeyboardInterrupt)]
    assert held.results.pop(mine)
    assert set(held.results.values()) == {None}
    check_log(study, {pull.id: (1.0, 1.0, None) for i, pull in enumerate(first) if i != mine})
    assert len(study.observations()) == 2


@POSTGRES
def test_the_patience_of_a_call_counts_from_its_own_beginning(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait behind one that waits for a connection give up with it, not one after the other."""
    study, tries = new_study(url), [0]
    first = study.ask(5)

    def connect() -> Any:
        tries[0] += 1
        raise psycopg.OperationalError("sorry, too many clients already")

    monkeypatch.setattr(database, "PATIENCE", 2.0)
    monkeypatch.setattr(study._storage.pool, "connection", connect)
    started = time.monotonic()
    with Held(study) as held:
        for i, pull in enumerate(first):
            held.call(i, lambda pull=pull: study.tell(pull, 1.0, cost=1.0))
    assert 2.0 <= time.monotonic() - started < 9.0  # one after the other: 10
    assert all(isinstance(result, StorageError) for result in held.results.values())
    assert len(held.results) == 5
    assert tries[0] >= 5  # each has tried


# A tell that waits for the study's lock sees its pull as others have left it.


@POSTGRES
@pytest.mark.parametrize("change", ["offered again", "withdrawn", "told the same", "told something else", "deleted"])
def test_a_tell_that_waited_for_the_lock_sees_what_was_done_meanwhile(url: str, change: str) -> None:
    study = new_study(url)
    pull, _ = study.ask(2)
    other, found = load_study("study", storage=url), []

    def tell() -> None:
        try:
            found.append(other.tell(pull, 1.0, cost=1.0))
        except Exception as error:
            found.append(error)

    waiting = threading.Thread(target=tell)

    def work(connection: Any) -> None:
        now, events = connection.lock(study._row.id, 0)
        waiting.start()
        time.sleep(0.3)  # it waits for the lock, with a view of the log from before
        assert waiting.is_alive()
        reward = 1.0 if change == "told the same" else 2.0
        what = {
            "offered again": {"kind": OFFER, "worker": "me"}, "withdrawn": {"kind": WITHDRAW},
        }.get(change, {"kind": TELL, "arm": 0, "reward": reward, "cost": 1.0})  # fmt: skip
        if change == "deleted":
            connection.write(tables.DELETE_STUDY, (study._row.id,))
        else:
            connection.append(study._row.id, [Event(len(events) + 1, time=now, pull=pull.number, **what)])

    study._storage.write(work)
    waiting.join(60)
    assert not waiting.is_alive()
    if change == "deleted":
        assert "has been deleted" in str(found[0])
        return
    [seen] = study.observations()
    if change == "told something else":
        assert isinstance(found[0], AlreadyTold)
        assert seen["reward"] == 2.0
    else:
        assert found == [None]
        assert seen["reward"] == 1.0
    assert (seen["offers"], seen["worker"]) == ((2, "me") if change == "offered again" else (1, None))
    assert seen["counted"] == (change != "withdrawn")
    if change not in ("withdrawn", "offered again"):
        check_log(study, {pull.id: (seen["reward"], 1.0, None)})
