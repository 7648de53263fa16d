"""cabai reproduce: the paper's tables, figures and claims."""

from __future__ import annotations

from typing import Any

from cabai.cli.options import argument, option, takes
from cabai.cli.tools import progress_shown
from cabai.paper import MORE, PARTS
from cabai.support.validation import InvalidInput


@takes("reproduce")
def reproduce(
    part: str = argument(f"What to reproduce: {', '.join(PARTS)}, all of these, or {', '.join(MORE)}.", "all"),
    out: str = option("Folder for report.html, report.md, figures and data.", "results"),
    quick: bool = option("Use 100 trajectories: rough numbers in seconds.", False),
    **settings: Any,
) -> tuple[Any, Any]:
    """Reproduce the paper's tables, figures and claims.

    Compares them with the numbers printed in the paper, and writes a report.

    Example: cabai reproduce all --out results
    """
    from cabai.paper import reproduce
    from cabai.paper.report import text

    if not out:
        raise InvalidInput("--out must name a folder, got ''.")
    with progress_shown() as progress:
        sections, written = reproduce(part, out=out, quick=quick, **settings, progress=progress)
    about = {
        "files": [str(path) for path in written],
        "sections": [
            {"name": each.name, "title": each.title, "text": each.text,
             "tables": [{"caption": t.caption, "header": t.header, "rows": t.rows} for t in each.tables]}
            for each in sections
        ],
    }  # fmt: skip
    lines = [text(section) + "\n" for section in sections]
    return about, "\n".join([*lines, *(f"written: {path}" for path in written if path.suffix in (".html", ".svg"))])
