"""cabai compare: what several policies pay."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cabai.cli.options import (
    POLICY_HELP,
    AddressOption,
    CostModelOption,
    DeltaOption,
    EngineOption,
    EpsilonOption,
    FamilyOption,
    GoalOption,
    KeepOption,
    LawOption,
    MaxCostOption,
    MaxPullsOption,
    NamesOption,
    RunningCostsOption,
    SchedulerOption,
    SdOption,
    SeedOption,
    SlackOption,
    ThresholdOption,
    WorkersOption,
    read_engine,
    read_instance,
    read_running_costs,
)
from cabai.cli.tools import (
    JsonOption,
    progress_bar,
    read_names,
    read_numbers,
    read_whole_numbers,
    show_json,
    told_what_is_cancelled,
)
from cabai.core.goal import BEST, CHEAPEST
from cabai.support.files import file_to_write
from cabai.support.validation import InvalidInput

USUAL = "top-two,co,ctas,tas,d-lucb,racing,uniform"


def compare(
    family: FamilyOption,
    means: Annotated[str | None, typer.Option("--means", help="Mean reward of each arm: 1.5,1,0.5")] = None,
    costs: Annotated[str | None, typer.Option("--costs", help="Mean cost per pull of each arm: 1,0.1,0.01")] = None,
    policies: Annotated[
        str, typer.Option("--policies", help=f"Policies to compare, separated by commas: {POLICY_HELP}")
    ] = USUAL,
    threshold: ThresholdOption = None,
    delta: DeltaOption = 0.05,
    epsilon: EpsilonOption = 0.0,
    goal: GoalOption = BEST,
    slack: SlackOption = None,
    running_costs: RunningCostsOption = None,
    trajectories: Annotated[
        int | None,
        typer.Option("--trajectories", help="Number of simulated runs. Default: 1000, or 100 per instance of a grid."),
    ] = None,
    seed: SeedOption = 0,
    cost_model: CostModelOption = "fixed",
    law: LawOption = None,
    sd: SdOption = None,
    names: NamesOption = None,
    max_pulls: MaxPullsOption = None,
    max_cost: MaxCostOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    address: AddressOption = None,
    keep: KeepOption = "rows",
    plot: Annotated[
        str | None, typer.Option("--plot", help="Also plot what each policy pays, to this .png or .svg file.")
    ] = None,
    on_grid: Annotated[
        bool, typer.Option("--grid", help="Compare on random instances instead of --means and --costs.")
    ] = False,
    thresholds: Annotated[
        str | None, typer.Option("--thresholds", help="With --grid: several thresholds to compare.")
    ] = None,
    deltas: Annotated[str, typer.Option("--deltas", help="With --grid: values of delta to compare.")] = "0.1,0.01,1e-6",
    arms: Annotated[str, typer.Option("--arms", help="With --grid: numbers of arms.")] = "3,10,50",
    instances: Annotated[
        int, typer.Option("--instances", help="With --grid: number of random instances per number of arms.")
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """Compare what several policies pay on the same instance.

    All policies see the same rewards and costs. With --grid, compares on random instances whose costs differ up to a
    hundredfold: every policy with every threshold at every delta.

    Example: cabai compare --family bernoulli --means 0.9,0.6,0.3 --costs 1,0.1,0.01 --policies co,ctas,tas --delta 0.01

    Example: cabai compare --grid --family gaussian --policies top-two,co --trajectories 100
    """
    from cabai.plots import comparison_figure, picture_kind, save
    from cabai.simulation import compare
    from cabai.simulation.grid import grid

    chosen, place = read_names(policies), read_engine(engine, scheduler, address)
    if goal == CHEAPEST and policies == USUAL:
        chosen = ["cheapest", "cheapest(uniform=true)"]
    if keep != "rows" and (plot is not None or on_grid):
        raise InvalidInput("--plot and --grid need --keep rows: they use every trajectory.")
    if on_grid:
        if means is not None or costs is not None or plot is not None or epsilon or max_cost is not None:
            raise InvalidInput(
                "--grid draws its own instances: leave out --means, --costs, --plot, --epsilon and --max-cost."
            )
        if max_pulls is not None:
            place["max_pulls"] = max_pulls
        if thresholds is not None and threshold is not None:
            raise InvalidInput("give --threshold or --thresholds, not both.")
        rules = [threshold] if thresholds is None else read_names(thresholds)
        sizes = read_whole_numbers(arms, "--arms")
        number = len(chosen) * len(rules) * len(sizes) * instances
        with told_what_is_cancelled(), progress_bar(number, "simulations") as progress:
            found = grid(
                family, chosen, thresholds=rules, deltas=read_numbers(deltas, "--deltas"), arms=sizes,
                instances=instances, trajectories=100 if trajectories is None else trajectories, seed=seed,
                workers=workers, **place, progress=progress,
            )  # fmt: skip
        show_json({"cells": found.to_dicts()}) if as_json else typer.echo(found)
        return
    if means is None or costs is None:
        raise InvalidInput("give --means and --costs, or --grid for random instances.")
    if plot is not None:
        picture_kind(plot)  # before any work is done
        file_to_write(plot)
    instance = read_instance(family, means, costs, names, cost_model, law, sd)
    trajectories, place["keep"] = 1000 if trajectories is None else trajectories, keep
    with told_what_is_cancelled(), progress_bar(trajectories * len(chosen)) as progress:
        comparison: Any = compare(
            instance, chosen, threshold=threshold, delta=delta, epsilon=epsilon, goal=goal, slack=slack,
            running_costs=read_running_costs(running_costs),
            trajectories=trajectories, seed=seed,
            workers=workers, **place, max_pulls=max_pulls, max_cost=max_cost, progress=progress,
        )  # fmt: skip
    if plot is not None:
        save(comparison_figure(comparison), plot)
    if as_json:
        show_json({"policies": comparison.to_dicts()})
        return
    typer.echo(comparison)
    if plot is not None:
        typer.echo(f"written: {plot}")
