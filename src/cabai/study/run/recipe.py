"""`study.toml`: a study, and how each of its arms is tried, by a function or a command. Read by `cabai run`."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import iscoroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cabai.datasets.dataset import Dataset
from cabai.errors import RunFailed
from cabai.settings import AS_FAILED, AS_TIMEOUT, STORAGE, SUCCESS, TIMES, settings_for
from cabai.study.create import described, is_served, open_study
from cabai.study.items import MOST_ITEMS
from cabai.study.run.commands import Measure, checked_for_a_shell, mark_for_a_shell, run_command
from cabai.study.run.loop import Failed, Wrong, one_each, read, was_killed
from cabai.study.run.trying import Caught, awaited, checked_catch, is_of_the_trial
from cabai.support.own import load
from cabai.support.validation import InvalidInput, about, check_names, positive, shown, whole
from cabai.thresholds import certified_in

if TYPE_CHECKING:
    from cabai.study.given import Pull
    from cabai.study.study import Study

KEYS = settings_for("file")
STUDY = [key for key in KEYS if key in settings_for("study") and key not in ("name", "storage")]
RUN = [key for key in KEYS if key not in settings_for("study") and key not in ("command", "function")]
LIMITS = ("max_cost", "max_pulls", "lease")  # if the file changes these, the study is amended
ENOUGH = 5  # runs of an arm, before a warning that most of them took too long


@dataclass(frozen=True)
class Recipe:
    """A study's name, storage and settings, and a way to try each arm."""

    name: str
    storage: str
    settings: dict[str, Any]
    file: Path  # as it was given
    folder: Path
    tests: dict[str, list[str] | str]  # by arm: a command, or a function written module:function
    measure: Measure  # what is measured; the pull reports the rest
    shell: bool  # whether commands, each a list with one string, are for a shell
    workers: int
    max_failures: int
    retries: int
    batch: int | None  # how many items of one arm are tested at a time; None: one, without a list around it
    catch: list[str] | None  # names of exceptions that count as failed trials, for functions; None: the default ones

    @property
    def how(self) -> dict[str, Any]:
        """By arm, what decides what its rewards and costs are."""
        measure, usual = self.measure, {"reward": None, "on_crash": AS_FAILED, "shell": False}
        given = {"reward": measure.reward, "on_crash": measure.on_crash, "shell": self.shell}
        more = {"cost": measure.cost} | {key: value for key, value in given.items() if value != usual[key]}
        kinds = {arm: "function" if isinstance(test, str) else "command" for arm, test in self.tests.items()}
        return {arm: {kinds[arm]: test, **more} for arm, test in self.tests.items()}

    def study(self, *, changed: bool = False) -> Study:
        """The study: a new one, or the one that an earlier run left. How its arms are tried is kept with it, and may
        not differ from what the earlier run kept, once there are rewards, unless it has `changed`: rewards of two
        things are not one arm's."""
        with about(str(self.file)):
            amend = (*LIMITS, "metadata") if changed else LIMITS
            study = open_study(self.name, described(**self.settings), self.storage, amend=amend)
            for arm in study.arms:
                if arm not in self.tests and arm not in study.settings.dropped:
                    raise InvalidInput(f"arm {arm!r} has joined the study {self.name!r}: add it here, with its test.")
            study._do("lapse", was_lost=was_killed)
            kept = study._do("keep_tests", tests=self.how, replace=changed)
            for arm, how in self.how.items():
                for key in how | kept[arm]:
                    now, before = how.get(key), kept[arm].get(key)
                    if now != before:
                        raise InvalidInput(
                            f"the {key} of arm {arm!r} is {now}, but was {before} when the study {self.name!r} ran "
                            "before. Restore it, choose another name or, if the arm still is the same thing, run with "
                            "--changed."
                        )
            return study

    def amended(self, study: Study) -> list[str]:
        """What the file has changed of the study, and which of its settings no longer hold, one line each."""
        lines, made, status = [], study._latest, study.status()
        if made is not None:
            changed = "; ".join(f"{name} was {old} and is now {new}" for name, (old, new) in made["changes"].items())
            how = "is amended" if made["reopened"] is None else f"had stopped at {made['reopened']} and now continues"
            lines.append(f"{self.file}: {changed}: the study {self.name!r} {how}.")
        for name in LIMITS:
            given, holds = self.settings.get(name), getattr(study.settings, name)
            if given is not None and given != holds:
                lines.append(
                    f"{self.file}: {name} is {given} here, but the study {self.name!r} was amended: {holds:g}."
                )
        if made is not None and status.max_cost is not None and status.spent > status.max_cost:
            lines.append(f"{self.file}: {status.spent:g} is already spent: nothing more is pulled with this max_cost.")
        return lines

    def test(self, over: threading.Event, warn: Callable[[str], None]) -> Callable[[Any], Any]:
        """A function that tries the arm of one pull, or of a batch; commands are cut short when `over` is set."""
        functions = {arm: load(test, "function") for arm, test in self.tests.items() if isinstance(test, str)}
        for arm, function in functions.items():
            if not callable(function):
                raise InvalidInput(f"{self.tests[arm]!r} is not a function.")
        caught = self.caught()

        def try_once(pulls: Any) -> Any:
            several = [pulls] if self.batch is None else pulls
            arm, data = several[0].arm, self.settings.get("items")
            items = [] if data is None else [data.items[data.number(each.item)] for each in several]
            if arm in functions:
                found = self._measured(functions[arm], caught, arm, *(items if self.batch is None else [items]))
            else:
                found = run_command(self, several, over, "".join(json.dumps(item) + "\n" for item in items))
            return found if self.batch is None else one_each(found, pulls)

        return self._watched(try_once, over, warn) if self.measure.reward in TIMES else try_once

    def caught(self) -> Caught:
        """The exceptions that are named as module:name or, those of Python, by a name alone."""
        if self.catch is None:
            return None
        named = (each if ":" in each else f"builtins:{each}" for each in self.catch)
        return checked_catch([load(each, "exception") for each in named])

    def _measured(self, function: Callable[..., Any], caught: Caught, *given: Any) -> Any:
        """A function's result, with the time it took where that is its cost or its reward."""
        measure = self.measure
        if measure.cost is None and measure.reward is None:
            return awaited(function(*given))
        began, cpu = time.perf_counter(), time.thread_time()
        try:
            result = function(*given)
            if iscoroutine(result) and "cpu" in (measure.cost, measure.reward):
                result.close()
                raise RunFailed("async tests share one thread, so their cpu time is not known: measure seconds.")
            result = awaited(result)
        except Exception as error:
            if not is_of_the_trial(error, caught):
                raise
            result = Failed(f"{type(error).__name__}: {error}")
        taken = {"seconds": time.perf_counter() - began, "cpu": time.thread_time() - cpu}
        spent = {name: max(value, 1e-9) for name, value in taken.items()}
        has_failed, cost = isinstance(result, Failed), measure.cost_of(spent)
        counts = measure.told(spent, crashed=has_failed)
        if counts is not None:
            return counts
        if has_failed:
            return Failed(result.why, cost or result.cost)
        try:
            return {"reward": read(result)["reward"], "cost": cost}
        except InvalidInput as error:
            return Wrong(str(error), cost)

    def _watched(
        self, test: Callable[[Pull], Any], over: threading.Event, warn: Callable[[str], None]
    ) -> Callable[[Pull], Any]:
        """A test of times that warns, once per arm, if a run failed, or most runs reached the timeout."""
        runs, late, warned, timeout = Counter[str](), Counter[str](), set[tuple[str, bool]](), self.measure.timeout

        def watched(pull: Pull) -> Any:
            result, arm = test(pull), pull.arm
            has_failed = isinstance(result, Failed)
            if not has_failed:
                runs[arm] += 1
                late[arm] += result["reward"] >= timeout
            is_odd = not over.is_set() if has_failed else ENOUGH <= runs[arm] < 2 * late[arm]
            if is_odd and (arm, has_failed) not in warned:
                warned.add((arm, has_failed))
                about = (
                    f"{late[arm]} of {runs[arm]} runs of arm {arm!r} reached the timeout of {timeout:g} seconds, and "
                    "count as that: a longer timeout would show which arm is faster."
                )
                if has_failed:
                    about = (
                        f"a run of arm {arm!r} failed ({result.why[:200]}) and does not count, so an arm that often "
                        f'fails can still win. With a timeout and on_crash = "{AS_TIMEOUT}", a failure counts as the '
                        "timeout."
                    )
                warn(f"{self.file}: {about}")
            return result

        return watched


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
    with about(str(file)):
        return recipe_of(content, file)


