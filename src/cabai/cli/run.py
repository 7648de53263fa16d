"""cabai run: run a study from a file until it reaches a decision."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cabai.cli.options import JsonOption, takes
from cabai.cli.tools import Interrupted, WrongTest
from cabai.errors import StorageError, StudyNotFound
from cabai.support.validation import optional, whole

if TYPE_CHECKING:
    from cabai.study import Status, Study


@takes()
def run(
    recipe: Annotated[str, typer.Argument(help="A TOML file that names the arms and says how to try each.")],
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Number of pulls to run in parallel. Default: as in the file, else 1."),
    ] = None,
    changed: Annotated[
        bool,
        typer.Option(
            "--changed",
            help="Continue although the commands, functions, cost or metadata of arms in the file have changed since "
            "the last run. Use it only if the arms still do the same thing.",
        ),
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="Show the study in a browser while it runs. Prints the address.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a study from a TOML file until it reaches a decision.

    The arms are commands or Python functions, named in the file:

    \b
        family = "bernoulli"
        delta = 0.05
        command = "python judge.py {arm}"
        arms = ["small", "large"]

    A command prints {"reward": 1, "cost": 0.02} as its last line of output. With cost = "seconds" or cost = "cpu" in
    the file, the cost is the time the command takes, and the reward alone is enough. With reward = "seconds", the
    reward is the time, the study looks for the fastest arm, and the output is not read. With reward = "success", it is
    1 if the command exits with 0, else 0. With shell = true, the command runs in a shell.

    With items = "questions.jsonl", the arms are evaluated on the items of a dataset. The command reads the item as
    JSON from standard input; {item} is the item's id. With batch = 32, it reads up to 32 items, one per line, and
    prints one line for each.

    Ctrl-C stops the run; the same command continues it. If the study stopped at its budget, raise the budget in the
    file and run it again. The exit code is 3 if the study stopped without a decision: at its budget, or at the end of
    its certificate.
    """
    from cabai.study.run.failing import is_blamed
    from cabai.study.run.loop import run as run_study
    from cabai.study.run.recipe import read_recipe

    # Handle these like Ctrl-C, so that no command keeps running and no pull stays leased.
    for name in ("SIGTERM", "SIGHUP", "SIGBREAK"):
        ending = getattr(signal, name, None)  # no operating system has all of them
        if ending is not None and signal.getsignal(ending) == signal.SIG_DFL:  # not under nohup
            signal.signal(ending, signal.default_int_handler)
    plan = read_recipe(recipe)
    at_a_time = plan.workers if workers is None else whole(workers, "workers", 1)
    over = threading.Event()
    test = plan.test(over, lambda text: typer.echo(text, err=True))
    study = plan.study(changed=changed)  # last, after everything else was checked
    for line in plan.amended(study):
        typer.echo(line, err=True)
    try:
        with page_of(study) if page else nullcontext(), live_table(study):
            found = run_study(
                study, test, workers=at_a_time, max_failures=plan.max_failures, over=over, retries=plan.retries,
                catch=plan.caught(), batch=plan.batch,
            )  # fmt: skip
    except Exception as error:
        if is_blamed(error):
            raise WrongTest(study.name, error) from None
        raise
    except KeyboardInterrupt:
        is_kept = study.storage != "memory"
        again = "Run the same command again to continue." if is_kept else "It was only in memory, and is lost."
        raise Interrupted(f"{study.status().sentence} {again}") from None
    typer.echo(json.dumps(found.to_dict(), allow_nan=False) if as_json else f"{found}\nstored: {study.storage}")
    if found.decision is None:
        raise typer.Exit(3)


@contextmanager
def live_table(study: Study) -> Iterator[None]:
    """Show the study's status on stderr while it runs: a table on a terminal, else one line per minute.

    If the status cannot be read, keep the last one: the run itself reports what is wrong with the storage.
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
    """The status as a Rich table."""
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


def page_of(study: Study) -> AbstractContextManager[None]:
    """The study's page, while something is done."""
    optional("fastapi")
    optional("uvicorn")
    from cabai.server.beside import watched

    return watched(study)
