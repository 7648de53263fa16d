"""The functions of one family, threshold and policy, called by a live study.

They are plain Python at first: a command that asks once must not wait for a compiler. A process that has spent a second
in them compiles them, in a separate thread. Compiled or not, they give the same numbers to the last bit. A user's own
functions stay plain, so that errors show their lines; so do functions that call `lgamma`, which differs between Python
and compiled code.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Layout, Record, Records, by_columns, copy_of
from cabai.core.stopping import beats_of, surplus_of
from cabai.support.own import errors_by_line
from cabai.support.specialise import copied
from cabai.support.validation import InvalidInput, shown

T = TypeVar("T")
WHOLE = (int, np.integer, np.bool_)
WORTH_COMPILING = 1.0  # seconds in plain functions: about the time to compile them, so at worst it takes twice as long


class Kernels:
    """The functions of one setup, called with the records themselves; shared by the threads of a process."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.plain = {
            "observe": setup.bound(observe), "choose": setup.choose,
            "stop": setup.stop, "surplus": setup.bound(surplus_of), "beats": setup.bound(beats_of),
        }  # fmt: skip
        self.plain["replay"], self.compiled = shared(tuple(self.plain.items()), setup.layout)
        self.is_own = any(
            not (each.__module__ or "").startswith("cabai.") for _, each in (*setup.binding, *self.plain.items())
        )
        self.read: dict[int, tuple[Any, Any]] = {}  # some rules by id, and what plain functions read instead
        self.last: Any = None  # the records of the last call, and what plain functions read instead
        self.spent = 0.0  # seconds in plain functions
        self.compiler: int | None = None  # the process that has begun to compile

    def observe(self, arms: NDArray[Any], run: Any, a: int, reward: float, cost: float, rules: Any = None) -> None:
        self._call("observe", arms, run, a, reward, cost, rules=rules)

    def choose(self, arms: NDArray[Any], run: Any, rules: Any = None) -> int:
        chosen = self._call("choose", arms, run, rules=rules)
        if not isinstance(chosen, WHOLE):
            raise InvalidInput(f"policy {self.setup.policy} must return the number of an arm, got {shown(chosen)}.")
        return int(chosen)

    def stop(self, arms: NDArray[Any], run: Any, rules: Any = None) -> bool:
        return bool(self._call("stop", arms, run, rules=rules))

    def surplus(self, arms: NDArray[Any], run: Any, b: int, a: int, rules: Any = None) -> float:
        return float(self._call("surplus", arms, run, b, a, rules=rules))

    def beats(self, arms: NDArray[Any], run: Any, b: int, a: int, rules: Any) -> bool:
        """Whether b beats a by `rules`, which may be for another delta."""
        return bool(self._call("beats", arms, run, b, a, rules=rules))

    def _call(self, name: str, arms: NDArray[Any], run: Any, *more: Any, rules: Any = None) -> Any:
        function, rules = self.compiled.get(name), self.setup.rules if rules is None else rules
        if function is not None:
            return function(arms, run.base, rules.base, *more)  # arrays of one: a record takes three times as long
        started = time.perf_counter()  # that of the thread alone takes a system call
        with np.errstate(all="ignore"), errors_by_line():
            result = self.plain[name](*self._plain_records(arms, run), self._plain_rules(rules), *more)
        self.spent += min(time.perf_counter() - started, 0.01)
        if self.spent > WORTH_COMPILING and self.compiler != os.getpid():
            self.compiler = os.getpid()
            threading.Thread(target=self.compile, name="cabai compiles").start()
        return result

    def _plain_records(self, arms: NDArray[Any], run: Any) -> tuple[Any, Any]:
        """The same records, faster to read from Python: kept, since a study's are the same from call to call."""
        if self.is_own:
            return Records(arms), Record(run)
        last = self.last
        if last is None or last[0] is not arms or last[1] is not run:
            self.last = last = arms, run, by_columns(arms), by_columns(run.base)[0]
        return last[2:]

    def _plain_rules(self, rules: Any) -> Any:
        """The same rules, faster to read from Python: tables are lists of Python's numbers. For cabai's functions."""
        if self.is_own:
            return Record(rules)
        read = self.read.get(id(rules))
        if read is None:
            found = {name: rules[name].tolist() if rules[name].ndim else rules[name] for name in rules.dtype.names}
            read = rules, SimpleNamespace(**found)
            self.read = dict([*self.read.items()][-7:]) | {id(rules): read}
        return read[1]

    def replay(
        self, arms: NDArray[Any], run: Any, log: Sequence[NDArray[Any]], sums: Sequence[NDArray[Any]]
    ) -> int | None:
        """Take pulls that were made one by one, from the log; returns how many, up to the one after which the policy
        stops. None if that is not compiled: only that would be faster than taking them singly."""
        if "replay" not in self.compiled:
            self.compile(["replay"])
        function = self.compiled.get("replay")
        return None if function is None else int(function(arms, run.base, self.setup.rules.base, *log, *sums))

    def compile(self, names: Sequence[str] = ("choose", "observe", "stop", "surplus", "beats")) -> None:
        with compiling, contextlib.suppress(Exception):
            from numba import types

            from cabai.core.compiling import compiled, functions_in, is_ours, on_arrays, types_of

            layout = self.setup.layout
            arms, run, rules = types_of(layout.arm, layout.run, layout.rules)
            records, numbers = (arms, run[::1], rules[::1]), [types.float64[::1]] * 3
            signatures = {
                "choose": types.int64(*records), "observe": types.void(*records, types.int64, *[types.float64] * 2),
                "stop": types.boolean(*records),
                "surplus": types.float64(*records, types.int64, types.int64),
                "beats": types.boolean(*records, types.int64, types.int64),
                "replay": types.int64(*records, types.int64[::1], *numbers, types.int64[::1], *numbers),
            }  # fmt: skip
            for name in names:
                if not threading.main_thread().is_alive():  # the process is about to end
                    return
                plain = self.plain[name]
                if all(is_ours(each) and "lgamma" not in each.__code__.co_names for each in functions_in(plain)):
                    whole = plain if name == "replay" else on_arrays(plain)
                    self.compiled[name] = compiled(whole, signatures[name])


