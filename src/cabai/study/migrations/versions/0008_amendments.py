"""Settings may be amended, with a log of it; and a row of the log may be of many pulls, or from elsewhere."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
WHOLE = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    # Processes of an older version that are still at work must not go by settings that were amended since: they fail
    # with every call from now on, since they know the column by its old name.
    op.execute("ALTER TABLE cabai_study RENAME COLUMN counted_before TO unordered")
    op.add_column("cabai_study", sa.Column("amended", WHOLE, nullable=False, server_default="0"))
    op.add_column("cabai_study", sa.Column("beyond", WHOLE, nullable=False, server_default="0"))
    op.add_column("cabai_observation", sa.Column("pulls", WHOLE, nullable=False, server_default="1"))
    op.add_column("cabai_observation", sa.Column("period", sa.String(200)))
    op.add_column("cabai_observation", sa.Column("origin", sa.String(200)))
    op.create_table(
        "cabai_amendment",
        sa.Column(
            "study", WHOLE, sa.ForeignKey("cabai_study.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
        ),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("made", sa.Double, nullable=False),
        sa.Column("made_by", sa.String(200)),
        sa.Column("changes", sa.Text, nullable=False),
        sa.Column("reopened", sa.String(20)),
    )
