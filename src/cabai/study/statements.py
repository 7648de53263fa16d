"""What is said to the database when a study is asked and told: plain SQL that SQLite and PostgreSQL both understand.

Values have names, such as `:of_study`. `{now}` is the time by the clock of the database, and `{lock}` keeps others from
changing the rows that are read (SQLite has taken its lock already).
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from cabai.study.clock import CLOCK
from cabai.study.connections import POSTGRES, SQLITE, Connection
from cabai.study.schema import Table, amendment, arm, observation, point, pull, study

Values = Mapping[str, Any]
VALUE = re.compile(r":(\w+)")
# By the kind of database. The clock is the database's, since workers' clocks may be wrong; SQLite has none of its own,
# and tells that of the machine.
WORDS = {
    SQLITE: {"now": f"{CLOCK}()", "lock": ""},
    POSTGRES: {"now": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)", "lock": " FOR UPDATE"},
}


class Spelt(NamedTuple):
    """A statement in the words of a kind of database, and the values that it needs, in their order."""

    text: str
    values: Callable[[Values], Sequence[Any]]


class Statement:
    """One statement; the rows that it returns have attributes named after their columns."""

    def __init__(self, text: str, columns: Sequence[str] = ()) -> None:
        self._text, self._columns = text, columns
        self._spelt: dict[Any, Spelt] = {}

    @cached_property
    def row_type(self) -> Any:
        return namedtuple("Row", self._columns)

    def rows(self, connection: Connection, values: Values) -> list[Any]:
        text, given = self.spelt(connection.kind, values)
        return list(map(self.row_type._make, connection.fetch(text, given(values))))

    def row(self, connection: Connection, values: Values) -> Any:
        """The only row, or None."""
        text, given = self.spelt(connection.kind, values)
        found = connection.fetch(text, given(values))
        return self.row_type._make(found[0]) if found else None

    def run(self, connection: Connection, values: Values) -> None:
        text, given = self.spelt(connection.kind, values)
        connection.execute(text, given(values))

    def run_many(self, connection: Connection, values: Sequence[Values]) -> None:
        """Once for each of several values, which have the same names."""
        if values:
            text, given = self.spelt(connection.kind, values[0])
            connection.execute_many(text, list(map(given, values)))

    def spelt(self, kind: str, values: Values) -> Spelt:
        """The statement in the words of a kind of database, for these values."""
        found = self._spelt.get(kind)
        if found is None:
            found = self._spelt[kind] = spelt(self._text, kind)
        return found


class Insert(Statement):
    """A new row with the columns that are given."""

    def __init__(self, table: Table) -> None:
        super().__init__(f"INSERT INTO {table.name}")

    def spelt(self, kind: str, values: Values) -> Spelt:
        key = (kind, *values)
        found = self._spelt.get(key)
        if found is None:
            whole = f"{self._text} ({', '.join(values)}) VALUES ({', '.join(f':{name}' for name in values)})"
            found = self._spelt[key] = spelt(whole, kind)
        return found


class Update(Statement):
    """The columns that are given, changed; the names of the other values begin with `of_`."""

    def __init__(self, table: Table, where: str) -> None:
        super().__init__(f"UPDATE {table.name} SET {{}} WHERE {where}")

    def spelt(self, kind: str, values: Values) -> Spelt:
        key = (kind, *values)
        found = self._spelt.get(key)
        if found is None:
            columns = ", ".join(f"{name} = :{name}" for name in values if not name.startswith("of_"))
            found = self._spelt[key] = spelt(self._text.format(columns), kind)
        return found


def spelt(text: str, kind: str) -> Spelt:
    """A statement in the words of a kind of database."""
    text, names = text.format(**WORDS[kind]), VALUE.findall(text)
    given = itemgetter(*names) if len(names) > 1 else lambda values: [values[name] for name in names]
    return Spelt(VALUE.sub("?" if kind == SQLITE else "%s", text), given)


Write = tuple[Statement, Values]
TOGETHER = 6  # writes in one statement at most: there is a text for every combination of them


def write_all(connection: Connection, writes: Sequence[Write]) -> None:
    """Write to several rows, each of them once, in any order. PostgreSQL is told of a few at a time in one statement:
    each takes a message and its answer, for which everybody waits who wants to change the study too."""
    if connection.kind == SQLITE:
        for statement, values in writes:
            statement.run(connection, values)
        return
    told = []
    for statement, values in writes:
        text, given = statement.spelt(POSTGRES, values)
        told.append((text, given(values)))
    told.sort(key=itemgetter(0))
    for begin in range(0, len(told), TOGETHER):
        some, each = zip(*told[begin : begin + TOGETHER], strict=True)
        connection.execute(joined(some), list(chain.from_iterable(each)))


@cache
def joined(texts: tuple[str, ...]) -> str:
    """Several statements as one: each but the last has a name."""
    *first, last = texts
    named = ", ".join(f"write_{i} AS ({each})" for i, each in enumerate(first))
    return f"WITH {named} {last}" if named else last


def rows_of(table: Table) -> str:
    return f"SELECT {', '.join(table.names)} FROM {table.name}"


NOW = Statement("SELECT {now} AS now", ["now"])

THIS = "id = :of_study AND token = :of_token"
ONE = "study = :of_study AND number = :of_number"

WHOLE = (*study.names, "now")
STUDY_ROW = f"SELECT {', '.join(study.names)}, {{now}} AS now FROM cabai_study"
STUDY = Statement(f"{STUDY_ROW} WHERE {THIS}", WHOLE)
STUDY_BY_NAME = Statement(f"{STUDY_ROW} WHERE name = :of_name", WHOLE)
STUDIES = Statement(f"{STUDY_ROW} ORDER BY id", WHOLE)
NAMES = Statement("SELECT name FROM cabai_study ORDER BY id", ["name"])
ADD_STUDY = Insert(study)
CHANGE_STUDY = Update(study, "id = :of_study")
DELETE_STUDY = Statement("DELETE FROM cabai_study WHERE name = :of_name RETURNING id", ["id"])

# Most of the row of a study that is to be changed; not what the policy remembers if that is known, by its revision.
MOST = [name for name in study.names if name not in ("settings", "memory", "tests")]
LOCKED = (
    f"SELECT {', '.join(MOST)}, CASE WHEN revision <> :of_revision THEN memory END AS memory, {{now}} AS now "
    f"FROM cabai_study WHERE {THIS}{{lock}}"
)
LOCKED_STUDY = Statement(LOCKED, [*MOST, "memory", "now"])

ARMS = Statement(f"{rows_of(arm)} WHERE study = :of_study ORDER BY number", arm.names)
ALL_ARMS = Statement(f"{rows_of(arm)} ORDER BY number", arm.names)
ADD_ARM = Insert(arm)
CHANGE_ARM = Update(arm, ONE)

PULLS = Statement(f"{rows_of(pull)} WHERE study = :of_study ORDER BY number", pull.names)
ALL_PULLS = Statement(f"{rows_of(pull)} ORDER BY number", pull.names)
PULL = Statement(f"{rows_of(pull)} WHERE {ONE}", pull.names)
ADD_PULL = Insert(pull)
CHANGE_PULL = Update(pull, ONE)
DROP_PULL = Statement(f"DELETE FROM cabai_pull WHERE {ONE}")
TAKE_PULL = Statement(f"DELETE FROM cabai_pull WHERE {ONE} RETURNING {', '.join(pull.names)}", pull.names)

# For PostgreSQL alone, in one message: the study's row is locked, and then the pull is taken. Who has waited for the
# lock finds the pull as it is now: PostgreSQL reads a row again that has changed since the statement began.
LOCK_AND_TAKE = Statement(
    f"WITH first AS ({LOCKED}), taken AS (DELETE FROM cabai_pull USING first WHERE cabai_pull.study = first.id "
    f"AND cabai_pull.number = :of_number RETURNING {', '.join(f'cabai_pull.{name}' for name in pull.names)}) "
    f"SELECT {', '.join(f'first.{name}' for name in (*MOST, 'memory', 'now'))}, "
    f"{', '.join(f'taken.{name} AS pull_{name}' for name in pull.names)} FROM first LEFT JOIN taken ON true",
    [*MOST, "memory", "now", *(f"pull_{name}" for name in pull.names)],
)

LOG_ROW = f"{rows_of(observation)} WHERE study = :of_study"
LOG = Statement(f"{LOG_ROW} ORDER BY place", observation.names)
LOGGED = Statement(f"{LOG_ROW} AND number = :of_number", observation.names)
PERIOD = Statement(f"{LOG_ROW} AND period = :of_period ORDER BY place", observation.names)
SCORE = ("number", "place", "arm", "item", "reward", "failed", "told", "offers")
SCORES = Statement(  # in a study with items, from a place of the log on
    f"SELECT {', '.join(SCORE)} FROM cabai_observation WHERE study = :of_study AND place > :of_place ORDER BY place",
    SCORE,
)
FIRST_REWARD = Statement(
    "SELECT min(number) AS number FROM cabai_observation WHERE study = :of_study AND reward IS NOT NULL", ["number"]
)
ADD_TO_LOG = Insert(observation)
# The rewards told after pull number `of_through` and before the first pull that is still waited for.
NEXT_IN_ORDER = Statement(
    f"{LOG_ROW} AND number > :of_through AND number < coalesce("
    "(SELECT min(number) FROM cabai_pull WHERE study = :of_study AND withdrawn IS NULL), 9223372036854775807) "
    "AND place > :of_unordered AND reward IS NOT NULL AND withdrawn IS NULL ORDER BY number",
    observation.names,
)
MOST_REASONS = 20
FAILURES = Statement(  # by arm and reason, the most frequent first
    "SELECT arm, failed AS reason, count(*) AS count, max(told) AS last FROM cabai_observation "
    "WHERE study = :of_study AND failed IS NOT NULL GROUP BY arm, failed "
    f"ORDER BY count DESC, last DESC, arm LIMIT {MOST_REASONS}",
    ["arm", "reason", "count", "last"],
)

AMENDMENTS = Statement(f"{rows_of(amendment)} WHERE study = :of_study ORDER BY number", amendment.names)
ADD_AMENDMENT = Insert(amendment)

POINTS = Statement(f"{rows_of(point)} WHERE study = :of_study ORDER BY told", point.names)
ADD_POINT = Insert(point)
