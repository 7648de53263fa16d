"""One pull by a command: start it, wait for it, and read its reward and cost from its last line of output."""

from __future__ import annotations

import json
import math
import os
import queue
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from cabai.errors import RunFailed
from cabai.settings import AS_FAILED, AS_TIMEOUT, SUCCESS
from cabai.study.run.loop import Failed, Wrong, legal_cost
from cabai.support.validation import InvalidInput, shown

if TYPE_CHECKING:
    from cabai.study.given import Pull
    from cabai.study.run.recipe import Recipe

LONGEST_WAIT = 0.05  # seconds between checks whether a run is over
TIMED_OUT = "it took longer than the timeout"
NAMED = ("arm", "pull", "item")  # what a command may name in braces
MARKS = ("|", "||", "&&", "&", ";", "<", ">", ">>", "2>", "2>&1", "&>")  # what a shell does not hand to a command
CANNOT_START = {126: "it cannot be executed", 127: "there is no such command"}  # what a shell says by its exit code
# Where its quotes would not quote a name: after a backslash, in quotes (which may end with the command), and after <<.
QUOTED = re.compile(r"""\\(?:\{\w+\}|.)|'[^']*'?|"(?:\\.|[^"\\])*"?|`(?:\\.|[^`\\])*`?|<<.*""", re.DOTALL)
LAST_LINE = 10_000  # characters of output within which the last line must lie


@dataclass(frozen=True)
class Measure:
    """What is measured instead of read from the output of a trial: seconds, CPU seconds, or whether it succeeds."""

    cost: str | None = None
    reward: str | None = None  # its output is then not read at all
    on_crash: str = AS_FAILED  # or AS_TIMEOUT: where seconds are the reward, a crash counts as the timeout
    timeout: float = math.inf  # seconds

    def told(self, spent: Mapping[str, float], *, crashed: bool = False, late: bool = False) -> dict[str, Any] | None:
        """The reward and cost of a trial that has taken these seconds; `late`: it was killed at the timeout. None: its
        reward is in its output, or it failed."""
        if self.reward == SUCCESS:
            reward = 0.0 if crashed else 1.0
        elif self.reward == "seconds" and (late or (crashed and self.on_crash == AS_TIMEOUT)):
            reward, spent = self.timeout, {**spent, "seconds": self.timeout} if late else spent
        elif self.reward is None or crashed:
            return None
        else:
            reward = min(spent[self.reward], self.timeout)
        return {"reward": reward, **({} if self.cost is None else {"cost": spent[self.cost]})}

    def cost_of(self, spent: Mapping[str, float]) -> float | None:
        return None if self.cost is None else spent[self.cost]


