"""`study.toml`: a study, and how each of its arms is tried. Read by `cabai run`."""

from __future__ import annotations

import difflib
import importlib
import json
import math
import os
import shlex
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cabai.datasets.dataset import Dataset
from cabai.study import STORAGE
from cabai.study.commands import run_command
from cabai.study.items import MOST, WORST
from cabai.study.open import described, is_served, open_study
from cabai.study.runner import Failed, read
from cabai.support.validation import InvalidInput, positive, shown, whole

if TYPE_CHECKING:
    from cabai.study.pull import Pull
    from cabai.study.study import Study

# What `create_study` takes, and what only a run looks at.
STUDY = (
    "family",
    "delta",
    "policy",
    "threshold",
    "epsilon",
    "direction",
    "costs",
    "max_cost",
    "max_pulls",
    "lease",
    "on_lapse",
    "seed",
    "race",
    "failed",
    "speculate",
    "full_cost",
    "reserve",
)
RUN = (
    "name", "storage", "arms", "items", "command", "function", "cost", "timeout", "workers", "max_failures", "retries",
)  # fmt: skip
NOT_AN_ARMS = ("items", "cost", "timeout", "workers", "max_failures", "retries", "lease", "on_lapse")
UNLESS_SAID = {"family": None, "items": None, "race": None, "failed": WORST, "speculate": 0.1, "epsilon": 0.0}
LIMITS = ("max_cost", "max_pulls", "lease")  # a study is amended where the file has others than before
OF_ITEMS = ("race", "failed", "speculate", "retries")
MEASURES = ("seconds", "cpu")  # what a pull may cost, if it does not say so itself


@dataclass(frozen=True)
class Recipe:
    """A study's name, storage and settings, and a way to try each arm."""

    name: str
    storage: str
    settings: dict[str, Any]
    file: Path  # as it was given
    folder: Path
    tests: dict[str, list[str] | str]  # by arm: a command, or a function written module:function
    cost: str | None  # how a cost is measured; None: the pull says
    timeout: float
    workers: int
    max_failures: int
    retries: int
    dataset: Dataset | None  # on whose items arms are evaluated, if there is one

    @property
    def how(self) -> dict[str, Any]:
        """By arm, what decides what its rewards and costs are."""
        return {
            arm: {"function" if isinstance(test, str) else "command": test, "cost": self.cost}
            for arm, test in self.tests.items()
        }

    def study(self, *, changed: bool = False) -> Study:
        """The study: a new one, or the one that an earlier run left. How its arms are tried is kept with it, and may
        not differ from what the earlier run kept, unless it has `changed`: rewards of two things are not one arm's."""
        if str(self.folder) not in sys.path:  # for functions, and for a family, threshold or policy of one's own
            sys.path.insert(0, str(self.folder))
        try:
            amend = (*LIMITS, "metadata") if changed else LIMITS
            study = open_study(self.name, *described(**UNLESS_SAID | self.settings), self.storage, amend=amend)
            missing = [arm for arm in study.arms if arm not in self.tests and arm not in study.settings.dropped]
            if missing:
                raise InvalidInput(
                    f"arm {missing[0]!r} has joined the study {self.name!r}: add it here, with its test."
                )
            kept = study._keep_tests(self.how, anew=changed)
            for arm, how in self.how.items():
                for key in how | kept[arm]:
                    now, before = how.get(key), kept[arm].get(key)
                    if now != before:
                        raise InvalidInput(
                            f"the {key} of arm {arm!r} is {now}, but was {before} when the study {self.name!r} was "
                            "run before; restore it or choose another name or, if the arm is still the same thing, run "
                            "with --changed."
                        )
            return study
        except InvalidInput as error:
            raise InvalidInput(f"{self.file}: {error}") from None

    def amended(self, study: Study) -> list[str]:
        """What the file has changed of the study, and what it says that no longer holds, a line each."""
        lines, made = [], study._latest
        if made is not None:
            changed = "; ".join(f"{name} was {old}, and is now {new}" for name, (old, new) in made["changes"].items())
            how = "is amended" if made["reopened"] is None else f"had stopped at {made['reopened']}, and goes on"
            lines.append(f"{self.file}: {changed}: the study {self.name!r} {how}.")
        for name in LIMITS:
            said, holds = self.settings.get(name), getattr(study.settings, name)
            if said is not None and said != holds:
                lines.append(f"{self.file}: {name} is {said} here, but the study {self.name!r} was amended: {holds:g}.")
        return lines

    def _item(self, pull: Pull) -> Any:
        """The item that a pull is about, in a tuple; an empty one where there are no items."""
        if self.dataset is None:
            return ()
        return (self.dataset.items[self.dataset.number(pull.item)],)

    def test(self, over: threading.Event) -> Callable[[Pull], Any]:
        """A function that tries the arm of a pull; commands are cut short when `over` is set."""
        functions = {arm: find_function(test, self.folder) for arm, test in self.tests.items() if isinstance(test, str)}

        def try_once(pull: Pull) -> Any:
            command = self.tests[pull.arm]
            if isinstance(command, str):
                return self._measured(functions[pull.arm], pull.arm, *self._item(pull))
            return run_command(
                command,
                study=self.name,
                pull=pull,
                folder=self.folder,
                cost=self.cost,
                timeout=self.timeout,
                over=over,
                given="".join(json.dumps(item) + "\n" for item in self._item(pull)),
            )

        return try_once

    def _measured(self, function: Callable[..., Any], *given: Any) -> Any:
        """A function's result, with the time it took where that is its cost."""
        if self.cost is None:
            return function(*given)
        clock = time.perf_counter if self.cost == "seconds" else time.thread_time
        started = clock()
        try:
            reward = read(function(*given))["reward"]
        except Exception as error:
            return Failed(f"{type(error).__name__}: {error}", max(clock() - started, 1e-9))
        return {"reward": reward, "cost": max(clock() - started, 1e-9)}


