"""Studies in memory, for the tests."""

from __future__ import annotations

import itertools

import sqlalchemy as sa

import cabai
from cabai.study import schema

NAMES = itertools.count()


def new(**options) -> cabai.study.Study:
    """A study of its own name, in memory."""
    usual = {"arms": ["a", "b", "c"], "family": "bernoulli", "policy": "co", "storage": "memory"}
    return cabai.create_study(f"study {next(NAMES)}", **usual | options)


def reloaded(study: cabai.study.Study) -> cabai.study.Study:
    return cabai.load_study(study.name, storage="memory")


def tables(study: cabai.study.Study) -> dict[str, list[tuple]]:
    """Everything in the storage."""

    def work(connection: sa.Connection) -> dict[str, list[tuple]]:
        return {
            table.name: [tuple(row) for row in connection.execute(sa.select(table))]
            for table in schema.metadata.sorted_tables
        }

    return study._storage.read(work)


def start(study: cabai.study.Study, rewards, cost: float = 1.0) -> None:
    """Tell these rewards, one by one, of whatever the study asks for."""
    for reward in rewards:
        study.tell(study.ask(), reward, cost)


class Clock:
    """Stands for the module `time`, and is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now
