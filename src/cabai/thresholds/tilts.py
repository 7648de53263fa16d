"""The tilts of `contrast` and their weights.

    l_0 > l_1 > ...  with l_i = 4 sqrt(2) 1.7^-i,
    W_ij = q_i q_j (g_0 + ... + g_min(i,j)),    q_i = l_i^0.5,   sum of all W_ij = 1.

The g are such that W_ij is about (smaller/larger)^0.5 / (1 + (log(larger/usual)/width)²): a heavy-tailed prior of the
scale, around the family's `usual_tilts`, and one of the ratio that leaves room for every ratio of pulls. A sum over all
pairs of tilts is then a sum over one index, of products of running sums (see `contrast.log_e`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cabai.families import Family

COUNT, LARGEST, RATIO = 48, 4 * 2**0.5, 1.7  # the smallest is 8e-11
POWER = 0.5
# the columns of the table: a tilt, its q and g, g_0 + ... + g_i, and what the family needs of the tilt up and down
TILT, SHARE, GAIN, GAINED, RATE_UP, PRICE_UP, RATE_DOWN, PRICE_DOWN = range(8)


@lru_cache(maxsize=64)
def table(family: Family) -> NDArray[np.float64]:
    """A row per tilt, the largest first."""
    tilts = LARGEST * RATIO ** -np.arange(COUNT, dtype=np.float64)
    shares, gains = weights(tilts, *family.usual_tilts)
    up, down = (np.array([family.tilt(sign * tilt) for tilt in tilts]) for sign in (1.0, -1.0))
    return np.column_stack([tilts, shares, gains, np.cumsum(gains), up, down])


def weights(tilts: NDArray[np.float64], usual: float, width: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The q and g of some tilts, the largest first."""
    shares = tilts**POWER
    scales = 1 / (1 + (np.log(tilts / usual) / width) ** 2)
    gains = np.diff(scales / shares**2, prepend=0.0).clip(0)
    gains /= gains @ np.cumsum(shares[::-1])[::-1] ** 2  # the sum of all W_ij
    return shares, gains
