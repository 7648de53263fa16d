"""Which ranks are certain, given which arms are shown to be better than which."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def closed(better: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The transitive closure: c is better than a if c is better than b, and b than a.

    >>> closed(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], bool)).astype(int).tolist()
    [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    """
    found = better.copy()
    for b in range(len(found)):
        found |= np.outer(found[:, b], found[b])
    return found


def ranks(better: NDArray[np.bool_]) -> list[list[int]]:
    """The best and the worst rank that each arm can have: 1 is the best mean. `better` is closed.

    >>> ranks(closed(np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]], bool)))
    [[1, 2], [2, 3], [1, 3]]
    """
    arms = len(better)
    return [[1 + int(better[:, a].sum()), arms - int(better[a].sum())] for a in range(arms)]
