"""A task in a worker process: unpack the work once, compile it once, and run chunks of it."""

from __future__ import annotations

import io
import pickle
import signal
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.errors import EngineFailed
from cabai.simulation.work import Part, Work
from cabai.support.version import __version__

_one_at_a_time = threading.Lock()  # so that threads of one worker do not compile the same code


def ignore_interrupts() -> None:
    """A terminal sends Ctrl-C to every process that was started from it: the first of them stops the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run(packed: bytes, first: int, count: int, watch: Any = None) -> Part:
    """A chunk of the work that `packing.packed` has packed.

    `watch(signals)`, if given, is a context that may tell the chunk to stop before its end.
    """
    signals: NDArray[np.int64] = np.zeros(2, np.int64)
    with _one_at_a_time:
        work = unpacked(packed)
        work.compiled()
    watching: AbstractContextManager[Any] = nullcontext() if watch is None else watch(signals)
    with watching:
        return work.run(first, count, signals)


@lru_cache(maxsize=32)
def unpacked(packed: bytes) -> Work:
    version, content = pickle.loads(packed)
    if version != __version__:
        raise EngineFailed(
            f"a worker has cabai {__version__}, and you have {version}: install the same version everywhere."
        )
    return Unpickler(io.BytesIO(content)).load()  # type: ignore[no-any-return]


class Unpickler(pickle.Unpickler):
    def persistent_load(self, packed: bytes) -> Any:
        return own(packed)


@lru_cache(maxsize=256)
def own(packed: bytes) -> Any:
    """A family, threshold or policy of a user's own: the same object each time, so that it is compiled once."""
    kind, parameters = pickle.loads(packed)
    return kind(**parameters)
