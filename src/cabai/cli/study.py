"""cabai study create | ask | tell | status | list | export | plot | report | stop | delete and more."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from cabai import policies
from cabai.cli.amend import add_arm, amend, drop
from cabai.cli.counts import split, tell_counts
from cabai.cli.options import GoalOption, RunningCostsOption, SlackOption, read_running_costs
from cabai.cli.storing import NameArgument, StorageOption
from cabai.cli.tools import JsonOption, read_numbers, show_help_alone, show_json
from cabai.core.goal import BEST
from cabai.datasets.dataset import Dataset
from cabai.datasets.race import RACES
from cabai.errors import StorageError
from cabai.families import FAMILIES
from cabai.plots import save
from cabai.policies import POLICIES
from cabai.printed import asked, told
from cabai.settings import DIRECTIONS, ON_LAPSE, WORST
from cabai.study import LEASE, STORAGE, create_study, delete_study, import_study, load_study
from cabai.study.create import is_served
from cabai.study.show.exporting import exported
from cabai.support.files import file_to_write, write_whole
from cabai.support.validation import InvalidInput, shown
from cabai.thresholds import THRESHOLDS

study_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@study_app.callback()
def teach(context: typer.Context) -> None:
    """Create and run live studies with ask and tell.

    Ask which arm to pull, pull it, and tell its reward and cost. Works from any language: call these commands, or use
    HTTP with cabai serve.
    """
    show_help_alone(context)


@study_app.command()
def create(
    name: NameArgument,
    arms: Annotated[str, typer.Option("--arms", help="Names of the arms: small,large")],
    family: Annotated[
        str | None,
        typer.Option(
            "--family", help=f"How rewards are distributed: {', '.join(FAMILIES.names)}. Default with --items: bounded."
        ),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="Largest allowed probability of a wrong decision.")] = 0.05,
    policy: Annotated[
        str, typer.Option("--policy", help=f"How to choose arms: {', '.join(POLICIES.names)}.")
    ] = policies.DEFAULT,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            help=f"The test that decides when one arm beats another: {', '.join(THRESHOLDS.names)}; or a file written "
            "by cabai calibrate. Default: the cheapest threshold proven for the family.",
        ),
    ] = None,
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="Accept any arm whose mean is within epsilon of the best.")
    ] = 0.0,
    goal: GoalOption = BEST,
    slack: SlackOption = None,
    running_costs: RunningCostsOption = None,
    direction: Annotated[
        str, typer.Option("--direction", help=f"Whether a high reward is good: {' or '.join(DIRECTIONS)}.")
    ] = "maximize",
    costs: Annotated[
        str | None, typer.Option("--costs", help="Mean cost per pull of each arm, if known: 1,0.1")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="Budget: stop, without a guarantee, when the bill reaches this.")
    ] = None,
    max_pulls: Annotated[
        int | None, typer.Option("--max-pulls", help="Stop, without a guarantee, after this many pulls.")
    ] = None,
    lease: Annotated[
        float, typer.Option("--lease", help="Seconds a worker has to tell a pull before it lapses.")
    ] = LEASE,
    on_lapse: Annotated[
        str,
        typer.Option(
            "--on-lapse",
            help="What happens to a lapsed pull: offer (another ask gets it) or fail (it counts as failed).",
        ),
    ] = ON_LAPSE[0],
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            help="Random seed of the policy. With --items: of the order of items. Default: 0; with --items, random.",
        ),
    ] = None,
    items: Annotated[
        str | None,
        typer.Option(
            "--items", help="Evaluate the arms on a dataset: the number of items, or a .jsonl or .csv file of items."
        ),
    ] = None,
    race: Annotated[
        str | None,
        typer.Option(
            "--race", help=f"With --items: {' or '.join(RACES)}. Default: champion if epsilon is 0, else paired."
        ),
    ] = None,
    failed: Annotated[
        str,
        typer.Option(
            "--failed",
            help="With --items: what a failed evaluation counts as: `worst` (the worst score), a number, or `stop` "
            "(raise an error).",
        ),
    ] = WORST,
    speculate: Annotated[
        float,
        typer.Option(
            "--speculate",
            help="With --items: how many evaluations may be under way at once, as a share of those told so far.",
        ),
    ] = 0.1,
    full_cost: Annotated[
        float | None,
        typer.Option("--full-cost", help="What evaluating everything would cost: warn when the bill passes it."),
    ] = None,
    reserve: Annotated[
        float | None,
        typer.Option("--reserve", help="Share of delta to keep for arms added or dropped later, such as 0.1."),
    ] = None,
    import_from: Annotated[
        str | None, typer.Option("--import-from", help="Start with the observations in a .csv or .parquet file.")
    ] = None,
    import_study: Annotated[
        str | None, typer.Option("--import-study", help="Start with the observations of another study in this storage.")
    ] = None,
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen", help="Declare that the imported data are complete and did not influence the choice of arms."
        ),
    ] = False,
    metadata: Annotated[
        str | None, typer.Option("--metadata", help='Data to keep with the arms, as JSON: {"small": {"model": "m1"}}')
    ] = None,
    load_if_exists: Annotated[
        bool,
        typer.Option("--load-if-exists", help="If a study of this name and with these settings exists, continue it."),
    ] = False,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Create a study.

    Example: cabai study create judges --arms small,large --family bernoulli --delta 0.05

    On a dataset: cabai study create models --arms small,large --items questions.jsonl --epsilon 0.01

    The cheapest good arm: cabai study create models --arms small,large --items questions.jsonl --epsilon 0.02 --goal
    cheapest
    """
    study = create_study(
        name, arms=read_arms(arms, metadata), family=family, delta=delta, policy=policy, threshold=threshold,
        epsilon=epsilon, goal=goal, slack=slack,
        running_costs=read_running_costs(running_costs),
        direction=direction, costs=None if costs is None else read_numbers(costs, "--costs"),
        max_cost=max_cost, max_pulls=max_pulls, lease=lease, on_lapse=on_lapse, seed=seed, items=read_dataset(items),
        race=race, failed=read_score(failed), speculate=speculate, full_cost=full_cost, reserve=reserve,
        import_from=import_from if import_study is None else load_study(import_study, storage=storage), unseen=unseen,
        storage=storage, load_if_exists=load_if_exists,
    )  # fmt: skip
    if as_json:
        show_json({"name": study.name, "storage": study.storage, "arms": list(study.arms)})
    else:
        typer.echo(
            f"{'ready' if load_if_exists else 'created'}: {study.name}, {len(study.arms)} arms, in {study.storage}"
        )


