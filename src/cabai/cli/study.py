"""cabai study create | ask | tell | stop | status | list | export | plot | report | delete and more."""

from __future__ import annotations

import json
import sys
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
from cabai.families import FAMILIES
from cabai.plots import save
from cabai.policies import POLICIES
from cabai.study import (
    LEASE,
    STORAGE,
    StorageError,
    create_study,
    delete_study,
    load_study,
)
from cabai.study.exporting import exported
from cabai.study.items import WORST
from cabai.study.open import is_served
from cabai.study.printed import asked, told
from cabai.study.settings import DIRECTIONS, ON_LAPSE
from cabai.support.files import file_to_write, write_whole
from cabai.support.validation import InvalidInput, shown
from cabai.thresholds import THRESHOLDS

study_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
for command in (amend, drop, add_arm, tell_counts, split):
    study_app.command()(command)


@study_app.callback()
def teach(context: typer.Context) -> None:
    """Live studies, from any language: create one, ask what to pull, tell what came back."""
    show_help_alone(context)


@study_app.command()
def create(
    name: NameArgument,
    arms: Annotated[str, typer.Option("--arms", help="The arms' names, separated by commas: small,large")],
    family: Annotated[
        str | None,
        typer.Option("--family", help=f"What a reward is: {', '.join(FAMILIES.names)}. With --items, bounded."),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="The probability of a wrong decision allowed.")] = 0.05,
    policy: Annotated[
        str, typer.Option("--policy", help=f"How to choose and stop: {', '.join(POLICIES.names)}.")
    ] = policies.DEFAULT,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            help=f"When one arm beats another: {', '.join(THRESHOLDS.names)}; or a file that cabai calibrate has "
            "written. The cheapest that is proven for the family, unless told otherwise.",
        ),
    ] = None,
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="An arm whose mean is within epsilon of the best is good enough.")
    ] = 0.0,
    goal: GoalOption = BEST,
    slack: SlackOption = None,
    running_costs: RunningCostsOption = None,
    direction: Annotated[str, typer.Option("--direction", help=f"{' or '.join(DIRECTIONS)}.")] = "maximize",
    costs: Annotated[
        str | None, typer.Option("--costs", help="The arms' mean costs where they are known: 1,0.1")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="Stop, without a guarantee, at this bill.")
    ] = None,
    max_pulls: Annotated[
        int | None, typer.Option("--max-pulls", help="Stop, without a guarantee, after so many pulls.")
    ] = None,
    lease: Annotated[
        float, typer.Option("--lease", help="Seconds after which a pull that is not told has lapsed.")
    ] = LEASE,
    on_lapse: Annotated[
        str,
        typer.Option("--on-lapse", help="What then: offer (it again) or fail (it has failed)."),
    ] = ON_LAPSE[0],
    seed: Annotated[
        int | None, typer.Option("--seed", help="For policies that toss coins; with --items, of their random order.")
    ] = None,
    items: Annotated[
        str | None,
        typer.Option("--items", help="Race the arms on a dataset: how many items, or a .jsonl or .csv file of them."),
    ] = None,
    race: Annotated[
        str | None, typer.Option("--race", help=f"With --items: {' or '.join(RACES)}; the cheaper one unless told.")
    ] = None,
    failed: Annotated[
        str, typer.Option("--failed", help="With --items: what a failed evaluation counts as: worst, stop or a score.")
    ] = WORST,
    speculate: Annotated[
        float,
        typer.Option("--speculate", help="With --items: evaluations under way at most, as a share of those told."),
    ] = 0.1,
    full_cost: Annotated[
        float | None, typer.Option("--full-cost", help="Warn at this bill: what evaluating everything would cost.")
    ] = None,
    reserve: Annotated[
        float | None,
        typer.Option("--reserve", help="A share of delta for arms that join later or are dropped by hand."),
    ] = None,
    import_from: Annotated[
        str | None, typer.Option("--import-from", help="Begin with the observations in a .csv or .parquet file.")
    ] = None,
    import_study: Annotated[
        str | None, typer.Option("--import-study", help="Begin with those of another study of this storage.")
    ] = None,
    unseen: Annotated[
        bool,
        typer.Option("--unseen", help="Declare that the arms were not chosen by what is imported, which is complete."),
    ] = False,
    metadata: Annotated[
        str | None, typer.Option("--metadata", help='What to keep with the arms, as JSON: {"small": {"model": "m1"}}')
    ] = None,
    load_if_exists: Annotated[
        bool, typer.Option("--load-if-exists", help="Go on with the study of that name, if its settings are these.")
    ] = False,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Start a study.

    Examples: cabai study create judges --arms small,large --family bernoulli --delta 0.05

    cabai study create models --arms small,large --items questions.jsonl --epsilon 0.01

    cabai study create models --arms small,large --items questions.jsonl --epsilon 0.02 --goal cheapest
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
    n: Annotated[int, typer.Option("-n", "--number", help="How many pulls to ask for.")] = 1,
    worker: Annotated[str | None, typer.Option("--worker", help="Who asks; kept with the observation.")] = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """What to pull next: one line each, the pull's id and the arm's name; with items, the item's id too.

    The exit code is 3 once the study has stopped, and 4 while pulls under way must be told first: they use up its
    budget, or the results in hand decide without them.
    """
    typer.echo(asked(load_study(name, storage=storage).ask(n, worker=worker), as_json))


