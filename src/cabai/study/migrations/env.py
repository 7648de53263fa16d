"""Run by Alembic. The connection, in a transaction of its own, comes from `cabai.study.migrating`."""

from alembic import context

from cabai.study.migrations.metadata import metadata
from cabai.study.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
