"""Helpers shared by all commands."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from cabai.study.run.failing import without_ours
from cabai.support.registry import split_outside_brackets
from cabai.support.validation import InvalidInput

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


class Interrupted(Exception):
    """A run was stopped, for example by Ctrl-C; the message gives the status of the study."""


class WrongTest(Exception):
    """The user's test raised an error that is a bug rather than a failed trial; `traceback` says where."""

    def __init__(self, study: str, error: Exception) -> None:
        note, *_ = error.__notes__
        super().__init__(
            f"{type(error).__name__}: {error}. T{note.removeprefix('cabai: t')} The study {study!r} is kept; fix the "
            "test and run it again to continue."
        )
        error.__notes__.clear()  # the message above contains them
        self.traceback = "".join(traceback.format_exception(error.with_traceback(without_ours(error))))


def show_help_alone(context: typer.Context) -> None:
    """Show the help if no command was given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def show_json(value: Any) -> None:
    typer.echo(json.dumps(value, allow_nan=False))


def read_names(text: str) -> list[str]:
    """Read names separated by commas, with optional parameters in brackets: co, ctas(exploration=1, tracking=ratio)."""
    return [part.strip() for part in split_outside_brackets(text) if part.strip()]


def read_numbers(text: str, option: str) -> list[float]:
    """Read numbers separated by commas. Infinities and NaN are refused later."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    try:
        return [float(part) for part in parts]
    except ValueError:
        raise InvalidInput(f"{option} must be numbers separated by commas, got {text!r}.") from None


def read_whole_numbers(text: str, option: str) -> list[int]:
    """Read whole numbers separated by commas."""
    numbers = read_numbers(text, option)
    if not all(number.is_integer() for number in numbers):
        raise InvalidInput(f"{option} must be whole numbers separated by commas, got {text!r}.")
    return [int(number) for number in numbers]


@contextmanager
def told_what_is_cancelled() -> Iterator[None]:
    """After Ctrl-C, also report what happened to tasks on a cluster."""
    try:
        yield
    except KeyboardInterrupt as error:
        notes = getattr(error, "__notes__", None)
        if notes is None:
            raise
        raise Interrupted(f"stopped: {notes[0]}") from error


@contextmanager
def progress_bar(total: int, of: str = "trajectories") -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(of, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def status_line() -> Iterator[Callable[[str], None] | None]:
    """Show a status line on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update
