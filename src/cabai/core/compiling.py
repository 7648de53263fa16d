"""Compile plain functions, which then run millions of times per second. Importing this imports Numba.

`compiled` compiles a function and every plain function it calls. It is the only place that sets Numba's options:

- no reference counts (`_nrt=False`): compiled code allocates nothing, and passing records and arrays is free;
- the GIL is released, so that threads run trajectories in parallel;
- division by zero gives inf or nan as in NumPy (kernels check their divisors);
- cabai's own code skips Numba's rewriting of array expressions, because it has none;
- cabai's own code is cached on disk, together with the helpers it calls, in a folder named after a hash of the whole
  package's source. Numba alone only notices a change in the file that defines a function, not in the files of its
  helpers; a folder per state of the source cannot become stale. Only this user can write to the folder, because code
  read from it is executed.
"""

from __future__ import annotations

import gc
import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from cabai.core.state import Layout
from cabai.support.specialise import copied, plain_functions_of


def usable(options: dict[str, Any]) -> dict[str, Any]:
    """Return these options, or none if this Numba does not support them. They affect speed, not results."""
    try:
        numba.njit(**options)(lambda: None)
    except Exception:
        return {}
    return options


def private_compiler() -> dict[str, Any]:
    """A compiler for helpers, whose code is optimised once, inside their callers.

    Numba would optimise it and generate machine code at every level of calls. Doing so once, for the caller with all
    helpers inlined, is enough and halves the time that LLVM takes.
    """
    try:
        from numba.core.codegen import JITCodeLibrary
        from numba.core.compiler import Compiler
    except (ImportError, AttributeError):
        return {}

    class HelperLibrary(JITCodeLibrary):
        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalized = True

        @property
        def codegen(self) -> Any:
            """Numba asks for it once, to call `set_env`; without machine code there is nothing to set."""
            return self

        def set_env(self, *environment: Any) -> None:
            pass

    class HelperCompiler(Compiler):
        def define_pipelines(self) -> Any:
            library: Any = HelperLibrary
            self.state.library = library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
            return super().define_pipelines()

    return usable({"pipeline_class": HelperCompiler})


# Private options that may be missing: compiled code without reference counts; helpers without wrappers, inlined into
# their callers and optimised only there.
UNCOUNTED = usable({"_nrt": False})
HELPER = usable({"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": True})
HELPER_COMPILER = private_compiler()


_settings_changed = threading.RLock()  # Numba's settings and the garbage collector are shared by the whole process


@cache
def compiled(function: Any, signature: Any = None) -> Any:
    """Compile a plain function, to be called from Python and, if it has a `signature`, by pointer."""
    folder = cache_directory() if all(map(is_ours, functions_in(function))) else ""
    return _compile(_with_compiled_helpers(function), signature, folder, {})


@cache
def _helper(function: Any) -> Any:
    """Compile a helper that only compiled code calls. It is inlined unless marked `apart`."""
    options = dict(HELPER)
    if HELPER:
        options["forceinline"] = not getattr(function, "apart", False)
    if is_ours(function):
        options |= HELPER_COMPILER
    return _compile(_with_compiled_helpers(function), None, "", options)


def returned_by(function: Any) -> list[Any]:
    """The types of what a helper returns, as far as it was compiled."""
    return [each.return_type for each in _helper(function).nopython_signatures]


@cache
def types_of(*kinds: np.dtype[np.void]) -> tuple[Any, Any, Any]:
    """Numba's types for an array of arms, a run and rules with these dtypes."""
    arm, run, rules = map(numba.from_dtype, kinds)
    return arm[::1], run, rules


@cache
def choosing(layout: Layout) -> Any:
    """The type of a `choose` function, as the loop shared by all policies calls it."""
    return types.int64(*types_of(*layout.shared))


@cache
def stopping(layout: Layout) -> Any:
    return types.boolean(*types_of(*layout.shared))


@cache
def seen_by_name(function: Any, layout: Layout) -> Any:
    """Wrap a function that uses a policy's fields by name, for callers that do not know their names."""
    kinds = {"ARM_KIND": layout.arm, "RUN_KIND": layout.run, "RULES_KIND": layout.rules}
    copy = copied(_by_name, {"target": function, **kinds})
    copy.__qualname__ += "_" + hashlib.sha256(repr(kinds).encode()).hexdigest()[:12]
    return copy


