"""One study and its workers: how often they can ask and tell, against the bare database doing the same writes.

`bare` is the database's driver alone, with the same durability: two transactions, each on disk before the next begins,
that add the same events to the same tables, one for an ask and one for a tell, and read nothing, choose nothing and
keep no snapshots. On PostgreSQL each locks the study's row first, as a study does. Study and bare take turns within one
run, so a ratio holds even if a rate depends on who else uses the machine. Goals stand next to the figures. All of it
takes about ten minutes on two quiet cores.

1. One worker on SQLite, by the number of arms, the policy and the length of the log. Means over turns of one ask and
   one tell each, the slowest tenth left out. `ms` is CPU time only. The worker has run long enough to use compiled
   code: every study is warmed up before anything is measured. In each turn, studies and bare come in another order: a
   job is slower after another kind of work, whatever the length of its log.
2. Many processes on one SQLite file, each as fast as it can: is every process served? A wait is for one ask and one
   tell together. Bare tries for the write lock as often as a study does: SQLite's own waiting serves some last.
3. 1 to 256 workers on PostgreSQL, 3 arms: threads of up to 4 processes, with up to 8 connections each, as a study has;
   bare has the same threads, processes and connections, and makes every call a separate transaction. Threads that wait
   for a study share one; so there are also 8 workers in 8 processes, where nothing is shared. Workers have compiled
   code, as after a while. The server is the tests' own, which does not wait for the disk.
4. One worker on SQLite, by the test: the default of the family over the test of pairs, `contrast` or `bets` (goal: at
   most 1.1), and over `evalue` (1.2). Tied arms, so that nothing is decided. `plain` is a worker in its first second,
   which has compiled nothing yet.
5. A study is loaded with its state, by the length of its log: from its snapshot, and from the first event on. CPU time
   of one call, the median of several.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import random
import re
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from cabai.study import create_study, load_study
from cabai.study.log import storage
from cabai.study.log.sqlite import PAUSE
from cabai.study.stored import StoredStudy as Study
from cabai.support.tables import table

SIZES, ARMS, POLICIES = (10**2, 10**4, 10**6), (3, 100), ("top-two", "co", "ctas")
GOALS = {3: 0.6, 100: 0.5}  # of bare, by the number of arms
WORKERS, CONNECTIONS = ((1, 1), (8, 8), (8, 4), (64, 4), (256, 4)), 8  # workers and their processes; of a process
LOG = """
INSERT INTO cabai_event (study, place, kind, time, pull, arm, reward, cost)
WITH RECURSIVE counted(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counted WHERE i < 2 * :size)
SELECT :study, i, CASE i % 2 WHEN 1 THEN 'ask' ELSE 'tell' END, 1.0, (i + 1) / 2, ((i + 1) / 2 - 1) % :arms,
       CASE i % 2 WHEN 0 THEN (i / 2 % 1009 * 7919 % 1009) / 1009.0 END,
       CASE i % 2 WHEN 0 THEN 1.0 + i / 2 % 7 / 10.0 END
