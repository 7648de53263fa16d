"""The paper's tables, figures and claims, reproduced by one command."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from cabai.support.files import file_to_write
from cabai.support.validation import InvalidInput, whole

if TYPE_CHECKING:
    from cabai.paper.report import Section
    from cabai.simulation.engines import EngineLike

# name, file and function of each part, in the order of the report
PARTS = {
    "table1": ("tables", "table_1"),
    "table2": ("tables", "table_2"),
    "figure2": ("tables", "figure_2"),
    "claims": ("claims", "claims"),
    "statements": ("statements", "statements"),
    "errata": ("errata", "errata"),
}
MORE = {"top-two": ("top_two", "top_two")}  # not in the paper, and not in the report of `all`


def reproduce(
    part: str = "all",
    *,
    out: str | Path | None = None,
    trajectories: int = 1000,
    seed: int = 0,
    quick: bool = False,
    workers: int | None = None,
    engine: EngineLike = None,
    address: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[list[Section], list[Path]]:
    """Reproduce a part of the paper, or all of it; write a report to the folder `out` if given.

    The part `top-two` is not in the paper, and `all` leaves it out.

    Returns the sections of the report and the files written. `quick` runs 100 trajectories; `progress` is called with a
    line about what is being done. `workers`, `engine` and `address` are those of `simulate`; what is timed for a table,
    and the small simulations of the errata, run in this process whatever they say.
    """
    from cabai.paper.lab import Lab
    from cabai.simulation.engines import opened

    known = PARTS | MORE
    if part != "all" and part not in known:
        raise InvalidInput(f"unknown part {part!r}; known: {', '.join(known)}, all.")
    if out is not None:
        file_to_write(Path(out) / "report.html")
    count = 100 if quick else whole(trajectories, "trajectories", 20)
    sections = []
    with opened(engine, workers=workers, address=address) as place:
        lab = Lab(count, seed, place, quick, progress or (lambda text: None))
        for name in PARTS if part == "all" else [part]:
            file, function = known[name]
            sections.append(getattr(import_module(f"cabai.paper.{file}"), function)(lab))
    if out is None:
        return sections, []
    from cabai.paper.report import write_report
    from cabai.paper.tables import machine

    heading = f"Made by `{lab.command(part)}` on {machine()}."
    return sections, write_report(sections, Path(out), heading)