def target(arms, run, rules, *more):
    """Stands for the function in `_by_name` and the like."""


@cache
def on_arrays(function: Any) -> Any:
    """Wrap a function of arms, a run and rules, for callers that have the run and the rules as arrays of one."""
    return copied({3: _on_arrays, 5: _with_two, 6: _with_three}[function.__code__.co_argcount], {"target": function})


def _on_arrays(arms, run, rules):
    return target(arms, run[0], rules[0])


def _with_two(arms, run, rules, b, a):
    return target(arms, run[0], rules[0], b, a)


def _with_three(arms, run, rules, a, reward, cost):
    return target(arms, run[0], rules[0], a, reward, cost)


ARM_KIND = RUN_KIND = RULES_KIND = np.dtype([("stands_for_the_layout", "f8")])


def _by_name(arms, run, rules):
    return target(as_kind(arms, ARM_KIND), as_kind(run, RUN_KIND), as_kind(rules, RULES_KIND))


@intrinsic
def as_kind(context, value, kind):
    """The same record, or array of records, with other field names. Their memory layout is the same."""
    target = value.copy(dtype=kind.dtype) if isinstance(value, types.Array) else kind.dtype

    def generate(context, builder, signature, arguments):
        if context.enable_nrt:  # this creates one more reference
            context.nrt.incref(builder, target, arguments[0])
        return arguments[0]

    return target(value, kind), generate


def _compile(function: Any, signature: Any, folder: str, more: dict[str, Any]) -> Any:
    """Compile for a signature, or on the first call; cache the result if a folder is given."""
    settings: Any = numba.config
    with _settings_changed:
        before = settings.CACHE_DIR
        settings.CACHE_DIR = folder
        collecting = gc.isenabled()
        gc.disable()  # compiling creates little garbage, and looking for it would take a tenth of the time
        try:
            options: Any = {"cache": bool(folder), "nogil": True, "error_model": "numpy", **UNCOUNTED}
            options |= {"no_rewrites": is_ours(function), **more}
            return numba.njit(signature, **options)(function)
        finally:
            settings.CACHE_DIR = before
            if collecting:
                gc.enable()


def is_ours(function: Any) -> bool:
    """Whether a function is part of this package, not of a user's program."""
    return Path(function.__code__.co_filename).is_relative_to(Path(__file__).parent.parent)


def functions_in(function: Any) -> Iterator[Any]:
    yield function
    for helper in plain_functions_of(function).values():
        yield from functions_in(helper)


def _with_compiled_helpers(function: Any) -> Any:
    """A copy of a function that calls the compiled forms of the plain functions it names."""
    copy = copied(function, {name: _helper(value) for name, value in plain_functions_of(function).items()})
    # Numba looks up a function passed to another by its name, and makes names unique only within a process. Two
    # versions cached by two processes must not share a name.
    parts = " ".join(f"{each.__module__}.{each.__qualname__}" for each in functions_in(function))
    copy.__qualname__ += "_" + hashlib.sha256(parts.encode()).hexdigest()[:12]
    return copy


@cache
def cache_directory() -> str:
    """The folder for compiled code of this version of the source, created if needed; empty if there is no safe place.

    Code read from it runs as this user, so nobody else may be able to write to it.
    """
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for source in sorted(package.rglob("*.py")):
        digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    for home in cache_homes():
        folder = os.path.realpath(home / digest.hexdigest()[:16])
        if is_private(folder) and os.access(folder, os.W_OK):
            return folder
    return ""


def cache_homes() -> list[Path]:
    """Folders in which compiled code may be kept, best first."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return [Path(chosen)]
    homes = [Path(tempfile.gettempdir()) / f"cabai-{os.geteuid() if hasattr(os, 'geteuid') else 'user'}"]
    usual = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # no home folder, for example for a user unknown to the system
        homes.insert(0, Path(usual or Path.home() / ".cache") / "cabai")
    return homes


def is_private(folder: str) -> bool:
    """Whether other users can neither access nor replace a folder, which is created if needed.

    Each parent folder must belong to us or to root, and others must not be able to write to it, unless it is sticky
    like /tmp: there they cannot touch our files.
    """
    path = Path(folder)
    try:
        if not hasattr(os, "geteuid"):  # Windows: a user's folders are private
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
