"""cabai plan: what a study will cost, and what a budget is enough for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cabai import policies
from cabai.cli.options import (
    POLICY_HELP,
    AddressOption,
    CostModelOption,
    EngineOption,
    LawOption,
    NamesOption,
    SchedulerOption,
    SeedOption,
    ThresholdOption,
    read_engine,
    workers_option,
)
from cabai.cli.tools import JsonOption, show_json, status_line
from cabai.families import FAMILIES
from cabai.settings import DIRECTIONS
from cabai.study import STORAGE
from cabai.support.files import file_to_write
from cabai.support.validation import InvalidInput


def plan(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A study.toml, as for cabai run; or a table of pilot data: columns arm, reward and cost, or scores "
            "per item."
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            "--family",
            help=f"How rewards are distributed: {', '.join(FAMILIES.names)}. For gaussian, give the variance: "
            "gaussian(variance=4).",
        ),
    ] = None,
    means: Annotated[
        str | None,
        typer.Option(
            "--means",
            help="What you know about each arm's mean reward, separated by commas: a number, a range 0.02..0.03, "
            "beta(3,97), normal(mean,sd), lognormal(median,sigma) or gamma(shape,scale).",
        ),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option(
            "--costs",
            help="What you know about each arm's mean cost per pull, in the same form. For a table of scores: a file "
            "with columns arm and cost.",
        ),
    ] = None,
    names: NamesOption = None,
    budget: Annotated[
        float | None, typer.Option("--budget", help="The most you can pay. Default: max_cost of the study.toml.")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta",
            help="Largest allowed probability of a wrong decision. If left out: 0.05, and the plan also finds the "
            "smallest delta the budget is enough for.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            help="Accept any arm whose mean is within epsilon of the best. If left out: 0, and the plan also finds "
            "the smallest epsilon the budget is enough for.",
        ),
    ] = None,
    chance: Annotated[
        float, typer.Option("--chance", help="Wanted probability of a decision within the budget.")
    ] = 0.8,
    direction: Annotated[
        str | None,
        typer.Option("--direction", help=f"{' or '.join(DIRECTIONS)}. Default: that of the source, else maximize."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", help=f"How to choose arms: {POLICY_HELP} Default: that of the source, else {policies.DEFAULT}."
        ),
    ] = None,
    threshold: ThresholdOption = None,
    cost_model: CostModelOption = "fixed",
    law: LawOption = None,
    sd: Annotated[
        str | None,
        typer.Option(
            "--sd", help="With --law: standard deviation of rewards, one for all arms or one per arm: 0.1..0.2"
        ),
    ] = None,
    pilot: Annotated[
        str | None, typer.Option("--pilot", help="With a study.toml: a table of pilot data, instead of --means.")
    ] = None,
    study: Annotated[
        str | None, typer.Option("--study", help="Plan a study with the settings and the data of this stored study.")
    ] = None,
    storage: Annotated[
        str, typer.Option("--storage", envvar="CABAI_STORAGE", help="Where the --study is stored.")
    ] = STORAGE,
    items: Annotated[
        int | None,
        typer.Option(
            "--items", help="Plan an evaluation on a dataset of this many items, from scores on some of them."
        ),
    ] = None,
    race: Annotated[
        str | None,
        typer.Option(
            "--race", help="With --items: paired or champion. Default: champion if epsilon is 0, else paired."
        ),
    ] = None,
    curve: Annotated[
        str | None, typer.Option("--curve", help="Also print the bill at several values of this: gap or epsilon.")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot",
            help="Plot the bill against the gap (with --items: against epsilon), to this .png or .svg file.",
        ),
    ] = None,
    worth: Annotated[bool, typer.Option("--worth/--no-worth", help="Also find what each arm adds to the bill.")] = True,
    draws: Annotated[
        int, typer.Option("--draws", help="Number of studies to simulate, each with its own means and costs.")
    ] = 500,
    seed: SeedOption = 0,
    workers: Annotated[int | None, workers_option("simulated studies")] = None,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate what a study will cost, before you pay for it.

    What will it cost, and what can I conclude with my budget? You do not know the means yet, so give ranges. The plan
    simulates studies with the policy, threshold and defaults of a real one, each on means and costs drawn from your
    ranges. It prints the bill (median, mean, 90 % and 99 % quantiles), the chance of a decision within the budget, the
    budget that is enough, and the smallest epsilon, gap and delta that your budget is enough for. It also prints what
    each arm adds to the bill, so that you can leave out an arm that is almost never the best.

    Example: cabai plan --family bernoulli --means 0.02..0.03,0.02..0.03,0.01..0.02 --costs 0.05,0.03,0.01 --budget 5000

    From a study file: cabai plan study.toml --means 0.6..0.8,0.7..0.9 --plot bill.svg

    From pilot data (columns arm, reward, cost): cabai plan pilot.csv --family bernoulli --budget 200

    For a dataset, from scores on some items: cabai plan scores.csv --items 5000 --budget 40

    From a stored study: cabai plan --study judges --storage sqlite:///judges.db
    """
    from cabai.planning import plan

    if plot is not None:
        from cabai.plots import picture_kind, plan_figure, save

        picture_kind(plot)  # before any work is done
        file_to_write(plot)
    if study is not None and source is not None:
        raise InvalidInput("give a file or --study, not both.")
    place = read_engine(engine, scheduler, address)
    start: Any = source
    if study is not None:
        from cabai.study import load_study

        start = load_study(study, storage=storage)
    with status_line() as progress:
        found = plan(
            start, means=means, costs=costs, family=family,
            arms=None if names is None else [name.strip() for name in names.split(",")], budget=budget, delta=delta,
            epsilon=epsilon, chance=chance, policy=policy, threshold=threshold, direction=direction,
            pilot=pilot, items=items, race=race, cost_model=cost_model, law=law, sd=sd,
            curve=curve or plot is not None, worth=worth, draws=draws, seed=seed, workers=workers, progress=progress,
            **place,
        )  # fmt: skip
    if plot is not None:
        save(plan_figure(found), plot)
    if as_json:
        show_json(found.to_dict())
        return
    typer.echo(found)
    if plot is not None:
        typer.echo(f"written: {plot}")
