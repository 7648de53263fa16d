"""cabai run: a study from a file, until it is decided."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cabai.cli.tools import Interrupted, JsonOption, WrongTest, show_json
from cabai.study import StorageError, StudyNotFound
from cabai.support.validation import whole

if TYPE_CHECKING:
    from cabai.study import Status, Study


def run(
    recipe: Annotated[str, typer.Argument(help="A TOML file that says what the arms are and how each is tried.")],
    workers: Annotated[int | None, typer.Option("--workers", help="How many pulls at a time.")] = None,
    changed: Annotated[
        bool,
        typer.Option(
            "--changed",
            help="Go on though commands, functions, cost or arms' metadata in the file have changed since the last "
            "run, because the arms are still the same things.",
        ),
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="Show the study in a browser while it runs, at an address that is printed.")
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
    the time it takes is its cost, and the reward alone is enough. With reward = "seconds" its time is the reward, the
    quickest arm is looked for, and its output is not read. With shell = true it is handed to a shell. With items =
    "questions.jsonl", arms are raced on the items of a dataset: the command gets an item's JSON on its standard input,
    and {item} is its id. Ctrl-C stops, and the same command goes on, also past a budget that was raised in the file.
    The exit code is 3 if the study stopped without a decision: at its budget, or where its certificate ends.
    """
    from cabai.study.failing import is_blamed
    from cabai.study.recipe import read_recipe
    from cabai.study.runner import run as run_study

    for name in ("SIGTERM", "SIGHUP", "SIGBREAK"):  # like Ctrl-C: no command is left running, no pull leased
        ending = getattr(signal, name, None)  # no system has all of them
        if ending is not None and signal.getsignal(ending) == signal.SIG_DFL:  # not under nohup
            signal.signal(ending, signal.default_int_handler)
    plan = read_recipe(recipe)
    at_a_time = plan.workers if workers is None else whole(workers, "workers", 1)
    over = threading.Event()
    test = plan.test(over)
    study = plan.study(changed=changed)  # last, when nothing else is wrong
    for line in plan.amended(study):
        typer.echo(line, err=True)
    try:
        with study._watched() if page else nullcontext(), live_table(study):
            found = run_study(
                study, test, workers=at_a_time, max_failures=plan.max_failures, over=over, retries=plan.retries,
                catch=plan.caught(),
            )  # fmt: skip
    except Exception as error:
        if is_blamed(error):
            raise WrongTest(study.name, error) from None
        raise
    except KeyboardInterrupt:
        is_kept = study.storage != "memory"
        again = "Run the same command again to go on." if is_kept else "It was kept in memory alone, and is gone."
        raise Interrupted(f"{study.status().sentence} {again}") from None
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
                last = picture(study.status(forecast=True))
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
                sentence = study.status(forecast=True).sentence
                typer.echo(f"{time.strftime('%H:%M:%S')} {sentence}", err=True)

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
