"""A pull may be of an item of a dataset."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for table in ("cabai_pull", "cabai_observation"):
        op.add_column(table, sa.Column("item", sa.BigInteger().with_variant(sa.Integer, "sqlite")))
