"""Transactions that break in the middle, or as they are undone, leave nothing behind: no half of one is stored, nothing
acknowledged is lost, no lock and no file stays open."""

from __future__ import annotations

import gc
import linecache
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cabai import AlreadyTold, InvalidInput, StorageError
from cabai.study import Study, create_study, load_study, stored
from cabai.study.log import database, tables
from cabai.study.log.events import OFFER, TELL, WITHDRAW, Event
from cabai.study.log.postgres import CONNECTIONS, Driver, PostgresStorage
from cabai.study.log.sqlite import SqliteStorage
from cabai.study.show import exporting
from storages import BOTH, POSTGRES, before_commits
from workers import check_log, check_replay, new_study, token, under_way
from workers import stored as log_of

TOLD = 40


def study_at(url: str, **options: Any) -> Study:
    return create_study("study", arms=["a", "b"], family="bernoulli", delta=1e-9, storage=url, **options)


def told_to(study: Study, count: int) -> dict[str, tuple[float, float, None]]:
    told = {}
    for i in range(count):
        pull = study.ask()
        study.tell(pull, float(i // 2 % 2), cost=1.0)
        told[pull.id] = (float(i // 2 % 2), 1.0, None)
    return told


class Full:
    """A file on a disk that is full after three lines."""

    def __init__(self, **_: Any) -> None:
        self.lines = 0

    def write(self, _: bytes) -> None:
        self.lines += 1
        if self.lines > 3:
            raise OSError(28, "No space left on device")


def broken_export(study: Study, monkeypatch: pytest.MonkeyPatch) -> list[OSError]:
    """An export that fails in the middle of what it reads, and its error, which holds on to all of it."""
    monkeypatch.setattr(stored, "AT_A_TIME", 5)
    monkeypatch.setattr(exporting, "SpooledTemporaryFile", Full)
    with pytest.raises(OSError, match="No space left") as failed:
        exporting.spooled(study, "csv")
    return [failed.value]


@BOTH
def test_an_export_that_failed_and_is_forgotten_in_the_middle_of_a_tell_loses_nothing(url, monkeypatch):
    study = study_at(url)
    told = told_to(study, TOLD)
    kept = broken_export(study, monkeypatch)
    told |= told_to(study, 2)
    assert len(study.observations()) == study.status().spent == TOLD + 2  # the study is seen as it is

    def forget(_: Any) -> None:
        kept.clear()
        gc.collect()

    before_commits(study._storage, forget)
    told |= told_to(study, 2)
    check_log(study, told)


@POSTGRES
def test_a_transaction_that_failed_is_not_acknowledged(url, postgres):
    name = url.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(StorageError, match="read-only"):
        study_at(url)  # not even its tables are made
    postgres.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    study = study_at(url)
    pull = study.ask()

    def fail(connection: Any) -> None:
        with pytest.raises(psycopg.Error):
            connection.driver.execute("SELECT 1 / 0")

    before_commits(study._storage, fail)
    with pytest.raises(StorageError, match="failed"):
        study.tell(pull, 1.0, cost=1.0)
    assert study.observations() == []


@BOTH
def test_ctrl_c_while_a_refusal_is_undone_leaves_nothing_of_it(url, monkeypatch):
    study, other = study_at(url), create_study("other", arms=["a", "b"], family="bernoulli", storage=url)
    kind, name = PostgresStorage if url.startswith("postgresql") else SqliteStorage, "_undo"
    told, undo, interrupts = told_to(study, 1), getattr(kind, name), [KeyboardInterrupt()]
    pull, first = study.ask(), study.observations()[0]["pull"]

    def undone(*arguments: Any) -> Any:
        if interrupts:
            raise interrupts.pop()
        return undo(*arguments)

    monkeypatch.setattr(kind, name, undone)
    with pytest.raises(KeyboardInterrupt) as kept:
        study.tell_many([{"pull": pull, "reward": 1.0, "cost": 1.0}, {"pull": first, "reward": 1.0, "cost": 1.0}])
    other.ask()
    assert study.status().under_way == 1
    with pytest.raises(AlreadyTold):
        study.tell(first, 1.0, cost=1.0)
    study.tell(pull, 1.0, cost=1.0)
    check_log(study, told | {pull.id: (1.0, 1.0, None)})
    assert kept


def test_a_file_that_is_locked_while_tables_are_made_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    locked = sqlite3.connect(tmp_path / "locked.db", isolation_level=None)
    locked.execute("PRAGMA journal_mode = WAL")
    locked.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        load_study("study", storage=f"sqlite:///{tmp_path}/locked.db")
    locked.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed on Linux only")
def test_a_file_that_is_no_database_is_left_as_it_is_and_not_kept_open(tmp_path):
    (tmp_path / "junk.db").write_bytes(b"not a database at all" * 100)
    errors = []
    for _ in range(3):
        with pytest.raises(StorageError, match="file is not a database") as failed:
            load_study("study", storage=f"sqlite:///{tmp_path}/junk.db")
        errors.append(failed.value)
    assert (tmp_path / "junk.db").read_bytes() == b"not a database at all" * 100
    files = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    assert not [file for file in files if file.endswith("junk.db")]


class Interrupts:
    """Ctrl-C at a random line of `cabai/study`, or at a random moment: inside of SQLite, for example."""

    def __init__(self, how: str) -> None:
        self.how, self.chance, self.left, self.at = how, random.Random(5), 0, ""

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        if f"cabai{os.sep}study" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.left -= 1
            # Python's own Ctrl-C never comes as a block is left, when the line on which it begins is run again.
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
            if self.left <= 0 and not self.at and not line.startswith(("with ", "try:")):
                self.at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self.trace

    def call(self, work: Any) -> bool:
        """Whether `work` ended before it was interrupted. Any other error than Ctrl-C is an error of ours."""
        self.left, self.at = self.chance.choice([self.chance.randint(1, 400), 10**9]), ""
        try:
            if self.how == "line":
                sys.settrace(self.trace)
            elif self.left < 10**9:
                signal.setitimer(signal.ITIMER_REAL, self.chance.uniform(0.00001, 0.004))
            work()
            signal.setitimer(signal.ITIMER_REAL, 0)
            return True
        except KeyboardInterrupt:
            return False
        finally:
            sys.settrace(None)


@pytest.mark.parametrize("interrupts", [60, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["line", "moment"])
@BOTH
def test_ctrl_c_beside_threads_is_ctrl_c_loses_nothing_and_stops_nobody(url, how, interrupts, monkeypatch):
    """One study object, shared by threads; what this thread did not hear of it does again, which is always safe."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    callbacks, gc.callbacks[:] = gc.callbacks[:], []  # those of test tools: Python ignores what is raised in one
    monkeypatch.setattr(database, "PATIENCE", 20.0)
    study, over, reports, errors = study_at(url, lease=3600.0), threading.Event(), [], []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not over.is_set():
                pull, reward = study.ask(worker=f"thread {seed}"), float(chance.random() < 0.5)
                study.tell(pull, reward, cost=1.0)
                reports.append((pull.id, (reward, 1.0, None)))
                time.sleep(0.001)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    injected, done, number = Interrupts(how), 0, 0
    while done < interrupts:
        number += 1
        held: list[Any] = []
        calls = [
            lambda held=held, number=number: held.append(study.ask(worker="main", request=f"{number}")),
            lambda held=held: study.tell(held[0], 1.0, cost=1.0),
            study.status, lambda: study.stopped,
        ]  # fmt: skip
        for call in calls:
            while not injected.call(call):
                done += 1
        reports.append((held[0].id, (1.0, 1.0, None)))
    signal.signal(signal.SIGALRM, before)
    gc.callbacks[:] = callbacks
    over.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []
    check_log(study, dict(reports))
    check_replay(study)
    asked = [event.pull for event in log_of(study) if event.kind == "ask"]
    assert len(asked) == len(study.observations()) == len(reports)
    assert study.status().under_way == 0


@pytest.mark.parametrize("storage", ["memory", "sqlite:///cabai.db"])
def test_a_process_that_ends_says_nothing_of_its_connections(tmp_path, storage):
    """The study is still known to a module as Python takes modules apart."""
    code = (
        "import builtins, cabai\n"
        f"study = cabai.create_study('x', arms=['a', 'b'], family='bernoulli', storage={storage!r})\n"
        "study.tell(study.ask(), 1, cost=1.0)\n"
        "study.status()\n"
        "builtins.kept = [study, study._storage.writer, study._storage.reader]\n"
        "builtins.kept.append(builtins.kept)\n"
    )
    command = [sys.executable, "-X", "dev", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@POSTGRES
def test_statements_that_were_prepared_only_in_part_are_prepared_again(url, postgres):
    """As where an administrator's lock on a table, or a time limit, cuts it off."""
    study = study_at(url)
    study.ask()
    storage = study._storage
    storage.close()
    connection = storage.connection()
    connection.execute("SET lock_timeout = 100")
    storage._give_back(connection)
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE cabai_event IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StorageError, match="lock timeout"):
            study.ask()
    assert connection in storage.idle
    assert connection.execute("SELECT name FROM pg_prepared_statements").fetchall() == [("cabai_lock",)]
    assert study.ask().number == 2


@POSTGRES
def test_threads_that_come_at_the_same_time_have_no_more_connections_than_are_allowed(url):
    threads = 4 * CONNECTIONS
    studies = [create_study(f"{i}", arms=["a", "b"], family="bernoulli", storage=url) for i in range(threads)]
    storage, begin = studies[0]._storage, threading.Barrier(threads)
    storage.close()

    def ask(study: Study) -> int:
        begin.wait()
        study.ask()
        made = [each() for each in list(storage.made.data)]
        return sum(each is not None and each.driver is not None for each in made)

    with ThreadPoolExecutor(threads) as workers:
        assert max(workers.map(ask, studies)) <= CONNECTIONS
    assert len(storage.made) == len(storage.idle)
    storage.close()
    assert not storage.made


@POSTGRES
def test_a_connection_that_was_interrupted_as_it_was_made_leaves_room_for_another(url, monkeypatch):
    study, kept = study_at(url), []
    study._storage.close()

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Driver, "connect", interrupted)
        for _ in range(CONNECTIONS):
            with pytest.raises(KeyboardInterrupt) as error:
                study.ask()
            kept.append(error.value)
    assert study.ask().number == 1


@POSTGRES
@pytest.mark.parametrize("encoding", ["UTF8", "latin1", "SQL_ASCII"])
def test_any_text_and_any_number_is_stored_as_it_is(url, encoding):
    """Whatever encoding the URL or the server asks for; a commit has all values in its text."""
    arms = ["größte", "最大", "it's; DROP TABLE cabai_event; --", 'a\\"b', "%s ? $1 {}"]
    name, options = "'s \\' ?", f"?client_encoding={encoding}"
    study = create_study(name, arms=arms, family="gaussian(variance=1)", storage=url + options)
    told = {}
    for reward, cost in ((0.1, 5e-324), (-123456789.1, 1e-7), (1 / 3, 1e308), (5e-324, 2.0), (-0.0, 1 / 7)):
        pull = study.ask(worker=f"'{arms[3]}' ?", request="E'\\x00'")
        study.tell(pull, reward, cost=cost)
        told[pull.id] = (reward, cost, None)
    study.tell(study.ask(), failed="' \\ \n ? %s 最", cost=1.0)
    assert load_study(study.name, storage=url).arms == tuple(arms)
    found = load_study(study.name, storage=url).observations()
    assert {each["pull"]: (each["reward"], each["cost"], each["failed"]) for each in found[:-1]} == told
    assert (found[-1]["failed"], found[0]["worker"]) == ("' \\ \n ? %s 最", f"'{arms[3]}' ?")


# Threads of one process that change a study at once share a transaction; and what a lock that was waited for shows


class Held:
    """A study whose lock is held while threads come to wait for it; then all are let go at once, in any order."""

    def __init__(self, study: Study) -> None:
        self.study, self.called = study, dict[Any, Future[Any]]()

    def __enter__(self) -> Held:
        self.study._current.writer.lock.acquire()
        self.threads = ThreadPoolExecutor(16)
        return self

    def call(self, name: Any, work: Callable[[], Any]) -> None:
        """Have a thread do it, and wait until it waits."""
        self.called[name] = self.threads.submit(work)
        while len(self.study._current.calls) < len(self.called):
            time.sleep(0.001)

    def __exit__(self, *_: Any) -> None:
        self.study._current.writer.lock.release()
        self.threads.shutdown()
        self.results = {name: each.exception() or each.result() for name, each in self.called.items()}


@BOTH
def test_threads_that_wait_share_a_transaction_and_each_has_its_own_result(url: str) -> None:
    study, told = new_study(url), {}
    first = study.ask(6)
    commits: list[Any] = []
    before_commits(study._storage, commits.append)
    with Held(study) as held:
        for i, pull in enumerate(first[:4]):
            held.call(("tell", i), lambda pull=pull: study.tell(pull, float(pull.number), cost=1.0))
            held.call(("ask", i), lambda i=i: study.ask(i + 1, worker=str(i)))
            told[pull.id] = (float(pull.number), 1.0, None)
    assert len(commits) == 1
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
    monkeypatch.setattr(study._storage, "connection", connect)
    started = time.monotonic()
    with Held(study) as held:
        for i, pull in enumerate(first):
            held.call(i, lambda pull=pull: study.tell(pull, 1.0, cost=1.0))
    assert 2.0 <= time.monotonic() - started < 9.0  # one after the other: 10
    assert all(isinstance(result, StorageError) for result in held.results.values())
    assert len(held.results) == 5
    assert tries[0] >= 5  # each has tried


@POSTGRES
@pytest.mark.parametrize("change", ["offered again", "withdrawn", "told the same", "told something else", "deleted"])
def test_a_tell_that_waited_for_the_lock_sees_what_was_done_meanwhile(url: str, change: str) -> None:
    """A tell that waits for the study's lock sees its pull as others have left it."""
    study = new_study(url)
    pull, _ = study.ask(2)
    other, waiting = load_study("study", storage=url), []
    told = {"kind": TELL, "arm": 0, "reward": 1.0 if change == "told the same" else 2.0, "cost": 1.0}
    event = {"offered again": {"kind": OFFER, "worker": "me"}, "withdrawn": {"kind": WITHDRAW}}.get(change, told)

    def work(connection: Any) -> None:
        now, events = connection.lock(study._row.id, 0)
        waiting.append(thread.submit(other.tell, pull, 1.0, cost=1.0))
        time.sleep(0.3)  # it waits for the lock, with a view of the log from before
        assert not waiting[0].done()
        if change == "deleted":
            connection.write(tables.DELETE_STUDY, (study._row.id,))
        else:
            connection.append(study._row.id, [Event(len(events) + 1, time=now, pull=pull.number, **event)])

    with ThreadPoolExecutor(1) as thread:
        study._storage.write(work)
    error = waiting[0].exception()
    if change == "deleted":
        assert "has been deleted" in str(error)
        return
    [seen] = study.observations()
    is_other = change == "told something else"
    assert isinstance(error, AlreadyTold) if is_other else error is None
    assert seen["reward"] == (2.0 if is_other else 1.0)
    assert (seen["offers"], seen["worker"]) == ((2, "me") if change == "offered again" else (1, None))
    assert seen["counted"] == (change != "withdrawn")
    if change.startswith("told"):
        check_log(study, {pull.id: (seen["reward"], 1.0, None)})
