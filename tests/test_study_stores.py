"""Stores of another version of the tables are refused in one sentence, and left as they were, on both databases.

A file in `stores` holds the rows of every table as an earlier version wrote them.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

import cabai
from storages import BOTH

EARLIER = json.loads((Path(__file__).parent / "stores" / "0007.json").read_text())
TYPES = {int: "BIGINT", float: "DOUBLE PRECISION", str: "TEXT", type(None): "TEXT"}
REFUSED = (
    "was made by another version of cabai: export its studies with that version, and import them here. Nothing was "
    "changed."
)


def connect(url: str) -> Any:
    """Without cabai."""
    if url.startswith("postgresql"):
        return contextlib.closing(psycopg.connect(url))
    driver = sqlite3.connect(url.removeprefix("sqlite:///"))
    driver.execute("PRAGMA journal_mode = WAL")  # as every version of cabai has it
    return contextlib.closing(driver)


def make(url: str, tables: dict[str, list[dict[str, Any]]]) -> None:
    mark = "%s" if url.startswith("postgresql") else "?"
    with connect(url) as connection:
        for name, rows in tables.items():
            columns = {column: {type(row[column]) for row in rows} - {type(None)} for column in rows[0]}
            kinds = {column: TYPES[(kinds or {type(None)}).pop()] for column, kinds in columns.items()}
            connection.execute(f"CREATE TABLE {name} ({', '.join(f'{each} {kinds[each]}' for each in kinds)})")
            marks = ", ".join([mark] * len(kinds))
            for row in rows:
                connection.execute(f"INSERT INTO {name} VALUES ({marks})", tuple(row.values()))
        connection.commit()


def as_it_is(url: str, folder: Path) -> Any:
    """Every byte of the files; of a server, every row of every table."""
    if not url.startswith("postgresql"):
        return {file.name: file.read_bytes() for file in folder.iterdir()}
    with connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for (name,) in names}


STORES = {
    "an earlier version": EARLIER["tables"] | {"cabai_version": [{"version_num": EARLIER["revision"]}]},
    "the first version": {"cabai_study": [{"id": 1, "name": "study"}]},
    "a newer version": {"cabai_tables": [{"version": 2}], "cabai_study": [{"id": 1, "name": "study"}]},
    "no version": {"cabai_tables": [{"version": 1}, {"version": 2}]},
    "nonsense": {"cabai_tables": [{"version": "one"}]},
}


@BOTH
@pytest.mark.parametrize("store", STORES)
def test_a_store_of_another_version_is_refused_and_left_as_it_was(url, folder, store):
    make(url, STORES[store])
    before = as_it_is(url, folder)
    for call in (
        lambda: cabai.list_studies(storage=url),
        lambda: cabai.load_study("decided", storage=url),
        lambda: cabai.create_study("new", arms=["a", "b"], family="bernoulli", storage=url),
        lambda: cabai.delete_study("decided", storage=url),
    ):
        with pytest.raises(cabai.StorageError) as refused:
            call()
        assert str(refused.value).endswith(f" {REFUSED}")
        assert str(refused.value).startswith(f"storage {url.partition('?')[0][:10]}")
        assert "\n" not in str(refused.value)
    assert as_it_is(url, folder) == before


@BOTH
def test_tables_of_others_are_left_alone(url, folder):
    """A database may have tables that have nothing to do with cabai."""
    make(url, {"study": [{"id": 1, "name": "mine"}], "event": [{"id": 1}]})
    study = cabai.create_study("study", arms=["a", "b"], family="bernoulli", storage=url)
    study.tell(study.ask(), 1, cost=1.0)
    assert cabai.load_study("study", storage=url).status().pulls == 1
    with connect(url) as connection:
        assert connection.execute("SELECT * FROM study").fetchall() == [(1, "mine")]
        assert connection.execute("SELECT * FROM event").fetchall() == [(1,)]
