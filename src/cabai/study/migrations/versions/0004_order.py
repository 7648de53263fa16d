"""Results count in the order in which their pulls were asked. What was counted before stays counted."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def whole(name: str, start: str = "0") -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column(name, kind, nullable=False, server_default=start)


def upgrade() -> None:
    # Processes of an older version that are still at work must not write what they would count as it is told: they
    # fail with every call from now on, since they know the column by its old name.
    op.execute("ALTER TABLE cabai_study RENAME COLUMN stamp TO revision")
    op.add_column("cabai_study", whole("through"))
    op.add_column("cabai_study", whole("counted_before"))
    for name in ("offers", "lapses", "discarded", "ordered_pulls"):
        op.add_column("cabai_arm", whole(name))
    for name in ("ordered_rewards", "ordered_first", "ordered_costs"):
        op.add_column("cabai_arm", sa.Column(name, sa.Double, nullable=False, server_default="0"))
    op.add_column("cabai_arm", sa.Column("squares", sa.Double))  # unknown of what was told before
    op.add_column("cabai_pull", sa.Column("lapses", sa.Integer, nullable=False, server_default="0"))
    op.add_column("cabai_pull", sa.Column("withdrawn", sa.Double))
    op.add_column("cabai_observation", sa.Column("offers", sa.Integer, nullable=False, server_default="1"))
    op.add_column("cabai_observation", sa.Column("withdrawn", sa.Double))
    op.execute(
        "UPDATE cabai_arm SET ordered_pulls = pulls, ordered_rewards = rewards, ordered_first = first, "
        "ordered_costs = costs, offers = pulls + failures"
    )
    op.execute(
        "UPDATE cabai_study SET counted_before = told, through = coalesce((SELECT min(number) - 1 FROM cabai_pull AS "
        "missing WHERE missing.study = cabai_study.id), asked)"
    )
