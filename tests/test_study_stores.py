"""Stores that earlier versions have left: each is brought up to date, on both databases, and its studies go on.

A file in `stores` holds the rows of every table as that version wrote them, and what it said of each study.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

import cabai
from cabai.study import migrating, schema, storage
from storages import BOTH, close

STORES = sorted((Path(__file__).parent / "stores").glob("*.json"))


def as_it_was(url: str, kept: dict[str, Any]) -> None:
    """Make the tables of an earlier version, with what they held."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    config = migrating.config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, kept["revision"])
        found = sa.MetaData()
        found.reflect(connection)
        for table in found.sorted_tables:
            rows = kept["tables"].get(table.name)
            if rows:
                connection.execute(sa.insert(table), rows)
    engine.dispose()


@BOTH
@pytest.mark.parametrize("file", STORES, ids=lambda file: file.stem)
def test_a_store_of_an_earlier_version_says_what_it_said_and_goes_on(url, file):
    kept = json.loads(file.read_text())
    as_it_was(url, kept)
    close(url)
    assert cabai.list_studies(storage=url) == list(kept["studies"])
    opened = storage.open_storage(url)
    assert opened.read(opened.version) == schema.REVISION
    for name, said in kept["studies"].items():
        study = cabai.load_study(name, storage=url)
        status = study.status()
        assert {each: getattr(status, each) for each in said} == said
        assert study.amendments() == []
        assert all(each["cost"] >= 0 for each in study.observations())
    study = cabai.load_study("at its budget", storage=url)
    study.amend(max_cost=40.0)
    while not study.stopped:
        study.tell(study.ask(), 1, cost=1.0)
    assert study.status().spent == 40.0
    waiting = cabai.load_study("under way", storage=url)
    first = waiting.status().waiting_for
    waiting.tell(first, 0.5, cost=1.0)
    assert waiting.status().waiting == 0
    with pytest.raises(cabai.InvalidInput, match="has decided: only its metadata can still be amended"):
        cabai.load_study("decided", storage=url).amend(max_cost=40.0)
