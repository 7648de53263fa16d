"""The hot rooms' compiled half: what runs millions of times a second. Importing it imports Numba.

`kernel` is how every compiled function of cabai is made, and the one place that knows Numba's options:

- no reference counts (`_nrt=False`): kernels allocate nothing, and hand records and arrays on for free;
- the GIL is released, so that threads run trajectories side by side;
- division by zero gives inf or nan as in NumPy (kernels test for what they divide by);
- results are cached on disk, in a folder named after the source of the whole package. Numba itself only notices a
  change in the file that defines a function, not in the files of the helpers it inlines; a folder of its own for each
  state of the source cannot go stale.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

import numba
from numba import types

from cabai.state import ARM, RULES, RUN

Arms = numba.from_dtype(ARM)[::1]
Run = numba.from_dtype(RUN)
Rules = numba.from_dtype(RULES)
CHOOSE = types.int64(Arms, Run, Rules)
STOP = types.boolean(Arms, Run, Rules)


@cache
def cache_directory() -> str:
    """Where this version of the source keeps its compiled code; made if need be."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for source in sorted(package.rglob("*.py")):
        digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    homes = (
        [Path(chosen)]
        if chosen
        else [
            Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cabai",
            Path(tempfile.gettempdir()) / f"cabai-{os.getuid() if hasattr(os, 'getuid') else 'cache'}",
        ]
    )
    for home in homes:
        folder = home / digest.hexdigest()[:16]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return str(folder)
    return ""


def kernel(function=None, *, signature=None, python=False, cache=True):
    """Compile `function` for cabai.

    `@kernel` makes a helper that only compiled code can call; `@kernel(python=True)` one that Python can call too,
    which takes longer to compile; `@kernel(signature=CHOOSE)` one that can also be called by pointer, and that is
    compiled at once.
    """
    if function is None:
        return lambda wrapped: kernel(wrapped, signature=signature, python=python, cache=cache)
    folder, before = cache_directory(), numba.config.CACHE_DIR
    options = {"cache": cache and bool(folder), "nogil": True, "error_model": "numpy", "_nrt": False}
    if signature is None:
        options |= {"no_cpython_wrapper": not python, "no_cfunc_wrapper": True}
    numba.config.CACHE_DIR = folder
    try:
        return numba.njit(signature, **options)(function)
    finally:
        numba.config.CACHE_DIR = before
