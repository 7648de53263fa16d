"""The tables of `cabai.study.schema` as SQLAlchemy describes them, to compare with what the migrations make."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from cabai.study import schema

KINDS: dict[str, Any] = {
    schema.NUMBER: sa.BigInteger().with_variant(sa.Integer, "sqlite"),
    schema.INTEGER: sa.Integer(),
    schema.DOUBLE: sa.Double(),
    schema.TEXT: sa.Text(),
    **{kind: sa.String(length) for kind, length in schema.LENGTHS.items()},
}

metadata = sa.MetaData()


def table_of(table: schema.Table) -> sa.Table:
    return sa.Table(table.name, metadata, *(column_of(table, column) for column in table.columns))


def column_of(table: schema.Table, column: schema.Column) -> sa.Column[Any]:
    of_study = [sa.ForeignKey("cabai_study.id", ondelete="CASCADE")] if column is schema.OF_STUDY else []
    counted: dict[str, Any] = {"autoincrement": False} if column.is_key and table is not schema.study else {}
    return sa.Column(
        column.name, KINDS[column.kind], *of_study, primary_key=column.is_key, nullable=not column.is_needed,
        default=column.first, server_default=column.default, **counted,
        unique=True if (table, column.name) == (schema.study, "name") else None,
    )  # fmt: skip


study, arm, pull, observation, amendment, point = map(table_of, schema.TABLES)