@study_app.command()
def tell(
    name: NameArgument,
    pull: Annotated[str, typer.Argument(help="The pull's id, as `ask` printed it.")],
    reward: Annotated[float | None, typer.Option("--reward", help="What it returned.")] = None,
    cost: Annotated[
        float | None, typer.Option("--cost", help="What it cost; not needed where costs are known.")
    ] = None,
    failed: Annotated[str | None, typer.Option("--failed", help="Why there is no reward; its cost counts.")] = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """What a pull returned and cost. Stored for good when this returns; telling the same again does no harm.

    Example: cabai study tell judges 1f6c2a9b-1 --reward 1 --cost 0.02
    """
    study = load_study(name, storage=storage)
    study.tell(pull, reward, cost, failed=failed)
    typer.echo(told(study.status(), as_json))


@study_app.command()
def stop(name: NameArgument, storage: StorageOption = STORAGE, as_json: JsonOption = False) -> None:
    """End a study by hand: for good, and without a decision."""
    study = load_study(name, storage=storage)
    study.stop()
    found = study.status()
    show_json({"stopped": found.stopped, "reason": found.reason}) if as_json else typer.echo(found.sentence)


@study_app.command()
def status(
    name: NameArgument,
    forecast: Annotated[
        bool, typer.Option("--forecast/--no-forecast", help="Whether to simulate what is still to be paid.")
    ] = True,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Every arm, the evidence so far, the bill and the decision: why it is not over yet, which arms may be the best,
    and what is still to be paid, as a range that holds with a chance of 80 %."""
    found = load_study(name, storage=storage).status(forecast=forecast)
    if as_json:
        show_json(found.to_dict())
    else:
        typer.echo(found)


@study_app.command("list")
def list_(storage: StorageOption = STORAGE, as_json: JsonOption = False) -> None:
    """All studies of a storage, and how each stands."""
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
        str | None, typer.Option("--out", help="A .csv, .json or .parquet file; CSV on the terminal without it.")
    ] = None,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Everything that was told, one row a pull, in the order of telling.

    In CSV, a text that begins with =, +, - or @ has an apostrophe put before it, so that a spreadsheet does not run it
    as a formula; numbers, and texts in JSON and Parquet, are as they were told.
    """
    kind = "json" if out is None and as_json else "csv" if out is None else Path(out).suffix.lstrip(".").lower()
    if kind not in ("csv", "json", "parquet"):
        raise InvalidInput(f"--out must end in .csv, .json or .parquet, got {out!r}.")
    if out is not None:
        file_to_write(out)
    study = load_study(name, storage=storage)
    content = exported(study, kind)
    if out is None:
        typer.echo(content.decode(), nl=False)
        return
    write_whole(out, content)
    show_json({"written": out}) if as_json else typer.echo(f"written: {out}")


@study_app.command()
def plot(
    name: NameArgument,
    out: Annotated[str, typer.Option("--out", help="The .svg, .png or .html file to write.")] = "study.svg",
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """A picture of a study: arms with intervals and spending, evidence against what is required, the bill.

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
    """A study as one HTML file that needs nothing else: what was asked, assumed, paid and decided, with pictures.

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
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Delete a study and everything observed in it."""
    if is_served(storage):
        delete_study(name, storage=storage)  # which says why not
    try:
        status = load_study(name, storage=storage).status()
        lost = f"{status.pulls} pulls, {status.spent:g} spent"
    except StorageError as error:
        lost = str(error)
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput(f"deleting {name!r} loses what was observed ({lost}): say --yes.")
        typer.confirm(f"Delete {name!r} ({lost})?", abort=True)
    delete_study(name, storage=storage)
    show_json({"deleted": name}) if as_json else typer.echo(f"deleted: {name}")


def overview(storage: str) -> tuple[list[dict[str, Any]], list[str]]:
    """How every study stands, and what is wrong with those that cannot be read."""
    if is_served(storage):
        from cabai.study.remote import list_remote

        served = list_remote(storage)
        return served["studies"], served["damaged"]
    from cabai.study.catalogue import statuses
    from cabai.study.storage import open_storage
    from cabai.study.wire import LISTED

    found, damaged = statuses(open_storage(storage, make=False))
    return [{**{field: getattr(each, field) for field in LISTED}, "sentence": each.sentence} for each in found], damaged


def read_dataset(given: str | None) -> Any:
    """The items that the option describes: so many, or those in a file."""
    return given if given is None else int(given) if given.strip().isdigit() else Dataset.of(given)


def read_score(given: str) -> str | float:
    """A score, or a word that stands for one."""
    try:
        return float(given)
    except ValueError:
        return given


def read_arms(given: str, metadata: str | None) -> Any:
    """The arms that the options describe."""
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
