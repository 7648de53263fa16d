"""Users' own families, thresholds and policies, written `module:name` so that other processes can find them."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cabai.support.validation import InvalidInput

PACKAGE = Path(__file__).parent.parent


def address_of(kind: type) -> str:
    """Where a class, or an object made from a function, can be imported from: `module:name`."""
    module, name = kind.__module__, kind.__qualname__
    if module == "__main__":
        module = _main_module()
    if not module or "<" in name:
        raise InvalidInput(
            f"{name} can only be used in this process: what is stored, or sent to other processes, must be defined at "
            "the top level of a Python file, so that it can be imported."
        )
    return f"{module}:{name}"


def load(address: str, what: str) -> Any:
    """Import `module:name`. Also looks in the current folder."""
    module_name, _, name = address.partition(":")
    here = os.getcwd()
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.append(here)
    try:
        is_main = module_name == _main_module()
        found: Any = sys.modules["__main__"] if is_main else importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise InvalidInput(f"cannot import {what} {address!r}: {type(error).__name__}: {error}.") from error
    finally:
        if added and here in sys.path:
            sys.path.remove(here)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InvalidInput(f"{what} {address!r}: the module {module_name} has no {name!r}.")
    return found


def source_digest(value: Any) -> str:
    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


@contextmanager
def errors_by_line() -> Iterator[None]:
    """Report errors in a user's own code with the line where they happened; leave other errors alone."""
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if not is_library(each.filename)]
        if not frames:
            raise
        where = f"{frames[-1].filename}, line {frames[-1].lineno}, `{frames[-1].line}`"
        raise InvalidInput(f"{where}: {type(error).__name__}: {error}") from error


def is_library(file: str) -> bool:
    """Whether a file belongs to cabai, an installed package or Python itself."""
    return file.startswith("<") or Path(file).is_relative_to(PACKAGE) or "site-packages" in file


def _main_module() -> str:
    """The name under which others can import the running program; empty if they cannot."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return Path(file).stem if file else ""
