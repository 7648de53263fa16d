"""A task in a worker process: the work is packed here, unpacked and compiled there, once; then it runs chunks of it.

What is cabai's, or installed, is sent by name. What is in a user's own files is sent by value: a worker, perhaps on
another machine, need not have them.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.errors import EngineFailed
from cabai.simulation.work import Part, Work
from cabai.support.own import is_library
from cabai.support.registry import Named
from cabai.support.specialise import is_plain, plain_functions_of
from cabai.support.validation import optional
from cabai.support.version import __version__

_one_at_a_time = threading.Lock()  # so that threads of one worker do not compile the same code


def ignore_interrupts() -> None:
    """A terminal sends Ctrl-C to every process that was started from it: the first of them stops the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run(packed: bytes, first: int, count: int, watch: Any = None) -> Part:
    """A chunk of the work that `packed` has packed.

    `watch(signals)`, if given, is a context that may tell the chunk to stop before its end.
    """
    signals: NDArray[np.int64] = np.zeros(2, np.int64)
    with _one_at_a_time:
        work = unpacked(packed)
        work.compiled()
    watching: AbstractContextManager[Any] = nullcontext() if watch is None else watch(signals)
    with watching:
        return work.run(first, count, signals)


@lru_cache(maxsize=32)
def unpacked(packed: bytes) -> Work:
    version, content = pickle.loads(packed)
    if version != __version__:
        raise EngineFailed(
            f"a worker has cabai {__version__}, and you have {version}: install the same version everywhere."
        )
    return Unpickler(io.BytesIO(content)).load()  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def own(packed: bytes) -> Any:
    """A family, threshold or policy of a user's own: the same object each time, so that it is compiled once."""
    kind, parameters = pickle.loads(packed)
    return kind(**parameters)


class Unpickler(pickle.Unpickler):
    persistent_load = staticmethod(own)


def packed(work: Work) -> bytes:
    """The work as bytes, for `unpacked`."""
    cloudpickle = optional("cloudpickle")

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        def persistent_id(self, value: Any) -> bytes | None:
            """A user's own code is packed separately: a worker that has seen it recognises it by its bytes."""
            if not isinstance(value, Named) or not value.is_own:
                return None
            parameters = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return cloudpickle.dumps((type(value), parameters))  # type: ignore[no-any-return]

    content = io.BytesIO()
    parts = work.instance.family, work.setup.threshold, work.setup.policy
    with by_value(own_modules([each for each in parts if each.is_own])):
        Pickler(content).dump(work)
    return pickle.dumps((__version__, content.getvalue()))


def own_modules(values: list[Named]) -> list[ModuleType]:
    """The user's own files that some values are made of: those of their classes, and of all functions called there."""
    found: dict[str, ModuleType] = {}
    todo: list[Any] = [kind for value in values for kind in type(value).__mro__]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        name = each.__module__ or ""
        module = sys.modules.get(name)
        is_main = name == "__main__"  # which is always sent by value
        if id(each) in seen or (not is_main and is_library(getattr(module, "__file__", None) or "<")):
            continue
        seen.add(id(each))
        if module is not None and not is_main:
            found[name] = module
        if isinstance(each, type):
            members = [one for member in vars(each).values() for one in (member if type(member) is tuple else [member])]
            todo += filter(is_plain, (getattr(member, "__func__", member) for member in members))
        else:
            todo += plain_functions_of(each).values()
    return list(found.values())


@contextmanager
def by_value(modules: list[ModuleType]) -> Iterator[None]:
    """Until the end, what these modules define is packed itself, not its name."""
    cloudpickle = optional("cloudpickle")
    with ExitStack() as stack:
        for module in modules:
            if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
        yield
