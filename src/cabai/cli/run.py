"""cabai run: run a study from a file until it reaches a decision."""

from __future__ import annotations

import shlex
import signal
import threading
from typing import Any

import typer

from cabai.cli.options import argument, option, takes
from cabai.cli.tools import Interrupted, WrongTest
from cabai.settings import checked_workers


@takes()
def run(
    recipe: str = argument("A TOML file that names the arms and says how to try each."),
    workers: int | None = option("Number of pulls to run in parallel. Default: as in the file, else 1."),
    changed: bool = option(
        "Continue although the commands, functions, cost or metadata of arms in the file have changed since "
        "the last run. Use it only if the arms still do the same thing.",
        False,
    ),
    page: bool = option("Show the study in a browser while it runs. Prints the address.", False),
) -> tuple[Any, ...]:
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
    from cabai.study.run.loop import run as run_study
    from cabai.study.run.recipe import read_recipe
    from cabai.study.run.trying import is_blamed
    from cabai.study.run.watching import page_of, watched

    # Handle these like Ctrl-C, so that no command keeps running and no pull stays leased.
    for name in ("SIGTERM", "SIGHUP", "SIGBREAK"):
        ending = getattr(signal, name, None)  # no operating system has all of them
        if ending is not None and signal.getsignal(ending) == signal.SIG_DFL:  # not under nohup
            signal.signal(ending, signal.default_int_handler)
    plan = read_recipe(recipe)
    at_a_time = plan.workers if workers is None else checked_workers(workers)
    over = threading.Event()
    test = plan.test(over, lambda text: typer.echo(text, err=True))
    study = plan.study(changed=changed)  # last, after everything else was checked
    for line in plan.amended(study):
        typer.echo(line, err=True)
    try:
        with page_of(study, page), watched(study):
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
        where = f"Stored in {study.storage}. Run the same command again to continue."
        where = where if is_kept else "It was only in memory, and is lost."
        raise Interrupted(f"{study.status().line()}. {where}") from None
    lines = [f"{found}", f"stored: {study.storage}"]
    if found.decision is None and found.within is not None:
        lines.append(f"If that is close enough: cabai study accept {shlex.quote(study.name)}")
    return found.to_dict(), "\n".join(lines), 3 if found.decision is None else 0
