"""cabai replay: what a race would have cost on scores you already have."""

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
    read_running_costs,
    workers_option,
)
from cabai.cli.tools import JsonOption, progress_bar, show_json
from cabai.core.goal import BEST
from cabai.support.files import file_to_write


def replay(
    scores: Annotated[
        list[str],
        typer.Argument(
            help="A CSV or Parquet file of scores; or logs of Inspect (.eval, .json) or lm-evaluation-harness "
            "(samples_*.jsonl), or a folder of logs."
        ),
    ],
    costs: Annotated[
        str | None,
        typer.Option(
            "--costs",
            help="A file of costs: columns arm and cost, or a table of the same shape as the scores. Default: the "
            "costs in the scores file or, if it has none, 1 per evaluation.",
        ),
    ] = None,
    delta: DeltaOption = 0.05,
    epsilon: EpsilonOption = 0.0,
    goal: GoalOption = BEST,
    slack: SlackOption = None,
    running_costs: RunningCostsOption = None,
    direction: Annotated[
        str, typer.Option("--direction", help="Whether a high score is good: maximize or minimize.")
    ] = "maximize",
    repeats: Annotated[int, typer.Option("--repeats", help="Number of races, each in a new random order.")] = 200,
    seed: SeedOption = 0,
    race: Annotated[
        str | None,
        typer.Option(
            "--race", help="champion (needs epsilon 0) or paired. Default: champion if epsilon is 0, else paired."
        ),
    ] = None,
    low: Annotated[float, typer.Option("--low", help="Lowest possible score.")] = 0.0,
    high: Annotated[float, typer.Option("--high", help="Highest possible score.")] = 1.0,
    scorer: Annotated[
        str | None, typer.Option("--scorer", help="Inspect logs: which score to use, if there are several.")
    ] = None,
    epochs: Annotated[
        str | None,
        typer.Option(
            "--epochs",
            help="Inspect logs: mean (average the epochs of an item) or items (each is an item). Default: mean.",
        ),
    ] = None,
    arm: Annotated[
        str | None,
        typer.Option(
            "--arm",
            help="Inspect logs: the field that names the arm, such as task_args.prompt. Default: model.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="lm-evaluation-harness logs: which metric to use, if there are several."),
    ] = None,
    workers: Annotated[int | None, workers_option("simulated races")] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", help="Also plot the bill and what each arm cost, to this .png or .svg file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find what a race would have cost on scores you already have.

    A race evaluates the arms on the same items, in random order, and stops as soon as it is sure which arm is best.
    This command runs it many times, each time in a new order.

    A table of scores is either long (columns arm, item, score and, if you like, cost) or wide (one row per item, one
    column per arm and, if you like, a column item). Items without a score for every arm are left out; their number is
    reported.

    Example: cabai replay scores.csv --costs prices.csv --epsilon 0.01

    Example: cabai replay logs/ --scorer match --plot paid.svg
    """
    from cabai.datasets import read_table, replay
    from cabai.errors import MissingScores

    if plot is not None:
        from cabai.plots import picture_kind, replay_figure, save

        picture_kind(plot)  # before any work is done
        file_to_write(plot)
    table = read_table(
        scores[0] if len(scores) == 1 else scores, costs=costs, low=low, high=high,
        scorer=scorer, epochs=epochs, arm=arm, metric=metric,
    )  # fmt: skip
    with progress_bar(repeats, "races") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingScores)  # the result reports it
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
