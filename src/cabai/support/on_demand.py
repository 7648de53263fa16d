"""Import modules on first use, so that programs start faster, and rooms do not import those below them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

# What a room uses of a room below it, as `module:name`: `cabai` itself says here what it is.
DOORS: dict[str, str] = {}


def on_demand(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package. `names` maps each name to its module; a module maps to itself.

    >>> find = on_demand("cabai.support", {"whole": "cabai.support.validation"})
    >>> find("whole")(3, "three", least=1)
    3
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(names[name])
        found = module if names[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return find


def through(door: str) -> Any:
    module, _, name = DOORS[door].partition(":")
    return getattr(importlib.import_module(module), name)
