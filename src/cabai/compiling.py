"""Plain functions, compiled: what runs millions of times a second. Importing this imports Numba.

`compiled` compiles a function and every plain function it calls, and is the one place that knows Numba's options:

- no reference counts (`_nrt=False`): compiled code allocates nothing, and hands records and arrays on for free;
- the GIL is released, so that threads run trajectories side by side;
- division by zero gives inf or nan as in NumPy (the kernels test for what they divide by);
- what is cabai's own is spared Numba's rewriting of array expressions, having none;
- what is cabai's own is cached on disk, together with the helpers it calls, in a folder named after the source of the
  whole package. Numba itself only notices a change in the file that defines a function, not in the files of its
  helpers; a folder of its own for each state of the source cannot go stale. Nobody else can write to that folder:
  what is read from it runs.
"""

from __future__ import annotations

import difflib
import dis
import gc
import hashlib
import linecache
import os
import re
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from cabai.checks import InvalidInput
from cabai.state import ARM, RULES, RUN

Arms = numba.from_dtype(ARM)[::1]
Run = numba.from_dtype(RUN)
Rules = numba.from_dtype(RULES)
CHOOSE = types.int64(Arms, Run, Rules)
STOP = types.boolean(Arms, Run, Rules)


@cache
def compiled(function: Any, signature: Any = None, features: frozenset[str] | None = None) -> Any:
    """The compiled form of a plain function: callable from Python, and by pointer if it has a `signature`.

    `features`, as `features_of` gives them, are what is needed; what is only for others is left out. None leaves
    nothing out.
    """
    folder = cache_directory("-".join(sorted(features or ["all"]))) if is_ours(function) else ""
    return _compile(_with_compiled_helpers(function, features), signature, folder, {})


def compiled_rule(policy: str, function: Any, signature: Any, features: frozenset[str]) -> Any:
    """A policy's `choose` or `stop`, compiled. If it is a user's own and cannot be, say which line is to blame."""
    try:
        return compiled(function, signature, features)
    except Exception as error:
        if is_ours(function):
            raise
        raise InvalidInput(f"policy {policy} cannot be compiled: {blame(function, error)}") from error


def blame(function: FunctionType, error: Exception) -> str:
    """The line of a user's function that cannot be compiled, and why, from what Numba raised."""
    told = str(error)
    field = str(error.args[0]) if isinstance(error, KeyError) else ""  # Numba raises it where a record lacks a field
    undefined = re.search(r"name '(\w+)' is not defined", told)
    places = [(file, int(line)) for file, line in re.findall(r"(?:\bat|from) (\S+) \((\d+)\)", told)]
    places = [place for place in places if not Path(place[0]).is_relative_to(Path(numba.__file__).parent)]
    places.append((function.__code__.co_filename, function.__code__.co_firstlineno))
    name = undefined[1] if undefined else field
    file, line = (place_of(function, name) if name else None) or places[0]
    if field:
        known = [name for record in (ARM, RUN, RULES) for name in record.names or ()]
        close = difflib.get_close_matches(field, known, n=1)
        guess = f"; did you mean {close[0]}?" if close else ";"
        why = f"there is no field {field!r}{guess} `cabai.state` lists those of arms, run and rules."
    elif "NRT required" in told:
        why = "it makes a list, an array or another object; a policy may use numbers, tuples and loops only."
    else:
        reasons = (each.strip() for each in told.splitlines() if not each.startswith("Failed in nopython"))
        why = re.sub(r"( found for signature:|\.* Raised from .*|\.)$", "", next(filter(None, reasons))) + "."
    return f"{file}, line {line}, `{linecache.getline(file, line).strip()}`: {why}"


def place_of(function: FunctionType, name: str) -> tuple[str, int] | None:
    """The file and line where a function, or one that it calls, first uses a name."""
    for each in dis.get_instructions(function):
        if each.argval == name and each.positions is not None and each.positions.lineno is not None:
            return function.__code__.co_filename, each.positions.lineno
    named = [function.__globals__.get(each) for each in function.__code__.co_names]
    own: list[Any] = [each for each in named if _is_plain(each) and each is not function]
    inside = (place_of(each, name) for each in own if not is_ours(each))
    return next(filter(None, inside), None)


@cache
def _helper(function: Any, features: frozenset[str] | None) -> Any:
    """Compiled, but callable from compiled code only, and put in place of the call unless marked `apart`."""
    if features is not None and not getattr(function, "only_for", features) & features:
        function = never_called
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    options["forceinline"] = not getattr(function, "apart", False)
    if is_ours(function):
        options["pipeline_class"] = HelperCompiler
    return _compile(_with_compiled_helpers(function, features), None, "", options)


