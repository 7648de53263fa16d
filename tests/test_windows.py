"""What Windows does not have is not needed to import anything, and where it is used there is a replacement."""

from __future__ import annotations

import ast
import errno
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import cabai
from cabai.cli.main import system_error
from cabai.study.run import loop, recipe

ELSEWHERE = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "posix", "syslog"}  # modules of Unix alone

WITHOUT = """
import errno, os, signal, sys
import asyncio, fastapi, inspect_ai, numba, psycopg, typer, uvicorn  # others look after themselves
from rich.live import Live
gone = {  # but SIGKILL, by which Popen.kill of Unix ends a process
    os: "wait3 wait4 waitid killpg getpgid setsid fork forkpty register_at_fork geteuid getuid getgid sysconf mkfifo",
    signal: "SIGHUP SIGALRM SIGUSR1 SIGUSR2 SIGPIPE SIGQUIT SIGCHLD alarm setitimer pthread_sigmask sigwait",
    errno: "EDQUOT",
}
for module, names in gone.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
import importlib, pkgutil
import cabai
for found in pkgutil.walk_packages(cabai.__path__, "cabai."):
    if found.name != "cabai.__main__":
        importlib.import_module(found.name)
"""


def without(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code], cwd=folder, capture_output=True, text=True, timeout=120
    )


def test_everything_is_imported_and_a_study_runs_without_what_windows_lacks(tmp_path):
    (tmp_path / "study.toml").write_text(
        'reward = "seconds"\ntimeout = 0.5\nmax_pulls = 4\narms = ["0.01", "30"]\ncommand = "sleep {arm}"\n'
    )
    (tmp_path / "cpu.toml").write_text('family = "bernoulli"\ncost = "cpu"\narms = ["a", "b"]\ncommand = "echo 1"\n')
    done = without(
        "from cabai.cli.main import main\n"
        "for file in ('cpu.toml', 'study.toml'):\n"
        "    sys.argv = ['cabai', 'run', file, '--json']\n"
        "    try:\n        main()\n    except SystemExit as ended:\n        print(ended.code)\n",
        tmp_path,
    )
    first, second, third = done.stdout.splitlines()
    assert (first, third) == ("2", "3")
    assert 'cost = \\"cpu\\" is not available on this system; use \\"seconds\\"' in done.stderr
    assert '"failures": 0' in second
    study = cabai.load_study("study", storage=f"sqlite:///{tmp_path}/cabai.db")
    assert {each["arm"]: each["reward"] for each in study.observations()}["30"] == 0.5  # it was killed in time


def test_no_module_of_unix_alone_is_imported():
    for path in Path(cabai.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & ELSEWHERE, path


def test_a_command_is_waited_for_and_killed_without_wait4_and_killpg(monkeypatch):
    for name in ("wait4", "killpg"):
        monkeypatch.delattr(os, name)
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    ended = recipe.wait_for(process, time.perf_counter() + 60, threading.Event())
    assert (ended.code, ended.cpu, ended.cut_short) == (7, 0.0, "")
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ended = recipe.wait_for(process, time.perf_counter() + 0.2, threading.Event())
    assert ended.cut_short == recipe.TIMED_OUT
    assert process.returncode not in (0, None)


def test_nobody_is_sent_a_signal_to_learn_whether_he_lives(monkeypatch):
    """os.kill(pid, 0) asks on Unix; on Windows it is Ctrl-C. Nor is there a shell, or every number of an error."""

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    worker = f"{socket.gethostname()}:{ended.pid}:abc:0"
    assert loop.was_killed(worker)
    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
    assert not loop.was_killed(worker)
    with pytest.raises(cabai.InvalidInput, match="shell = true needs a POSIX shell"):
        recipe.checked_for_a_shell("echo {arm}")
    monkeypatch.setattr(os, "name", "posix")
    monkeypatch.setattr(errno, "errorcode", {28: "ENOSPC"})
    assert system_error(OSError(28, "No space left")).startswith("cannot write to standard output: No space left")
    assert system_error(OSError(1, "Not permitted")) == "Not permitted"
