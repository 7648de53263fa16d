"""The order in which the items of a dataset are evaluated: uniformly random, and the same for all arms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cabai.support.streams import GOLDEN, mix


def permutation(items: int, seed: int, repeat: int = 0) -> NDArray[np.int64]:
    """A random order of so many items for a seed: the same on every machine and in every version, since a stored study
    must find its order again. Each `repeat` has another one.

    Items are sorted by random numbers of 64 bits, no two of which are equal.

    >>> permutation(5, seed=1).tolist()
    [4, 1, 0, 2, 3]
    """
    with np.errstate(over="ignore"):
        start = mix(mix(np.uint64(seed) + GOLDEN) + np.uint64(repeat) * GOLDEN)
        keys = mix(start + np.arange(1, items + 1, dtype=np.uint64) * GOLDEN)
    order: NDArray[np.int64] = np.argsort(keys, kind="stable")
    return order
