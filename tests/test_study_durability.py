"""What was acknowledged is kept: killed workers, many workers, full disks, lost servers, files of another version."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cabai import NoPull, StudyStopped
from cabai.errors import StorageError, StudyNotFound
from cabai.study import Study, create_study, delete_study, import_study, list_studies, load_study
from cabai.study.log import database, storage
from cabai.study.log import database as clock
from cabai.study.log.postgres import PostgresConnection
from cabai.study.log.storage import open_storage
from cabai.study.show.exporting import exported
from storages import BOTH, POSTGRES, before_commits, close
from workers import (
    Child,
    announce_commits,
    check_log,
    check_replay,
    join,
    killed,
    new_study,
    token,
    told_in,
    under_way,
    work_on,
)

LEASE = 0.1
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::cabai.WideRewards"),
    pytest.mark.filterwarnings("ignore::cabai.FailedPulls"),
]


def finish(study: Study) -> None:
    """Tell that the left arm is the best by far until the study stops; first of what nobody has told."""
    for pull in under_way(study):
        study.tell(f"{token(study)}-{pull.number}", 50.0 if pull.arm == 0 else 0.0, cost=1.0)
    study.run(lambda arm: (50.0 if arm == "left" else 0.0, 1.0))
    assert study.decision == "left"


@BOTH
@pytest.mark.parametrize("kills", [16, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_worker_killed_many_times_loses_nothing(url: str, kills: int) -> None:
    """Half of the kills come at any time, half within a few milliseconds of a commit's beginning."""
    policy = "co" if url.startswith("postgresql") else "top-two"
    study, chance = new_study(url, lease=LEASE, policy=policy), random.Random(1)
    study.tell(study.ask(), 0.0, cost=1.0)  # the children inherit what this has made ready, and start at once

    def work(seed: int, report: Any) -> None:
        announce_commits(open_storage(url), report)
        work_on(url, "study", seed, 10**9, report)

    reports, last = [], Counter[str]()
    for i in range(kills):
        child = Child(partial(work, i))
        if i % 2:
            seen = killed(child, chance.uniform(0, 0.06))
        else:
            seen = killed(child, 0.004 * chance.random() ** 4, at_commit=chance.randint(1, 8))
        reports += seen
        last[seen[-1][0] if seen else "nothing"] += 1
    told = told_in(reports)
    assert len(told) > kills * 30 / 200
    assert last["committing"] > kills * 5 / 200, last  # died after a commit had begun and before it was acknowledged
    check_log(study, told)
    logged = len(study.observations())
    assert len(told) + 1 <= logged <= len(told) + kills + 1  # the last tell of each may be written and not acknowledged

    left_behind = study.status().under_way
    time.sleep(LEASE)
    again = study.ask(left_behind) if left_behind else []
    assert all(pull.offers > 1 for pull in again)  # the leases ran out
    for pull in again:
        study.tell(pull, 0.0, cost=1.0)
    check_log(study, told)
    finish(study)
    assert study.status().under_way == 0
    check_log(study, told)
    check_replay(study)


@BOTH
def test_killed_while_it_makes_the_tables(url: str) -> None:
    def work(report: Any) -> None:
        report("opening")
        open_storage(url)
        report("opened")
        time.sleep(10)

    chance, opened = random.Random(2), 0
    while opened < 4:  # the tables are there
        child = Child(work)
        child.next()
        opened += killed(child, chance.uniform(0, 0.1)) == [["opened"]]
    finish(new_study(url))


@BOTH
@pytest.mark.parametrize("pulls", [25, pytest.param(1250, marks=pytest.mark.slow)])
def test_threads_of_several_processes_on_one_study(quick_url: str, pulls: int) -> None:
    """Each result is there once, and nobody is told what is not."""
    study = new_study(quick_url)

    def work(process: int, report: Any) -> None:
        with ThreadPoolExecutor(4) as threads:
            told = [threads.submit(work_on, quick_url, "study", 4 * process + i, pulls, report) for i in range(4)]
            assert not any(each.result() for each in told)

    children = [Child(partial(work, process)) for process in range(4)]
    with ThreadPoolExecutor(4) as readers:  # a pipe that nobody reads fills up
        reports = [words for each in readers.map(lambda child: join([child]), children) for words in each]
    told = told_in(reports)
    assert len(told) == len(study.observations()) == 16 * pulls
    check_log(study, told)
    assert study.status().under_way == 0


