"""A part of the report: text, tables, figures and data, whatever it is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing


@dataclass
class Table:
    """Rows of text under a header, a caption, and the command or commands that repeat the numbers."""

    caption: str
    header: list[str]
    rows: list[list[str]]
    commands: list[str]


@dataclass
class Figure:
    """A figure with the name of its file, a caption, and the command that repeats it."""

    name: str
    caption: str
    drawing: Drawing
    commands: list[str]


@dataclass
class Section:
    name: str
    title: str
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    data: dict[str, pd.DataFrame] = field(default_factory=dict)

    def add(self, caption: str, header: list[str], rows: list[list[str]], commands: list[str]) -> None:
        """Add a table."""
        self.tables.append(Table(caption, header, rows, commands))
