"""Bind plain functions together: how kernels call functions of a family, a threshold and a policy.

A kernel is a plain Python function of plain records. If it needs something that depends on the family, the threshold or
the policy, it calls a *slot*: a function that they can replace. `specialised` copies a kernel and replaces every slot,
at any depth of calls, by the function that a binding has under the slot's name. A slot that is not in the binding keeps
its own body, which is the default.

So a family is a tuple of plain functions named after slots, and no other code has to change. Live studies call the
specialised functions directly; simulations compile them (`cabai.core.compiling`).
"""

from __future__ import annotations

import dis
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import CellType, FunctionType, ModuleType
from typing import Any

from cabai.support.validation import InvalidInput

Binding = frozenset[tuple[str, Any]]  # pairs of a slot's name and the function to call for it

SLOTS: dict[str, Any] = {}
COMPUTED = 200  # bytes of code that a function of `math` stands for, see `called_apart`


def slot(function: Any) -> Any:
    """Mark a function that a family, a threshold or a policy can replace by its own function of the same name."""
    function.slot = function.__name__
    SLOTS[function.__name__] = function
    return function


def required_slot(function: Any) -> Any:
    """Mark a slot without a default: it must be bound before a kernel that calls it can run."""
    function.required = True
    return slot(function)


def apart(function: Any) -> Any:
    """Mark a function that is large or rarely called: it is compiled as a function and not inlined."""
    function.apart = True
    return function


def binding(functions: Iterable[Any]) -> Binding:
    """Bind each function to the slot of its name, or to `name` in a pair (name, function). Later ones take precedence.

    >>> def divergence(rules, p, difference, q, complement):
    ...     return difference * difference
    >>> [name for name, function in binding([divergence])]
    ['divergence']
    """
    pairs = (each if isinstance(each, tuple) else (each.__name__, each) for each in functions)
    return frozenset(dict(pairs).items())


def check_known(bound: Binding) -> None:
    """Refuse functions that no kernel would ever call: their names are probably misspelt."""
    for name, function in bound:
        if name not in SLOTS:
            raise InvalidInput(
                f"no kernel calls a function {name!r} ({function.__module__}); those that can be replaced: "
                f"{', '.join(sorted(SLOTS))}."
            )


@lru_cache(maxsize=4096)
def specialised(function: Any, bound: Binding) -> Any:
    """Copy a plain function and replace every slot, at any depth of calls, by the function in `bound`.

    A function that calls no slot is returned unchanged.
    """
    functions = dict(bound)
    helpers = {}
    for name, value in plain_functions_of(function).items():
        target = value
        if hasattr(value, "slot"):
            target = functions.get(value.slot, value)
            if target is value and getattr(value, "required", False):
                target = missing(value.slot)
        helper = target if target is function else specialised(target, bound)
        if helper is not value:
            helpers[name] = helper
    if not helpers:
        return function
    return copied(function, helpers)


def function_for(of: Any, bound: Binding) -> Any:
    """A function, or the function bound to a slot, specialised."""
    found = dict(bound).get(getattr(of, "slot", ""), of)
    return missing(of.slot) if getattr(found, "required", False) else specialised(found, bound)


def plain_functions_of(function: Any) -> dict[str, Any]:
    """The other Python functions that a function refers to, by name: `uniform`, or `cabai.uniform`.

    Python does not tell a name from that of a field: with a global function `mean`, `arm.mean` counts as a reference.
    """
    scope, names = function.__globals__, function.__code__.co_names
    found = {name: scope[name] for name in names if name in scope}
    for module in [name for name, value in found.items() if isinstance(value, ModuleType) and is_plain_module(value)]:
        found |= {f"{module}.{name}": vars(found[module])[name] for name in names if name in vars(found[module])}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        found[name] = cell.cell_contents
    return {name: value for name, value in found.items() if is_plain(value) and value is not function}


def is_plain_module(module: ModuleType) -> bool:
    """Whether the functions of a module may be compiled: not for modules of the standard library."""
    return module.__name__.partition(".")[0] not in sys.stdlib_module_names


def is_plain(value: Any) -> bool:
    """Whether a value is a Python function that Numba does not already implement itself."""
    return isinstance(value, FunctionType) and (value.__module__ or "").partition(".")[0] not in (
        "numpy",
        "numba",
        "math",
    )


def copied(function: Any, helpers: dict[str, Any]) -> Any:
    """Copy a function, with other functions under some of the names that it uses."""
    scope = function.__globals__ | helpers
    for dotted, helper in helpers.items():
        module, _, name = dotted.rpartition(".")
        if module:
            if scope[module] is function.__globals__[module]:
                scope[module] = ModuleType(module)
                vars(scope[module]).update(vars(function.__globals__[module]))
            setattr(scope[module], name, helper)
    cells = tuple(
        CellType(helpers[name]) if name in helpers else cell
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells or None)
    copy.__module__, copy.__qualname__, copy.__doc__ = function.__module__, function.__qualname__, function.__doc__
    copy.__dict__.update({key: value for key, value in function.__dict__.items() if key not in ("slot", "required")})
    return copy


@lru_cache(maxsize=64)
def missing(name: str) -> Callable[..., Any]:
    """A function to call in place of a missing one: it raises an error."""

    def not_given(*arguments: Any) -> Any:
        raise InvalidInput(f"this needs a function {name!r}, which the family, threshold or policy does not have.")

    not_given.missing = name  # type: ignore[attr-defined]
    return not_given


@lru_cache(maxsize=1024)
def needs(functions: tuple[Any, ...], bound: Binding) -> frozenset[str]:
    """The required slots that these functions call, at any depth, and that `bound` does not have."""
    found: set[str] = set()
    seen: set[Any] = set()
    todo = [specialised(function, bound) for function in functions]
    while todo:
        function = todo.pop()
        if function in seen:
            continue
        seen.add(function)
        if hasattr(function, "missing"):
            found.add(function.missing)
        todo += plain_functions_of(function).values()
    return frozenset(found)


def called_apart(functions: Iterable[Any], large: int) -> frozenset[Any]:
    """Of these functions and all that they call, those marked `apart`, and those that are called in several places and
    have, with all that they call, more than `large` bytes of code: to copy them into each place would take much room.
    """
    sizes: dict[Any, int] = {}
    places: Counter[Any] = Counter()

    def visit(function: Any) -> None:
        if function in sizes:
            return
        names = Counter(each.argval for each in dis.get_instructions(function))
        sizes[function] = len(function.__code__.co_code) + COMPUTED * sum(names[name] for name in vars(math))
        for name, each in plain_functions_of(function).items():
            visit(each)
            times = names[name.rpartition(".")[2]]
            places[each] += times
            sizes[function] += times * sizes[each]

    for each in functions:
        visit(each)
    often = {each for each in sizes if places[each] > 1 and sizes[each] > large}
    return frozenset(often.union(each for each in sizes if getattr(each, "apart", False)))