def read_recipe(path: str | Path) -> Recipe:
    """The recipe in a TOML file; an error names the file and what is wrong with it."""
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} is not TOML: {error}.") from None
    except (ValueError, RecursionError):  # more digits or brackets than Python reads
        raise InvalidInput(f"{file} cannot be read: it has a number that is too long or is nested too deep.") from None
    try:
        return recipe_of(content, file)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from None


def recipe_of(content: dict[str, Any], file: Path) -> Recipe:
    for key in content:
        if key not in (*STUDY, *RUN):
            close = difflib.get_close_matches(key, (*STUDY, *RUN), n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join((*RUN, *STUDY))}."
            raise InvalidInput(f"unknown key {key!r}{hint}")
    for key in ("arms", "family"):
        if key not in content and not (key == "family" and "items" in content):
            raise InvalidInput(f"there is no {key!r}.")
    for key in OF_ITEMS:
        if key in content and "items" not in content:
            raise InvalidInput(f"{key!r} is for a study with items, and there are none.")
    cost = content.get("cost")
    if cost is not None and cost not in MEASURES:
        raise InvalidInput(
            f"cost must be one of {', '.join(MEASURES)}, or left out where pulls tell it, got {shown(cost)}."
        )
    arms, tests = arms_of(content)
    settings = {key: content[key] for key in STUDY if key in content}
    folder = file.resolve().parent
    dataset = dataset_of(content["items"], folder) if "items" in content else None
    if dataset is not None:
        settings["items"] = dataset
    return Recipe(
        name=content.get("name", file.stem),
        storage=storage_of(content, folder),
        settings=settings | {"arms": arms},
        file=file,
        folder=folder,
        tests=tests,
        cost=cost,
        timeout=positive(content["timeout"], "timeout") if "timeout" in content else math.inf,
        workers=whole(content.get("workers", 1), "workers", 1),
        max_failures=whole(content.get("max_failures", 5), "max_failures", 1),
        retries=whole(content.get("retries", 0), "retries", 0),
        dataset=dataset,
    )


def arms_of(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[str] | str]]:
    """The arms with their metadata, and how each is tried."""
    given = content["arms"]
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        if len(set(given)) < len(given):
            raise InvalidInput(f"arms must differ from each other, got {shown(given)}.")
        given = {name: {} for name in given}
    if not isinstance(given, Mapping) or not all(isinstance(value, Mapping) for value in given.values()):
        raise InvalidInput(f"arms must be a list of names, or one table [arms.NAME] each, got {shown(given)}.")
    arms, tests = {}, {}
    for name, own in given.items():
        for key in NOT_AN_ARMS:
            if key in own:
                raise InvalidInput(f"{key!r} is for all arms: write it at the top of the file, not in [arms.{name}].")
        tests[name] = test_of(name, own if {"command", "function"} & set(own) else content)
        arms[name] = {key: value for key, value in own.items() if key not in ("command", "function")} or None
    return arms, tests


def test_of(arm: str, given: Mapping[str, Any]) -> list[str] | str:
    command, function = given.get("command"), given.get("function")
    if (command is None) == (function is None):
        raise InvalidInput(f"arm {arm!r} needs a command or a function, and not both; it may be one for all arms.")
    if function is not None:
        if not isinstance(function, str) or function.count(":") != 1:
            raise InvalidInput(f"function must be written module:function, got {shown(function)}.")
        return function
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise InvalidInput(f"command {command!r} cannot be read: {error}.") from None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise InvalidInput(f"command must be a text or a list of texts, got {shown(command)}.")
    return words


def dataset_of(given: Any, folder: Path) -> Dataset:
    """The items in a file beside the recipe, or so many numbers."""
    if isinstance(given, int) and not isinstance(given, bool):
        return Dataset.of(range(whole(given, "items", 1, MOST + 1)))
    if not isinstance(given, str):
        raise InvalidInput(f"items must be a .jsonl or .csv file, or a number, got {shown(given)}.")
    return Dataset.of(folder / given)


def storage_of(content: Mapping[str, Any], folder: Path) -> Any:
    """The file's storage, or the environment's, or the usual one; the file's relative SQLite file lies beside it."""
    usual = os.environ.get("CABAI_STORAGE") or STORAGE
    storage, start = content.get("storage", usual), "sqlite:///"
    if is_served(storage):
        raise InvalidInput(
            "cabai run keeps its commands with the study, and a server takes no commands: its storage must be a "
            "database. In Python, `study.run` works over HTTP."
        )
    if "storage" not in content and os.environ.get("CABAI_STORAGE"):
        return storage
    if isinstance(storage, str) and storage.startswith(start) and storage[len(start) :] not in ("", ":memory:"):
        return start + os.path.join(folder, storage[len(start) :])
    return storage


def find_function(written: str, folder: Path) -> Callable[[str], Any]:
    """The function that module:function names; modules in the folder of the recipe are found."""
    module, _, name = written.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"function {written!r} cannot be found: {error}.") from error
    except Exception as error:  # whatever is wrong in a module of the user's
        raise InvalidInput(f"function {written!r} cannot be loaded: {type(error).__name__}: {error}.") from error
    if not callable(found):
        raise InvalidInput(f"{written!r} is not a function.")
    return found  # type: ignore[no-any-return]
