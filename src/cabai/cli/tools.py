"""Helpers shared by all commands."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from cabai.study.run.trying import without_ours


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


def with_written(found: Any, file: str | None) -> str:
    """A result as text, and the file that it was written to."""
    return f"{found}" if file is None else f"{found}\nwritten: {file}"


@contextmanager
def progress_shown(total: int | None = None, of: str = "trajectories") -> Iterator[Callable[[Any], None] | None]:
    """Show how far something is on stderr, if it is a terminal: a bar if the total is known, else a line of words.

    After Ctrl-C, also report what happened to tasks on a cluster.
    """
    try:
        if not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console

        console = Console(stderr=True)
        if total is None:
            with console.status("") as status:
                yield status.update
            return
        from rich.progress import Progress

        with Progress(console=console, transient=True) as bar:
            task = bar.add_task(of, total=total)
            yield lambda done: bar.update(task, completed=done)
    except KeyboardInterrupt as error:
        notes = getattr(error, "__notes__", None)
        if notes is None:
            raise
        raise Interrupted(f"stopped: {notes[0]}") from error
