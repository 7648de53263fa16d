"""The smallest epsilon, gap or delta with which a budget is enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from cabai.planning.bills import Amount, Bills

CLOSE = 1.07  # a search ends when this factor separates what is enough from what is not
STEPS = 10  # at most
FARTHEST = 8.0  # the largest factor from one try to the next


class Found(NamedTuple):
    """A value with which a budget is enough, and the chance of a decision. Without a value, `tried` is not enough."""

    value: float | None
    chance: Amount
    tried: float


def smallest(
    bills: Callable[[float], Bills],
    start: float,
    *,
    budget: float,
    chance: float,
    least: float,
    most: float,
    guess: Callable[[float, float], float],
) -> Found:
    """The smallest x in [least, most], to about 7 %, at which studies decide within a budget with a chance.

    The larger x, the easier they decide. `bills(x)` is what they pay, on the same truths for each x, and `guess(x,
    ratio)` where the bill is `ratio` times smaller than at x. Each x tried is rounded to three digits, so that what is
    reported is what was simulated.
    """
    low, high, x = 0.0, math.inf, rounded(min(max(start, least), most), most)
    found = Found(None, Amount(0.0), x)
    for _ in range(STEPS):
        paid = bills(x)
        at_x = paid.chance(budget)
        if at_x.value >= chance:
            high, found = x, Found(x, at_x, x)
        else:
            low = x
            if found.value is None:
                found = Found(None, at_x, x)
        if (low == x and x >= most) or (high == x and x <= least) or high <= low * CLOSE * 1.01:
            break
        needed = paid.needed(chance)
        ratio = math.inf if needed is None else needed.value / budget
        if needed is not None and needed.at_least:  # it is not known by how much more
            ratio = max(ratio, 2.0)
        next_x = guess(x, min(max(ratio, 1e-6), 1e6))
        if high == x:  # it was enough: try less, by 7 % at least
            next_x = min(max(next_x, x / FARTHEST), x / CLOSE)
        else:
            next_x = max(min(next_x, x * FARTHEST), x * CLOSE)
        if not low < next_x < high:  # what is already known says otherwise
            next_x = math.sqrt(low * high)
        x = rounded(min(max(next_x, least), most), most)
        if x in (low, high):
            break
    return found


def rounded(x: float, most: float) -> float:
    """Three digits; not above `most`."""
    near = float(f"{x:.3g}")
    return near if near <= most else x
