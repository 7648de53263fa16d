"""cabai reproduce: the paper's tables, figures and claims."""

from __future__ import annotations

from typing import Annotated

import typer

from cabai.cli.options import (
    AddressOption,
    EngineOption,
    SchedulerOption,
    SeedOption,
    TrajectoriesOption,
    WorkersOption,
    read_engine,
)
from cabai.cli.tools import (
    JsonOption,
    show_json,
    status_line,
    told_what_is_cancelled,
)
from cabai.paper import MORE, PARTS
from cabai.support.validation import InvalidInput


def reproduce(
    part: Annotated[
        str, typer.Argument(help=f"What to reproduce: {', '.join(PARTS)}, all of these, or {', '.join(MORE)}.")
    ] = "all",
    out: Annotated[str, typer.Option("--out", help="Folder for report.html, report.md, figures and data.")] = "results",
    trajectories: TrajectoriesOption = 1000,
    seed: SeedOption = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Use 100 trajectories: rough numbers in seconds.")] = False,
    workers: WorkersOption = None,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reproduce the paper's tables, figures and claims.

    Compares them with the numbers printed in the paper, and writes a report.

    Example: cabai reproduce all --out results
    """
    from cabai.paper import reproduce
    from cabai.paper.report import text

    place = read_engine(engine, scheduler, address)
    if not out:
        raise InvalidInput("--out must name a folder, got ''.")
    with told_what_is_cancelled(), status_line() as progress:
        sections, written = reproduce(
            part,
            out=out,
            trajectories=trajectories,
            seed=seed,
            quick=quick,
            workers=workers,
            **place,
            progress=progress,
        )
    if as_json:
        show_json({
            "files": [str(path) for path in written],
            "sections": [
                {"name": each.name, "title": each.title, "text": each.text,
                 "tables": [{"caption": t.caption, "header": t.header, "rows": t.rows} for t in each.tables]}
                for each in sections
            ],
        })  # fmt: skip
        return
    for section in sections:
        typer.echo(text(section) + "\n")
    typer.echo("\n".join(f"written: {path}" for path in written if path.suffix in (".html", ".svg")))