@study_app.command()
def ask(
    name: NameArgument,
    n: Annotated[int, typer.Option("-n", "--number", help="Number of pulls to ask for.")] = 1,
    worker: Annotated[
        str | None, typer.Option("--worker", help="Name of the worker; kept with the observation.")
    ] = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Ask which arm to pull next.

    Prints one line per pull: its id, the arm and, for a dataset, the item's id, separated by tabs. The exit code is 3
    if the study has stopped, and 4 if pulls under way must be told first, because they use up the budget or the
    results so far already decide.
    """
    typer.echo(asked(load_study(name, storage=storage).ask(n, worker=worker), as_json))


@study_app.command()
def tell(
    name: NameArgument,
    pull: Annotated[str, typer.Argument(help="Id of the pull, as printed by `ask`.")],
    reward: Annotated[float | None, typer.Option("--reward", help="The reward of the pull.")] = None,
    cost: Annotated[
        float | None, typer.Option("--cost", help="The cost of the pull. Not needed if the study knows the costs.")
    ] = None,
    failed: Annotated[
        str | None, typer.Option("--failed", help="If the pull failed: why. Its cost still counts.")
    ] = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Tell the reward and the cost of a pull.

    The result is safely stored when this command returns. Telling the same result again changes nothing.

    Example: cabai study tell judges 1f6c2a9b-1 --reward 1 --cost 0.02
    """
    study = load_study(name, storage=storage)
    study.tell(pull, reward, cost, failed=failed)
    typer.echo(told(study.status(), as_json))


@study_app.command()
def stop(name: NameArgument, storage: StorageOption = STORAGE, as_json: JsonOption = False) -> None:
    """Stop a study for good, without a decision."""
    study = load_study(name, storage=storage)
    study.stop()
    found = study.status()
    show_json({"stopped": found.stopped, "reason": found.reason}) if as_json else typer.echo(found.sentence)


@study_app.command()
def status(
    name: NameArgument,
    forecast: Annotated[
        bool, typer.Option("--forecast/--no-forecast", help="Also estimate, by simulation, what is still to pay.")
    ] = True,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Show the arms, the evidence, the bill and the decision.

    Says why the study has not stopped yet, which arms may still be the best, and how much is still to pay, as a range
    that holds with probability 80 %.
    """
    found = load_study(name, storage=storage).status(forecast=forecast)
    if as_json:
        show_json(found.to_dict())
    else:
        typer.echo(found)


@study_app.command("list")
def list_(storage: StorageOption = STORAGE, as_json: JsonOption = False) -> None:
    """List the studies in a storage, with the status of each."""
    from cabai.study.wire import LISTED

    found, damaged = overview(storage)
    if as_json:
        show_json({"studies": [{field: each[field] for field in LISTED} for each in found]})
    else:
        for each in found:
            typer.echo(f"{each['name']}: {each['sentence']}")
    if damaged:
        raise StorageError(" ".join(damaged))


@study_app.command()
def export(
    name: NameArgument,
    out: Annotated[
        str | None,
        typer.Option("--out", help="A .csv, .json or .parquet file; .jsonl for the whole log. Default: print CSV."),
    ] = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Export all results, one row per pull.

    Rows are in the order in which the results were told. In CSV, text that begins with =, +, - or @ gets an apostrophe
    in front, so that a spreadsheet does not run it as a formula. Numbers, and text in JSON and Parquet, are exported as
    told. A .jsonl file holds the whole study, with everything that ever happened: `cabai study import` reads it.

    Example: cabai study export judges --out judges.csv
    """
    kind = "json" if out is None and as_json else "csv" if out is None else Path(out).suffix.lstrip(".").lower()
    if kind not in ("csv", "json", "parquet", "jsonl"):
        raise InvalidInput(f"--out must end in .csv, .json, .parquet or .jsonl, got {out!r}.")
    if out is not None:
        file_to_write(out)
    study = load_study(name, storage=storage)
    content = exported(study, kind)
    if out is None:
        typer.echo(content.decode(), nl=False)
        return
    write_whole(out, content)
    show_json({"written": out}) if as_json else typer.echo(f"written: {out}")


@study_app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="The .jsonl file that `cabai study export` wrote.")],
    name: Annotated[str | None, typer.Option("--name", help="Another name for the study.")] = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Import a whole study: from another storage, or from another version of cabai.

    Example: cabai study export judges --out judges.jsonl, then: cabai study import judges.jsonl --storage sqlite:///new.db
    """
    study = import_study(file, name=name, storage=storage)
    show_json({"imported": study.name}) if as_json else typer.echo(f"imported: {study.name}")


@study_app.command()
def log(name: NameArgument, storage: StorageOption = STORAGE, as_json: JsonOption = False) -> None:
    """List everything that ever happened to a study.

    Asks, results, lapsed and released pulls, amendments and the stop, with their times (UTC) and workers.
    """
    found = load_study(name, storage=storage).events()
    if as_json:
        show_json({"log": found})
        return
    for event in found:
        when = datetime.fromtimestamp(event.pop("time"), UTC).strftime("%Y-%m-%d %H:%M:%S")
        rest = "  ".join(f"{key} {value}" for key, value in event.items() if key not in ("place", "kind"))
        typer.echo(f"{event['place']:>6}  {when}  {event['kind']:<8}  {rest}")


@study_app.command()
def plot(
    name: NameArgument,
    out: Annotated[str, typer.Option("--out", help="The .svg, .png or .html file to write.")] = "study.svg",
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Plot a study: its arms, the evidence and the bill.

    Shows each arm's interval and cost, the evidence so far against the evidence required, and the bill.

    Example: cabai study plot judges --out judges.svg
    """
    kind = Path(out).suffix.lower()
    if kind not in (".svg", ".png", ".html"):
        raise InvalidInput(f"--out must end in .svg, .png or .html, got {out!r}.")
    file_to_write(out)
    study = load_study(name, storage=storage)
    if kind == ".html":
        study.report(out)
    else:
        save(study.plot(), out)
    show_json({"written": out}) if as_json else typer.echo(f"written: {out}")


