"""The least that bets can be worth if only the sums of rewards and of their squares are known.

g(y) = log(1 + c y) has g(0) = 0 and a positive third derivative. Among all rewards in [0, 1] whose first and second
powers have the sums S1 and S2, the sum of g is smallest if every reward is 0 or x = S2/S1, with S1/x of them equal to
x. (Let q be the parabola with q(0) = 0 that touches g in x. Then g - q = g'''(z) y (y - x)²/6 >= 0, and S1 and S2
determine the sum of q.) So the sum of g is at least S1 g(x)/x. This falls as x grows, and rises with S1 for a given
S2. To allow for rounding, S1 is taken too small and S2 too large.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.families import Family
from cabai.support.validation import InvalidInput

UNIT = 1.2e-16  # relative error of one rounding, and a little more


def shares(
    family: Family, pulls: NDArray[np.int64], rewards: NDArray[np.float64], squares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The sums of y and y², where y is a reward scaled to [0, 1], and the possible rounding error.

    y = (reward - low)/width, so y² has the sum (S2 - 2 low S1 + N low²)/width².
    """
    low, width = family.unscaled(0.0), family.unit
    sums = (rewards - low * pulls) / width
    second = (squares - 2.0 * low * rewards + low * low * pulls) / width**2
    largest = squares + 2.0 * np.abs(low * rewards) + low * low * pulls
    rounding = UNIT * (pulls + 8) * (largest / width**2 + (np.abs(rewards) + abs(low) * pulls) / width + pulls)
    for a, (n, first, own, off) in enumerate(zip(pulls, sums, second, rounding, strict=True)):
        if not first * first / n - 4.0 * off <= own <= first + 4.0 * off:
            raise InvalidInput(
                f"squares[{a}] = {squares[a]:g} cannot be the sum of the squares of {n} rewards whose sum is "
                f"{rewards[a]:g}."
            )
    return sums, second + rounding, rounding


def least_sums(stakes: NDArray[np.float64], first: Any, second: Any) -> NDArray[np.float64]:
    """A lower bound on the sum of log(1 + c y), for each stake c."""
    if not first > 0.0:
        return np.zeros(len(stakes))
    x = max(second / first, 1e-300)
    found: NDArray[np.float64] = first / x * np.log1p(stakes * x)
    return found
