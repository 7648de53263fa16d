"""Studies, arms, pulls under way, and the log of observations."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def of_study() -> sa.Column[int]:
    return sa.Column(
        "study", Number, sa.ForeignKey("cabai_study.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )


def upgrade() -> None:
    op.create_table(
        "cabai_study",
        sa.Column("id", Number, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("token", sa.String(16), nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("stamp", Number, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("asked", Number, nullable=False),
        sa.Column("told", Number, nullable=False),
        sa.Column("spent", sa.Double, nullable=False),
        sa.Column("counted", sa.Double, nullable=False),
        sa.Column("memory", sa.Text, nullable=False),
        sa.Column("stopped", sa.Double),
        sa.Column("reason", sa.String(20)),
        sa.Column("decision", Number),
        sa.Column("confidence", sa.Double),
        sa.Column("told_at_stop", Number),
        sa.Column("spent_at_stop", sa.Double),
    )
    op.create_table(
        "cabai_arm",
        of_study(),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("pulls", Number, nullable=False),
        sa.Column("rewards", sa.Double, nullable=False),
        sa.Column("first", sa.Double, nullable=False),
        sa.Column("costs", sa.Double, nullable=False),
        sa.Column("spent", sa.Double, nullable=False),
        sa.Column("failures", Number, nullable=False),
    )
    op.create_table(
        "cabai_pull",
        of_study(),
        sa.Column("number", Number, primary_key=True, autoincrement=False),
        sa.Column("arm", sa.Integer, nullable=False),
        sa.Column("asked", sa.Double, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
        sa.Column("offers", sa.Integer, nullable=False),
        sa.Column("worker", sa.String(200)),
    )
    op.create_table(
        "cabai_observation",
        of_study(),
        sa.Column("number", Number, primary_key=True, autoincrement=False),
        sa.Column("place", Number, nullable=False),
        sa.Column("arm", sa.Integer, nullable=False),
        sa.Column("reward", sa.Double),
        sa.Column("cost", sa.Double, nullable=False),
        sa.Column("failed", sa.Text),
        sa.Column("asked", sa.Double, nullable=False),
        sa.Column("told", sa.Double, nullable=False),
        sa.Column("worker", sa.String(200)),
    )
