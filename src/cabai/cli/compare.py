"""cabai compare: what several policies pay."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cabai.cli.options import read_instance, read_names, read_numbers, takes
from cabai.cli.tools import picture_to_write, progress_bar, told_what_is_cancelled, with_written
from cabai.settings import defaults_for
from cabai.support.validation import InvalidInput


@takes("instance", "compare", optional=("means", "costs", "trajectories"))
def compare(
    plot: Annotated[
        str | None, typer.Option("--plot", help="Also plot what each policy pays, to this .png or .svg file.")
    ] = None,
    on_grid: Annotated[
        bool, typer.Option("--grid", help="Compare on random instances instead of --means and --costs.")
    ] = False,
    deltas: Annotated[str, typer.Option("--deltas", help="With --grid: values of delta to compare.")] = "0.1,0.01,1e-6",
    arms: Annotated[str, typer.Option("--arms", help="With --grid: numbers of arms.")] = "3,10,50",
    instances: Annotated[
        int, typer.Option("--instances", help="With --grid: number of random instances per number of arms.")
    ] = 10,
    **settings: Any,
) -> tuple[Any, Any]:
    """Compare what several policies pay on the same instance.

    All policies see the same rewards and costs. With --grid, compares on random instances whose costs differ up to a
    hundredfold: every policy with every --threshold (separated by commas) at every delta. Default: 1000 trajectories,
    or 100 per instance of a grid.

    Example: cabai compare --family bernoulli --means 0.9,0.6,0.3 --costs 1,0.1,0.01 --policies co,ctas,tas --delta 0.01

    Example: cabai compare --grid --family gaussian --policies top-two,co --trajectories 100
    """
    from cabai.plots import comparison_figure, save
    from cabai.simulation import compare

    if settings["keep"] != "rows" and (plot is not None or on_grid):
        raise InvalidInput("--plot and --grid need --keep rows: they use every trajectory.")
    if on_grid:
        return compared_on_grid(settings | {"plot": plot}, deltas, arms, instances)
    if settings["means"] is None or settings["costs"] is None:
        raise InvalidInput("give --means and --costs, or --grid for random instances.")
    picture_to_write(plot)
    instance = read_instance(settings)
    usual = defaults_for("compare")
    if settings["trajectories"] is None:
        settings["trajectories"] = usual["trajectories"]
    number = settings["trajectories"] * len(settings["policies"])
    if tuple(settings["policies"]) == usual["policies"]:
        del settings["policies"]  # the goal decides
    with told_what_is_cancelled(), progress_bar(number) as progress:
        found: Any = compare(instance, **settings, progress=progress)
    if plot is not None:
        save(comparison_figure(found), plot)
    return {"policies": found.to_dicts()}, with_written(found, plot)


def compared_on_grid(settings: dict[str, Any], deltas: str, arms: str, instances: int) -> tuple[Any, Any]:
    from cabai.simulation.grid import grid

    if settings["epsilon"] or any(settings[name] is not None for name in ("means", "costs", "plot", "max_cost")):
        raise InvalidInput(
            "--grid draws its own instances: leave out --means, --costs, --plot, --epsilon and --max-cost."
        )
    sizes = read_numbers(arms, "--arms")
    if not all(size.is_integer() for size in sizes):
        raise InvalidInput(f"--arms must be whole numbers separated by commas, got {arms!r}.")
    thresholds = [None] if settings["threshold"] is None else read_names(settings["threshold"])
    number = len(settings["policies"]) * len(thresholds) * len(sizes) * instances
    chosen = {name: settings[name] for name in ("seed", "workers", "engine", "address")}
    limits = {name: settings[name] for name in ("trajectories", "max_pulls") if settings[name] is not None}
    with told_what_is_cancelled(), progress_bar(number, "simulations") as progress:
        found = grid(
            settings["family"], settings["policies"], thresholds=thresholds, deltas=read_numbers(deltas, "--deltas"),
            arms=[int(size) for size in sizes], instances=instances, **chosen, **limits, progress=progress,
        )  # fmt: skip
    return {"cells": found.to_dicts()}, found
