"""Names of a package whose modules are loaded when first asked for: whoever needs few of them starts sooner."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def on_demand(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: from each name, the module that has it; a module has itself.

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
