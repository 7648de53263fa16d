"""Storages for tests that need more than one in memory; the fixture `url` is a new one, and is told which."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from cabai.study import storage

BOTH = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
POSTGRES = pytest.mark.parametrize("url", ["postgresql"], indirect=True)


def close(prefix: str) -> None:
    """Close the storages whose URL or file begins so."""
    for key in [key for key in storage._opened if key.startswith(prefix)]:
        storage._opened.pop(key).close()


def looked(opened: Any, work: Callable[[sa.Connection], Any]) -> Any:
    """What `work(connection)` returns, in a separate transaction, without the storage's own code."""
    if getattr(opened, "engine", None) is not None:
        with opened.engine.execution_options(isolation_level="READ COMMITTED").begin() as connection:
            return work(connection)

    def through(driver: sqlite3.Connection) -> Any:
        with sa.create_engine("sqlite://", poolclass=StaticPool, creator=lambda: driver).begin() as connection:
            driver.execute("BEGIN IMMEDIATE")
            return work(connection)

    if opened.file is None:
        with opened.turn:
            return through(opened.writer.driver)
    driver = sqlite3.connect(opened.file, isolation_level=None, timeout=60)
    try:
        driver.execute("PRAGMA foreign_keys = ON")
        return through(driver)
    finally:
        driver.close()


def before_commits(opened: Any, call: Callable[[Any], None]) -> None:
    """Have `call(connection)` called as the commit of each change begins."""
    commit = opened.commit

    def announced(connection: Any) -> None:
        call(connection)
        commit(connection)

    opened.commit = announced
