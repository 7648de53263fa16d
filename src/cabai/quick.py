"""`cabai study ask` and `cabai study tell` without loading the rest of the command line: scripts call them once per
pull.

Anything but the simplest form of these commands, and every error, is left to `cabai.cli`, which prints the same.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import warnings
from typing import Any

NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
WHOLE = re.compile(r"[0-9]{1,9}")
OPTIONS = {
    "ask": {"-n": "number", "--number": "number", "--worker": "worker", "--storage": "storage"},
    "tell": {"--reward": "reward", "--cost": "cost", "--failed": "failed", "--storage": "storage"},
}
NAMES = {"ask": 1, "tell": 2}  # the names of the study and of the pull


def read(arguments: list[str]) -> tuple[str, list[str], dict[str, Any]] | None:
    """Read the command, its names and its options; None for anything that needs the full command line.

    >>> read(["study", "ask", "judges", "-n", "2"])
    ('ask', ['judges'], {'as_json': False, 'number': 2})
    >>> read(["study", "ask", "--help"])
    """
    if len(arguments) < 3 or arguments[0] != "study" or arguments[1] not in OPTIONS:
        return None
    command, rest = arguments[1], arguments[2:]
    names: list[str] = []
    options: dict[str, Any] = {"as_json": False}
    words = iter(rest)
    for word in words:
        if word == "--json":
            options["as_json"] = True
            continue
        if not word.startswith("-"):
            names.append(word)
            continue
        option = OPTIONS[command].get(word)
        value = next(words, None)
        if (
            option is None
            or option in options
            or value is None
            or (value.startswith("-") and not NUMBER.fullmatch(value))
        ):
            return None
        kind = {"number": WHOLE, "reward": NUMBER, "cost": NUMBER}.get(option)
        if kind is not None and not kind.fullmatch(value):
            return None
        options[option] = value if kind is None else int(value) if kind is WHOLE else float(value)
    return (command, names, options) if len(names) == NAMES[command] and all(names) else None


def run(command: str, names: list[str], options: dict[str, Any]) -> None:
    from cabai.printed import asked, told
    from cabai.study import STORAGE, load_study

    as_json = options.pop("as_json")
    storage = options.pop("storage") if "storage" in options else os.environ.get("CABAI_STORAGE") or STORAGE
    study = load_study(names[0], storage=storage)
    if command == "ask":
        text = asked(study.ask(options.get("number", 1), worker=options.get("worker")), as_json)
    else:
        study.tell(names[1], options.get("reward"), options.get("cost"), failed=options.get("failed"))
        text = told(study.status(), as_json)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """The command `cabai`."""
    found = read(sys.argv[1:])
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if found is None or None in streams or "_CABAI_COMPLETE" in os.environ:
        from cabai.cli import main as whole

        whole()
        return
    from cabai import interrupts

    gc.disable()  # the process ends soon and needs everything until then
    try:
        interrupts.raise_again()
        warnings.showwarning = show_warning  # type: ignore[assignment]
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")
        run(*found)
    except BaseException as error:
        from cabai.cli.main import guarded

        guarded(error)


def show_warning(*arguments: Any) -> None:
    from cabai.cli.main import show_warning as show

    show(*arguments)
