"""A report: sections of text, tables, figures and data; as Markdown and as one HTML file that opens offline."""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from cabai.paper.lab import Lab
from cabai.plots import as_bytes
from cabai.support.files import write_whole
from cabai.support.tables import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

STYLE = """
body { font: 16px/1.5 Georgia, serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
h1, h2 { font-family: Helvetica, Arial, sans-serif; line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; font: 13px/1.4 Helvetica, Arial, sans-serif; margin: 1rem 0 .3rem; width: 100%; }
th, td { padding: .25rem .6rem; text-align: right; vertical-align: top; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #111; } td.text, th.text { text-align: left; }
td.text { overflow-wrap: anywhere; min-width: 5rem; }
figure { margin: 1.5rem 0; } figure img { width: 100%; }
figcaption, caption { text-align: left; font-size: 14px; color: #333; }
caption { caption-side: top; padding-bottom: .3rem; }
details { font-size: 13px; color: #333; margin-bottom: 1.2rem; }
pre { overflow-x: auto; background: #f6f6f6; padding: .6rem; }
nav a { margin-right: 1rem; }
"""


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
    links = "".join(f'<a href="#{section.name}">{html.escape(section.title)}</a> ' for section in sections)
    body = "\n".join(section_html(section, contents) for section in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The paper, reproduced</title>'
        f"<style>{STYLE}</style></head><body><h1>The paper, reproduced</h1><p>{html.escape(heading)}</p>"
        f"<nav>{links}</nav>\n{body}\n</body></html>\n"
    )


def section_html(section: Section, contents: dict[Path, bytes]) -> str:
    parts = [f'<section id="{section.name}"><h2>{html.escape(section.title)}</h2>']
    parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in section.text]
    for each in section.tables:
        kinds = ["text" if i < left_columns(each) else "number" for i in range(len(each.header))]
        parts.append(f"<table><caption>{html.escape(each.caption)}</caption>")
        for tag, row in (("th", each.header), *(("td", row) for row in each.rows)):
            cells = (f'<{tag} class="{kind}">{html.escape(cell)}' for kind, cell in zip(kinds, row, strict=True))
            parts.append(f"<tr>{''.join(cells)}")
        parts.append(f"</table>{commands_html(each.commands)}")
    for figure in section.figures:
        image = base64.b64encode(contents[Path("figures") / f"{figure.name}.png"]).decode()
        caption = html.escape(figure.caption)
        parts.append(f'<figure><img alt="{caption}" src="data:image/png;base64,{image}">')
        parts.append(f"<figcaption>{caption}</figcaption></figure>{commands_html(figure.commands)}")
    return "\n".join([*parts, "</section>"])


def commands_html(commands: list[str]) -> str:
    lines = html.escape("\n".join(commands))
    return f"<details><summary>the commands that make these numbers</summary><pre>{lines}</pre></details>"