FROM counted
"""
LOCK = "SELECT id FROM cabai_study WHERE id = :study FOR UPDATE"
BARE = (
    "INSERT INTO cabai_event (study, place, kind, time, pull, arm, item, reward, cost, worker, request, words) "
    "VALUES (:study, :place, :kind, :time, :pull, 0, NULL, :reward, :cost, NULL, NULL, NULL)"
)


def bare_events(study: int, i: int) -> list[dict[str, Any]]:
    """The events of asking for a pull, and of telling it."""
    event = {"study": study, "time": 1.8e9 + i / 3, "pull": i, "reward": None, "cost": None}
    return [
        event | {"place": 2 * i - 1, "kind": "ask"},
        event | {"place": 2 * i, "kind": "tell", "reward": i / 3, "cost": 1.3},
    ]


def filled(url: str, size: int, arms: int, policy: str) -> Study:
    """A study with a log of `size` results, all arms alike."""
    names = [f"arm {a}" for a in range(arms)]
    study = create_study("study", arms=names, family="gaussian(variance=1)", policy=policy, delta=1e-9, storage=url)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(LOG, {"study": study._row.id, "size": size, "arms": arms})
    return study


def ask_and_tell(study: Study) -> None:
    pull = study.ask()
    study.tell(pull, (pull.number * 7919 % 1009) / 1009.0, cost=1.3)


def bare_sqlite(file: Path, arms: int) -> Callable[[], None]:
    """A job: the same rows in the same tables with `sqlite3` alone, in a separate file."""
    study = filled(f"sqlite:///{file}", 100, arms, "co")._row.id
    storage._opened.pop(str(file)).close()
    connection = sqlite3.connect(file, isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    numbers = iter(range(1000, 2**62))

    def job() -> None:
        for values in bare_events(study, next(numbers)):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(BARE, values)
            connection.execute("COMMIT")

    return job


def measure(jobs: list[Callable[[], None]], rounds: int) -> tuple[list[float], list[float]]:
    """How often per second each job can be done, and its CPU milliseconds: means, without the slowest tenth."""
    wall, cpu = np.zeros((rounds, len(jobs))), np.zeros((rounds, len(jobs)))
    orders = np.random.default_rng(0)
    for turn in range(rounds):
        for i in orders.permutation(len(jobs)):
            started, used = time.perf_counter(), time.process_time()
            jobs[i]()
            wall[turn, i], cpu[turn, i] = time.perf_counter() - started, time.process_time() - used
    fastest = rounds - rounds // 10
    return (
        list(1 / np.sort(wall, axis=0)[:fastest].mean(axis=0)),
        list(1000 * np.sort(cpu, axis=0)[:fastest].mean(axis=0)),
    )


def one_worker(place: Path, *, quick: bool) -> None:
    sizes = [f"10^{len(str(size)) - 1}" for size in SIZES]
    rows = [
        [
            "arms",
            "policy",
            *sizes,
            "bare",
            *(f"{size} / bare" for size in sizes),
            "goal",
            "10^6 / 10^2",
            "ms",
            "bare ms",
        ]
    ]
    for arms in ARMS:
        for policy in POLICIES:
            studies = [filled(f"sqlite:///{place}/{arms}-{policy}-{size}.db", size, arms, policy) for size in SIZES]
            for study in studies:
                warm_up(study)
            jobs = [lambda study=study: ask_and_tell(study) for study in studies]
            jobs.append(bare_sqlite(place / f"bare-{arms}-{policy}.db", arms))
            rates, cpu = measure(jobs, 100 if quick else 400)
            row = [str(arms), policy, *(f"{rate:.0f}" for rate in rates)]
            row += [f"{rate / rates[-1]:.2f}" for rate in rates[:-1]]
            row.append(f"{GOALS[arms]}")
            rows.append([*row, f"{rates[2] / rates[0]:.2f}", f"{cpu[2]:.2f}", f"{cpu[3]:.2f}"])
            for file in place.glob(f"*{arms}-{policy}*"):
                storage._opened.pop(str(file), None)
                file.unlink()
    print("One worker on SQLite: ask and tell, times per second, by the number of observations stored; compiled before")
    print(table(rows), flush=True)


def warm_up(study: Study) -> None:
    """Bring the worker to the state that it reaches after a while: it uses compiled code."""
    study.settings.kernels.compile()
    for _ in range(20):
        ask_and_tell(study)


def opening(place: Path, *, quick: bool) -> None:
    rows = [["arms", "results", "by its snapshot, ms", "goal", "without one, ms", "goal"]]
    for arms in ARMS:
        for size in SIZES[: 2 if quick else 3]:
            file = place / f"open-{arms}-{size}.db"
            study = filled(f"sqlite:///{file}", size, arms, "top-two")
            study.settings.kernels.compile()  # as in a process that has run for a while
            for _ in range(40):
                ask_and_tell(study)
            cells = []
            for times, prepare in ((9, ""), (1, "DELETE FROM cabai_snapshot")):
                with closing(sqlite3.connect(file)) as connection, connection:
                    connection.execute(prepare or "SELECT 1")
                used = [cpu_of(lambda file=file: load(f"sqlite:///{file}")) for _ in range(times)]
                cells.append(f"{1000 * float(np.median(used)):.1f}")
            rows.append([str(arms), f"10^{len(str(size)) - 1}", cells[0], "5", cells[1], "15000"])
            storage._opened.pop(str(file)).close()
            file.unlink()
    print("\nLoading a study and its state")
    print(table(rows), flush=True)


def load(url: str) -> None:
    load_study("study", storage=url)._current.look(lambda _: None)


def cpu_of(job: Callable[[], Any]) -> float:
    started = time.process_time()
    job()
    return time.process_time() - started


def by_test(place: Path, *, quick: bool) -> None:
    rows = [
        ["family", "policy", "arms", "plain", "over evalue", "compiled", "over evalue", "plain, ms", "compiled, ms"]
    ]
    for family, policy, arms in (
        (family, policy, arms)
        for family in ("gaussian(variance=0.1)", "bernoulli", "bounded")
        for policy in POLICIES[:2]
        for arms in (2, 3, 10)
        if arms > 2 or family.startswith("gaussian")
    ):
        cells, milliseconds = [], []
        for is_compiled in (False, True):
            jobs = []
            for threshold in (None, "bets" if family == "bounded" else "contrast", "evalue"):
                study = create_study(
                    f"{family} {policy} {arms} {threshold}", arms=[f"arm {a}" for a in range(arms)],
                    family=family, policy=policy, threshold=threshold, delta=0.05, load_if_exists=True,
                    storage=f"sqlite:///{place}/tests.db",
                )  # fmt: skip
                study.settings.kernels.compiler = os.getpid()  # compile when told to, not before
                study.settings.kernels.compiled = {}  # not what other studies have compiled
                if is_compiled:
                    study.settings.kernels.compile()
                for _ in range(20):
                    tell_something(study)
                jobs.append(lambda study=study: tell_something(study))
            new, pairs, evalue = measure(jobs, 200 if quick else 600)[1]
            cells += [f"{new / pairs:.2f}", f"{new / evalue:.2f}"]
            milliseconds.append(f"{new:.2f}")
        rows.append([family, policy, str(arms), *cells, *milliseconds])
    print("\nOne worker on SQLite: CPU time of ask and tell under the default test over that under the test of pairs")
    print("(goal: 1.1), and over that under evalue (1.2)")
    print(table(rows, left=2), flush=True)


def tell_something(study: Study) -> None:
    """Rewards of tied arms: 0 or 1 for bernoulli, about 0.5 for others."""
    pull = study.ask()
    reward = (pull.number * 7919 % 1009) / 1009.0
    study.tell(pull, float(reward > 0.5) if study.settings.family.name == "bernoulli" else reward, cost=1.3)


def many_processes(place: Path, *, quick: bool) -> None:
    turns, seconds, processes = 2, 5.0 if quick else 15.0, 30
    files = place / "shared.db", place / "shared-bare.db"
    for file in files:
        study = create_study(
            "shared", arms=["a", "b", "c"], family="gaussian(variance=1)", delta=1e-9, storage=f"sqlite:///{file}"
        )
        study.settings.kernels.compile()  # the processes inherit it
    found: tuple[list[Any], list[Any]] = [], []
    for _ in range(turns):
        found[0].extend(in_processes(processes, serve, f"sqlite:///{files[0]}", 1, seconds))
        found[1].extend(in_processes(processes, serve_bare_sqlite, files[1], seconds, study._row.id))
    print(f"\n{processes} processes on one SQLite file, for {turns} times {seconds:g} s")
    rows = [["", "tells per second", "of one: least", "most", "longest wait, s", "goal"]]
    for name, goal, each in (("study", "3", found[0]), ("bare", "", found[1])):
        counts = [count for count, _ in each]
        row = [name, f"{sum(counts) / (turns * seconds):.0f}", f"{min(counts)}", f"{max(counts)}"]
        rows.append([*row, f"{max(wait for _, wait in each):.2f}", goal])
    print(table(rows), flush=True)


def serve_bare_sqlite(begin: Callable[[], Any], file: Path, seconds: float, study: int) -> list[Any]:
    connection = sqlite3.connect(file, isolation_level=None, timeout=0, check_same_thread=False)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    numbers, chance = iter(range(10**6 + os.getpid() * 10**6, 2**62)), random.Random(os.getpid())

    def begun() -> bool:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return True
        except sqlite3.OperationalError:
            return False

    def job() -> None:
        for values in bare_events(study, next(numbers)):
            while not begun():
                time.sleep(chance.uniform(*PAUSE))
            connection.execute(BARE, values)
            connection.execute("COMMIT")

    return in_threads(1, seconds, begin, job)


def in_processes(processes: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What each of several processes returns; all start together."""
    context = multiprocessing.get_context("fork")
    begin, results = context.Barrier(processes), context.SimpleQueue()

    def child() -> None:
        results.put(work(begin.wait, *arguments))

    children = [context.Process(target=child) for _ in range(processes)]
    for each in children:
        each.start()
    found = [results.get() for _ in children]
    for each in children:
        each.join()
    return [pair for each in found for pair in each]


