"""A report: sections of text, tables, figures and data; as Markdown and as one HTML file that opens offline."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from cabai import views
from cabai.paper.lab import Lab
from cabai.plots import as_bytes
from cabai.support.files import write_whole
from cabai.support.tables import table

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
class Picture:
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
    figures: list[Picture] = field(default_factory=list)
    data: dict[str, pd.DataFrame] = field(default_factory=dict)

    def add(self, caption: str, header: list[str], rows: list[list[str]], save: str = "") -> None:
        """Add a table; `save` names it among the data."""
        if save:
            self.data[save] = pd.DataFrame(rows, columns=header)
        self.tables.append(Table(caption, header, rows, self.commands()))

    def draw(self, name: str, caption: str, drawing: Drawing) -> None:
        """Add a figure."""
        self.figures.append(Picture(name, caption, drawing, self.commands()))

    def commands(self) -> list[str]:
        """Those that repeat what the lab gave out since the last call, each once."""
        taken, self.lab.commands = list(dict.fromkeys(self.lab.commands)), []
        return [self.lab.command(self.name), *taken]


def write_report(sections: list[Section], out: Path, heading: str) -> list[Path]:
    """Write report.html, report.md, figures/ and data/ to the folder `out`; no file appears half written."""
    contents: dict[Path, bytes] = {}
    for section in sections:
        for figure in section.figures:
            for kind in ("svg", "png"):
                contents[Path("figures") / f"{figure.name}.{kind}"] = as_bytes(figure.drawing, kind)
        for name, frame in section.data.items():
            buffer = io.BytesIO()
            frame.to_parquet(buffer, index=False)
            contents[Path("data") / f"{name}.parquet"] = buffer.getvalue()
    contents[Path("report.md")] = markdown(sections, heading).encode()
    contents[Path("report.html")] = page(sections, heading, contents).encode()
    return [write_whole(out / name, content) for name, content in contents.items()]


def text(section: Section) -> str:
    """A section for the terminal."""
    parts = [section.title, *section.text]
    parts += [f"{each.caption}\n{table([each.header, *each.rows], left=left_columns(each))}" for each in section.tables]
    return "\n\n".join(parts)


def left_columns(each: Table) -> int:
    """How many columns from the left hold words: those whose cells do not all start like numbers."""
    for i in range(len(each.header)):
        if all(row[i][:1] in "0123456789-+." for row in each.rows):
            return i
    return len(each.header)


def markdown(sections: list[Section], heading: str) -> str:
    lines = ["# The paper, reproduced", "", heading, ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for paragraph in section.text:
            lines += [paragraph, ""]
        for each in section.tables:
            left = left_columns(each)
            lines += [each.caption, "", "| " + " | ".join(each.header) + " |"]
            lines += ["|" + "|".join("---" if i < left else "--:" for i in range(len(each.header))) + "|"]
            lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in each.rows]
            lines += made_by(each.commands)
        for figure in section.figures:
            lines += [f"![{figure.caption}](figures/{figure.name}.svg)", "", f"*{figure.caption}*"]
            lines += made_by(figure.commands)
    return "\n".join(lines)


def made_by(commands: list[str]) -> list[str]:
    return ["", "Made by:", "", *(f"    {command}" for command in commands), ""]


def page(sections: list[Section], heading: str, contents: dict[Path, bytes]) -> str:
    """One HTML file, with its pictures inside."""
    pictures = {
        figure.name: base64.b64encode(contents[Path("figures") / f"{figure.name}.png"]).decode()
        for section in sections
        for figure in section.figures
    }
    return views.render(
        "reproduction.html", sections=sections, heading=heading, pictures=pictures, left_columns=left_columns
    )
