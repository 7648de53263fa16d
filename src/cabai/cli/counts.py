"""cabai study tell-counts | split: results that arrive as totals, such as one per hour."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from cabai.cli.storing import NameArgument, StorageOption
from cabai.cli.tools import JsonOption, show_json
from cabai.study import STORAGE, load_study
from cabai.support.validation import InvalidInput, shown


def tell_counts(
    name: NameArgument,
    counts: Annotated[
        str, typer.Argument(help='JSON with [pulls, sum of rewards, sum of costs] per arm: {"red": [1000, 31, 2.5]}')
    ],
    period: Annotated[
        str | None,
        typer.Option("--period", help="Name of the period, so that telling it twice counts once."),
    ] = None,
    following: Annotated[
        int | None,
        typer.Option("--following", help="Pulls expected in the next period. Default: as many as in this one."),
    ] = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Tell the totals of many pulls at once, for a complete period.

    Prints the share of the next period's pulls to give each arm. For bernoulli and poisson rewards.

    Example: cabai study tell-counts ads '{"red": [1000, 31, 2.5], "blue": [1000, 52, 2.5]}' --period 2026-11-16T07
    """
    study = load_study(name, storage=storage)
    shares = study.tell_counts(read_counts(counts), period=period, following=following)
    status = study.status()
    if as_json:
        found = {"stopped": status.stopped, "decision": status.decision, "spent": status.spent, "shares": shares}
        show_json(found)
        return
    typer.echo(status.sentence)
    for arm, share in shares.items():
        typer.echo(f"{arm}\t{share:.4g}")


def split(
    name: NameArgument,
    pulls: Annotated[int, typer.Argument(help="Number of pulls to divide.")],
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Show how the policy would divide a number of pulls.

    Prints one line per arm: its name and its number of pulls.
    """
    found = load_study(name, storage=storage).split(pulls)
    if as_json:
        show_json({"pulls": found})
        return
    for arm, some in found.items():
        typer.echo(f"{arm}\t{some}")


def read_counts(given: str) -> Any:
    try:
        return json.loads(given, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:  # not JSON, or more digits or brackets than Python reads
        raise InvalidInput(f"counts must be JSON, got {shown(given)}: {error}.") from None


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse JSON that names a key twice: one of the two counts of an arm would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is named twice")
    return found