def recipe_of(content: dict[str, Any], file: Path) -> Recipe:
    check_names(content, KEYS, "key")
    content = implied_by_reward(content) | content
    own = {key: KEYS[key].checked(content.get(key, KEYS[key].default)) for key in RUN}
    for key in ("cost", "reward"):
        if own[key] == "cpu" and not hasattr(os, "wait4"):
            raise InvalidInput(f'{key} = "cpu" is not available on this system; use "seconds".')
    if own["on_crash"] == AS_TIMEOUT and (own["reward"] != "seconds" or own["timeout"] is None):
        raise InvalidInput(f'on_crash = "{AS_TIMEOUT}" needs reward = "seconds" and a timeout.')
    for key in ("arms", "family"):
        if key not in content and not (key == "family" and "items" in content):
            raise InvalidInput(f"there is no {key!r}.")
    for key in content:
        if KEYS[key].sentence.startswith("With items") and "items" not in content:
            raise InvalidInput(f"{key!r} is only for a study with items, and there are none.")
    if own["batch"] is not None and (own["cost"] or own["reward"]):
        raise InvalidInput("with a batch, 'cost' and 'reward' are not measured: the command prints them for each item.")
    content["arms"], tests = arms_of(content)
    folder, items, catch = file.resolve().parent, content.get("items"), content.get("catch")
    if str(folder) not in sys.path:  # for functions, and for a user's own family, threshold or policy
        sys.path.insert(0, str(folder))
    if isinstance(items, str):
        content["items"] = Dataset.of(folder / items)
    elif isinstance(items, int) and not isinstance(items, bool):
        content["items"] = Dataset.of(range(whole(items, "items", 1, MOST_ITEMS + 1)))
    elif items is not None:
        raise InvalidInput(f"items must be a .jsonl or .csv file, or a number, got {shown(items)}.")
    if isinstance(content.get("threshold"), str) and content["threshold"].endswith(".json"):
        content["threshold"] = certified_in(folder / content["threshold"])
    own["catch"] = [catch] if isinstance(catch, str) else catch
    if catch is not None and (not isinstance(own["catch"], list) or not all(isinstance(each, str) for each in catch)):
        raise InvalidInput(
            f'catch must be names of exceptions, such as ["OSError", "httpx:HTTPError"], got {shown(catch)}.'
        )
    own["timeout"] = own["timeout"] or math.inf
    return Recipe(
        name=content.get("name", file.stem),
        storage=storage_of(content, folder),
        settings={key: content[key] for key in STUDY if key in content},
        file=file,
        folder=folder,
        tests=tests,
        measure=Measure(**{key: own.pop(key) for key in ("cost", "reward", "on_crash", "timeout")}),
        **own,
    )