def in_threads(threads: int, seconds: float, begin: Callable[[], Any], job: Callable[[], None]) -> list[Any]:
    """How often each thread did a job within some seconds, and the longest time that one took."""
    found: list[tuple[int, float]] = []
    ready = threading.Barrier(threads + 1)

    def work() -> None:
        count, longest = 0, 0.0
        ready.wait()
        end = time.perf_counter() + seconds
        while (started := time.perf_counter()) < end:
            job()
            longest = max(longest, time.perf_counter() - started)
            count += 1
        found.append((count, longest))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for each in workers:
        each.start()
    begin()
    ready.wait()
    for each in workers:
        each.join()
    return found


def serve(begin: Callable[[], Any], url: str, threads: int, seconds: float) -> list[Any]:
    study = load_study("shared", storage=url)
    study.settings.kernels.compile()
    ask_and_tell(study)
    return in_threads(threads, seconds, begin, lambda: ask_and_tell(study))


def serve_bare(begin: Callable[[], Any], url: str, threads: int, seconds: float, study: int) -> list[Any]:
    connections: queue.Queue[Any] = queue.Queue()
    for _ in range(min(threads, CONNECTIONS)):
        connections.put(psycopg.connect(url))
    lock, add = (re.sub(r":(\w+)", r"%(\1)s", each) for each in (LOCK, BARE))
    numbers = iter(range(10**6 + multiprocessing.current_process().pid * 10**6, 2**62))

    def job() -> None:
        for values in bare_events(study, next(numbers)):
            connection = connections.get()
            connection.execute(lock, {"study": study})
            connection.execute(add, values)
            connection.commit()
            connections.put(connection)

    return in_threads(threads, seconds, begin, job)


