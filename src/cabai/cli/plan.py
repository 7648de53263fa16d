"""cabai plan: what a study will cost, and what a budget can conclude."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cabai.cli.options import (
    POLICY_HELP,
    CostModelOption,
    LawOption,
    NamesOption,
    SeedOption,
    ThresholdOption,
    WorkersOption,
)
from cabai.cli.tools import JsonOption, show_json, status_line
from cabai.families import FAMILIES
from cabai.study import STORAGE
from cabai.study.settings import DIRECTIONS
from cabai.support.files import file_to_write
from cabai.support.validation import InvalidInput


def plan(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A study.toml, as for cabai run; or a pilot's table: columns arm, reward and cost, or scores on items."
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            "--family",
            help=f"What a reward is: {', '.join(FAMILIES.names)}. A gaussian needs its variance: gaussian(variance=4).",
        ),
    ] = None,
    means: Annotated[
        str | None,
        typer.Option(
            "--means",
            help="What is known of each arm's mean, separated by commas: a number, a range 0.02..0.03, beta(3,97), "
            "normal(mean,sd), lognormal(median,sigma) or gamma(shape,scale).",
        ),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option(
            "--costs",
            help="The same of each arm's mean cost. For a table of scores: a file, with columns arm and cost.",
        ),
    ] = None,
    names: NamesOption = None,
    budget: Annotated[float | None, typer.Option("--budget", help="What may be paid. A study.toml's max_cost.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta",
            help="The probability of a wrong decision that is allowed: 0.05. Left out: also the least that "
            "the budget reaches.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            help="An arm within epsilon of the best is good enough: 0. Left out: also the least that the "
            "budget reaches.",
        ),
    ] = None,
    chance: Annotated[float, typer.Option("--chance", help="How likely a decision within the budget is to be.")] = 0.8,
    direction: Annotated[str | None, typer.Option("--direction", help=f"{' or '.join(DIRECTIONS)}.")] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help=f"As of a study, unless told otherwise: {POLICY_HELP}")
    ] = None,
    threshold: ThresholdOption = None,
    cost_model: CostModelOption = "fixed",
    law: LawOption = None,
    sd: Annotated[
        str | None,
        typer.Option(
            "--sd", help="With --law: the standard deviation of rewards, one for all arms or for each: 0.1..0.2"
        ),
    ] = None,
    pilot: Annotated[
        str | None, typer.Option("--pilot", help="With a study.toml: a pilot's table, instead of --means.")
    ] = None,
    study: Annotated[
        str | None, typer.Option("--study", help="Plan a study like this stored one, from what it has observed.")
    ] = None,
    storage: Annotated[
        str, typer.Option("--storage", envvar="CABAI_STORAGE", help="Where that study is stored.")
    ] = STORAGE,
    items: Annotated[
        int | None,
        typer.Option("--items", help="Plan a race on a dataset of so many items, from a table of scores on some."),
    ] = None,
    race: Annotated[str | None, typer.Option("--race", help="With --items: paired or champion.")] = None,
    curve: Annotated[
        str | None, typer.Option("--curve", help="Also the bill at several values of this: gap or epsilon.")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot", help="Draw such a curve to this .png or .svg file: of the gap, or of epsilon for a race."
        ),
    ] = None,
    worth: Annotated[
        bool, typer.Option("--worth/--no-worth", help="Whether to find what each arm adds to the bill.")
    ] = True,
    draws: Annotated[
        int, typer.Option("--draws", help="How many studies to simulate, each on a truth of its own.")
    ] = 500,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """What will it cost, and what can I conclude with my budget? Before anything is paid.

    Nobody knows the means yet: give ranges. Studies are simulated, each on means and costs drawn from those, with the
    policy, test and defaults that the study itself will have. Printed: the bill (median, mean, what 90 and 99 % do not
    exceed), the chance of a decision within the budget, the budget that is enough, and what the budget is enough for:
    the smallest epsilon, gap and delta. And what each arm adds to the bill, so that you can leave out one that is
    hardly ever the best.

    Example: cabai plan --family bernoulli --means 0.02..0.03,0.02..0.03,0.01..0.02 --costs 0.05,0.03,0.01 --budget 5000

    Example: cabai plan study.toml --means 0.6..0.8,0.7..0.9 --plot bill.svg

    Example: cabai plan pilot.csv --family bernoulli --budget 200        (columns arm, reward, cost)

    Example: cabai plan scores.csv --items 5000 --budget 40              (a race on a dataset)

    Example: cabai plan --study judges --storage sqlite:///judges.db
    """
    from cabai.planning import plan

    if plot is not None:
        from cabai.plots import picture_kind, plan_figure, save

        picture_kind(plot)  # before any work is done
        file_to_write(plot)
    if study is not None and source is not None:
        raise InvalidInput("give a file or --study, not both.")
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
        )  # fmt: skip
    if plot is not None:
        save(plan_figure(found), plot)
    if as_json:
        show_json(found.to_dict())
        return
    typer.echo(found)
    if plot is not None:
        typer.echo(f"written: {plot}")
