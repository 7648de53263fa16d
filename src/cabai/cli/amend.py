"""cabai study amend | drop | add-arm: change the budget, lease, metadata or arms of a running study."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cabai.cli.storing import NameArgument, StorageOption
from cabai.cli.tools import JsonOption, show_json
from cabai.study import STORAGE, load_study
from cabai.support.validation import InvalidInput, shown

if TYPE_CHECKING:
    from cabai.study import Study


ArmArgument = Annotated[str, typer.Argument(help="Name of the arm.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who makes the change; kept in the log.")]


def amend(
    name: NameArgument,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="New budget: stop when the bill reaches this.")
    ] = None,
    max_pulls: Annotated[int | None, typer.Option("--max-pulls", help="New limit: stop after this many pulls.")] = None,
    lease: Annotated[
        float | None, typer.Option("--lease", help="Seconds a worker has to tell a pull before it lapses.")
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option("--metadata", help='New metadata of the named arms, as JSON: {"small": {"model": "m1"}}'),
    ] = None,
    by: ByOption = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Change the budget, lease or metadata of a study.

    The change applies to everyone who works on the study. A study that stopped at its budget continues. Prints all
    amendments of the study so far; without options, changes nothing.

    Example: cabai study amend judges --max-cost 50
    """
    study = load_study(name, storage=storage)
    given = {"max_cost": max_cost, "max_pulls": max_pulls, "lease": lease, "metadata": read_metadata(metadata)}
    changes = {key: value for key, value in given.items() if value is not None}
    if changes:
        study.amend(**changes, by=by)
    show(study, as_json)


def drop(
    name: NameArgument,
    arm: ArmArgument,
    by: ByOption = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Drop an arm by hand.

    It is not pulled again and cannot be the decision. The decision is then about the arms still in play. You may have
    seen results before you drop an arm, so each drop raises the evidence required. If the study was created without
    --reserve, its decision is then wrong with probability at most 2 delta instead of delta.

    Example: cabai study drop judges small
    """
    study = load_study(name, storage=storage)
    study.drop(arm, by=by)
    show(study, as_json)


def add_arm(
    name: NameArgument,
    arm: ArmArgument,
    cost: Annotated[
        float | None, typer.Option("--cost", help="Its mean cost per pull, if the study was created with --costs.")
    ] = None,
    metadata: Annotated[str | None, typer.Option("--metadata", help="Data to keep with it, as JSON.")] = None,
    by: ByOption = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Add an arm to a study created with --reserve.

    Example: cabai study add-arm judges medium
    """
    study = load_study(name, storage=storage)
    study.add_arm(arm, cost=cost, metadata=read_metadata(metadata), by=by)
    show(study, as_json)


def show(study: Study, as_json: bool) -> None:
    """Print every amendment, and the status of the study."""
    made = study.amendments()
    if as_json:
        show_json({"amendments": made})
        return
    for each in made:
        typer.echo(in_words(each))
    typer.echo(study.status().sentence)


def in_words(made: dict[str, Any]) -> str:
    """An amendment as one line of text."""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(made["made"]))
    changes = "; ".join(
        f"{name}: {json.dumps(old)} -> {json.dumps(new)}" for name, (old, new) in made["changes"].items()
    )
    on = "" if made["reopened"] is None else f" (it had stopped at {made['reopened']}, and continued)"
    return f"{when} by {made['by']}: {changes}{on}"


def read_metadata(given: str | None) -> Any:
    """Read metadata of arms from JSON."""
    if given is None:
        return None
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:  # not JSON, or more digits or brackets than Python reads
        raise InvalidInput(f"--metadata must be JSON, got {shown(given)}: {error}.") from None
