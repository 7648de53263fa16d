"""The command `cabai`, as tests run it: in a separate process, or in this one, which need not load everything again."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
import warnings

import pytest

from cabai.cli import main
from cabai.study.log import storage


def apart(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cabai", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def here(*arguments: str, cwd=None, env=None) -> subprocess.CompletedProcess[str]:
    """The same in this process, with `env` added to its environment. It opens its own storages and closes them;
    signals, warnings and the module path are restored when it ends."""
    out, err, opened = io.StringIO(), io.StringIO(), {}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")  # in tests they are errors
        patch.setattr(sys, "argv", ["cabai", *arguments])
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(storage, "_opened", opened)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            main()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for each in opened.values():
        each.close()
    return subprocess.CompletedProcess(arguments, ended.value.code or 0, out.getvalue(), err.getvalue())


def refused(*arguments: str, code: int = 2, **options) -> str:
    """What a command that is refused says: one line, and nothing on its standard output."""
    done = here(*arguments, **options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    return done.stderr


def run_file(folder, text, *options, file="study.toml") -> subprocess.CompletedProcess[str]:
    """`cabai run` of a file with this text, here."""
    (folder / file).write_text(text)
    return here("run", file, *options, cwd=folder)
