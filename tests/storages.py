"""Storages for tests that need more than one in memory; the fixture `url` is a new one, and is told which."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from cabai.study.log import storage

BOTH = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
POSTGRES = pytest.mark.parametrize("url", ["postgresql"], indirect=True)


def close(prefix: str) -> None:
    """Close the storages whose URL or file begins so."""
    for key in [key for key in storage._opened if key.startswith(prefix)]:
        storage._opened.pop(key).close()


def looked(opened: Any, text: str, values: tuple = ()) -> list[tuple]:
    """The rows that a statement returns, in a separate transaction, without the storage's own code."""
    if opened.url.startswith("postgresql"):
        with psycopg.connect(**opened.options) as connection:
            cursor = connection.execute(text.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []
    if opened.file is None:
        with opened.writer.turn:
            return opened.writer.driver.execute(text, values).fetchall()
    driver = sqlite3.connect(opened.file, isolation_level=None, timeout=60)
    try:
        driver.execute("PRAGMA foreign_keys = ON")
        return driver.execute(text, values).fetchall()
    finally:
        driver.close()


def tables(opened: Any) -> dict[str, list[tuple]]:
    """Everything in a storage, but for snapshots: they are only a cache."""
    order = {"cabai_study": "id", "cabai_event": "study, place"}
    return {name: looked(opened, f"SELECT * FROM {name} ORDER BY {by}") for name, by in order.items()}


def before_commits(opened: Any, call: Callable[[Any], None]) -> None:
    """Have `call(connection)` called as the commit of each change begins."""
    commit = opened.commit

    def announced(connection: Any) -> None:
        call(connection)
        commit(connection)

    opened.commit = announced