def implied_by_reward(content: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults if the reward is measured: times are costs too, short ones are wanted, up to the timeout."""
    reward, usual = KEYS["reward"].checked(content.get("reward")), dict[str, Any]()
    if reward is not None and "costs" not in content:
        usual["cost"] = "seconds" if reward == SUCCESS else reward
    if reward == SUCCESS and "items" not in content:
        usual["family"] = "bernoulli"
    elif reward in TIMES:
        if "family" not in content and "timeout" not in content:
            raise InvalidInput(
                "there is no 'family', and times have no largest value. Give a timeout, which bounds them, or a "
                "family: see docs/times.md."
            )
        usual["direction"] = "minimize"
        if "timeout" in content and reward == "seconds":
            usual["family"] = f"bounded(low=0, high={positive(content['timeout'], 'timeout')!r})"
    return usual


def arms_of(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[str] | str]]:
    given = content["arms"]
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        if len(set(given)) < len(given):
            raise InvalidInput(f"arms must have different names, got {shown(given)}.")
        given = {name: {} for name in given}
    if not isinstance(given, Mapping) or not all(isinstance(value, Mapping) for value in given.values()):
        raise InvalidInput(f"arms must be a list of names, or one table [arms.NAME] each, got {shown(given)}.")
    arms, tests = {}, {}
    for name, own in given.items():
        for key in own:
            if key in (*RUN, "items", "lease", "on_lapse"):
                raise InvalidInput(f"{key!r} is for all arms: write it at the top of the file, not in [arms.{name}].")
        tests[name] = test_of(name, own if {"command", "function"} & set(own) else content, content.get("shell", False))
        arms[name] = {key: value for key, value in own.items() if key not in ("command", "function")} or None
    return arms, tests


def test_of(arm: str, given: Mapping[str, Any], shell: bool) -> list[str] | str:
    command, function = given.get("command"), given.get("function")
    if (command is None) == (function is None):
        has = "neither a command nor a function" if command is None else "a command and a function"
        raise InvalidInput(f"arm {arm!r} has {has}: it needs one of them, which all arms may share.")
    if function is not None:
        if not isinstance(function, str) or function.count(":") != 1:
            raise InvalidInput(f"function must be written module:function, got {shown(function)}.")
        return function
    if shell:
        if not isinstance(command, str) or not command.strip():
            raise InvalidInput(f"with shell = true, a command must be a string, got {shown(command)}.")
        return [checked_for_a_shell(command)]
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise InvalidInput(f"command {command!r} cannot be read: {error}.") from None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise InvalidInput(f"command must be a string or a list of strings, got {shown(command)}.")
    mark = mark_for_a_shell(command) if isinstance(command, str) else None
    if mark is not None:
        raise InvalidInput(
            f"only a shell understands the {mark} in {shown(command)}: set shell = true. If {mark} is meant as it is, "
            "give the command as a list of strings."
        )
    return words


def storage_of(content: Mapping[str, Any], folder: Path) -> Any:
    """The file's storage, or the environment's, or the default; a relative SQLite file is next to the recipe."""
    own = os.environ.get("CABAI_STORAGE")
    storage = content.get("storage", own or STORAGE)
    if is_served(storage):
        raise InvalidInput(
            "cabai run stores its commands with the study, and a server accepts no commands: its storage must be a "
            "database. In Python, `study.run` works over HTTP."
        )
    path = storage.removeprefix("sqlite:///") if isinstance(storage, str) else storage
    if path in (storage, "", ":memory:") or ("storage" not in content and own):
        return storage
    return f"sqlite:///{os.path.join(folder, path)}"
