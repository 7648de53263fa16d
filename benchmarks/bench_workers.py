"""One study and its workers: how often they can ask and tell, against the bare database doing the same writes.

    python benchmarks/bench_workers.py [--quick] [--folder FOLDER] [--only one|tests|sqlite|postgres]

`bare` is the database's driver alone, with the same durability: two transactions, each on disk before the next begins,
that write the same columns of the same rows, with values that take as much space, the policy's memory included, and
read nothing and choose nothing. On PostgreSQL each locks the study's row first, as a study does. Study and bare take
turns within one run, so a ratio holds even if a rate depends on who else uses the machine.

1. One worker on SQLite, by the number of arms, the policy and the length of the log. Means over turns of one ask and
   one tell each, the slowest tenth left out. `ms` is CPU time only. The worker has run long enough to use compiled
   code: every study is warmed up before anything is measured. In each turn, studies and bare come in another order: a
   job is slower after another kind of work, whatever the length of its log.
2. Many processes on one SQLite file, each as fast as it can: is every process served? A wait is for one ask and one
   tell together.
3. 1 to 256 workers on PostgreSQL, 3 arms: threads of up to 4 processes, with up to 8 connections each, as a study has;
   bare has the same threads, processes and connections, and makes every call a separate transaction. Threads that wait
   for a study share one; so there are also 8 workers in 8 processes, where nothing is shared. The processes are new:
   they use plain code. The server is the tests' own, which does not wait for the disk.
4. One worker on SQLite, by the test: the default of the family over `evalue` (goal: at most 1.2). Tied arms, so that
   nothing is decided. `plain` is a worker in its first second, which has compiled nothing yet.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
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

from cabai.study import create_study, load_study, storage
from cabai.study.storage import open_storage
from cabai.study.study import Study
from cabai.support.tables import table

SIZES, ARMS, POLICIES = (10**2, 10**4, 10**6), (3, 100), ("top-two", "co", "ctas")
WORKERS, CONNECTIONS = ((1, 1), (8, 8), (8, 4), (64, 4), (256, 4)), 8  # workers and their processes; of a process
LOG = """
INSERT INTO cabai_observation (study, number, place, arm, reward, cost, asked, told)
WITH RECURSIVE counted(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counted WHERE i < :size)
SELECT :study, i, i, (i - 1) % :arms, (i % 1009 * 7919 % 1009) / 1009.0, 1.0 + i % 7 / 10.0, 0.0, 0.0 FROM counted
"""
SUMS = """
SELECT arm, count(*) AS pulls, sum(reward) AS rewards, sum(cost) AS costs,
       (SELECT reward FROM cabai_observation AS f WHERE f.study = :study AND f.number = o.arm + 1) AS first
FROM cabai_observation AS o WHERE study = :study GROUP BY arm
"""
FILL_ARM = """
UPDATE cabai_arm SET pulls = :pulls, rewards = :rewards, first = :first, costs = :costs, spent = :costs,
    largest_cost = 1.6, offers = :pulls, ordered_pulls = :pulls, ordered_rewards = :rewards, ordered_first = :first,
    ordered_costs = :costs
