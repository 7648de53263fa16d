"""cabai inspect: a race of models on a task of Inspect."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from cabai.cli.options import (
    DeltaOption,
    EpsilonOption,
    GoalOption,
    RunningCostsOption,
    SlackOption,
    read_running_costs,
)
from cabai.cli.tools import JsonOption, show_json
from cabai.core.goal import BEST
from cabai.support.validation import InvalidInput


def inspect(
    task: Annotated[str, typer.Argument(help="A task of Inspect: file.py@task, or package/task.")],
    model: Annotated[list[str], typer.Option("--model", help="A model to compare. Give --model once for each.")],
    delta: DeltaOption = 0.05,
    epsilon: EpsilonOption = 0.0,
    goal: GoalOption = BEST,
    slack: SlackOption = None,
    running_costs: RunningCostsOption = None,
    scorer: Annotated[
        str | None, typer.Option("--scorer", help="Which score to race on, if there are several: name or name.key.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Store the race under this name: the same command continues it.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="Budget: stop, without a guarantee, when the bill reaches this.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option("--prices", help="Your own prices: a TOML file with dollars per million tokens.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Use only the first samples of the task.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="How often each sample is run.")] = None,
    argument: Annotated[
        list[str] | None, typer.Option("-T", help="An argument of the task, as name=value. Give -T once for each.")
    ] = None,
    max_samples: Annotated[
        int | None, typer.Option("--max-samples", help="Samples of each model to run at once. Default: 10.")
    ] = None,
    max_connections: Annotated[
        int | None, typer.Option("--max-connections", help="Connections to each provider, as in Inspect.")
    ] = None,
    log_dir: Annotated[
        str | None, typer.Option("--log-dir", help="Folder of the logs. Default: as in Inspect.")
    ] = None,
    display: Annotated[
        str | None, typer.Option("--display", help="Inspect's display: full, conversation, rich, plain, log or none.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the order of samples. Default: random.")] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Show the race in a browser while it runs. Prints the address.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Race models on a task of Inspect: find the best for a part of the samples.

    Each model has one log, with the samples that the race needed. Costs are dollars, if the models' prices are known.

    Example: cabai inspect arc.py@arc_challenge --model openai/gpt-4o --model openai/gpt-4o-mini --epsilon 0.01

    Ctrl-C stops it; with --name, the same command continues it. The exit code is 3 if it stopped without a decision.
    """
    from cabai.inspect.racing import evaluate, load_task

    options: dict[str, Any] = {"max_samples": max_samples, "max_connections": max_connections}
    options = {key: value for key, value in options.items() if value is not None}
    found = evaluate(
        load_task(task, dict(map(read_argument, argument or []))), model, scorer=scorer, name=name, log_dir=log_dir,
        delta=delta, epsilon=epsilon, goal=goal, slack=slack, running_costs=read_running_costs(running_costs),
        prices=prices, seed=seed, max_cost=max_cost, limit=limit, epochs=epochs, page=page,
        display="none" if as_json and display is None else display, **options,
    )  # fmt: skip
    if as_json:
        show_json({**found.status.to_dict(), "logs": [log.location for log in found.logs]})
    else:
        typer.echo("\n".join([str(found), *(f"log: {log.location}" for log in found.logs)]))
    if found.decision is None:
        raise typer.Exit(3)


def read_argument(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise InvalidInput(f"-T must be name=value, got {given!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
