"""Where the time that a command takes is its reward; and commands for a shell."""

from __future__ import annotations

import ast
import errno
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import cabai
from cabai.cli.main import system_error
from cabai.study.run import commands, loop
from cabai.study.run.commands import checked_for_a_shell, quoted
from cabai.study.run.recipe import read_recipe
from shell import here

SLEEP = 'command = "sleep 0.0{arm}"\narms = ["1", "5"]\n'


def run(folder, text, *options):
    (folder / "times.toml").write_text(text)
    return here("run", "times.toml", "--json", *options, cwd=folder)


def observed(folder):
    return cabai.load_study("times", storage=f"sqlite:///{folder}/cabai.db").observations()


def test_seconds_are_the_reward_and_the_cost_and_the_shortest_wins(tmp_path):
    done = run(tmp_path, f'reward = "seconds"\ntimeout = 0.2\n{SLEEP}')
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["decision"], shown["direction"], shown["failures"]) == (0, "1", "minimize", 0)
    assert shown["family"] == "bounded(high=0.2)"
    for each in observed(tmp_path):
        assert each["reward"] == pytest.approx(each["cost"]) or each["reward"] == 0.2
        assert each["reward"] >= {"1": 0.01, "5": 0.05}[each["arm"]]


def test_the_time_is_taken_when_a_command_ends_not_when_somebody_looks(tmp_path, monkeypatch):
    """Somebody looks a second after each command has begun, which sleeps for 10 or 50 ms."""

    class Late(queue.SimpleQueue):
        def get(self, *args, **options):
            time.sleep(1)
            return super().get(*args, **options)

    monkeypatch.setattr("cabai.study.run.commands.queue", SimpleNamespace(SimpleQueue=Late, Empty=queue.Empty))
    run(tmp_path, f'reward = "seconds"\ntimeout = 5\nmax_pulls = 4\npolicy = "uniform"\n{SLEEP}')
    for arm, least in (("1", 0.01), ("5", 0.05)):
        assert least <= min(each["reward"] for each in observed(tmp_path) if each["arm"] == arm) < 1


def test_a_command_that_is_cut_short_has_the_time_out_as_its_reward(tmp_path):
    """Left out, it would make an arm that hangs now and then look fast."""
    text = 'reward = "seconds"\ntimeout = 0.1\nmax_pulls = 2\ncommand = "sleep {arm}"\narms = ["0.01", "30"]\n'
    started = time.monotonic()
    shown = json.loads(run(tmp_path, text).stdout)
    assert time.monotonic() - started < 20
    assert (shown["failures"], shown["leader"]) == (0, "0.01")
    slow = next(each for each in observed(tmp_path) if each["arm"] == "30")
    assert (slow["reward"], slow["cost"]) == (0.1, 0.1)


def test_cpu_seconds_and_known_costs(tmp_path):
    burn = f"""'''{sys.executable} -c "import time; end = time.process_time() + 0.05
while time.process_time() < end: pass" '''"""
    text = 'reward = "cpu"\nfamily = "gaussian(variance=1)"\ncosts = [3, 4]\nmax_pulls = 2\narms = ["a", "b"]\n'
    text += f"command = {burn}"
    shown = json.loads(run(tmp_path, text).stdout)
    assert (shown["spent"], shown["failures"]) == (7.0, 0)
    assert all(0.05 <= each["reward"] < 5 for each in observed(tmp_path))


def test_functions_are_timed_crash_and_succeed_as_commands_do(tmp_path):
    (tmp_path / "timed_functions.py").write_text(
        "import time\ndef test(arm):\n    time.sleep(float(arm))\n    return 1 / (arm != '0.02')\n"
    )
    text = 'function = "timed_functions:test"\nmax_pulls = 2\nreward = "seconds"\ntimeout = 7\narms = '
    shown = json.loads(run(tmp_path, f'{text}["0.001", "0.7"]\n').stdout)
    assert (shown["leader"], shown["failures"]) == ("0.001", 0)  # what they return does not matter
    text += '["0.02", "0.001"]\n'
    for other, rewards in ((text.replace("seconds", "success"), [0, 1]), (f'{text}on_crash = "timeout"\n', [7, None])):
        (tmp_path / "cabai.db").unlink()
        run(tmp_path, other)
        assert [each["reward"] if each["reward"] in (0, 1, 7) else None for each in observed(tmp_path)] == rewards


@pytest.mark.parametrize("measured", ["cost", "reward"])
def test_a_function_that_is_timed_may_say_that_its_trial_failed(tmp_path, measured):
    (tmp_path / "failed_functions.py").write_text("import cabai\ndef test(arm):\n    return cabai.Failed('odd', 5)\n")
    text = f'function = "failed_functions:test"\nfamily = "bernoulli"\n{measured} = "seconds"\ncosts = [1, 2]\n'
    assert "arm 'a' failed with: odd." in run(tmp_path, f'{text}max_failures = 1\narms = ["a", "b"]\n').stderr
    [found] = observed(tmp_path)
    assert (found["failed"], found["cost"] < 1) == ("odd", measured == "cost")


