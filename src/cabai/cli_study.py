"""The shell's part on live studies: `cabai run study.toml` and `cabai study create | ask | tell | status | ...`."""

from __future__ import annotations

import csv
import io
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cabai.checks import InvalidInput, shown, whole
from cabai.cli_tools import Interrupted, JsonOption, read_numbers, show_help_alone, show_json
from cabai.families import FAMILIES
from cabai.files import file_to_write, write_whole
from cabai.policies import POLICIES
from cabai.study import (
    LEASE,
    STORAGE,
    StorageError,
    StudyNotFound,
    create_study,
    delete_study,
    list_studies,
    load_study,
)
from cabai.study.settings import DIRECTIONS
from cabai.thresholds import THRESHOLDS

if TYPE_CHECKING:
    from cabai.study.status import Status
    from cabai.study.study import Study

study_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(help="The study's name.")]
StorageOption = Annotated[
    str,
    typer.Option(
        "--storage",
        envvar="CABAI_STORAGE",
        help="Where studies are stored: sqlite:///FILE or postgresql://USER@HOST/DATABASE.",
    ),
]


@study_app.callback()
def teach(context: typer.Context) -> None:
    """Live studies, from any language: create one, ask what to pull, tell what came back."""
    show_help_alone(context)


@study_app.command()
def create(
    name: NameArgument,
    arms: Annotated[str, typer.Option("--arms", help="The arms' names, separated by commas: small,large")],
    family: Annotated[str, typer.Option("--family", help=f"What a reward is: {', '.join(FAMILIES.names)}.")],
    delta: Annotated[float, typer.Option("--delta", help="The probability of a wrong decision allowed.")] = 0.05,
    policy: Annotated[
        str, typer.Option("--policy", help=f"How to choose and stop: {', '.join(POLICIES.names)}.")
    ] = "top-two",
    threshold: Annotated[
        str, typer.Option("--threshold", help=f"When one arm beats another: {', '.join(THRESHOLDS.names)}.")
    ] = "evalue",
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="An arm whose mean is within epsilon of the best is good enough.")
    ] = 0.0,
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
        float, typer.Option("--lease", help="Seconds after which a pull that is not told is offered again.")
    ] = LEASE,
    seed: Annotated[int, typer.Option("--seed", help="For policies that toss coins.")] = 0,
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

    Example: cabai study create judges --arms small,large --family bernoulli --delta 0.05
    """
    study = create_study(
        name, arms=read_arms(arms, metadata), family=family, delta=delta, policy=policy, threshold=threshold,
        epsilon=epsilon, direction=direction, costs=None if costs is None else read_numbers(costs, "--costs"),
        max_cost=max_cost, max_pulls=max_pulls, lease=lease, seed=seed, storage=storage,
        load_if_exists=load_if_exists,
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
    """What to pull next: one line each, the pull's id and the arm's name.

    The exit code is 3 once the study has stopped, and 4 while pulls under way use up its budget.
    """
    pulls = load_study(name, storage=storage).ask(n, worker=worker)
    if as_json:
        fields = ("id", "arm", "number", "expires", "offers", "metadata")
        show_json({"pulls": [{field: getattr(pull, field) for field in fields} for pull in pulls]})
    else:
        for pull in pulls:
            typer.echo(f"{pull.id}\t{pull.arm}")


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
    status = study.status()
    if as_json:
        show_json({"stopped": status.stopped, "decision": status.decision, "spent": status.spent})
    else:
        typer.echo(status.sentence)


@study_app.command()
def status(name: NameArgument, storage: StorageOption = STORAGE, as_json: JsonOption = False) -> None:
    """Every arm, the evidence so far, the bill and the decision."""
    found = load_study(name, storage=storage).status()
    if as_json:
        show_json(found.to_dict())
    else:
        typer.echo(found)


@study_app.command("list")
def list_(storage: StorageOption = STORAGE, as_json: JsonOption = False) -> None:
    """All studies of a storage, and how each stands."""
    statuses, damaged = [], []
    for name in list_studies(storage=storage):
        try:
            statuses.append(load_study(name, storage=storage).status())
        except StudyNotFound:  # deleted meanwhile
            continue
        except (StorageError, InvalidInput) as error:  # the others are shown all the same
            damaged.append(str(error))
    if as_json:
        fields = ("name", "stopped", "reason", "decision", "leader", "pulls", "spent")
        show_json({"studies": [{field: getattr(each, field) for field in fields} for each in statuses]})
    else:
        for each in statuses:
            typer.echo(f"{each.name}: {each.sentence}")
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
def delete(
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    storage: StorageOption = STORAGE,
    as_json: JsonOption = False,
) -> None:
    """Delete a study and everything observed in it."""
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


def run(
    recipe: Annotated[str, typer.Argument(help="A TOML file that says what the arms are and how each is tried.")],
    workers: Annotated[int | None, typer.Option("--workers", help="How many pulls at a time.")] = None,
    changed: Annotated[
        bool,
        typer.Option(
            "--changed",
            help="Go on though commands, functions or cost in the file have changed since the last run, because the "
            "arms are still the same things.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a study until it is decided. Its arms are commands or Python functions, named in a TOML file:

    \b
        family = "bernoulli"
        delta = 0.05
        command = "python judge.py {arm}"
        arms = ["small", "large"]

    A command's last line of output is {"reward": 1, "cost": 0.02}; with cost = "seconds" or cost = "cpu" in the file,
    the time it takes is its cost, and the reward alone is enough. Ctrl-C stops, and the same command goes on. The exit
    code is 3 if the study stopped without a decision: at its budget, or where its certificate ends.
    """
    from cabai.study.recipe import read_recipe
    from cabai.study.runner import run as run_study

    for ending in (signal.SIGTERM, signal.SIGHUP):  # like Ctrl-C: no command is left running, no pull leased
        if signal.getsignal(ending) == signal.SIG_DFL:  # not under nohup
            signal.signal(ending, signal.default_int_handler)
    plan = read_recipe(recipe)
    at_a_time = plan.workers if workers is None else whole(workers, "workers", 1)
    over = threading.Event()
    test = plan.test(over)
    study = plan.study(changed=changed)  # last, when nothing else is wrong
    try:
        with live_table(study):
            found = run_study(study, test, workers=at_a_time, max_failures=plan.max_failures, over=over)
    except KeyboardInterrupt:
        raise Interrupted(f"{study.status().sentence} Run the same command again to go on.") from None
    if as_json:
        show_json(found.to_dict())
    else:
        typer.echo(f"{found}\nstored: {study.storage}")
    if found.decision is None:
        raise typer.Exit(3)


