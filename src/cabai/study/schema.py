"""How studies are stored: six tables, the same in SQLite and PostgreSQL.

`cabai_observation` is the log: rows are added and never changed, as are those of `cabai_amendment`. `cabai_arm` and
`cabai_study` hold the sums over it and the policy's memory, and change in the same transaction. `cabai_pull` holds the
pulls that are under way, and `cabai_point` a few hundred points of the history, for pictures. Times are seconds since
1970, UTC.

The migrations make the tables. `migrations/metadata.py` says the same to SQLAlchemy; the tests compare the two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

REVISION = "0008"  # the newest migration in `migrations/versions`
VERSION_TABLE = "cabai_version"

NUMBER, INTEGER, DOUBLE, TEXT, LINE, WORD = "number", "integer", "double", "text", "line", "word"  # kinds of values
TOKEN = "token"
LENGTHS = {LINE: 200, WORD: 20, TOKEN: 16}  # characters at most


class Column(NamedTuple):
    """A column: `first` is what a new row has if nothing else is said, `default` what the database itself fills in."""

    name: str
    kind: str
    is_needed: bool = True
    first: Any = None
    default: str | None = None
    is_key: bool = False


class Table(NamedTuple):
    name: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def new(self, **values: Any) -> dict[str, Any]:
        """A new row."""
        return {column.name: column.first for column in self.columns if column.first is not None} | values


def needed(name: str, kind: str, *, first: Any = None, default: str | None = None) -> Column:
    return Column(name, kind, first=first, default=default)


def maybe(name: str, kind: str, *, first: Any = None) -> Column:
    return Column(name, kind, is_needed=False, first=first)


def key(name: str, kind: str) -> Column:
    return Column(name, kind, is_key=True)


OF_STUDY = key("study", NUMBER)  # whose row goes with its study's

study = Table(
    "cabai_study",
    (
        key("id", NUMBER),  # which the database counts
        needed("name", LINE),  # no two have the same
        needed("token", TOKEN),  # the first part of every pull's id
        needed("created", DOUBLE),
        needed("revision", NUMBER, first=0),  # another random number with every change
        needed("settings", TEXT),  # JSON: what `create_study` was given, as amended since
        needed("amended", NUMBER, default="0"),  # how often
        needed("asked", NUMBER, first=0),  # pulls handed out so far
        needed("told", NUMBER, first=0),  # rows of the log
        needed("spent", DOUBLE, first=0.0),  # the bill
        needed("counted", DOUBLE, first=0.0),  # the sum of costs as the policy counts them
        needed("through", NUMBER, default="0"),  # no result up to this pull is to count
        needed(
            "unordered", NUMBER, default="0"
        ),  # rows of the log that an older version counted in the order of telling
        needed("beyond", NUMBER, default="0"),  # pulls that the log sums up, beyond its rows
        needed("memory", TEXT, first="{}"),  # JSON: what the policy remembers
        maybe("stopped", DOUBLE),  # when
        maybe("reason", WORD),  # evidence, max_cost, max_pulls, certificate or by hand
        maybe("decision", NUMBER),  # the number of the arm that led when it stopped
        maybe("confidence", DOUBLE),  # 1 - delta, or what was reached at the limit
        maybe("told_at_stop", NUMBER),
        maybe("spent_at_stop", DOUBLE),
        maybe("tests", TEXT),  # JSON: how `cabai run` tries each arm; null until it has
    ),
)

arm = Table(
    "cabai_arm",
    (
        OF_STUDY,
        key("number", INTEGER),
        needed("name", LINE),
        needed("pulls", NUMBER, first=0),  # that returned a reward
        needed("rewards", DOUBLE, first=0.0),  # their sum, as kernels see it: mirrored to minimize
        needed("first", DOUBLE, first=0.0),
        needed("costs", DOUBLE, first=0.0),  # as the policy counts them
        needed("spent", DOUBLE, first=0.0),  # as they were paid, failed pulls included
        needed("failures", NUMBER, first=0),
        maybe("largest_cost", DOUBLE),  # of one pull, failed pulls included; null until one is told
        needed("offers", NUMBER, default="0"),  # of pulls told
        needed("lapses", NUMBER, default="0"),  # of pulls told: leases that ended
        needed("discarded", NUMBER, default="0"),  # rewards told of withdrawn pulls
        maybe("squares", DOUBLE, first=0.0),  # of (reward - first) over the results that count; null where unknown
        # The same sums over the results that count: in the order of asking, up to the first pull that is missing.
        needed("ordered_pulls", NUMBER, default="0"),
        needed("ordered_rewards", DOUBLE, default="0"),
        needed("ordered_first", DOUBLE, default="0"),
        needed("ordered_costs", DOUBLE, default="0"),
    ),
)

pull = Table(
    "cabai_pull",
    (
        OF_STUDY,
        key("number", NUMBER),
        needed("arm", INTEGER),
        needed("asked", DOUBLE),
        needed("expires", DOUBLE),
        needed("offers", INTEGER),
        maybe("worker", LINE),
        needed("lapses", INTEGER, default="0"),  # leases that ended without a result
        maybe("withdrawn", DOUBLE),  # when it was given up: no result waits for it
        maybe("item", NUMBER),  # the number of the item to be evaluated, from 0; null in a study without items
        maybe("request", LINE),  # the worker's name for its request: a repeated one gets the same pulls
    ),
)

observation = Table(
    "cabai_observation",
    (
        OF_STUDY,
        key("number", NUMBER),  # the pull's: one row per pull, for ever
        needed("place", NUMBER),  # in the order of telling, from 1
        needed("arm", INTEGER),
        maybe("reward", DOUBLE),  # as it was told; none where the pull failed
        needed("cost", DOUBLE),
        maybe("failed", TEXT),  # why
        needed("asked", DOUBLE),
        needed("told", DOUBLE),
        maybe("worker", LINE),
        needed("offers", INTEGER, default="1"),
        maybe("withdrawn", DOUBLE),  # as the pull was: then it never counts
        maybe("item", NUMBER),  # as the pull's
        needed("pulls", NUMBER, default="1"),  # of which the reward and cost are sums
        maybe("period", LINE),  # by which several such rows are known, told together
        maybe("origin", LINE),  # where it was imported from
    ),
)

amendment = Table(
    "cabai_amendment",
    (
        OF_STUDY,
        key("number", INTEGER),  # from 1
        needed("made", DOUBLE),
        maybe("made_by", LINE),
        needed("changes", TEXT),  # JSON: by the name of each setting, what it was and what it is
        maybe("reopened", WORD),  # why the study had stopped that went on again; null if it had not
    ),
)

point = Table(
    "cabai_point",
    (
        OF_STUDY,
        key("told", NUMBER),  # rows of the log
        needed("time", DOUBLE),
        needed("spent", DOUBLE),
        needed("arms", INTEGER),  # in play
        maybe("leader", INTEGER),
        maybe("rival", INTEGER),
        maybe("evidence", DOUBLE),
        maybe("required", DOUBLE),
    ),
)

TABLES = (study, arm, pull, observation, amendment, point)
