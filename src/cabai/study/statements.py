"""What is said to the database when a study is asked and told. Importing this imports SQLAlchemy.

Statements are written with SQLAlchemy, for both databases alike, and turned into text once. The text goes to the
database's driver itself: SQLAlchemy takes five times as long to hand on a statement as SQLite to execute it. Executed
with `of_study` and what else a condition names, and with the columns to be set.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from cabai.study.clock import CLOCK
from cabai.study.schema import amendment, arm, observation, point, pull, study

Values = Mapping[str, Any]
NOTHING: Values = {}
SQLITE = sqlite.dialect(paramstyle="named")  # so that both take values by name


class Statement:
    """One statement; its rows have attributes named after the columns."""

    def __init__(self, clause: Any) -> None:
        self.clause = clause
        self.row_type: Any = row_type(clause)
        self._texts: dict[Any, str] = {}

    def rows(self, connection: sa.Connection, values: Values) -> list[Any]:
        return list(map(self.row_type._make, send(connection, self.text(connection, values), values).fetchall()))

    def row(self, connection: sa.Connection, values: Values) -> Any:
        """The only row, or None."""
        found = self.rows(connection, values)
        return found[0] if found else None

    def run(self, connection: sa.Connection, values: Values) -> None:
        send(connection, self.text(connection, values), values)

    def text(self, connection: sa.Connection, values: Values) -> str:
        """The statement in the words of the connection's database, for these columns."""
        dialect = connection.dialect
        key = dialect.name if self.row_type else (dialect.name, *values)
        text = self._texts.get(key)
        if text is None:
            columns = None if self.row_type else [name for name in values if not name.startswith("of_")]
            spoken = SQLITE if dialect.name == "sqlite" else dialect
            text = self._texts[key] = str(self.clause.compile(dialect=spoken, column_keys=columns))
        return text


Write = tuple[Statement, Values]
TOGETHER = 6  # writes in one statement at most: there is a text for every combination of them


def write_all(connection: sa.Connection, writes: Sequence[Write]) -> None:
    """Write to several rows, each of them once, in any order. PostgreSQL is told of a few at a time in one statement:
    each takes a message and its answer, for which everybody waits who wants to change the study too."""
    if connection.dialect.name == "sqlite":
        for statement, values in writes:
            statement.run(connection, values)
        return
    spelt = sorted(((statement.text(connection, values), values) for statement, values in writes), key=itemgetter(0))
    for begin in range(0, len(spelt), TOGETHER):
        texts, some = zip(*spelt[begin : begin + TOGETHER], strict=True)
        send(connection, joined(texts), {f"{i}_{name}": v for i, each in enumerate(some) for name, v in each.items()})


@cache
def joined(texts: tuple[str, ...]) -> str:
    """Several statements as one: each but the last has a name, and each its own names for values."""
    *first, last = [each.replace("%(", f"%({i}_") for i, each in enumerate(texts)]
    named = ", ".join(f"write_{i} AS ({each})" for i, each in enumerate(first))
    return f"WITH {named} {last}" if named else last


def row_type(clause: Any) -> Any:
    """What the rows are that a statement returns; None if it returns none."""
    if isinstance(clause, sa.Select):
        return namedtuple("Row", [column.name for column in clause.selected_columns])
    if isinstance(clause, sa.Delete):
        return namedtuple("Row", [column.name for column in clause.exported_columns])
    return None


def send(connection: sa.Connection, text: str, values: Values = NOTHING) -> Any:
    """Have the database's driver execute a statement; its errors are SQLAlchemy's, as everywhere else."""
    driver: Any = connection.connection.dbapi_connection
    dialect = connection.dialect
    try:
        return driver.execute(text, values)
    except dialect.loaded_dbapi.Error as error:
        is_lost = dialect.is_disconnect(error, driver, None)
        if is_lost:
            connection.invalidate(error)
            connection.engine.dispose()  # the others are lost too, perhaps
        raise sa.exc.DBAPIError.instance(
            None, None, error, dialect.loaded_dbapi.Error, connection_invalidated=is_lost, dialect=dialect
        ) from error


class DatabaseTime(FunctionElement[float]):
    """The time by the clock of the database, in seconds since 1970: workers' clocks may be wrong. SQLite has none
    of its own, and tells that of the machine."""

    inherit_cache = True
    type = sa.Double()