@pytest.fixture
def quick_url(url: str) -> Iterator[str]:
    """As `url`, but SQLite's file in memory where there is such a folder: what is shared matters here, not the disk."""
    if url.startswith("postgresql") or not os.path.isdir("/dev/shm"):
        yield url
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        yield f"sqlite:///{place}/cabai.db"
        close(place)


@BOTH
def test_several_processes_make_the_same_storage_at_once(url: str) -> None:
    start = time.time() + 0.1

    def work(report: Any) -> None:
        time.sleep(max(0.0, start - time.time()))
        study = new_study(url, load_if_exists=True)
        study.tell(study.ask(), 0.0, cost=1.0)
        report("done")

    assert len(join([Child(work) for _ in range(4)])) == 4
    assert len(load_study("study", storage=url).observations()) == 4


@pytest.mark.parametrize("url", ["memory", "sqlite:///cabai.db"])
def test_a_storage_that_is_open_is_opened_again_without_a_second_one(url, folder, monkeypatch):
    """And an empty file becomes one."""
    monkeypatch.chdir(folder)
    (folder / "cabai.db").touch()
    opened = open_storage(url)
    monkeypatch.setattr(storage, "storage_at", lambda _: pytest.fail("a second storage"))
    others = {"memory": "sqlite://", "sqlite:///cabai.db": f"sqlite:///{folder}/cabai.db"}
    for same in (url, others[url]):
        assert open_storage(same) is open_storage(same, make=False) is opened
    monkeypatch.undo()
    with pytest.raises(StorageError, match=r"nowhere/cabai.db failed: there is no folder .*nowhere\."):
        new_study(f"sqlite:///{folder}/nowhere/cabai.db")


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_file_or_folder_is_refused(what: str) -> None:
    """As a user whom permissions bind, which they do not bind root."""
    with tempfile.TemporaryDirectory() as name:
        place, url = Path(name), f"sqlite:///{name}/cabai.db"
        study = new_study(url)
        study.tell(study.ask(), 1.0, cost=1.0)
        close(name)
        place.joinpath("cabai.db").chmod(0o444 if what == "file" else 0o666)
        place.chmod(0o777 if what == "file" else 0o555)

        def work(report: Any) -> None:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            try:
                loaded = load_study("study", storage=url)
                loaded.tell(loaded.ask(), 1.0, cost=1.0)
            except StorageError as error:
                report("refused", str(error))

        [[_, said]] = join([Child(work)])
        place.chmod(0o755)
        assert "readonly database" in said or "unable to open" in said
        assert len(load_study("study", storage=url).observations()) == 1
        close(name)


