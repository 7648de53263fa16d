"""Explain in one sentence which line of a user's policy cannot be compiled, and why."""

from __future__ import annotations

import dis
import linecache
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numba
from numba import types

from cabai.core.compiling import compiled, functions_in, is_ours, returned_by, seen_by_name
from cabai.core.state import Layout
from cabai.support.own import PACKAGE
from cabai.support.specialise import plain_functions_of
from cabai.support.validation import InvalidInput, meant


def compiled_rule(setup: Any, function: Any, signature: Any) -> Any:
    """Compile a policy's `choose` or `stop`, for callers that do not know the names of the policy's fields."""
    rule = explained(setup, function, seen_by_name(function, setup.layout), signature)
    if function is setup.choose and not is_ours(function):
        for kind in returned_by(function):
            if not isinstance(kind, types.Integer | types.Boolean):
                what = "a fraction" if isinstance(kind, types.Float) else "None"
                file, line = where_it_returns(function)
                raise InvalidInput(
                    f"policy {setup.policy} must return the number of an arm; the function that ends in {file}, line "
                    f"{line}, can return {what}."
                )
    return rule


def explained(setup: Any, function: Any, form: Any, signature: Any) -> Any:
    """Compile a form of a function. If that fails in a user's code, say which line is to blame."""
    try:
        return compiled(form, signature)
    except Exception as error:
        raise unusable(setup, (function,), error) from None


def unusable(setup: Any, functions: Sequence[Any], error: Exception) -> Exception:
    """What to raise if some functions cannot be compiled: a user's code is to blame, if there is any."""
    own = [each for function in functions for each in functions_in(function) if not is_ours(each)]
    if not own:
        return error
    of_policy = own[0] in functions
    what = f"policy {setup.policy}" if of_policy else f"family {setup.family} or threshold {setup.threshold}"
    return InvalidInput(f"{what} cannot be compiled: {blame(own[0], setup.layout, error, own)}")


def blame(function: Any, layout: Layout, error: Exception, others: Sequence[Any] = ()) -> str:
    """The line of a user's function that cannot be compiled, and why, from what Numba raised."""
    message = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # without colours
    key = error.args[0] if isinstance(error, KeyError) else ""  # a field that a record lacks, or a function
    field = key if isinstance(key, str) else ""
    undefined = re.search(r"name '(\w+)' is not defined", message)
    places = [(file, int(line)) for file, line in re.findall(r"(?:\bat|from) (\S+) \((\d+)\)", message)]
    inner = Path(numba.__file__).parent, PACKAGE
    places = [place for place in places if not any(Path(place[0]).is_relative_to(each) for each in inner)]
    places.append(where_it_returns(function))
    name = undefined[1] if undefined else field
    named = (place_of(each, name) for each in (function, *others)) if name else iter(())
    file, line = next(filter(None, named), places[0])
    if field:
        known = [name for kind in (layout.arm, layout.run, layout.rules) for name in kind.names or () if name != "room"]
        guess = " ".join(filter(None, [meant(field, known), "`cabai.core.state` lists those of arms, run and rules."]))
        why = f"there is no field {field!r}; {guess}"
    elif key:
        why = f"it uses {key}, which cannot be compiled."
    elif "NRT required" in message:
        why = "it creates a list, an array or another object; a policy may only use numbers, tuples and loops."
    else:
        reasons = (each.strip() for each in message.splitlines() if not each.startswith("Failed in "))
        why = re.sub(r"( found for signature:|\.* Raised from .*|\.)$", "", next(filter(None, reasons))) + "."
    return f"{file}, line {line}, `{linecache.getline(file, line).strip()}`: {why}"


def where_it_returns(function: Any) -> tuple[str, int]:
    returns = [each for each in dis.get_instructions(function) if each.opname.startswith("RETURN")]
    lines = [each.positions.lineno or 0 for each in returns if each.positions is not None]
    return function.__code__.co_filename, max(lines, default=0) or function.__code__.co_firstlineno


def place_of(function: Any, name: str) -> tuple[str, int] | None:
    """The file and line where a function, or one that it calls, first uses a name."""
    for each in dis.get_instructions(function):
        if each.argval == name and each.positions is not None and each.positions.lineno is not None:
            return function.__code__.co_filename, each.positions.lineno
    own = (each for each in plain_functions_of(function).values() if each is not function and not is_ours(each))
    inside = (place_of(each, name) for each in own)
    return next(filter(None, inside), None)