@compiles(DatabaseTime, "postgresql")
def _of_the_server(element: DatabaseTime, compiler: Any, **options: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"


@compiles(DatabaseTime, "sqlite")
def _of_the_machine(element: DatabaseTime, compiler: Any, **options: Any) -> str:
    return f"{CLOCK}()"


NOW = DatabaseTime().label("now")

_study: sa.BindParameter[int] = sa.bindparam("of_study")
_number: sa.BindParameter[int] = sa.bindparam("of_number")
_this = (study.c.id == _study, study.c.token == sa.bindparam("of_token"))
_one_pull = (pull.c.study == _study, pull.c.number == _number)

STUDY = Statement(sa.select(study, NOW).where(*_this))
# Most of the row of a study that is to be changed; not what the policy remembers if that is known, by its revision.
_unknown = sa.case((study.c.revision != sa.bindparam("of_revision", type_=study.c.revision.type), study.c.memory))
_most = [column for column in study.c if column.name not in ("settings", "memory", "tests")]
_locked = sa.select(*_most, _unknown.label("memory"), NOW).where(*_this).with_for_update()
LOCKED_STUDY = Statement(_locked)
CHANGE_STUDY = Statement(sa.update(study).where(study.c.id == _study))

ARMS = Statement(sa.select(arm).where(arm.c.study == _study).order_by(arm.c.number))
CHANGE_ARM = Statement(sa.update(arm).where(arm.c.study == _study, arm.c.number == _number))

PULLS = Statement(sa.select(pull).where(pull.c.study == _study).order_by(pull.c.number))
PULL = Statement(sa.select(pull).where(*_one_pull))
ADD_PULL = Statement(sa.insert(pull).inline())
CHANGE_PULL = Statement(sa.update(pull).where(*_one_pull))
TAKE_PULL = Statement(sa.delete(pull).where(*_one_pull).returning(*pull.c))

# For PostgreSQL alone, in one message: the study's row is locked, and then the pull is taken. Who has waited for the
# lock finds the pull as it is now: PostgreSQL reads a row again that has changed since the statement began.
_first = _locked.cte("first")
_taken = sa.delete(pull).where(pull.c.study == _first.c.id, pull.c.number == _number).returning(*pull.c).cte("taken")
_beside = [column.label(f"pull_{column.name}") for column in _taken.c]
LOCK_AND_TAKE = Statement(sa.select(*_first.c, *_beside).select_from(_first.outerjoin(_taken, sa.true())))

LOG = Statement(sa.select(observation).where(observation.c.study == _study).order_by(observation.c.place))
SCORES = Statement(  # in a study with items, from a place of the log on
    sa.select(
        *(observation.c[name] for name in ("number", "place", "arm", "item", "reward", "failed", "told", "offers"))
    )
    .where(observation.c.study == _study, observation.c.place > sa.bindparam("of_place"))
    .order_by(observation.c.place)
)
FIRST_REWARD = Statement(
    sa.select(sa.func.min(observation.c.number).label("number")).where(
        observation.c.study == _study, observation.c.reward.is_not(None)
    )
)
LOGGED = Statement(sa.select(observation).where(observation.c.study == _study, observation.c.number == _number))
ADD_TO_LOG = Statement(sa.insert(observation).inline())

AMENDMENTS = Statement(sa.select(amendment).where(amendment.c.study == _study).order_by(amendment.c.number))
ADD_AMENDMENT = Statement(sa.insert(amendment).inline())

PERIOD = Statement(
    sa.select(observation)
    .where(observation.c.study == _study, observation.c.period == sa.bindparam("of_period"))
    .order_by(observation.c.place)
)

POINTS = Statement(sa.select(point).where(point.c.study == _study).order_by(point.c.told))
ADD_POINT = Statement(sa.insert(point).inline())

MOST_REASONS = 20
FAILURES = Statement(  # by arm and reason, the most frequent first
    sa.select(
        observation.c.arm,
        observation.c.failed.label("reason"),
        sa.func.count().label("count"),
        sa.func.max(observation.c.told).label("last"),
    )
    .where(observation.c.study == _study, observation.c.failed.is_not(None))
    .group_by(observation.c.arm, observation.c.failed)
    .order_by(sa.desc("count"), sa.desc("last"), observation.c.arm)
    .limit(sa.literal_column(str(MOST_REASONS)))
    .offset(sa.literal_column("0"))
)

# The rewards told after pull number `of_through` and before the first pull that is still waited for.
_missing = sa.select(sa.func.min(pull.c.number)).where(pull.c.study == _study, pull.c.withdrawn.is_(None))
_end = sa.func.coalesce(_missing.scalar_subquery(), sa.literal_column("9223372036854775807"))
NEXT_IN_ORDER = Statement(
    sa.select(observation)
    .where(
        observation.c.study == _study,
        observation.c.number > sa.bindparam("of_through"),
        observation.c.number < _end,
        observation.c.place > sa.bindparam("of_unordered"),
        observation.c.reward.is_not(None),
        observation.c.withdrawn.is_(None),
    )
    .order_by(observation.c.number)
)
