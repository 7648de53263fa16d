"""Studies: how many times a second one worker can ask and tell, as the log grows from 100 to a million observations.

    python benchmarks/bench_study.py [--quick] [--postgres] [--folder FOLDER]

`bare` is what `sqlite3` alone does with the same rows and the same care: two transactions, each on the disk before the
next begins, and no policy; on most disks that is the time of two fsyncs. All sizes and the bare one take turns, one ask
and one tell each, and the median counts; so a ratio holds also where a rate depends on who else uses the disk. `ms` is
the processor's time alone for one ask and one tell. FOLDER is where the files are; one in memory leaves out the disk.
ctas with 100 arms only explores at first, and later solves for its shares, which takes longer.
With --postgres, also on a PostgreSQL server that is started for it, which does not wait for the disk.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from cabai.study import create_study, storage
from cabai.study.storage import open_storage
from cabai.study.study import Study
from cabai.support.tables import table

SIZES, ARMS, POLICIES = (10**2, 10**4, 10**6), (3, 100), ("top-two", "co", "ctas")
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
BARE = [
    [
        "INSERT INTO cabai_pull VALUES (1, :i, 0, 0.0, 3600.0, 1, NULL)",
        "UPDATE cabai_study SET stamp = :i, asked = :i, memory = :memory WHERE id = 1",
    ],
    [
        "DELETE FROM cabai_pull WHERE study = 1 AND number = :i",
        "INSERT INTO cabai_observation VALUES (1, :i, :i, 0, 0.5, 1.0, NULL, 0.0, 0.0, NULL)",
        "UPDATE cabai_arm SET pulls = :i, rewards = :i / 2.0, costs = :i, spent = :i WHERE study = 1 AND number = 0",
        "UPDATE cabai_study SET stamp = -:i, told = :i, spent = :i, counted = :i, memory = :memory WHERE id = 1",
    ],
]


def filled(url: str, size: int, arms: int, policy: str) -> Study:
    """A study with a log of `size` observations, all arms alike, and the sums that belong to it."""
    names = [f"arm {a}" for a in range(arms)]
    study = create_study("study", arms=names, family="gaussian", policy=policy, delta=1e-9, storage=url)

    def work(connection: sa.Connection) -> None:
        key = {"study": study._ledger.id}
        connection.execute(sa.text(LOG), {**key, "size": size, "arms": arms})
        found = [dict(row) for row in connection.execute(sa.text(SUMS), key).mappings()]
        for row in found:
            connection.execute(
                sa.text(
                    "UPDATE cabai_arm SET pulls = :pulls, rewards = :rewards, costs = :costs, spent = :costs, "
                    "first = :first WHERE study = :study AND number = :arm"
                ),
                {**key, **row},
            )
        means = {row["arm"]: float(row["rewards"]) / row["pulls"] for row in found}
        leader = max(means, key=lambda arm: means[arm])
        second = max(mean for arm, mean in means.items() if arm != leader)
        memory = json.dumps({"arms": {}, "run": {"leader": leader, "second": second}})
        connection.execute(
            sa.text(
                "UPDATE cabai_study SET asked = :size, told = :size, spent = :spent, counted = :spent, "
                "memory = :memory WHERE id = :study"
            ),
            {**key, "size": size, "spent": sum(row["costs"] for row in found), "memory": memory},
        )

    open_storage(url).write(work)
    return study


def asking(study: Study) -> Callable[[], None]:
    """A job: ask and tell."""

    def job() -> None:
        pull = study.ask()
        study.tell(pull, (pull.number * 7919 % 1009) / 1009.0, cost=1.3)

    return job


def bare(file: Path, arms: int) -> Callable[[], None]:
    """A job: the same rows in the same tables by `sqlite3` alone, the statements made once, in a file of its own."""
    url = f"sqlite:///{file}"
    filled(url, 100, arms, "co")
    storage._opened.pop(str(file)).engine.dispose()
    connection = sqlite3.connect(file, isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    counted = [1000]
    memory = connection.execute("SELECT memory FROM cabai_study").fetchone()[0]

    def job() -> None:
        counted[0] += 1
        for statements in BARE:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement, {"i": counted[0], "memory": memory})
            connection.execute("COMMIT")

    return job


def measure(jobs: list[Callable[[], None]], rounds: int) -> tuple[list[float], list[float]]:
    """How often a second each job can be done, and milliseconds of the processor that it takes; medians."""
    wall, cpu = np.zeros((rounds, len(jobs))), np.zeros((rounds, len(jobs)))
    for job in jobs:
        job()
    for turn in range(rounds):
        for i, job in enumerate(jobs):
            started, used = time.perf_counter(), time.process_time()
            job()
            wall[turn, i], cpu[turn, i] = time.perf_counter() - started, time.process_time() - used
    return list(1 / np.median(wall, axis=0)), list(1000 * np.median(cpu, axis=0))


def report(title: str, urls: Callable[[str], str], *, rounds: int, limit: Path | None) -> None:
    sizes = [f"10^{len(str(size)) - 1}" for size in SIZES]
    heading = ["arms", "policy", *sizes, "10^6 / 10^2", *(f"{size} ms" for size in sizes)]
    rows = [[*heading, "bare", "10^6 / bare", "bare ms"] if limit else heading]
    for arms in ARMS:
        for policy in POLICIES:
            name = f"{arms}-{policy}"
            jobs = [asking(filled(urls(f"{name}-{size}"), size, arms, policy)) for size in SIZES]
            if limit:
                jobs.append(bare(limit / f"bare-{name}.db", arms))
            rates, cpu = measure(jobs, rounds)
            row = [str(arms), policy, *(f"{rate:.0f}" for rate in rates[:3]), f"{rates[2] / rates[0]:.2f}"]
            row += [f"{each:.2f}" for each in cpu[:3]]
            if limit:
                row += [f"{rates[3]:.0f}", f"{rates[2] / rates[3]:.2f}", f"{cpu[3]:.2f}"]
            rows.append(row)
    print(f"{title}: ask and tell, times a second, by the number of observations stored")
    print(table(rows))


def main() -> None:
    rounds = 40 if "--quick" in sys.argv else 200
    parent = sys.argv[sys.argv.index("--folder") + 1] if "--folder" in sys.argv else None
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        place = Path(folder)
        report("SQLite", lambda name: f"sqlite:///{place}/{name}.db", rounds=rounds, limit=place)
    if "--postgres" in sys.argv:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        from servers import Postgres

        with closing(Postgres()) as server:
            print()
            report("PostgreSQL", lambda _: server.new_database(), rounds=rounds, limit=None)
            for opened in storage._opened.values():
                opened.engine.dispose()


if __name__ == "__main__":
    main()