CRASH = 'on_crash = "timeout"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('reward = "seconds"\n', "there is no 'family', and times have no largest value"),
        ('reward = "hours"\ntimeout = 1\n', "reward must be one of seconds, cpu, success, or left out"),
        ("reward = 1\n", "reward must be one of seconds, cpu"),
        ('reward = "cpu"\ntimeout = 1\n', "there is no 'family'"),
        ('reward = "seconds"\ntimeout = -1\n', "timeout must be positive"),
        ('family = "bernoulli"\nshell = "yes"\n', "shell must be true or false"),
        ('family = "bernoulli"\nshell = true\n[arms.1]\nreward = "cpu"\n[arms.2]\n', "'reward' is for all arms"),
        ('on_crash = "never"\n', "on_crash must be one of fail, timeout, got 'never'"),
        (f'reward = "success"\ntimeout = 1\n{CRASH}', 'needs reward = "seconds" and a timeout'),
        (f'family = "gaussian(variance=1)"\nreward = "seconds"\n{CRASH}', "and a timeout"),
        ('cost = "success"\nfamily = "bernoulli"\n', "cost must be one of seconds, cpu, or left out"),
    ],
)
def test_what_makes_no_sense_is_one_line(text, message, tmp_path):
    done = run(tmp_path, text + (SLEEP.replace('arms = ["1", "5"]\n', "") if "[arms" in text else SLEEP))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in json.loads(done.stderr)["error"]


def test_how_arms_are_timed_may_be_said_otherwise_and_not_change_between_runs(tmp_path):
    text = f'reward = "seconds"\nfamily = "gaussian(variance=1)"\ndirection = "maximize"\ncost = "cpu"\n{SLEEP}'
    (tmp_path / "times.toml").write_text(text)
    plan = read_recipe(tmp_path / "times.toml")
    assert (plan.settings["direction"], plan.settings["family"]) == ("maximize", "gaussian(variance=1)")
    assert plan.how["1"] == {"command": ["sleep", "0.0{arm}"], "cost": "cpu", "reward": "seconds"}
    text = 'family = "gaussian(variance=1)"\nmax_pulls = 2\narms = ["1", "5"]\ncommand = "echo 1"\ncost = "seconds"\n'
    run(tmp_path, text)
    done = run(tmp_path, text + 'reward = "seconds"\ndirection = "maximize"\n')
    assert "the reward of arm '1' is seconds, but was None" in done.stderr


NAMES = ["plain", "two words", "a; touch hacked", "$(touch hacked)", "`touch hacked`", "it's", 'say "x"', "{pull}", "*"]


def test_a_shell_gets_names_as_they_are_and_runs_none_of_them(tmp_path):
    text = f"""
    family = "bernoulli"
    shell = true
    max_pulls = {len(NAMES)}
    policy = "uniform"
    cost = "seconds"
    command = 'printf "%s\\n" {{arm}} >> seen.txt; echo "$CABAI_ARM" | cat >/dev/null && echo 01 | tail -c 2'
    arms = {json.dumps(NAMES)}
    """
    done = run(tmp_path, text)
    assert (done.returncode, done.stderr) == (3, "")
    assert (tmp_path / "seen.txt").read_text().splitlines() == NAMES
    assert not (tmp_path / "hacked").exists()


def test_a_name_within_quotes_is_refused(tmp_path):
    text = 'family = "bernoulli"\nshell = true\narms = ["a", "b"]\ncommand = '
    wrong = "echo '{arm}'", 'echo "{arm}"', 'echo "it is \\" {arm}"', "echo `ls {arm}`", "echo 'a' \"b'{item}'\""
    wrong += ("echo \\{arm}", 'echo "a" \\{pull}', "cat <<END\n{arm}\nEND")  # where its quotes would not quote
    for command in wrong:
        with pytest.raises(cabai.InvalidInput, match="must be outside quotes"):
            checked_for_a_shell(command)
    assert run(tmp_path, text + json.dumps(wrong[0])).returncode == 2
    assert "with shell = true, a command must be a string" in run(tmp_path, f'{text}["echo", "1"]\n').stderr
    for command in ("echo {arm}", "echo 'x'{arm}\"y\"", "echo \\'{arm}", "echo '{other}' {arm}"):
        assert checked_for_a_shell(command) == command
        assert "'a b'" in quoted(command, {"arm": "a b"})


def test_a_command_that_a_shell_cannot_start_ends_the_run(tmp_path):
    (tmp_path / "judge.txt").write_text("")
    for command, why in (("no-such-program {arm}", "not found"), ("./judge.txt", "ermission denied")):
        done = run(tmp_path, f'family = "bernoulli"\nshell = true\narms = ["a", "b"]\ncommand = "{command}"\n')
        assert (done.returncode, "cannot be started" in done.stderr, why in done.stderr) == (1, True, True)
        assert observed(tmp_path) == []
        (tmp_path / "cabai.db").unlink()


def test_a_time_out_kills_what_the_shell_has_started(tmp_path):
    text = 'reward = "seconds"\nshell = true\ntimeout = 0.2\nmax_pulls = 2\narms = ["30", "31"]\n'
    text += 'command = "(sleep {arm}; touch late) | cat"\n'
    started = time.monotonic()
    assert [each["mean"] for each in json.loads(run(tmp_path, text).stdout)["arms"]] == [0.2, 0.2]
    assert time.monotonic() - started < 20
    assert not (tmp_path / "late").exists()


