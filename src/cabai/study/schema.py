"""How studies are stored: six tables, the same in SQLite and PostgreSQL. Importing this imports SQLAlchemy.

`cabai_observation` is the log: rows are added and never changed, as are those of `cabai_amendment`. `cabai_arm` and
`cabai_study` hold the sums over it and the policy's memory, and change in the same transaction. `cabai_pull` holds the
pulls that are under way, and `cabai_point` a few hundred points of the history, for pictures. Times are seconds since
1970, UTC.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Integer, MetaData, String, Table, Text

REVISION = "0008"  # the newest migration in `migrations/versions`
VERSION_TABLE = "cabai_version"

metadata = MetaData()
Number = BigInteger().with_variant(Integer, "sqlite")


def belongs_to_study() -> Column[int]:
    return Column(
        "study", Number, ForeignKey("cabai_study.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )


study = Table(
    "cabai_study",
    metadata,
    Column("id", Number, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("token", String(16), nullable=False),  # the first part of every pull's id
    Column("created", Double, nullable=False),
    Column("revision", Number, nullable=False, default=0),  # another random number with every change
    Column("settings", Text, nullable=False),  # JSON: what `create_study` was given, as amended since
    Column("amended", Number, nullable=False, default=0, server_default="0"),  # how often
    Column("asked", Number, nullable=False, default=0),  # pulls handed out so far
    Column("told", Number, nullable=False, default=0),  # rows of the log
    Column("spent", Double, nullable=False, default=0.0),  # the bill
    Column("counted", Double, nullable=False, default=0.0),  # the sum of costs as the policy counts them
    Column("through", Number, nullable=False, default=0, server_default="0"),  # no result up to this pull is to count
    Column("unordered", Number, nullable=False, default=0, server_default="0"),  # rows of the log that an older
    # version counted in the order of telling
    Column("beyond", Number, nullable=False, default=0, server_default="0"),  # pulls that the log sums up, beyond its
    # rows
    Column("memory", Text, nullable=False, default="{}"),  # JSON: what the policy remembers
    Column("stopped", Double),  # when
    Column("reason", String(20)),  # evidence, max_cost, max_pulls, certificate or by hand
    Column("decision", Number),  # the number of the arm that led when it stopped
    Column("confidence", Double),  # 1 - delta, or what was reached at the limit
    Column("told_at_stop", Number),
    Column("spent_at_stop", Double),
    Column("tests", Text),  # JSON: how `cabai run` tries each arm; null until it has
)

arm = Table(
    "cabai_arm",
    metadata,
    belongs_to_study(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", String(200), nullable=False),
    Column("pulls", Number, nullable=False, default=0),  # that returned a reward
    Column("rewards", Double, nullable=False, default=0.0),  # their sum, as kernels see it: mirrored to minimize
    Column("first", Double, nullable=False, default=0.0),
    Column("costs", Double, nullable=False, default=0.0),  # as the policy counts them
    Column("spent", Double, nullable=False, default=0.0),  # as they were paid, failed pulls included
    Column("failures", Number, nullable=False, default=0),
    Column("largest_cost", Double),  # of one pull, failed pulls included; null until one is told
    Column("offers", Number, nullable=False, default=0, server_default="0"),  # of pulls told
    Column("lapses", Number, nullable=False, default=0, server_default="0"),  # of pulls told: leases that ended
    Column("discarded", Number, nullable=False, default=0, server_default="0"),  # rewards told of withdrawn pulls
    Column("squares", Double, default=0.0),  # of (reward - first) over the results that count; null where unknown
    # The same sums over the results that count: in the order of asking, up to the first pull that is missing.
    Column("ordered_pulls", Number, nullable=False, default=0, server_default="0"),
    Column("ordered_rewards", Double, nullable=False, default=0.0, server_default="0"),
    Column("ordered_first", Double, nullable=False, default=0.0, server_default="0"),
    Column("ordered_costs", Double, nullable=False, default=0.0, server_default="0"),
)

pull = Table(
    "cabai_pull",
    metadata,
    belongs_to_study(),
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("arm", Integer, nullable=False),
    Column("asked", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("offers", Integer, nullable=False, default=1),
    Column("worker", String(200)),
    Column("lapses", Integer, nullable=False, default=0, server_default="0"),  # leases that ended without a result
    Column("withdrawn", Double),  # when it was given up: no result waits for it
    Column("item", Number),  # the number of the item to be evaluated, from 0; null in a study without items
    Column("request", String(200)),  # of its worker's, by which it is handed out again if the answer was lost
)

observation = Table(
    "cabai_observation",
    metadata,
    belongs_to_study(),
    Column("number", Number, primary_key=True, autoincrement=False),  # the pull's: one row a pull, for ever
    Column("place", Number, nullable=False),  # in the order of telling, from 1
    Column("arm", Integer, nullable=False),
    Column("reward", Double),  # as it was told; none where the pull failed
    Column("cost", Double, nullable=False),
    Column("failed", Text),  # why
    Column("asked", Double, nullable=False),
    Column("told", Double, nullable=False),
    Column("worker", String(200)),
    Column("offers", Integer, nullable=False, default=1, server_default="1"),
    Column("withdrawn", Double),  # as the pull was: then it never counts
    Column("item", Number),  # as the pull's
    Column("pulls", Number, nullable=False, server_default="1"),  # of which the reward and cost are sums
    Column("period", String(200)),  # by which several such rows are known, told together
    Column("origin", String(200)),  # where it was imported from
)

amendment = Table(
    "cabai_amendment",
    metadata,
    belongs_to_study(),
    Column("number", Integer, primary_key=True, autoincrement=False),  # from 1
    Column("made", Double, nullable=False),
    Column("made_by", String(200)),
    Column("changes", Text, nullable=False),  # JSON: by the name of each setting, what it was and what it is
    Column("reopened", String(20)),  # why the study had stopped that went on again; null if it had not
)

point = Table(
    "cabai_point",
    metadata,
    belongs_to_study(),
    Column("told", Number, primary_key=True, autoincrement=False),  # rows of the log
    Column("time", Double, nullable=False),
    Column("spent", Double, nullable=False),
    Column("arms", Integer, nullable=False),  # in play
    Column("leader", Integer),
    Column("rival", Integer),
    Column("evidence", Double),
    Column("required", Double),
)
