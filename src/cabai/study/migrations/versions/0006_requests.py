"""A pull remembers the request that it answers, so that a request made again is answered with the same pull."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("cabai_pull", sa.Column("request", sa.String(200)))
