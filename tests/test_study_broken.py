"""Transactions that break in the middle, or as they are undone, leave nothing behind: no half of one is stored, nothing
acknowledged is lost, no lock and no file stays open."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cabai import AlreadyTold, StorageError
from cabai.study import Study, create_study, load_study, stored
from cabai.study.log import database
from cabai.study.log.postgres import PostgresStorage
from cabai.study.log.sqlite import SqliteStorage
from cabai.study.show import exporting
from storages import BOTH, POSTGRES, before_commits
from workers import check_log

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


@POSTGRES
def test_an_export_that_failed_and_is_forgotten_in_the_middle_of_a_tell_loses_nothing(url, monkeypatch):
    study = study_at(url)
    told = told_to(study, TOLD)
    kept = broken_export(study, monkeypatch)

    def forget(_: Any) -> None:
        kept.clear()
        gc.collect()

    before_commits(study._storage, forget)
    told |= told_to(study, 2)
    check_log(study, told)


@BOTH
def test_after_an_export_that_failed_the_study_is_seen_as_it_is(url, monkeypatch):
    study = study_at(url)
    told_to(study, TOLD)
    kept = broken_export(study, monkeypatch)
    told_to(study, 2)
    assert len(study.observations()) == study.status().spent == TOLD + 2
    assert kept


@POSTGRES
def test_a_transaction_that_failed_is_not_acknowledged(url):
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


def test_errors_while_tables_are_made_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    with closing(sqlite3.connect(tmp_path / "strange.db")) as strange, strange:
        strange.execute("CREATE TABLE cabai_version (version_num VARCHAR(32))")
        strange.execute("CREATE TABLE cabai_study (id INTEGER)")
    with pytest.raises(StorageError, match="was made by another version of cabai"):
        load_study("study", storage=f"sqlite:///{tmp_path}/strange.db")
    locked = sqlite3.connect(tmp_path / "locked.db", isolation_level=None)
    locked.execute("PRAGMA journal_mode = WAL")
    locked.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        load_study("study", storage=f"sqlite:///{tmp_path}/locked.db")
    locked.close()


@POSTGRES
def test_errors_while_tables_are_made_on_a_server_are_one_sentence(url, postgres):
    name = url.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(StorageError, match="read-only"):
        study_at(url)
    postgres.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    told_to(study_at(url), 1)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed on Linux only")
def test_a_file_that_is_no_database_is_not_kept_open(tmp_path):
    (tmp_path / "junk.db").write_bytes(b"not a database at all" * 100)
    errors = []
    for _ in range(3):
        with pytest.raises(StorageError, match="not a database") as failed:
            load_study("study", storage=f"sqlite:///{tmp_path}/junk.db")
        errors.append(failed.value)
    files = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    assert not [file for file in files if file.endswith("junk.db")]


def test_readers_do_not_keep_a_fork_waiting(tmp_path):
    study, over = study_at(f"sqlite:///{tmp_path}/cabai.db"), threading.Event()
    told_to(study, TOLD)

    def read() -> None:
        while not over.is_set():
            study.observations()

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    started = time.monotonic()
    for _ in range(5):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    took = time.monotonic() - started
    over.set()
    for thread in threads:
        thread.join()
    assert took < 20  # with three readers that take turns it was never
