"""cabai simulate: what a policy pays on an instance."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cabai import policies
from cabai.cli.options import (
    POLICY_HELP,
    AddressOption,
    CostModelOption,
    CostsOption,
    DeltaOption,
    EngineOption,
    EpsilonOption,
    FamilyOption,
    GoalOption,
    KeepOption,
    LawOption,
    MaxCostOption,
    MaxPullsOption,
    MeansOption,
    NamesOption,
    RunningCostsOption,
    SchedulerOption,
    SdOption,
    SeedOption,
    SlackOption,
    ThresholdOption,
    TrajectoriesOption,
    WorkersOption,
    read_engine,
    read_instance,
    read_running_costs,
)
from cabai.cli.tools import (
    JsonOption,
    progress_bar,
    show_json,
    told_what_is_cancelled,
)
from cabai.core.goal import BEST
from cabai.support.files import file_to_write
from cabai.support.validation import InvalidInput


def simulate(
    family: FamilyOption,
    means: MeansOption,
    costs: CostsOption,
    policy: Annotated[str, typer.Option("--policy", help=f"How to choose arms: {POLICY_HELP}")] = policies.DEFAULT,
    threshold: ThresholdOption = None,
    delta: DeltaOption = 0.05,
    epsilon: EpsilonOption = 0.0,
    goal: GoalOption = BEST,
    slack: SlackOption = None,
    running_costs: RunningCostsOption = None,
    trajectories: TrajectoriesOption = 1000,
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
    out: Annotated[
        str | None, typer.Option("--out", help="Also write one row per trajectory to this Parquet file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a policy many times on a known instance.

    Prints what it pays, how often it is wrong, and the lower bound.

    Example: cabai simulate --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --policy ctas --delta 1e-6
    """
    from cabai.simulation import simulate

    instance = read_instance(family, means, costs, names, cost_model, law, sd)
    place = read_engine(engine, scheduler, address) | {"keep": keep}
    if out is not None and keep != "rows":
        raise InvalidInput("--out needs --keep rows: it writes every trajectory.")
    if out is not None:
        file_to_write(out)  # before any work is done
    with told_what_is_cancelled(), progress_bar(trajectories) as progress:
        runs: Any = simulate(
            instance, policy, threshold=threshold, delta=delta, epsilon=epsilon, goal=goal, slack=slack,
            running_costs=read_running_costs(running_costs),
            trajectories=trajectories, seed=seed,
            workers=workers, **place, max_pulls=max_pulls, max_cost=max_cost, progress=progress,
        )  # fmt: skip
    if out is not None:
        runs.to_parquet(out)
    if as_json:
        show_json(runs.summary().to_dict())
    else:
        typer.echo(runs)
        if out is not None:
            typer.echo(f"written: {out}")