@study_app.command()
def report(
    name: NameArgument,
    out: Annotated[str, typer.Option("--out", help="The .html file to write.")] = "report.html",
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Write a report of a study as one self-contained HTML file.

    It says what was asked, assumed, paid and decided, with plots.

    Example: cabai study report judges --out judges.html
    """
    if Path(out).suffix.lower() not in (".html", ".htm"):
        raise InvalidInput(f"--out must end in .html, got {out!r}.")
    file_to_write(out)
    load_study(name, storage=storage).report(out)
    show_json({"written": out}) if as_json else typer.echo(f"written: {out}")


@study_app.command()
def delete(
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
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
    show_json({"deleted": name}) if as_json else typer.echo(f"deleted: {name}")


for command in (amend, drop, add_arm, tell_counts, split):  # listed last by --help
    study_app.command()(command)


def overview(storage: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The status of every study, and what is wrong with those that cannot be read."""
    if is_served(storage):
        from cabai.study.remote import list_remote

        served = list_remote(storage)
        return served["studies"], served["damaged"]
    from cabai.study.service import overview as of_all
    from cabai.study.wire import LISTED

    found, damaged = of_all(storage, make=False)
    return [{**{field: getattr(each, field) for field in LISTED}, "sentence": each.sentence} for each in found], damaged


def read_dataset(given: str | None) -> Any:
    """The items given by --items: a number, or a file."""
    return given if given is None else int(given) if given.strip().isdigit() else Dataset.of(given)


def read_score(given: str) -> str | float:
    """A score, or a word such as worst."""
    try:
        return float(given)
    except ValueError:
        return given


def read_arms(given: str, metadata: str | None) -> Any:
    """The arms given by --arms and --metadata."""
    arms = [name.strip() for name in given.split(",")]
    if metadata is None:
        return arms
    try:
        kept = json.loads(metadata)
    except (ValueError, RecursionError) as error:  # not JSON, or more digits or brackets than Python reads
        raise InvalidInput(f"--metadata must be JSON, got {shown(metadata)}: {error}.") from None
    if not isinstance(kept, dict) or not set(kept) <= set(arms) or len(set(arms)) < len(arms):
        raise InvalidInput(
            f"--metadata must be an object with names of arms ({', '.join(arms)}), got {shown(metadata)}."
        )
    return {name: kept.get(name) for name in arms}
