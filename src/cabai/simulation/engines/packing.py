"""Work as bytes that another process, perhaps on another machine, can unpack.

What is cabai's, or installed, is sent by name. What is in a user's own files is sent by value: a worker need not have
them.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from cabai.simulation.work import Work
from cabai.support.own import is_library
from cabai.support.registry import Named
from cabai.support.specialise import is_plain, plain_functions_of
from cabai.support.validation import optional
from cabai.support.version import __version__


def packed(work: Work) -> bytes:
    """For `task.unpacked`."""
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
