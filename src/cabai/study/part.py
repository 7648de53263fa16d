"""A subset of the arms, for kernels that must not see the others: those that were not dropped by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cabai.core.state import copy_of

T = TypeVar("T")
ARMS = ("last", "leader", "rival", "known_for")  # fields of the run that name an arm by its number, or none by -1
TOTALS = ("t", "counted", "spent")  # over all arms


def with_part(arms: NDArray[Any], run: Any, chosen: NDArray[np.int64], work: Callable[[NDArray[Any], Any], T]) -> T:
    """Call `work(arms, run)` with the chosen arms only, as if there were no others; its changes are kept."""
    named = [name for name in ARMS if name in (run.dtype.names or ())]
    place = {a: i for i, a in enumerate(chosen.tolist())}
    some, own = arms[chosen], copy_of(run)
    for name in named:
        own[name] = place.get(int(run[name]), -1)
    own["t"], own["counted"] = some["pulls"].sum(), some["costs"].sum()
    result = work(some, own)
    arms[chosen] = some
    for name in run.dtype.names or ():
        if name in named:
            run[name] = chosen[own[name]] if own[name] >= 0 else -1
        elif name not in TOTALS:
            run[name] = own[name]
    return result
