"""One pull by a command: start it, wait for it, and read its reward and cost from its last line of output."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cabai.study.errors import RunFailed
from cabai.study.runner import Failed, legal_cost

if TYPE_CHECKING:
    from cabai.study.pull import Pull

LONGEST_WAIT = 0.02  # seconds between looks at a running command
LAST_LINE = 10_000  # characters of output within which the last line must lie


def run_command(
    command: list[str],
    *,
    study: str,
    pull: Pull,
    folder: Path,
    cost: str | None,
    timeout: float,
    over: threading.Event,
    given: str = "",
) -> Any:
    """Try an arm by a command in `folder`: {"reward": ..., "cost": ...} or Failed.

    {arm} and {pull} in the command stand for the arm's name and the pull's id, {item} for the item's if there is one;
    the environment has them as CABAI_ARM, CABAI_PULL, CABAI_ITEM, CABAI_STUDY and CABAI_METADATA. What is `given` is
    on its standard input. The cost is in the output, or the seconds or CPU seconds it took. The
    command is killed after `timeout` seconds, or when `over` is set.
    """
    named = {"arm": pull.arm, "pull": pull.id, **({} if pull.item is None else {"item": str(pull.item)})}
    words = [re.sub(r"\{(\w+)\}", lambda found: named.get(found[1], found[0]), word) for word in command]
    about = {"CABAI_STUDY": study, **{f"CABAI_{name.upper()}": value for name, value in named.items()}}
    about["CABAI_METADATA"] = json.dumps(pull.metadata)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as into:
        into.write(given.encode())
        into.seek(0)
        started = time.perf_counter()
        try:
            process = subprocess.Popen(
                words, cwd=folder, env=os.environ | about, stdin=into, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:  # another trial would not start either
            raise cannot_start(pull, words[0], getattr(error, "strerror", None) or str(error)) from None
        code, cpu, cut_short = wait_for(process, started + timeout, over)
        seconds = time.perf_counter() - started
        measured = {"seconds": seconds, "cpu": cpu}.get(cost or "")
        measured = None if measured is None else max(measured, 1e-9)
        result = read_result(last_line(out), measured)
        if cut_short or code != 0:
            why = cut_short or f"exit code {code}"
            said = last_line(err)
            paid = measured if measured is not None else result.get("cost") if isinstance(result, dict) else None
            return Failed(f"{why}: {said}" if said else why, legal_cost(paid))
        return result


def cannot_start(pull: Pull, program: str, why: str) -> RunFailed:
    return RunFailed(
        f"the command of arm {pull.arm!r} cannot be started: {program!r}: {why}. Nothing was tried; mend the command "
        "and run it again."
    )


def wait_for(process: subprocess.Popen[bytes], deadline: float, over: threading.Event) -> tuple[int, float, str]:
    """A command's exit code, its CPU seconds, and why it was killed, if it was."""
    pause, cut_short = 0.0005, ""
    while True:
        finished, status, usage = os.wait4(process.pid, os.WNOHANG)
        if finished:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime, cut_short
        if not cut_short and (over.is_set() or time.perf_counter() > deadline):
            cut_short = "stopped" if over.is_set() else "it took longer than the timeout"
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(1.5 * pause, LONGEST_WAIT)


def last_line(file: IO[bytes]) -> str:
    """The last line of an output that is not empty."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - LAST_LINE))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def read_result(line: str, measured: float | None) -> dict[str, Any] | Failed:
    """The reward and cost in a line of JSON: {"reward": ..., "cost": ...}, or the reward alone."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, or more digits or brackets than Python reads
        return Failed(f"its last line of output is not JSON: {line[:200]!r}", measured, is_wrong=True)
    result = dict(value) if isinstance(value, dict) else {"reward": value}
    if measured is not None:
        result["cost"] = measured
    if "reward" not in result:
        return Failed(f"its last line of output has no reward: {line[:200]!r}", measured, is_wrong=True)
    return {key: result[key] for key in ("reward", "cost") if key in result}
