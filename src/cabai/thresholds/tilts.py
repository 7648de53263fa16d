"""The tilts of `contrast` and their weights.

    l_0 > l_1 > ...  with l_i = 4 sqrt(2) 1.7^-i,
    W_ij = q_i q_j (g_0 + ... + g_min(i,j)),    q_i = l_i^0.5,   sum of all W_ij = 1.

The g are chosen so that W_ij is about (smaller/larger)^0.5 / (1 + (log(larger/usual)/width)²): a heavy-tailed prior on
the scale, around the family's `usual_tilts`, and a prior on the ratio that allows for every ratio of pulls. A sum over
all pairs of tilts is then a sum over one index, of products of running sums (see `contrast.log_e`).

Weights may depend on m, the mean that is tested. If a family's variance grows with m and the usual tilt falls, as for
poisson, the means are divided into ranges, each with its own g.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cabai.families import Family

COUNT, LARGEST, RATIO = 48, 4 * 2**0.5, 1.7  # the smallest is 8e-11
POWER = 0.5
RANGES = 16  # largest number of ranges of means
# columns of the table of tilts: the tilt, its q, and `Family.tilt` of the upward and of the downward tilt
TILT, SHARE, RATE_UP, PRICE_UP, RATE_DOWN, PRICE_DOWN = range(6)
# columns of each table of gains: g, and g_0 + ... + g_i
GAIN, GAINED = range(2)
# columns of the table of ranges: both ends, the usual tilt, and the log of the smallest ratio of the W_ij of another
# range to its own
LOW, HIGH, USUAL, LOG_LEAST = range(4)
SCALES, LARGEST_SCALE = 24, 8.0  # of `hedged`; the smallest is 4e-5
RATE, PRICE, WEIGHT = range(3)  # columns of the table of scales


@lru_cache(maxsize=64)
def table(family: Family) -> NDArray[np.float64]:
    """One row per tilt, largest first."""
    tilts = grid()
    up, down = (np.array([family.tilt(sign * tilt) for tilt in tilts]) for sign in (1.0, -1.0))
    return np.column_stack([tilts, tilts**POWER, up, down])


@lru_cache(maxsize=64)
def ranges(family: Family) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One row per range of means, in increasing order, and the gains of each; unused rows are 0."""
    rows, gains = np.zeros((RANGES, 4)), np.zeros((RANGES, COUNT, 2))
    found = family.tilt_ranges
    for k, (low, high, usual) in enumerate(found):
        rows[k, : USUAL + 1] = low, high, usual
        own = weights(grid(), usual, family.usual_tilts[1])[1]
        gains[k] = np.column_stack([own, np.cumsum(own)])
    gained = gains[: len(found), :, GAINED]
    for k, own in enumerate(gained):
        rows[k, LOG_LEAST] = np.log((gained / own).min()) - 1e-12
    return rows, gains


def grid(largest: float = LARGEST, count: int = COUNT) -> NDArray[np.float64]:
    """This many tilts, each RATIO times smaller than the one before."""
    return largest * RATIO ** -np.arange(count, dtype=np.float64)


def weights(tilts: NDArray[np.float64], usual: float, width: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The q and g of these tilts, largest first."""
    shares = tilts**POWER
    gains = np.diff(prior(tilts, usual, width) / shares**2, prepend=0.0).clip(0)
    gains /= gains @ np.cumsum(shares[::-1])[::-1] ** 2  # the sum of all W_ij
    return shares, gains


def prior(tilts: NDArray[np.float64], usual: float, width: float) -> NDArray[np.float64]:
    return 1 / (1 + (np.log(tilts / usual) / width) ** 2)


def scales(family: Family, share: float) -> NDArray[np.float64]:
    """One row per scale of `hedged`, with weights of this sum. A scale is a sum of two tilts: usually twice as big."""
    found = grid(LARGEST_SCALE, SCALES)
    weights = prior(found, 2 * family.usual_tilts[0], family.usual_tilts[1])
    return np.column_stack([[family.tilt(scale) for scale in found], share * weights / weights.sum()])
