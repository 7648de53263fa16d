"""Bring tables of an earlier version up to date. Importing this imports SQLAlchemy and Alembic."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from cabai.study import schema
from cabai.study.errors import StorageError


def config() -> Config:
    made = Config()
    made.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    return made


def upgrade(connection: sa.Connection, found: str | None, url: str) -> None:
    """Make the tables, or bring those of the version `found` up to date, in the connection's transaction; refuse those
    of a newer cabai."""
    migrations = config()
    known = [script.revision for script in ScriptDirectory.from_config(migrations).walk_revisions()]
    if found is not None and found not in known:
        raise StorageError(
            f"storage {url} was written by a newer cabai (tables of version {found}, this one knows "
            f"{schema.REVISION}): upgrade cabai. Nothing was changed."
        )
    migrations.attributes["connection"] = connection
    command.upgrade(migrations, "head")