def run_command(recipe: Recipe, pulls: Sequence[Pull], over: threading.Event, given: str) -> Any:
    """Try an arm by its command, in the folder of the recipe: {"reward": ..., "cost": ...} or Failed.

    {arm} and {pull} in the command stand for the arm's name and the pull's id, {item} for the item's if there is one;
    the environment has them as CABAI_ARM, CABAI_PULL, CABAI_ITEM, CABAI_STUDY and CABAI_METADATA. `given` is its
    standard input. It is killed after `timeout` seconds, or when `over` is set; where its seconds are the reward,
    `timeout` is it then: to leave out what takes long would make slow arms look fast.

    For a batch of several items, the result is a list, read from as many last lines; {item} has no meaning then.
    """
    pull, measure = pulls[0], recipe.measure
    command, batch = recipe.tests[pull.arm], None if recipe.batch is None else len(pulls)
    named = {"arm": pull.arm, "pull": pull.id}
    if pull.item is not None and batch is None:
        named["item"] = str(pull.item)
    about = {"CABAI_STUDY": recipe.name, **{f"CABAI_{name.upper()}": value for name, value in named.items()}}
    about["CABAI_METADATA"] = json.dumps(pull.metadata)
    words: list[str] | str = quoted(command[0], named)  # for a shell
    if not recipe.shell:
        words = [re.sub(r"\{(\w+)\}", lambda found: named.get(found[1], found[0]), word) for word in command]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as into:
        into.write(given.encode())
        into.seek(0)
        started = time.perf_counter()
        try:
            process = subprocess.Popen(
                words, shell=recipe.shell, cwd=recipe.folder, env=os.environ | about, stdin=into, stdout=out,
                stderr=err, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:  # the next trial would not start either
            raise cannot_start(pull, words[0], getattr(error, "strerror", None) or str(error)) from None
        ended = wait_for(process, started + measure.timeout, over)
        spent = {"seconds": max(ended.at - started, 1e-9), "cpu": max(ended.cpu, 1e-9)}
        if isinstance(words, str) and not ended.cut_short and ended.code in CANNOT_START:
            raise cannot_start(pull, words, last_line(err) or CANNOT_START[ended.code])
        is_late, has_failed = ended.cut_short == TIMED_OUT, bool(ended.cut_short) or ended.code != 0
        counts = measure.told(spent, crashed=has_failed, late=is_late) if is_late or not ended.cut_short else None
        if counts is not None:
            return counts
        if not has_failed and batch is not None:
            return [read_result(line, None) for line in last_lines(out, batch)]
        if not has_failed:
            return read_result(last_line(out), measure.cost_of(spent))
        why = ": ".join(filter(None, [ended.cut_short or f"exit code {ended.code}", last_line(err)]))
        if batch is not None:
            return [Failed(why)] * batch
        result = {} if measure.reward else read_result(last_line(out), None)
        paid = measure.cost_of(spent) or (result.get("cost") if isinstance(result, dict) else None)
        return Failed(why, legal_cost(paid))


def cannot_start(pull: Pull, program: str, why: str) -> RunFailed:
    return RunFailed(
        f"the command of arm {pull.arm!r} cannot be started: {program!r}: {why}. Nothing was tried; fix the command "
        "and run it again."
    )


class Ended(NamedTuple):
    code: int
    at: float  # when, by time.perf_counter
    cpu: float
    cut_short: str = ""  # why it was killed, if it was


def wait_for(process: subprocess.Popen[bytes], deadline: float, over: threading.Event) -> Ended:
    """Wait until a command ends; it is killed at the deadline, and when `over` is set."""
    found: queue.SimpleQueue[Ended] = queue.SimpleQueue()
    threading.Thread(target=lambda: found.put(reaped(process)), name="cabai waits", daemon=True).start()
    cut_short = ""
    while True:
        left = LONGEST_WAIT if cut_short else max(min(LONGEST_WAIT, deadline - time.perf_counter()), 0.0)
        with suppress(queue.Empty):
            return found.get(timeout=left)._replace(cut_short=cut_short)
        if not cut_short and (over.is_set() or time.perf_counter() > deadline):
            cut_short = "stopped" if over.is_set() else TIMED_OUT
            kill(process)


def reaped(process: subprocess.Popen[bytes]) -> Ended:
    """Wait for a command without delay."""
    if not hasattr(os, "wait4"):  # Windows
        return Ended(process.wait(), time.perf_counter(), 0.0)
    _, status, usage = os.wait4(process.pid, 0)
    at, process.returncode = time.perf_counter(), os.waitstatus_to_exitcode(status)
    return Ended(process.returncode, at, usage.ru_utime + usage.ru_stime)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a command and, where the system has process groups, everything that it started."""
    if not hasattr(os, "killpg"):  # Windows
        process.kill()
        return
    with suppress(ProcessLookupError):  # it has just ended
        os.killpg(process.pid, signal.SIGKILL)


def last_line(file: IO[bytes]) -> str:
    return next(iter(last_lines(file, 1)), "")


def last_lines(file: IO[bytes], count: int) -> list[str]:
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - LAST_LINE * count))
    lines = map(str.strip, file.read().decode(errors="replace").splitlines())
    return [line for line in lines if line][-count:]


def read_result(line: str, measured: float | None) -> dict[str, Any] | Failed:
    """The reward and cost in a line of JSON: {"reward": ..., "cost": ...}, or the reward alone."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, or more digits or brackets than Python reads
        return Wrong(f"its last line of output is not JSON: {line[:200]!r}", measured)
    result = dict(value) if isinstance(value, dict) else {"reward": value}
    if measured is not None:
        result["cost"] = measured
    if "reward" not in result:
        return Wrong(f"its last line of output has no reward: {line[:200]!r}", measured)
    return {key: result[key] for key in ("reward", "cost") if key in result}


# Commands for a shell: names of arms and items are quoted, so that no name can be run as a command.


def checked_for_a_shell(command: str) -> str:
    """The command, if each name in braces is outside quotes: inside, quoting would end the quotes."""
    if os.name != "posix":
        raise InvalidInput("shell = true needs a POSIX shell, which this system does not have.")
    for part in QUOTED.findall(command):
        inside = re.search(r"\{(" + "|".join(NAMED) + r")\}", part)
        if inside is not None:
            raise InvalidInput(
                f"with shell = true, {inside[0]} must be outside quotes and not after a backslash or <<, since cabai "
                f"quotes it: {shown(command)}."
            )
    return command


def quoted(command: str, named: Mapping[str, str]) -> str:
    """The command with names inserted, each quoted.

    >>> quoted("grep -c {arm} log.txt | head -1", {"arm": "a; rm -rf /"})
    "grep -c 'a; rm -rf /' log.txt | head -1"
    """
    return re.sub(r"\{(\w+)\}", lambda found: shlex.quote(named[found[1]]) if found[1] in named else found[0], command)


def mark_for_a_shell(command: str) -> str | None:
    """The first word of a command that only a shell understands, if there is one.

    >>> mark_for_a_shell("cat log.txt | tail -1"), mark_for_a_shell("grep -c '|' log.txt")
    ('|', None)
    """
    try:
        words = shlex.split(command, posix=False)  # quotes stay: what is quoted is no mark
    except ValueError:
        return None
    return next((word for word in words if word in MARKS), None)
