"""The largest cost of a pull of each arm, which a pull under way reserves of a budget."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("cabai_arm", sa.Column("largest_cost", sa.Double))
    op.execute(
        "UPDATE cabai_arm SET largest_cost = (SELECT max(cost) FROM cabai_observation AS told "
        "WHERE told.study = cabai_arm.study AND told.arm = cabai_arm.number)"
    )
