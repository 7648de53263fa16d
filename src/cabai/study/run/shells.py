"""Commands for a shell: names of arms and items are quoted, so that no name can be run as a command."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping

from cabai.support.validation import InvalidInput, shown

NAMED = ("arm", "pull", "item")  # what a command may name in braces
MARKS = ("|", "||", "&&", "&", ";", "<", ">", ">>", "2>", "2>&1", "&>")  # what a shell does not hand to a command
CANNOT_START = {126: "it cannot be executed", 127: "there is no such command"}  # what a shell says by its exit code


def checked_for_a_shell(command: str) -> str:
    """The command, if each name in braces is outside quotes: inside, quoting would end the quotes."""
    if os.name != "posix":
        raise InvalidInput("shell = true needs a POSIX shell, which this system does not have.")
    quote, i = "", 0
    while i < len(command):
        mark = command[i]
        if quote and re.match(r"\{(" + "|".join(NAMED) + r")\}", command[i:]):
            raise InvalidInput(
                f"with shell = true, {command[i : command.index('}', i) + 1]} must be outside quotes, since cabai "
                f"quotes it: {shown(command)}."
            )
        if mark == "\\" and quote != "'":
            i += 1
        elif quote and mark == quote:
            quote = ""
        elif not quote and mark in "'\"`":
            quote = mark
        i += 1
    return command


def spelt(command: str, named: Mapping[str, str]) -> str:
    """The command with names inserted, each quoted.

    >>> spelt("grep -c {arm} log.txt | head -1", {"arm": "a; rm -rf /"})
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
