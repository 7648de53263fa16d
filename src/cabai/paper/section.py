"""A part of the report: text, tables, figures and data, whatever it is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from cabai.paper.lab import Lab

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass
class Table:
    """Rows of text under a header, a caption, and the commands that repeat the numbers."""

    caption: str
    header: list[str]
    rows: list[list[str]]
    commands: list[str]


@dataclass
class Figure:
    """A figure with the name of its file, a caption, and the commands that repeat it."""

    name: str
    caption: str
    drawing: Drawing
    commands: list[str]


@dataclass
class Section:
    """A table and a figure name the command that makes the section, and those of the trajectories asked for since."""

    lab: Lab
    name: str
    title: str
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    data: dict[str, pd.DataFrame] = field(default_factory=dict)

    def add(self, caption: str, header: list[str], rows: list[list[str]], save: str = "") -> None:
        """Add a table; `save` names it among the data."""
        if save:
            self.data[save] = pd.DataFrame(rows, columns=header)
        self.tables.append(Table(caption, header, rows, self.commands()))

    def draw(self, name: str, caption: str, drawing: Drawing) -> None:
        """Add a figure."""
        self.figures.append(Figure(name, caption, drawing, self.commands()))

    def commands(self) -> list[str]:
        return [self.lab.command(self.name), *self.lab.taken()]
