"""cabai study amend | drop | add-arm: change the budget, the lease, metadata or arms of a study that runs."""

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


ArmArgument = Annotated[str, typer.Argument(help="The arm's name.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who changes it; kept in the log.")]


def amend(
    name: NameArgument,
    max_cost: Annotated[float | None, typer.Option("--max-cost", help="The bill at which to stop.")] = None,
    max_pulls: Annotated[int | None, typer.Option("--max-pulls", help="The pulls after which to stop.")] = None,
    lease: Annotated[
        float | None, typer.Option("--lease", help="Seconds after which a pull that is not told has lapsed.")
    ] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", help='Of the arms named, as JSON: {"small": {"model": "m1"}}')
    ] = None,
    by: ByOption = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Change the budget, the lease or arms' metadata of a study, for everybody who works on it.

    A study that stopped at its budget goes on. Prints all amendments of the study; without options, nothing else.

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
    """Put an arm out by hand: it is not pulled any more, and cannot be the decision.

    The decision is then about the arms still in. Whoever drops an arm may have looked at the results, so more evidence
    is required after each. Without a --reserve, the decision is then wrong with probability 2 delta at most.
    """
    study = load_study(name, storage=storage)
    study.drop(arm, by=by)
    show(study, as_json)


def add_arm(
    name: NameArgument,
    arm: ArmArgument,
    cost: Annotated[float | None, typer.Option("--cost", help="Its mean cost, where the others' are known.")] = None,
    metadata: Annotated[str | None, typer.Option("--metadata", help="What to keep with it, as JSON.")] = None,
    by: ByOption = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Let another arm join a study that was created with a --reserve."""
    study = load_study(name, storage=storage)
    study.add_arm(arm, cost=cost, metadata=read_metadata(metadata), by=by)
    show(study, as_json)


def show(study: Study, as_json: bool) -> None:
    """Every amendment, and how the study stands."""
    made = study.amendments()
    if as_json:
        show_json({"amendments": made})
        return
    for each in made:
        typer.echo(in_words(each))
    typer.echo(study.status().sentence)


def in_words(made: dict[str, Any]) -> str:
    """An amendment as a line."""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(made["made"]))
    changes = "; ".join(
        f"{name}: {json.dumps(old)} -> {json.dumps(new)}" for name, (old, new) in made["changes"].items()
    )
    on = "" if made["reopened"] is None else f" (it had stopped at {made['reopened']}, and went on)"
    return f"{when} by {made['by']}: {changes}{on}"


def read_metadata(given: str | None) -> Any:
    """Metadata of arms, from JSON."""
    if given is None:
        return None
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:  # not JSON, or more digits or brackets than Python reads
        raise InvalidInput(f"--metadata must be JSON, got {shown(given)}: {error}.") from None