@pytest.mark.parametrize("how", ["the file may not grow", "the disk is full"])
def test_a_full_disk_is_said_and_what_fits_again_is_told(folder: Path, how: str) -> None:
    """Tell until two calls were refused, since something small may fit in between; then make room and tell again."""
    place, is_full = folder / "small", how == "the disk is full"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", place]
    if is_full and subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    url, ballast, most = f"sqlite:///{place}/cabai.db", place / "ballast", resource.RLIM_INFINITY

    def work(report: Any) -> None:
        study, pull, refused, told = new_study(url), None, 0, 0
        study.tell(study.ask(), 0.0, cost=1.0)
        if is_full:
            ballast.write_bytes(b"x" * (shutil.disk_usage(place).free - 400_000))
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(place / "cabai.db-wal") + 400_000, most))
        while refused < 3:
            try:
                pull = pull or study.ask()
                study.tell(pull, float(told % 2), cost=1.0)
                report("told", pull.id, float(told % 2), 1.0, None)
                pull, told, refused = None, told + 1, refused + (refused == 2)
            except StorageError as error:
                report("full", str(error))
                refused += 1
                if refused == 2 and is_full:
                    ballast.unlink()
                elif refused == 2:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    try:
        reports = join([Child(work)])
        full = [words[1] for words in reports if words[0] == "full"]
        assert len(full) == 2
        assert "disk" in full[0]
        assert "Everything acknowledged before is stored; this call was not acknowledged." in full[0]
        told = told_in(reports)
        assert len(told) > 5
        study = load_study("study", storage=url)
        check_log(study, told)
        finish(study)
    finally:
        close(str(place))
        if is_full:
            subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_deleted_or_replaced_while_in_use_is_noticed(folder: Path, how: str) -> None:
    url, file = f"sqlite:///{folder}/cabai.db", folder / "cabai.db"
    study = new_study(url)
    study.tell(study.ask(), 1.0, cost=1.0)
    close(str(folder))
    shutil.copy(file, folder / "backup.db")
    study = load_study("study", storage=url)
    pull = study.ask()
    if how == "deleted":
        file.unlink()
    else:
        os.replace(folder / "backup.db", file)
    for call in (lambda: study.tell(pull, 1.0, cost=1.0), study.ask, study.status):
        with pytest.raises(StorageError, match="deleted or replaced while it was in use"):
            call()
    assert file.exists() == (how == "replaced")
    again = new_study(url, load_if_exists=True)
    assert len(again.observations()) == (how == "replaced")
    finish(again)


def test_a_relative_name_is_the_same_file_after_a_change_of_directory(folder, monkeypatch) -> None:
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder)
    study = new_study("sqlite:///cabai.db")
    monkeypatch.chdir(folder / "elsewhere")
    with pytest.raises(StudyNotFound):
        load_study("study", storage="sqlite:///cabai.db")
    study._storage.close()  # so that it connects again, here
    finish(study)
    assert list(folder.glob("**/cabai.db")) == [folder / "cabai.db"]
    assert load_study("study", storage=f"sqlite:///{folder}/cabai.db").decision == "left"


@POSTGRES
def test_a_server_that_stops_and_comes_back(url: str, postgres: Any) -> None:
    study, told = new_study(url), {}
    for _ in range(10):
        pull = study.ask()
        study.tell(pull, 1.0, cost=1.0)
        told[pull.id] = (1.0, 1.0, None)
    pull = study.ask()
    postgres.stop(at_once=True)
    try:
        started = time.monotonic()
        with pytest.raises(StorageError, match="Everything acknowledged before is stored; this call was not ack"):
            study.tell(pull, 2.0, cost=1.0)
        with pytest.raises(StorageError):
            study.status()
        assert time.monotonic() - started < 20
    finally:
        postgres.start()
    study.tell(pull, 2.0, cost=1.0)
    check_log(study, told | {pull.id: (2.0, 1.0, None)})
    finish(study)
    check_replay(study)


@pytest.mark.slow
@POSTGRES
def test_a_server_that_crashes_under_eight_processes(url: str, postgres: Any) -> None:
    """Each worker tries again until its pull is told; the server crashes three times."""
    study = new_study(url)

    def work(seed: int, report: Any) -> None:
        def insist(call: Any) -> Any:
            while True:
                try:
                    return call()
                except StorageError:
                    time.sleep(0.02)

        chance = random.Random(seed)
        mine = insist(lambda: load_study("study", storage=url))
        for _ in range(40):
            pull, reward = insist(mine.ask), chance.gauss()
            insist(lambda: mine.tell(pull, reward, cost=1.0))  # noqa: B023
            report("told", pull.id, reward, 1.0, None)

    children = [Child(partial(work, seed)) for seed in range(8)]
    for _ in range(3):
        time.sleep(0.2)
        postgres.stop(at_once=True)
        postgres.start()
    told = told_in(join(children))
    assert len(told) == len(study.observations()) == 8 * 40
    check_log(study, told)