class HelperLibrary(JITCodeLibrary):
    """The code of a helper, for its callers to take in.

    Numba would optimise it and turn it into machine code at every level of calls. It is enough to do so once, for the
    whole, where the helpers have been put in place of their calls: this halves the time that LLVM takes.
    """

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """Asked for once, to tell the machine code where Python's objects are; there is none, and it needs none."""
        return self

    def set_env(self, *environment: Any) -> None:
        pass


class HelperCompiler(Compiler):
    """Numba's compiler, with a library of the kind above for what it makes."""

    def define_pipelines(self) -> Any:
        library: Any = HelperLibrary
        self.state.library = library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()  # type: ignore[no-untyped-call]


def never_called(*arguments):  # type: ignore[no-untyped-def]
    """Stands for a function that is only for another family."""
    return 0.0


def features_of(rules: np.void, *others: str) -> frozenset[str]:
    """What decides what is compiled: the family and threshold that rules speak of, and others."""
    family = ("gaussian", "bernoulli", "poisson", "exponential")[rules["family"]]
    used = (name for name in ("evalue", "epsilon") if rules[name])
    return frozenset((family, *used, *others))


def _compile(function: FunctionType, signature: Any, folder: str, more: dict[str, Any]) -> Any:
    """Compile for a signature, or when called; cached in a folder if one is given."""
    settings: Any = numba.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = folder
    collecting = gc.isenabled()
    gc.disable()  # compiling makes many objects and little garbage: a tenth of its time would go to looking for it
    try:
        options: Any = {"cache": bool(folder), "nogil": True, "error_model": "numpy", "_nrt": False}
        options |= {"no_rewrites": is_ours(function), **more}
        return numba.njit(signature, **options)(function)
    finally:
        settings.CACHE_DIR = before
        if collecting:
            gc.enable()


def is_ours(function: FunctionType) -> bool:
    """Whether a function is part of this package, not of a user's program."""
    return Path(function.__code__.co_filename).is_relative_to(Path(__file__).parent)


def _with_compiled_helpers(function: FunctionType, features: frozenset[str] | None) -> FunctionType:
    """A copy of a function that calls the compiled forms of the plain functions it names."""
    names = {name: value for name, value in function.__globals__.items() if name in function.__code__.co_names}
    helpers = {name: _helper(value, features) for name, value in names.items() if _is_plain(value)}
    scope = function.__globals__ | helpers
    cells = tuple(
        CellType(_helper(cell.cell_contents, features)) if _is_plain(cell.cell_contents) else cell
        for cell in function.__closure__ or ()
    )
    copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells or None)
    # Numba finds a function that is handed to another by its name, and numbers of its own that make names unique within
    # a process do not between processes: two forms that were cached by two processes must not share a name.
    copy.__module__, copy.__qualname__ = function.__module__, "_".join([function.__qualname__, *sorted(features or ())])
    return copy


def _is_plain(value: Any) -> bool:
    """A function written in Python that Numba does not know already."""
    return isinstance(value, FunctionType) and value.__module__.partition(".")[0] not in ("numpy", "numba", "math")


@cache
def cache_directory(features: str) -> str:
    """Where this version of the source keeps its compiled code, made if need be; empty if there is no safe place.

    What is read from there runs as this user: so it is a folder that nobody else could have written to.
    """
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for source in sorted(package.rglob("*.py")):
        digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    for home in cache_homes():
        folder = os.path.realpath(home / digest.hexdigest()[:16] / features)
        if is_private(folder) and os.access(folder, os.W_OK):
            return folder
    return ""


def cache_homes() -> list[Path]:
    """Where compiled code may be kept, the best first."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return [Path(chosen)]
    homes = [Path(tempfile.gettempdir()) / f"cabai-{os.geteuid() if hasattr(os, 'geteuid') else 'user'}"]
    usual = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # there is no home folder, as for a user whom the system does not know
        homes.insert(0, Path(usual or Path.home() / ".cache") / "cabai")
    return homes


def is_private(folder: str) -> bool:
    """Whether a folder, made if need be, is closed to other users, and none of them could put another in its place.

    Each folder above it belongs to us or to root, and others cannot write to it; to a sticky one, such as /tmp, they
    can, but cannot touch what is ours.
    """
    path = Path(folder)
    try:
        if not hasattr(os, "geteuid"):  # Windows: folders of a user are the user's own
            path.mkdir(parents=True, exist_ok=True)
            return True
        for place in [*reversed(path.parents), path]:
            if not place.exists():
                place.mkdir(mode=0o700)
            found = place.lstat()
            others_write = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
            if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()) or others_write:
                return False
    except (OSError, ValueError):
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077