def postgres(*, quick: bool) -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from servers import Postgres

    turns, seconds = (2, 1.5) if quick else (4, 3.0)
    rows = [["workers", "processes", "tells per second", "bare", "study / bare", "goal", "longest wait, s", "bare's"]]
    with closing(Postgres()) as server:
        for workers, processes in WORKERS:
            threads, found = workers // processes, ([], [])
            url, bare_url = server.new_database(), server.new_database()
            for each in (url, bare_url):
                study = create_study(
                    "shared", arms=["a", "b", "c"], family="gaussian(variance=1)", delta=1e-9, storage=each
                )
                warm_up(study)  # the processes inherit what is compiled
            for each in (url, bare_url):
                storage._opened.pop(each).close()
            for _ in range(turns):
                found[0].extend(in_processes(processes, serve, url, threads, seconds))
                found[1].extend(in_processes(processes, serve_bare, bare_url, threads, seconds, study._row.id))
            rates = [sum(count for count, _ in each) / (turns * seconds) for each in found]
            waits = [max(wait for _, wait in each) for each in found]
            row = [str(workers), str(processes), *(f"{rate:.0f}" for rate in rates), f"{rates[0] / rates[1]:.2f}"]
            row.append("0.45" if workers == processes == 8 else "")
            rows.append([*row, *(f"{wait:.2f}" for wait in waits)])
    print("\nWorkers on PostgreSQL, 3 arms")
    print(table(rows), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    parser.add_argument("--folder", help="where SQLite files are written; default: the usual temporary folder")
    parser.add_argument("--only", choices=["one", "open", "tests", "sqlite", "postgres"], help="one part alone")
    given = parser.parse_args()
    parts = {"one": one_worker, "open": opening, "tests": by_test, "sqlite": many_processes}
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for name, part in parts.items():
            if given.only in (None, name):
                part(Path(folder), quick=given.quick)
    if given.only in (None, "postgres"):
        postgres(quick=given.quick)


if __name__ == "__main__":
    main()
