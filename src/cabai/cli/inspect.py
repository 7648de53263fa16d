"""cabai inspect: a race of models on a task of Inspect."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, redirect_stdout
from typing import Any

from cabai.cli.options import JsonOption, argument, option, takes
from cabai.settings import REQUIRED
from cabai.support.validation import InvalidInput


@takes("inspect", leave_out=["arms"])
def inspect(
    task: str = argument("A task of Inspect: file.py@task, or package/task."),
    model: list[str] = option("A model to compare. Give --model once for each.", REQUIRED),
    argument: list[str] | None = option(
        "An argument of the task, as name=value. Give -T once for each.", names=("-T",)
    ),
    race_name: str | None = option("Store the race under this name: the same command continues it.", names=("--name",)),
    max_samples: int | None = option("Samples of each model to run at once. Default: 10."),
    max_connections: int | None = option("Connections to each provider, as in Inspect."),
    display: str | None = option("Inspect's display: full, conversation, rich, plain, log or none."),
    page: bool = option("Show the race in a browser while it runs. Prints the address.", False),
    as_json: JsonOption = False,
    **settings: Any,
) -> tuple[Any, ...]:
    """Race models on a task of Inspect: find the best for a part of the samples.

    Each model has one log, with the samples that the race needed. Costs are dollars, if the models' prices are known.

    Example: cabai inspect arc.py@arc_challenge --model openai/gpt-4o --model openai/gpt-4o-mini --epsilon 0.01

    Ctrl-C stops it; with --name, the same command continues it. The exit code is 3 if it stopped without a decision.
    """
    from cabai.inspect.racing import evaluate, load_task

    given = {"max_samples": max_samples, "max_connections": max_connections}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with redirect_stdout(sys.stderr) if as_json else nullcontext():  # tasks, and Inspect's hooks, may print
        found = evaluate(
            load_task(task, dict(map(read_argument, argument or []))), model, name=race_name, page=page,
            display="none" if as_json and display is None else display, **settings, **options,
        )  # fmt: skip
    logs = [log.location for log in found.logs]
    text = "\n".join([str(found), *(f"log: {each}" for each in logs)])
    return {**found.status.to_dict(), "logs": logs}, text, 3 if found.decision is None else 0


def read_argument(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise InvalidInput(f"-T must be name=value, got {given!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
