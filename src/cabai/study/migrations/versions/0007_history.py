"""A study keeps some points of its history: how much evidence there was, and what had been spent."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "cabai_point",
        sa.Column(
            "study", number, sa.ForeignKey("cabai_study.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
        ),
        sa.Column("told", number, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("spent", sa.Double, nullable=False),
        sa.Column("arms", sa.Integer, nullable=False),
        sa.Column("leader", sa.Integer),
        sa.Column("rival", sa.Integer),
        sa.Column("evidence", sa.Double),
        sa.Column("required", sa.Double),
    )
