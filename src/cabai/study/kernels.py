"""What a study computes: the functions of its family, threshold and policy.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.observe import observe, weigh_pulled
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import beats_of, surplus_of
from cabai.support.own import told_by_line

WORTH_COMPILING = 1.0  # seconds in plain functions: about the time to compile them, so at worst it takes twice as long


class Kernels:
    """The functions of one setup, called with the records themselves; shared by the threads of a process."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.plain = {
            "observe": setup.bound(observe), "weigh": setup.bound(weigh_pulled), "choose": setup.choose,
            "stop": setup.stop, "surplus": setup.bound(surplus_of), "beats": setup.bound(beats_of),
        }  # fmt: skip
        self.weighs_as_usual = "weigh" not in dict(setup.binding)
        self.compiled: dict[str, Any] = {}
        self.spent = 0.0  # seconds in plain functions
        self.compiler: int | None = None  # the process that has begun to compile

    def observe(self, arms: NDArray[Any], run: Any, a: int, reward: float, cost: float) -> None:
        self._call("observe", arms, run, a, reward, cost)

    def weigh(self, arms: NDArray[Any], run: Any) -> None:
        """What the threshold needs of each arm."""
        if self.weighs_as_usual:  # the same as the slot's own body, for all arms at a time
            arms["tested"], arms["tested_mean"] = arms["pulls"], arms["mean"]
        else:
            self._call("weigh", arms, run)

    def choose(self, arms: NDArray[Any], run: Any, rules: Any = None) -> int:
        return int(self._call("choose", arms, run, rules=rules))

    def stop(self, arms: NDArray[Any], run: Any, rules: Any = None) -> bool:
        return bool(self._call("stop", arms, run, rules=rules))

    def surplus(self, arms: NDArray[Any], run: Any, b: int, a: int, rules: Any = None) -> float:
        """By how much b beats a."""
        return float(self._call("surplus", arms, run, b, a, rules=rules))

    def beats(self, arms: NDArray[Any], run: Any, b: int, a: int, rules: Any) -> bool:
        """Whether b beats a by `rules`, which may be for another delta."""
        return bool(self._call("beats", arms, run, b, a, rules=rules))

    def _call(self, name: str, arms: NDArray[Any], run: Any, *more: Any, rules: Any = None) -> Any:
        function, rules = self.compiled.get(name), self.setup.rules if rules is None else rules
        if function is not None:
            return function(arms, run.base, rules.base, *more)  # arrays of one: a record takes three times as long
        started = time.thread_time()
        with np.errstate(all="ignore"), told_by_line():
            result = self.plain[name](Records(arms), Record(run), Record(rules), *more)
        self.spent += time.thread_time() - started
        if self.spent > WORTH_COMPILING and self.compiler != os.getpid():
            self.compiler = os.getpid()
            threading.Thread(target=self.compile, name="cabai compiles").start()
        return result

    def compile(self) -> None:
        """Compile what can be compiled; the rest stays plain."""
        with compiling, contextlib.suppress(Exception):
            from numba import types

            from cabai.core.compiling import compiled, functions_in, is_ours, on_arrays, types_of

            layout = self.setup.layout
            arms, run, rules = types_of(layout.arm, layout.run, layout.rules)
            records = arms, run[::1], rules[::1]
            signatures = {
                "choose": types.int64(*records), "observe": types.void(*records, types.int64, *[types.float64] * 2),
                "stop": types.boolean(*records), "weigh": types.void(*records),
                "surplus": types.float64(*records, types.int64, types.int64),
                "beats": types.boolean(*records, types.int64, types.int64),
            }  # fmt: skip
            for name, signature in signatures.items():
                if not threading.main_thread().is_alive():  # the process is about to end
                    return
                plain = self.plain[name]
                if all(is_ours(each) and "lgamma" not in each.__code__.co_names for each in functions_in(plain)):
                    self.compiled[name] = compiled(on_arrays(plain), signature)


compiling = threading.Lock()  # a fork during it would leave the child with its locks, and without the thread

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=compiling.acquire, after_in_parent=compiling.release, after_in_child=compiling.release)