@lru_cache(maxsize=256)
def shared(plain: tuple[tuple[str, Any], ...], layout: Layout) -> tuple[Any, dict[str, Any]]:
    """`replay` with these functions, and what is compiled of all of them: studies of one kind share it."""
    return copied(replay, {name: function for name, function in plain if name in ("choose", "observe", "stop")}), {}


ARMS = ("last", "leader", "rival", "known_for")  # fields of the run that name an arm by its number, or none by -1
TOTALS = ("t", "counted", "spent")  # over all arms


def with_part(arms: NDArray[Any], run: Any, chosen: NDArray[np.int64], work: Callable[[NDArray[Any], Any], T]) -> T:
    """Call `work(arms, run)` with the chosen arms only, as if there were no others; its changes are kept."""
    named = [name for name in ARMS if name in (run.dtype.names or ())]
    place = {a: i for i, a in enumerate(chosen.tolist())}
    some, own = arms[chosen], copy_of(run)
    for name in named:
        own[name] = place.get(int(run[name]), -1)
    own["t"], own["counted"] = some["pulls"].sum(), some["costs"].sum()
    result = work(some, own)
    arms[chosen] = some
    for name in run.dtype.names or ():
        if name in named:
            run[name] = chosen[own[name]] if own[name] >= 0 else -1
        elif name not in TOTALS:
            run[name] = own[name]
    return result


def replay(arms, run, rules, pulled, rewards, counted, costs, offers, spent, largest, squares):
    """Pulls that were made one by one: choose again, which regains what the policy remembers, observe, and test.

    Of each pull: the arm, its reward, its cost as the policy counts it, and as it was paid. Then the sums of each arm.
    """
    for i in range(len(pulled)):
        choose(arms, run[0], rules[0])  # noqa: F821
        a = pulled[i]
        observe(arms, run[0], rules[0], a, rewards[i], counted[i])
        if counted[i] != costs[i]:
            run[0].spent += costs[i] - counted[i]
        away = rewards[i] - arms[a].first
        squares[a] += away * away
        offers[a] += 1
        spent[a] += costs[i]
        largest[a] = max(largest[a], costs[i])
        if stop(arms, run[0], rules[0]):  # noqa: F821
            return i + 1
    return len(pulled)


compiling = threading.Lock()  # a fork during it would leave the child with its locks, and without the thread

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=compiling.acquire, after_in_parent=compiling.release, after_in_child=compiling.release)