WHERE study = :study AND number = :arm
"""
FILL_STUDY = """
UPDATE cabai_study SET asked = :size, told = :size, through = :size, spent = :spent, counted = :spent, memory = :memory
WHERE id = :study
"""
LARGE = 2**61  # as large as the number of a revision
LOCK = "SELECT id FROM cabai_study WHERE id = 1 FOR UPDATE"
BARE_ASK = [
    "INSERT INTO cabai_pull (study, number, arm, asked, expires, offers, worker, lapses) "
    "VALUES (1, :i, 0, :x, :x, 1, NULL, 0)",
    "UPDATE cabai_study SET revision = :revision, asked = :i, memory = :memory WHERE id = 1",
]
BARE_TELL = [
    "DELETE FROM cabai_pull WHERE study = 1 AND number = :i",
    "INSERT INTO cabai_observation (study, number, place, arm, reward, cost, failed, asked, told, worker, offers, "
    "withdrawn) VALUES (1, :i, :i, 0, :x, 1.3, NULL, :x, :x, NULL, 1, NULL)",
    "UPDATE cabai_arm SET pulls = :i, rewards = :x, first = 0.5, costs = :x, ordered_pulls = :i, ordered_rewards = :x, "
    "ordered_first = 0.5, ordered_costs = :x, spent = :x, failures = 0, largest_cost = 1.6, offers = :i, lapses = 0, "
    "discarded = 0, squares = :x WHERE study = 1 AND number = 0",
    "UPDATE cabai_study SET revision = :revision, told = :i, through = :i, spent = :x, counted = :x, memory = :memory "
    "WHERE id = 1",
]


def filled(url: str, size: int, arms: int, policy: str) -> Study:
    """A study with a log of `size` observations, all arms alike, and the sums that belong to it."""
    names = [f"arm {a}" for a in range(arms)]
    study = create_study("study", arms=names, family="gaussian(variance=1)", policy=policy, delta=1e-9, storage=url)

    def work(connection: Any) -> None:
        key = {"study": study._ledger.id}
        connection.execute(LOG, {**key, "size": size, "arms": arms})
        names = ("arm", "pulls", "rewards", "costs", "first")
        found = [dict(zip(names, row, strict=True)) for row in connection.fetch(SUMS, key)]
        for row in found:
            connection.execute(FILL_ARM, {**key, **row})
        means = {row["arm"]: float(row["rewards"]) / row["pulls"] for row in found}
        leader = max(means, key=lambda arm: means[arm])
        second = max(mean for arm, mean in means.items() if arm != leader)
        memory = json.dumps({"arms": {}, "run": {"leader": leader, "second": second}})
        spent = sum(row["costs"] for row in found)
        connection.execute(FILL_STUDY, {**key, "size": size, "spent": spent, "memory": memory})

    open_storage(url).write(work)
    return study


def ask_and_tell(study: Study) -> None:
    pull = study.ask()
    study.tell(pull, (pull.number * 7919 % 1009) / 1009.0, cost=1.3)


def memory_of(study: Study) -> str:
    """What the policy remembers, as it is stored."""
    return str(study._storage.read(study._ledger.row).memory)


def bare_sqlite(file: Path, arms: int, memory: Callable[[], str]) -> Callable[[], None]:
    """A job: the same rows in the same tables with `sqlite3` alone, in a separate file."""
    filled(f"sqlite:///{file}", 100, arms, "co")
    storage._opened.pop(str(file)).close()
    connection = sqlite3.connect(file, isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    values: dict[str, Any] = {"i": 1000}

    def job() -> None:
        i = values["i"] + 1
        values.update(i=i, x=i / 3, revision=LARGE - i, memory=memory())
        for statements in (BARE_ASK, BARE_TELL):
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement, values)
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
    rows = [["arms", "policy", *sizes, "bare", *(f"{size} / bare" for size in sizes), "10^6 / 10^2", "ms", "bare ms"]]
    for arms in ARMS:
        for policy in POLICIES:
            studies = [filled(f"sqlite:///{place}/{arms}-{policy}-{size}.db", size, arms, policy) for size in SIZES]
            for study in studies:
                warm_up(study)
            text = memory_of(studies[-1])
            jobs = [lambda study=study: ask_and_tell(study) for study in studies]
            jobs.append(bare_sqlite(place / f"bare-{arms}-{policy}.db", arms, lambda text=text: text))
            rates, cpu = measure(jobs, 100 if quick else 400)
            row = [str(arms), policy, *(f"{rate:.0f}" for rate in rates)]
            row += [f"{rate / rates[-1]:.2f}" for rate in rates[:-1]]
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


def by_test(place: Path, *, quick: bool) -> None:
    rows = [["family", "policy", "arms", "plain", "compiled", "plain, ms", "compiled, ms"]]
    for family in ("gaussian(variance=0.1)", "bernoulli", "bounded"):
        for policy in POLICIES[:2]:
            for arms in (3, 10):
                cells = []
                for is_compiled in (False, True):
                    jobs = []
                    for threshold in (None, "evalue"):
                        study = create_study(
                            f"{family} {policy} {arms} {threshold}", arms=[f"arm {a}" for a in range(arms)],
                            family=family, policy=policy, threshold=threshold, delta=0.05, load_if_exists=True,
                            storage=f"sqlite:///{place}/tests.db",
                        )  # fmt: skip
                        study.settings.kernels.compiler = os.getpid()  # compile when told to, not before
                        if is_compiled:
                            study.settings.kernels.compile()
                        for _ in range(20):
                            tell_something(study)
                        jobs.append(lambda study=study: tell_something(study))
                    cells.append(measure(jobs, 100 if quick else 400)[1])
                ratios = [f"{new / old:.2f}" for new, old in cells]
                rows.append([family, policy, str(arms), *ratios, *(f"{new:.2f}" for new, _ in cells)])
    print("\nOne worker on SQLite: processor's time of ask and tell under the default test, over that under evalue")
    print(table(rows, left=2), flush=True)


def tell_something(study: Study) -> None:
    """Rewards of tied arms: 0 or 1 for bernoulli, about 0.5 for others."""
    pull = study.ask()
    reward = (pull.number * 7919 % 1009) / 1009.0
    study.tell(pull, float(reward > 0.5) if study.settings.family.name == "bernoulli" else reward, cost=1.3)


def many_processes(place: Path, *, quick: bool) -> None:
    seconds, processes = 10.0 if quick else 30.0, 30
    url = f"sqlite:///{place}/shared.db"
    create_study("shared", arms=["a", "b", "c"], family="gaussian(variance=1)", delta=1e-9, storage=url)
    found = in_processes(processes, serve, url, 1, seconds)
    counts = [count for count, _ in found]
    print(f"\n{processes} processes on one SQLite file, for {seconds:g} s")
    heading = ["tells per second", "of one: least", "most", "longest wait, s"]
    row = [f"{sum(counts) / seconds:.0f}", f"{min(counts)}", f"{max(counts)}", f"{max(w for _, w in found):.2f}"]
    print(table([heading, row]), flush=True)


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
    ask_and_tell(study)
    return in_threads(threads, seconds, begin, lambda: ask_and_tell(study))


def serve_bare(begin: Callable[[], Any], url: str, threads: int, seconds: float, memory: str) -> list[Any]:
    connections: queue.Queue[Any] = queue.Queue()
    for _ in range(min(threads, CONNECTIONS)):
        connections.put(psycopg.connect(url))
    ask, tell = ([re.sub(r":(\w+)", r"%(\1)s", each) for each in part] for part in (BARE_ASK, BARE_TELL))
    numbers = iter(range(10**6 + multiprocessing.current_process().pid * 10**6, 2**62))

    def job() -> None:
        i = next(numbers)
        for statements in (ask, tell):
            connection = connections.get()
            connection.execute(LOCK)
            for statement in statements:
                connection.execute(statement, {"i": i, "x": i / 3, "revision": LARGE - i, "memory": memory})
            connection.commit()
            connections.put(connection)

    return in_threads(threads, seconds, begin, job)


def postgres(*, quick: bool) -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from servers import Postgres

    turns, seconds = (2, 1.5) if quick else (4, 4.0)
    rows = [["workers", "processes", "tells per second", "bare", "study / bare", "longest wait, s", "bare's"]]
    with closing(Postgres()) as server:
        for workers, processes in WORKERS:
            threads, found = workers // processes, ([], [])
            url, bare_url = server.new_database(), server.new_database()
            for each in (url, bare_url):
                study = create_study(
                    "shared", arms=["a", "b", "c"], family="gaussian(variance=1)", delta=1e-9, storage=each
                )
                for _ in range(20):
                    ask_and_tell(study)
            memory = memory_of(study)
            for each in (url, bare_url):
                storage._opened.pop(each).close()
            for _ in range(turns):
                found[0].extend(in_processes(processes, serve, url, threads, seconds))
                found[1].extend(in_processes(processes, serve_bare, bare_url, threads, seconds, memory))
            rates = [sum(count for count, _ in each) / (turns * seconds) for each in found]
            waits = [max(wait for _, wait in each) for each in found]
            row = [str(workers), str(processes), *(f"{rate:.0f}" for rate in rates), f"{rates[0] / rates[1]:.2f}"]
            rows.append([*row, *(f"{wait:.2f}" for wait in waits)])
    print("\nWorkers on PostgreSQL, 3 arms")
    print(table(rows), flush=True)


def main() -> None:
    quick = "--quick" in sys.argv
    parent = sys.argv[sys.argv.index("--folder") + 1] if "--folder" in sys.argv else None
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        if only in ("", "one"):
            one_worker(Path(folder), quick=quick)
        if only in ("", "tests"):
            by_test(Path(folder), quick=quick)
        if only in ("", "sqlite"):
            many_processes(Path(folder), quick=quick)
    if only in ("", "postgres"):
        postgres(quick=quick)


if __name__ == "__main__":
    main()
