"""Import the modules of a package on first use, so that programs start faster."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


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
