"""Render templates: whole pages, parts of pages, and tables for notebooks. Imports Jinja on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cabai.views import words
from cabai.views.assumed import asked, assumptions, question
from cabai.views.drawing import Chart
from cabai.views.study_view import StudyView, charts, left, table_of, time_to_come, to_come

if TYPE_CHECKING:
    from jinja2 import Environment

    from cabai.study.show.status import Status

HERE = Path(__file__).parent
PARTS = ["summary", "arms", "history", "pulls", "failures"]  # of a study's page; each is sent again when it changes
FEW = 20  # arms: with more, their table comes after the pictures


@cache
def environment() -> Environment:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=-1,
        auto_reload=False,
    )
    for name in ("number", "money", "rough", "percent", "moment", "duration"):
        made.filters[name] = getattr(words, name)
    made.filters["as_path"] = lambda name: quote(name, safe="")
    return made


def render(template: str, **values: Any) -> str:
    return environment().get_template(template).render(**values)


def asset(name: str) -> str:
    return (HERE / "assets" / name).read_text(encoding="utf-8")


def about(view: StudyView) -> dict[str, Any]:
    """The values for the templates of a study."""
    status = view.status
    rows, scale = table_of(status)
    return {
        "view": view, "status": status, "rows": rows, "charts": charts(view), "scale": scale,
        "to_come": to_come(status), "time_to_come": time_to_come(status), "left": left(status),
    }  # fmt: skip


def fragments(view: StudyView) -> dict[str, str]:
    values, last = about(view), ["arms"] if len(view.status.arms) > FEW else []
    order = [name for name in PARTS if name not in last] + last
    return {name: render(f"{name}.html", **values) for name in order}


def page(view: StudyView) -> str:
    return render("page.html", parts=fragments(view), status=view.status)


def report(view: StudyView, settings: Mapping[str, Any], version: str) -> str:
    """A self-contained HTML file: what was asked, assumed, paid and decided."""
    status = view.status
    return render(
        "report.html", style=asset("style.css"), parts=fragments(view), settings=asked(status, settings),
        question=question(status), assumptions=assumptions(status), version=version, **about(view),
    )  # fmt: skip


def notebook(view: StudyView, without: Sequence[str] = ()) -> str:
    """A study in a notebook: its status, arms and history."""
    parts = fragments(view)
    content = "".join(parts[name] for name in ("summary", "arms", "history") if name not in without)
    return render("notebook.html", style=asset("style.css"), title=view.status.name, content=content)


def table(
    rows: Sequence[Sequence[str]],
    *,
    above: Sequence[str] = (),
    below: Sequence[str] = (),
    bars: Sequence[Any] = (),
    charts: Sequence[Chart] = (),
) -> str:
    """A table in a notebook, with the heading as its first row and text above and below. `bars` adds a column of bars:
    its heading, then a share per row."""
    content = render("table.html", rows=rows, above=above, below=below, bars=bars, charts=charts)
    return render("notebook.html", style=asset("style.css"), title="", content=content)


def status_table(status: Status) -> str:
    """A status in a notebook, without its history."""
    return notebook(StudyView(status), without=("history",))
