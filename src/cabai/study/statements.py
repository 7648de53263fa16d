"""What is said to the database when a study is asked and told, made once: SQLAlchemy takes longer to make a statement
than SQLite to execute it. Importing this imports SQLAlchemy.

Executed with `of_study` and what else a condition names, and with the columns to be set.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from cabai.study.clock import CLOCK
from cabai.study.schema import arm, observation, pull, study


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

STUDY = sa.select(study, NOW).where(*_this)
LOCKED_STUDY = STUDY.with_for_update()
CHANGE_STUDY = sa.update(study).where(study.c.id == _study)

ARMS = sa.select(arm).where(arm.c.study == _study).order_by(arm.c.number)
CHANGE_ARM = sa.update(arm).where(arm.c.study == _study, arm.c.number == _number)

PULLS = sa.select(pull).where(pull.c.study == _study).order_by(pull.c.number)
PULL = sa.select(pull).where(*_one_pull)
ADD_PULL = sa.insert(pull)
CHANGE_PULL = sa.update(pull).where(*_one_pull)
REMOVE_PULL = sa.delete(pull).where(*_one_pull)

LOG = sa.select(observation).where(observation.c.study == _study).order_by(observation.c.place)
LOGGED = sa.select(observation).where(observation.c.study == _study, observation.c.number == _number)
ADD_TO_LOG = sa.insert(observation)

# The rewards told after pull number `of_through` and before the first pull that is still waited for.
_missing = sa.select(sa.func.min(pull.c.number)).where(pull.c.study == _study, pull.c.withdrawn.is_(None))
NEXT_IN_ORDER = (
    sa.select(observation)
    .where(
        observation.c.study == _study,
        observation.c.number > sa.bindparam("of_through"),
        observation.c.number < sa.func.coalesce(_missing.scalar_subquery(), sa.literal_column("9223372036854775807")),
        observation.c.place > sa.bindparam("of_counted_before"),
        observation.c.reward.is_not(None),
        observation.c.withdrawn.is_(None),
    )
    .order_by(observation.c.number)
)
