"""cabai replay: what a race would have cost on scores that are known."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from cabai.cli.options import (
    DeltaOption,
    EpsilonOption,
    GoalOption,
    RunningCostsOption,
    SeedOption,
    SlackOption,
    WorkersOption,
    read_running_costs,
)
from cabai.cli.tools import JsonOption, progress_bar, show_json
from cabai.core.goal import BEST
from cabai.support.files import file_to_write


def replay(
    scores: Annotated[
        list[str],
        typer.Argument(
            help="A CSV or Parquet file of scores; or logs of Inspect (.eval, .json) or lm-evaluation-harness "
            "(samples_*.jsonl), or a folder of them."
        ),
    ],
    costs: Annotated[
        str | None,
        typer.Option(
            "--costs",
            help="A file of costs, with columns arm and cost, or a table like that of the scores. Without it, "
            "the costs that come with the scores; without those, every evaluation costs 1.",
        ),
    ] = None,
    delta: DeltaOption = 0.05,
    epsilon: EpsilonOption = 0.0,
    goal: GoalOption = BEST,
    slack: SlackOption = None,
    running_costs: RunningCostsOption = None,
    direction: Annotated[
        str, typer.Option("--direction", help="What to do with scores: maximize or minimize.")
    ] = "maximize",
    repeats: Annotated[int, typer.Option("--repeats", help="How many times to race, each in another order.")] = 200,
    seed: SeedOption = 0,
    race: Annotated[
        str | None,
        typer.Option(
            "--race", help="champion, which needs epsilon 0, or paired; the cheaper one unless told otherwise."
        ),
    ] = None,
    low: Annotated[float, typer.Option("--low", help="The least that a score can be.")] = 0.0,
    high: Annotated[float, typer.Option("--high", help="The most that a score can be.")] = 1.0,
    scorer: Annotated[
        str | None, typer.Option("--scorer", help="Of Inspect's logs: which score, if there are several.")
    ] = None,
    epochs: Annotated[
        str | None,
        typer.Option("--epochs", help="Of Inspect's logs: mean, unless told otherwise, or items of their own: items."),
    ] = None,
    arm: Annotated[
        str | None,
        typer.Option(
            "--arm",
            help="Of Inspect's logs: what names the arm, model unless told otherwise; or such as task_args.prompt.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="Of lm-evaluation-harness's logs: which metric, if there are several."),
    ] = None,
    workers: WorkersOption = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", help="Also draw what was paid, and for which arms, to this .png or .svg file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What would finding the best arm have cost on scores that you already have? The race evaluates arms on the same
    items, in random order, and stops as soon as it is sure; it is run many times, each in another order.

    A table of scores is long, with columns arm, item and score and perhaps cost, or wide: one row per item, one column
    per arm, and perhaps a column item. Items on which not every arm has a score are left out, and counted.

    Example: cabai replay scores.csv --costs prices.csv --epsilon 0.01

    Example: cabai replay logs/ --scorer match --plot paid.svg
    """
    from cabai.datasets import MissingScores, read_table, replay

    if plot is not None:
        from cabai.plots import picture_kind, replay_figure, save

        picture_kind(plot)  # before any work is done
        file_to_write(plot)
    table = read_table(
        scores[0] if len(scores) == 1 else scores, costs=costs, low=low, high=high,
        scorer=scorer, epochs=epochs, arm=arm, metric=metric,
    )  # fmt: skip
    with progress_bar(repeats, "races") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingScores)  # the result tells it
        found = replay(
            table, delta=delta, epsilon=epsilon, direction=direction, repeats=repeats, seed=seed, race=race,
            low=low, high=high, workers=workers, progress=progress, goal=goal, slack=slack,
            running_costs=read_running_costs(running_costs),
        )  # fmt: skip
    if plot is not None:
        save(replay_figure(found), plot)
    if as_json:
        show_json(found.to_dict())
        return
    typer.echo(found)
    if plot is not None:
        typer.echo(f"written: {plot}")