def crashing(folder, more):
    """Arm 1 crashes in the second of its three runs, at once; arm 0 never does, and takes longer."""
    (folder / "flaky.py").write_text(
        "import pathlib, sys, time\n"
        "log = pathlib.Path(sys.argv[1])\n"
        "runs = len(log.read_text()) if log.exists() else 0\n"
        "log.write_text('x' * (runs + 1))\n"
        "sys.exit(3 if sys.argv[1] == 'quick' and runs == 1 else time.sleep(0.05 * (sys.argv[1] == 'sure')))\n"
    )
    text = 'policy = "uniform"\nmax_pulls = 6\narms = ["quick", "sure"]\n'
    text += f'command = "{sys.executable} flaky.py {{arm}}"\n'
    return run(folder, text + more)


def test_a_crash_does_not_count_as_fast_and_is_said_or_counts_as_the_timeout(tmp_path):
    done = crashing(tmp_path, 'reward = "seconds"\ntimeout = 9\n')
    assert (json.loads(done.stdout)["failures"], done.stderr.count("\n")) == (1, 1)
    assert "a run of arm 'quick' failed (exit code 3) and does not count" in done.stderr
    assert 'on_crash = "timeout"' in done.stderr
    for file in ("cabai.db", "quick", "sure"):
        (tmp_path / file).unlink()
    done = crashing(tmp_path, f'reward = "seconds"\ntimeout = 9\n{CRASH}')
    shown = json.loads(done.stdout)
    assert (shown["failures"], shown["leader"], done.stderr) == (0, "sure", "")
    crashed = [each for each in observed(tmp_path) if each["reward"] == 9]
    assert [each["arm"] for each in crashed] == ["quick"]
    assert crashed[0]["cost"] < 9  # what it took
    kept = run(tmp_path, (tmp_path / "times.toml").read_text().replace('"timeout"\n', '"fail"\n'))
    assert "the on_crash of arm 'quick' is None, but was timeout" in kept.stderr


def test_success_is_an_exit_code_of_0_in_time(tmp_path):
    done = crashing(tmp_path, 'reward = "success"\n')
    shown = json.loads(done.stdout)
    assert (shown["family"], shown["direction"], shown["failures"], done.stderr) == ("bernoulli", "maximize", 0, "")
    assert sorted((each["arm"], each["reward"]) for each in observed(tmp_path)) == [
        ("quick", 0), ("quick", 1), ("quick", 1), ("sure", 1), ("sure", 1), ("sure", 1),
    ]  # fmt: skip
    assert all(each["cost"] > 0 for each in observed(tmp_path))  # seconds
    (tmp_path / "cabai.db").unlink()
    run(tmp_path, 'reward = "success"\ntimeout = 2\nmax_pulls = 2\ncommand = "sleep {arm}"\narms = ["0.01", "30"]\n')
    assert [(each["arm"], each["reward"]) for each in observed(tmp_path)] == [("0.01", 1), ("30", 0)]


def test_most_runs_at_the_timeout_are_said_once_per_arm(tmp_path):
    text = 'reward = "seconds"\ntimeout = 0.02\nmax_pulls = 14\npolicy = "uniform"\ncommand = "sleep {arm}"\n'
    done = run(tmp_path, text + 'arms = ["20", "30"]\n')
    assert done.stderr.count("\n") == 2
    for arm in ("20", "30"):
        assert f"5 of 5 runs of arm '{arm}' reached the timeout of 0.02 seconds" in done.stderr


def test_what_only_a_shell_understands_is_refused_without_one(tmp_path):
    for command in ("cat a.txt | wc -l", "sleep 1 && echo 1", "judge.py > log.txt", "a ; b"):
        text = f'family = "bernoulli"\narms = ["a", "b"]\ncommand = "{command}"\n'
        (tmp_path / "times.toml").write_text(text)
        with pytest.raises(cabai.InvalidInput, match=r"only a shell understands the .*set shell = true"):
            read_recipe(tmp_path / "times.toml")
        (tmp_path / "times.toml").write_text(f"shell = true\n{text}")
        read_recipe(tmp_path / "times.toml")


# What Windows does not have is not needed to import anything, and where it is used there is a replacement


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
    ended = commands.wait_for(process, time.perf_counter() + 60, threading.Event())
    assert (ended.code, ended.cpu, ended.cut_short) == (7, 0.0, "")
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ended = commands.wait_for(process, time.perf_counter() + 0.2, threading.Event())
    assert ended.cut_short == commands.TIMED_OUT
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
        commands.checked_for_a_shell("echo {arm}")
    monkeypatch.setattr(os, "name", "posix")
    monkeypatch.setattr(errno, "errorcode", {28: "ENOSPC"})
    assert system_error(OSError(28, "No space left")).startswith("cannot write to standard output: No space left")
    assert system_error(OSError(1, "Not permitted")) == "Not permitted"