@POSTGRES
def test_a_connection_that_is_ended_is_not_noticed(url: str, postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first call, before each statement of asking and telling, and at the commit, both before and after the
    server has done it: the call is made once more, and counts once."""
    study, told, sent, end_at = new_study(url), {}, 0, -1

    def is_the_end() -> bool:
        nonlocal sent
        sent += 1
        if sent == end_at:
            postgres.end_connections()
        return sent == end_at

    def sent_later(send: Any) -> Any:
        return lambda *arguments: (is_the_end(), send(*arguments))[1]

    def before_commit(connection: Any) -> None:
        is_the_end()
        if sent + 1 == end_at:
            connection.commit()  # done, but nobody will hear of it
        if is_the_end():
            ping(connection, "SELECT 1")

    def ask_and_tell(reward: float) -> int:
        """How many places it has at which the connection may end."""
        nonlocal sent
        sent = 0
        pull = study.ask()
        study.tell(pull, reward, cost=1.0)
        told[pull.id] = (reward, 1.0, None)
        return sent

    ping = PostgresConnection.fetch
    for name in ("lock", "fetch"):
        monkeypatch.setattr(PostgresConnection, name, sent_later(getattr(PostgresConnection, name)))
    before_commits(study._storage, before_commit)
    ask_and_tell(0.0)
    places = ask_and_tell(0.0)
    assert places == 2 * 3  # asking and telling: what is read, and both sides of the commit, with what is written
    for end_at in range(1, places + 1):
        assert ask_and_tell(float(end_at % 2)) > places  # some were made twice
    end_at = -1
    postgres.end_connections()
    status = study.status()
    assert status.pulls + status.waiting == len(told) == len(study.observations())
    assert status.under_way == 0  # what was done is not done again
    check_log(study, told)


@POSTGRES
def test_what_is_created_imported_or_deleted_as_the_connection_breaks_is_so_once(url, postgres, folder) -> None:
    """The server has done it, but nobody hears of it."""
    study, broken = new_study(url), [True]
    (folder / "study.jsonl").write_bytes(exported(study, "jsonl"))

    def break_once(connection: Any) -> None:
        if not broken[0]:
            connection.commit()
            broken[0] = True
            postgres.end_connections()
            connection.fetch("SELECT 1")

    before_commits(study._storage, break_once)
    for change in (
        lambda: create_study("new", arms=["a", "b"], family="bernoulli", storage=url),
        lambda: import_study(folder / "study.jsonl", name="imported", storage=url),
        lambda: delete_study("study", storage=url),
    ):
        broken[0] = False
        change()
        assert broken[0]
    assert list_studies(storage=url) == ["new", "imported"]


@POSTGRES
def test_a_process_that_hangs_in_a_transaction_does_not_hold_up_the_others(url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.5)
    study = new_study(url)
    pull = study.ask()

    def work(report: Any) -> None:
        mine = load_study("study", storage=url)
        pull, hung = mine.ask(), [False]

        def hang(_: Any) -> None:
            if not hung[0]:
                hung[0] = True
                report("hanging")
                os.kill(os.getpid(), signal.SIGSTOP)

        before_commits(mine._storage, hang)
        mine.tell(pull, 1.0, cost=1.0)
        report("told", pull.id, 1.0, 1.0, None)

    child = Child(work)
    assert child.next() == ["hanging"]
    for _ in range(20):  # until the server gives up on the other
        with suppress(StorageError):
            study.tell(pull, 2.0, cost=1.0)
            break
    child.signal(signal.SIGCONT)
    check_log(study, told_in(join([child])) | {pull.id: (2.0, 1.0, None)})
    assert len(study.observations()) == 2


@POSTGRES
def test_a_child_that_survives_its_killed_parent_holds_no_lock(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent is killed in the middle of a transaction; its child has inherited the connection, and lives on."""
    monkeypatch.setattr(database, "PATIENCE", 20.0)
    study = new_study(url)
    pull = study.ask()

    def work(report: Any) -> None:
        mine = load_study("study", storage=url)
        other = mine.ask()

        def fork(_: Any) -> None:
            grandchild = os.fork()
            if not grandchild:
                time.sleep(60)
                os._exit(0)
            report("forked", grandchild)
            time.sleep(60)

        before_commits(mine._storage, fork)
        mine.tell(other, 1.0, cost=1.0)

    child = Child(work)
    _, grandchild = child.next()
    try:
        child.signal(signal.SIGKILL)
        study.tell(pull, 2.0, cost=1.0)
        os.kill(grandchild, 0)  # it lives
    finally:
        os.kill(grandchild, signal.SIGKILL)
    assert child.end() == -signal.SIGKILL
    check_log(study, {pull.id: (2.0, 1.0, None)})
    assert len(study.observations()) == 1


def test_sqlite_waits_for_the_disk(folder: Path) -> None:
    opened = open_storage(f"sqlite:///{folder}/cabai.db")
    for fetch in (opened.fetch, lambda text: opened.write(lambda connection: connection.fetch(text))):
        settings = [fetch(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous", "foreign_keys")]
        assert settings == ["wal", 2, 1]


@POSTGRES
def test_postgres_waits_for_the_disk_whatever_its_default(url: str, postgres: Any) -> None:
    postgres.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = off")
    assert open_storage(url).write(lambda connection: connection.fetch("SHOW synchronous_commit")) == [("on",)]


def test_a_forked_child_goes_on_after_its_parent_has_closed_the_file(folder: Path) -> None:
    """SQLite puts its log away when the last process that has the file open closes it: the child must count as one."""
    study = new_study(f"sqlite:///{folder}/cabai.db")
    reader, writer = os.pipe()

    def told(times: int) -> None:
        for _ in range(times):
            study.tell(study.ask(), 0.0, cost=1.0)

    def work(report: Any) -> None:
        told(1)
        report("open")
        os.read(reader, 1)
        told(5)

    told(1)
    child = Child(work)
    assert child.next() == ["open"]
    told(1)
    close(str(folder))
    os.write(writer, b"x")
    join([child])
    os.close(reader)
    os.close(writer)
    with closing(sqlite3.connect(folder / "cabai.db")) as connection:
        assert connection.execute("SELECT count(*) FROM cabai_event WHERE kind = 'tell'").fetchone() == (8,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@BOTH
def test_a_fork_waits_for_the_transactions_of_other_threads_and_is_not_kept_waiting(quick_url: str) -> None:
    study, over, started = new_study(quick_url), threading.Event(), time.monotonic()

    def repeat(work: Any) -> None:
        while not over.is_set():
            work()

    with ThreadPoolExecutor(5) as threads:
        calls = [lambda: study.tell(study.ask(), 0.0, cost=1.0)] * 2 + [study.observations] * 3
        repeated = [threads.submit(repeat, work) for work in calls]
        try:
            for _ in range(5):
                join([Child(lambda _: study.tell(study.ask(), 0.0, cost=7.0))])
        finally:
            over.set()
    assert not any(each.result() for each in repeated)
    assert time.monotonic() - started < 60  # with three readers that take turns it was never
    check_log(study, {})
    assert [told["cost"] for told in study.observations()].count(7.0) == 5


@POSTGRES
def test_a_servers_default_isolation_does_not_matter(url: str, postgres: Any) -> None:
    """Under "repeatable read" who waits for a study's lock would be refused what the other has changed."""
    postgres.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_isolation = 'repeatable read'")
    study = new_study(url)

    def ask_and_tell(_: int) -> None:
        for _ in range(5):
            study.tell(study.ask(), 0.0, cost=1.0)  # all alike, so that nothing is decided

    with ThreadPoolExecutor(6) as executor:
        list(executor.map(ask_and_tell, range(6)))
    assert study.status().pulls == 30


@POSTGRES
def test_a_server_without_a_connection_left_is_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    study, other = new_study(url), load_study("study", storage=url)  # calls of one study wait for each other
    pull = study.ask()
    close(url)
    with ThreadPoolExecutor(1) as executor, ExitStack() as stack:
        with suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(psycopg.connect(url))
        told = executor.submit(study.tell, pull, 1.0, cost=1.0)
        time.sleep(0.3)
        assert not told.done()
        monkeypatch.setattr("cabai.study.log.database.PATIENCE", 0.2)
        with pytest.raises(StorageError, match=r"had no free connection for 0\.2 seconds: run fewer processes"):
            other.ask()
        stack.close()
        told.result(10)
    assert study.status().pulls == 1
    study._storage.close()  # its storage was closed, and it has connected again


# Many workers on one study: killed, with clocks that are wrong, on a budget


@POSTGRES
def test_clocks_an_hour_apart_make_no_difference(url: str) -> None:
    """Leases are by the server's clock: no pull is offered twice, though workers' clocks run ahead and behind."""
    study = new_study(url, lease=60, max_pulls=100)

    def work(ahead: float, report: Any) -> None:
        clock.now = lambda: time.time() + ahead  # type: ignore[assignment]
        time.time = lambda real=time.time: real() + ahead  # type: ignore[assignment]
        work_on(url, "study", int(ahead) % 1000, 10**9, report)

    children = [Child(partial(work, ahead)) for ahead in (0.0, 3600.0, -3600.0, 86400.0)]
    told = told_in(join(children))
    assert len(told) == len(study.observations()) == 100
    assert {each["offers"] for each in study.observations()} == {1}
    now = time.time()
    assert all(abs(each["told"] - now) < 600 and each["asked"] <= each["told"] for each in study.observations())
    check_log(study, told)


@BOTH
@pytest.mark.parametrize("known", [True, False])
def test_a_budget_holds_with_many_workers(url: str, known: bool) -> None:
    """Six processes, each with several pulls under way. With known costs the bill is never more than the budget; with
    costs that are learned, by no more than what pulls under way cost beyond what was reserved for them, here 0.5."""
    budget, costs = 40.0, {"left": 1.0, "middle": 0.5, "right": 0.25}
    study = new_study(url, max_cost=budget, costs=costs if known else None, policy="co", delta=1e-12)

    def work(seed: int, report: Any) -> None:
        mine, chance, held = load_study("study", storage=url), random.Random(seed), []
        while True:
            try:
                held += mine.ask(3)
            except StudyStopped:
                return
            except NoPull:
                time.sleep(0 if held else 0.005)
            while held and chance.random() < 0.7:
                pull = held.pop(chance.randrange(len(held)))
                cost, reward = costs[pull.arm] * (1.0 if known else chance.uniform(0.5, 1.0)), chance.gauss()
                mine.tell(pull, reward, None if known else cost)
                report("told", pull.id, reward, cost, None)

    told = told_in(join([Child(partial(work, seed)) for seed in range(6)]))
    status = study.status()
    assert (status.reason, status.under_way) == ("max_cost", 0)
    assert budget - 1.0 < status.spent <= budget if known else budget * 0.8 < status.spent <= budget + 0.5 * 18
    assert status.spent == pytest.approx(sum(cost for _, cost, _ in told.values()))
    check_log(study, told)


@BOTH
def test_a_call_that_changes_several_things_is_there_whole_or_not_at_all_when_its_caller_is_killed(url: str) -> None:
    """Sums of a period, for two arms, and an amendment of two settings after each; killed three times."""
    options = {"arms": ["a", "b"], "family": "bernoulli", "delta": 1e-9}
    study = create_study("sums", **options, max_pulls=10**6, storage=url)

    def work(report: Any) -> None:
        mine = load_study("sums", storage=url)
        announce_commits(mine._storage, report)
        for hour in range(mine.status().pulls // 20, 1000):
            mine.tell_counts({"a": (10, 5, 1.0), "b": (10, 5, 2.0)}, period=str(hour))
            report("told", hour)
            mine.amend(max_pulls=10**6 + hour, max_cost=10.0**6 + hour)
            report("amended", hour)

    acknowledged = []
    for attempt in range(3):
        acknowledged += killed(Child(work), 0.002 * attempt, at_commit=6)
    hours = [row["period"] for row in study.observations() if row["arm"] == "a"]
    assert hours == [row["period"] for row in study.observations() if row["arm"] == "b"]
    assert hours == [str(hour) for hour in range(len(hours))]
    assert {str(words[1]) for words in acknowledged if words[0] == "told"} <= set(hours)
    status = study.status()
    assert (status.pulls, status.spent) == (20 * len(hours), pytest.approx(3.0 * len(hours)))
    amended = [each["changes"]["max_cost"][1] - 10**6 for each in study.amendments()]
    assert {words[1] for words in acknowledged if words[0] == "amended"} <= set(amended)