@contextmanager
def live_table(study: Study) -> Iterator[None]:
    """The study's status on stderr while it runs: a table on a terminal, else a line a minute.

    Where the status cannot be read the last one stays: what is wrong with the storage is for the run to say.
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        last: Any = ""

        def shown() -> Any:
            nonlocal last
            with suppress(StorageError, StudyNotFound):
                last = picture(study.status())
            return last

        with Live(
            console=Console(stderr=True),
            get_renderable=shown,
            refresh_per_second=4,
            transient=True,
        ):
            yield
        return
    done = threading.Event()

    def tell_each_minute() -> None:
        while not done.wait(60):
            with suppress(StorageError, StudyNotFound):
                typer.echo(f"{time.strftime('%H:%M:%S')} {study.status().sentence}", err=True)

    reporter = threading.Thread(target=tell_each_minute, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()


def picture(status: Status) -> Any:
    """A status for Rich to draw."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    header, *rows = status.rows()
    drawn = Table(box=None, pad_edge=False)
    for i, title in enumerate(header):
        drawn.add_column(title, justify="left" if i in (0, len(header) - 1) else "right")
    for row, arm in zip(rows, status.arms, strict=True):
        style = "bold" if arm.name == status.leader else "dim" if not arm.in_play else ""
        drawn.add_row(*(Text(cell) for cell in row), style=style)
    return Group(drawn, Text(status.sentence))


def exported(study: Study, kind: str) -> bytes:
    """A study's observations as the content of a file."""
    from cabai.study.study import OBSERVATION

    if kind == "parquet":
        return bytes(study.to_frame().to_parquet(index=False))
    rows = study.observations()
    if kind == "json":
        return (json.dumps({"observations": rows}, allow_nan=False) + "\n").encode()
    cells = [OBSERVATION, *([plain_text(row[name]) for name in OBSERVATION] for row in rows)]
    return "".join(csv_line(row) for row in cells).encode()


def csv_line(cells: list[Any]) -> str:
    """One row of CSV. Python before 3.13 quotes a text with a carriage return only where rows end in one too."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def plain_text(value: Any) -> Any:
    """A value for a cell of CSV: spreadsheets take a text that begins so for a formula, and run it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else value


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
