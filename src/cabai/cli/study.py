"""cabai study create | ask | tell | status | list | export | plot | report | stop | delete and more."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cabai.cli.options import JsonOption, argument, file_option, option, read_json, takes
from cabai.cli.tools import show_help_alone
from cabai.errors import StorageError
from cabai.plots import save
from cabai.printed import asked, told
from cabai.settings import STORAGE, settings_for
from cabai.study import create_study, delete_study, import_study, load_study
from cabai.study.create import is_served
from cabai.study.log.storage import MEMORY
from cabai.study.show.exporting import exported
from cabai.study.show.status import LISTED
from cabai.support.files import write_whole
from cabai.support.validation import InvalidInput, shown

if TYPE_CHECKING:
    from cabai.study import Study

Answer = tuple[Any, Any]  # as JSON, and as text
ArmArgument = Annotated[str, typer.Argument(help=settings_for("drop")["arm"].sentence)]
study_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@study_app.callback()
def teach(context: typer.Context) -> None:
    """Create and run live studies with ask and tell.

    Ask which arm to pull, pull it, and tell its reward and cost. Works from any language: call these commands, or use
    HTTP with cabai serve.
    """
    show_help_alone(context)


@study_app.command()
@takes("study")
def create(
    name: str,
    storage: str,
    metadata: str | None = option('Data to keep with the arms, as JSON: {"small": {"model": "m1"}}'),
    **settings: Any,
) -> Answer:
    """Create a study.

    Example: cabai study create judges --arms small,large --family bernoulli --delta 0.05

    On a dataset: cabai study create models --arms small,large --items questions.jsonl --epsilon 0.01

    The cheapest good arm: cabai study create models --arms small,large --items questions.jsonl --epsilon 0.02 --goal
    cheapest
    """
    if metadata is not None:
        settings["arms"] = with_metadata(settings["arms"], metadata)
    source = settings["import_from"]
    if source is not None and not Path(source).is_file() and Path(source).suffix.lower() not in (".csv", ".parquet"):
        settings["import_from"] = load_study(source, storage=storage)
    study = lasting(create_study(name, storage=storage, **settings))
    how = "ready" if settings["load_if_exists"] else "created"
    return (
        {"name": study.name, "storage": study.storage, "arms": list(study.arms)},
        f"{how}: {study.name}, {len(study.arms)} arms, in {study.storage}",
    )


@study_app.command()
@takes(study=True)
def ask(
    study: Study,
    n: int = option("Number of pulls to ask for.", 1, names=("-n", "--number")),
    worker: str | None = option("Name of the worker; kept with the observation."),
    as_json: JsonOption = False,
) -> None:
    """Ask which arm to pull next.

    Prints one line per pull: its id, the arm and, for a dataset, the item's id, separated by tabs. The exit code is 3
    if the study has stopped, and 4 if pulls under way must be told first, because they use up the budget or the
    results so far already decide.
    """
    typer.echo(asked(study.ask(n, worker=worker), as_json))


@study_app.command()
@takes(study=True)
def tell(
    study: Study,
    pull: str = argument("Id of the pull, as printed by `ask`."),
    reward: float | None = option("The reward of the pull."),
    cost: float | None = option("The cost of the pull. Not needed if the study knows the costs."),
    failed: str | None = option("If the pull failed: why. Its cost still counts."),
    as_json: JsonOption = False,
) -> None:
    """Tell the reward and the cost of a pull.

    The result is safely stored when this command returns. Telling the same result again changes nothing.

    Example: cabai study tell judges 1f6c2a9b-1 --reward 1 --cost 0.02
    """
    study.tell(pull, reward, cost, failed=failed)
    typer.echo(told(study.status(), as_json))


@study_app.command()
@takes(study=True)
def stop(study: Study) -> Answer:
    """Stop a study for good, without a decision."""
    study.stop()
    found = study.status()
    return {"stopped": found.stopped, "reason": found.reason}, found.sentence


@study_app.command()
@takes(study=True)
def status(study: Study) -> Answer:
    """Show the arms, the progress, the bill and the decision.

    Says who leads and by how much, which arms may still be the best, and what is still to come, in money and time, as a
    range that holds in about 80 % of cases.
    """
    found = study.status()
    return found.to_dict(), found


@study_app.command("list")
@takes()
def list_(storage: str, as_json: JsonOption = False) -> None:
    """List the studies in a storage, with the status of each."""
    if is_served(storage):
        from cabai.study.http import Server

        served = Server(storage).call("studies")
        found, damaged = served["studies"], served["damaged"]
    else:
        from cabai.study.catalogue import every

        statuses, damaged = every("status", storage, make=False)
        found = [vars(status) | {"sentence": status.sentence} for _, status in statuses.values()]
    if as_json:
        typer.echo(json.dumps({"studies": [{field: each[field] for field in LISTED} for each in found]}))
    else:
        for each in found:
            typer.echo(f"{each['name']}: {each['sentence']}")
    if damaged:
        raise StorageError(" ".join(damaged))


@study_app.command()
@takes(study=True)
def export(
    study: Study,
    out: str | None = file_option(
        "A .csv, .json or .parquet file; .jsonl for the whole log. Default: print CSV.",
        "csv",
        "json",
        "parquet",
        "jsonl",
    ),
    as_json: JsonOption = False,
) -> Answer | None:
    """Export all results, one row per pull.

    Rows are in the order in which the results were told. In CSV, text that begins with =, +, - or @ gets an apostrophe
    in front, so that a spreadsheet does not run it as a formula. Numbers, and text in JSON and Parquet, are exported as
    told. A .jsonl file holds the whole study, with everything that ever happened: `cabai study import` reads it.

    Example: cabai study export judges --out judges.csv
    """
    if out is None:
        typer.echo(exported(study, "json" if as_json else "csv").decode(), nl=False)
        return None
    write_whole(out, exported(study, Path(out).suffix[1:].lower()))
    return written(out)


@study_app.command("import")
@takes()
def import_(
    storage: str,
    file: str = argument("The .jsonl file that `cabai study export` wrote."),
    rename: str | None = option("Another name for the study.", names=("--name",)),
) -> Answer:
    """Import a whole study: from another storage, or from another version of cabai.

    Example: cabai study export judges --out judges.jsonl, then: cabai study import judges.jsonl --storage sqlite:///new.db
    """
    study = lasting(import_study(file, name=rename, storage=storage))
    return {"imported": study.name}, f"imported: {study.name}"


@study_app.command()
@takes(study=True)
def log(study: Study) -> Answer:
    """List everything that ever happened to a study.

    Asks, results, lapsed and released pulls, amendments and the stop, with their times (UTC) and workers.
    """
    found = study.events()
    return {"log": found}, "\n".join(map(line_of_log, found))


@study_app.command()
@takes(study=True)
def plot(
    study: Study, out: str = file_option("The .svg or .png file to write.", "svg", "png", default="study.svg")
) -> Answer:
    """Plot a study: its arms, the progress, the leader's lead and the bill.

    Example: cabai study plot judges --out judges.svg
    """
    save(study.plot(), out)
    return written(out)


@study_app.command()
@takes(study=True)
def report(
    study: Study, out: str = file_option("The .html file to write.", "html", "htm", default="report.html")
) -> Answer:
    """Write a report of a study as one self-contained HTML file.

    It says what was asked, assumed, paid and decided, with plots.

    Example: cabai study report judges --out judges.html
    """
    study.report(out)
    return written(out)


@study_app.command()
@takes()
def delete(name: str, storage: str, yes: bool = option("Do not ask for confirmation.", False)) -> Answer:
    """Delete a study and all its observations."""
    if is_served(storage):
        delete_study(name, storage=storage)  # raises an error that says why not
    try:
        status = load_study(name, storage=storage).status()
        lost = f"{status.pulls} pulls, {status.spent:g} spent"
    except StorageError as error:
        lost = str(error)
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput(f"deleting {name!r} loses all its observations ({lost}): add --yes to confirm.")
        typer.confirm(f"Delete {name!r} ({lost})?", abort=True)
    delete_study(name, storage=storage)
    return {"deleted": name}, f"deleted: {name}"


@study_app.command()
@takes("amend", study=True)
def amend(study: Study, **settings: Any) -> Answer:
    """Change the budget, epsilon, lease or metadata of a study.

    The change applies to everyone who works on the study. A study that stopped at its budget continues. A larger
    epsilon may decide at once. Prints all amendments of the study so far; without options, changes nothing.

    Example: cabai study amend judges --max-cost 50
    """
    changes = {name: value for name, value in settings.items() if value is not None}
    if set(changes) - {"by"}:
        study.amend(**changes)
    return amendments(study)


@study_app.command()
@takes("accept", study=True)
def accept(study: Study, **settings: Any) -> Answer:
    """Take what is proven as the decision.

    The status says how much worse than the best the leader is at most. If that is close enough, accept it: the study
    then has decided, with that epsilon.

    Example: cabai study accept judges --epsilon 0.01
    """
    study.accept(**settings)
    found = study.status()
    return {"decision": found.decision, "epsilon": found.epsilon, "statement": found.statement}, found.sentence


@study_app.command()
@takes("drop", leave_out=["arm"], study=True)
def drop(study: Study, arm: ArmArgument, **settings: Any) -> Answer:
    """Drop an arm by hand.

    It is not pulled again and cannot be the decision. The decision is then about the arms still in play. You may have
    seen results before you drop an arm, so each drop raises the evidence required. If the study was created without
    --reserve, its decision is then wrong with probability at most 2 delta instead of delta.

    Example: cabai study drop judges small
    """
    study.drop(arm, **settings)
    return amendments(study)


@study_app.command()
@takes("add_arm", leave_out=["arm"], study=True)
def add_arm(study: Study, arm: ArmArgument, **settings: Any) -> Answer:
    """Add an arm to a study created with --reserve.

    Example: cabai study add-arm judges medium
    """
    study.add_arm(arm, **settings)
    return amendments(study)


@study_app.command()
@takes(study=True)
def tell_counts(
    study: Study,
    counts: str = argument('JSON with [pulls, sum of rewards, sum of costs] per arm: {"red": [1000, 31, 2.5]}'),
    period: str | None = option("Name of the period, so that telling it twice counts once."),
    following: int | None = option("Pulls expected in the next period. Default: as many as in this one."),
) -> Answer:
    """Tell the totals of many pulls at once, for a complete period.

    Prints the share of the next period's pulls to give each arm. For bernoulli and poisson rewards.

    Example: cabai study tell-counts ads '{"red": [1000, 31, 2.5], "blue": [1000, 52, 2.5]}' --period 2026-11-16T07
    """
    given = read_json(counts, "counts", object_pairs_hook=once)
    shares = study.tell_counts(given, period=period, following=following)
    found = study.status()
    lines = [found.sentence, *(f"{arm}\t{share:.4g}" for arm, share in shares.items())]
    about = {"stopped": found.stopped, "decision": found.decision, "spent": found.spent, "shares": shares}
    return about, "\n".join(lines)


@study_app.command()
@takes(study=True)
def split(study: Study, pulls: int = argument("Number of pulls to divide.")) -> Answer:
    """Show how the policy would divide a number of pulls.

    Prints one line per arm: its name and its number of pulls.
    """
    found = study.split(pulls)
    return {"pulls": found}, "\n".join(f"{arm}\t{some}" for arm, some in found.items())


def lasting(study: Study) -> Study:
    """A study that is still there after the command."""
    if study.storage == MEMORY:
        raise InvalidInput(f"a study in memory is lost when the command ends: choose a storage such as {STORAGE}.")
    return study


def amendments(study: Study) -> Answer:
    """Every amendment, and the status of the study."""
    made = study.amendments()
    return {"amendments": made}, "\n".join([*map(line_of_amendment, made), study.status().sentence])


def line_of_amendment(made: dict[str, Any]) -> str:
    changes = "; ".join(
        f"{name}: {json.dumps(old)} -> {json.dumps(new)}" for name, (old, new) in made["changes"].items()
    )
    on = "" if made["reopened"] is None else f" (it had stopped at {made['reopened']}, and continued)"
    return f"{in_utc(made['made'])} UTC by {made['by']}: {changes}{on}"


def line_of_log(event: dict[str, Any]) -> str:
    rest = "  ".join(f"{key} {value}" for key, value in event.items() if key not in ("place", "kind", "time"))
    return f"{event['place']:>6}  {in_utc(event['time'])}  {event['kind']:<8}  {rest}"


def in_utc(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment))


def written(out: str) -> Answer:
    return {"written": out}, f"written: {out}"


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse JSON that names a key twice: one of the two counts of an arm would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is named twice")
    return found


def with_metadata(arms: list[str], metadata: str) -> dict[str, Any]:
    """The arms with what is to be kept with them."""
    kept = read_json(metadata, "--metadata")
    if not isinstance(kept, dict) or not set(kept) <= set(arms) or len(set(arms)) < len(arms):
        raise InvalidInput(
            f"--metadata must be an object with names of arms ({', '.join(arms)}), got {shown(metadata)}."
        )
    return {name: kept.get(name) for name in arms}
