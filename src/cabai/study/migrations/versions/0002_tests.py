"""How `cabai run` tries each arm of a study."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("cabai_study", sa.Column("tests", sa.Text))
