"""The command line. Every command takes --json; every error is one line on stderr and a non-zero exit code."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
import warnings
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer

from cabai import errors, interrupts
from cabai.cli.inspect import inspect
from cabai.cli.run import run
from cabai.cli.serve import serve
from cabai.cli.simulating import bench, bound, calibrate, compare, plan, replay, reproduce, simulate
from cabai.cli.study import study_app
from cabai.cli.tools import Interrupted, WrongTest, show_help_alone
from cabai.support.validation import EXTRAS, how_to_install, meant
from cabai.support.version import __version__

# The exit codes of errors that need no more than their message.
CODES: dict[type[Exception], int] = {
    errors.InvalidInput: 2, errors.StudyStopped: 3, errors.NoPull: 4, errors.EngineFailed: 1, errors.StorageError: 1,
    errors.RunFailed: 1, Interrupted: interrupts.CODE,
}  # fmt: skip
WARNINGS = errors.CostlyStudy, errors.FailedPulls, errors.SourceChanged, errors.WideRewards  # that are shown
app = typer.Typer(invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False)
for command in (bound, plan, simulate, compare, bench, calibrate, replay, reproduce, run, inspect, serve):
    app.command()(command)
app.add_typer(study_app, name="study")


def version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cabai {__version__}")
        raise typer.Exit()


@app.callback()
def teach(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find the best of K options, wrong with probability at most delta, for the least money.

    An arm is one of the options. A pull is one trial of an arm: it returns a reward and has a cost.
    """
    show_help_alone(context)


def show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    """Print a warning about a study as one line; hide others, which are for developers."""
    if issubclass(category, WARNINGS):
        typer.echo(f"cabai: warning: {message}", err=True)


def fail(message: str, code: int, **more: str) -> NoReturn:
    if code == interrupts.CODE:
        interrupts.leave_at_once()
    line = " ".join(message.split())
    with suppress(OSError):  # stderr is closed: nobody can read it
        typer.echo(json.dumps({"error": line, **more}) if "--json" in sys.argv else f"cabai: {line}", err=True)
    if code == interrupts.CODE:
        interrupts.say_so_as_it_ends()
    sys.exit(code)


def open_streams() -> None:
    """Make sure that all three standard streams are open, and that printing a name with characters the terminal
    cannot show is not an error."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        fail("standard output is closed, so no result can be shown: use > /dev/null if you do not want it.", 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def system_error(error: OSError) -> str:
    """What to print for an error of the operating system, such as a full disk."""
    reason = error.strerror or str(error)
    try:
        sys.stdout.flush()
    except OSError:  # so that Python does not try to write it again when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.filename is not None:
        return f"cannot open {error.filename}: {reason}."
    if errno.errorcode.get(error.errno or 0) in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EBADF"):
        return f"cannot write to standard output: {reason}. What was stored before is kept."
    return reason


def usage_message(error: Any) -> str:
    """What is wrong with the command line, and what may have been meant."""
    command = None if error.ctx is None else error.ctx.command
    option, other = getattr(error, "option_name", None), re.match("No such command '(.*?)'", str(error.message))
    if command is not None and option is not None:
        guess = meant(option, [each for parameter in command.params for each in parameter.opts])
        return f"No such option: {option}; {guess}".rstrip("; ")
    if command is not None and other is not None:
        of_studies = getattr(command.commands.get("study"), "commands", ())
        guess = f"did you mean cabai study {other[1]}?" if other[1] in of_studies else meant(other[1], command.commands)
        guess = guess or f"known: {', '.join(command.commands)}."
        return f"{other[0]}; {guess}"
    return str(error.format_message())


def main() -> None:
    """Run the command line.

    Exit codes: 0 success; 1 something failed (a storage, a test, or cabai itself); 2 bad input; 3 the study has
    stopped (for `cabai run`: without a decision); 4 no pull is available now; 130 Ctrl-C.
    """
    guarded()


def guarded(error: BaseException | None = None) -> None:
    """Run the command line, or handle an `error` it raised: print one line and exit with a code."""
    usage_error: Any = typer.BadParameter.__mro__[2]  # what Typer raises for a wrong command line
    try:
        if error is not None:
            raise error
        interrupts.raise_again()
        warnings.showwarning = show_warning  # type: ignore[assignment]
        open_streams()
        code = app(prog_name="cabai", standalone_mode=False)
        if code != interrupts.CODE:
            sys.exit(code)
        fail("stopped.", interrupts.CODE)  # Typer has turned Ctrl-C into this code
    except tuple(CODES) as error:
        fail(str(error), next(code for kind, code in CODES.items() if isinstance(error, kind)))
    except WrongTest as error:
        if "--json" not in sys.argv:
            typer.echo(error.traceback, err=True, nl=False)
        fail(str(error), 1, traceback=error.traceback)
    except usage_error as error:
        fail(usage_message(error), 2)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise
        fail(how_to_install(error), 2)
    except OSError as error:
        fail(system_error(error), 1)
    except MemoryError as error:
        fail(f"not enough memory. {error}", 1)
    except (KeyboardInterrupt, typer.Abort):
        fail("stopped.", interrupts.CODE)
    except Exception as error:
        if os.environ.get("CABAI_TRACEBACK"):
            raise
        fail(
            f"this should not happen: {type(error).__name__}: {str(error)[:300]}. It is a bug in cabai. Please report "
            "it, with the output of the same command when the environment variable CABAI_TRACEBACK=1 is set.",
            1,
        )
