"""What a race will cost, before it is run: a formula, not a promise (docs/theory/race.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.race import CHAMPION, race_of
from cabai.support.validation import InvalidInput


def planned_items(items: int, gap: float, variance: float, level: float, epsilon: float = 0.0) -> float:
    """How many items are needed to tell apart two arms whose mean scores differ by `gap`, with that variance from item
    to item.

    N/n = t/(1 + t) with t = 2 variance (level + 1)/(n (gap + epsilon)^2): drawn without replacement, items tell more
    and more about those that are left.

    >>> round(planned_items(1000, gap=0.1, variance=0.3, level=3.0))
    194
    """
    distance = gap + epsilon
    if distance <= 0:
        return float(items)
    t = 2 * variance * (level + 1) / (items * distance**2)
    return items * t / (1 + t)


def planned_share(
    items: int, gaps: Sequence[float], variances: Sequence[float], *, delta: float, epsilon: float = 0.0,
    costs: Sequence[float] | None = None, race: str | None = None,
) -> float:  # fmt: skip
    """The share of a full evaluation's cost that a race will pay.

    A champion race pays for half of log(K - 1), to find the rival to bet on; a paired race pays for all of it. `gaps`
    says how far the mean of each other arm is behind the best, `variances` how much its difference to the best varies
    from item to item; `costs` are prices of one evaluation, the best arm's first.

    >>> planned_share(1000, gaps=[0.1, 0.2], variances=[0.3, 0.3], delta=0.05, race="paired")
    0.168...
    """
    rivals = len(gaps)
    prices = [1.0] * (rivals + 1) if costs is None else list(costs)
    if rivals == 0 or len(variances) != rivals or len(prices) != rivals + 1:
        raise InvalidInput(
            f"a plan needs a gap and a variance for each arm but the best, and a cost for each, got {rivals} gaps, "
            f"{len(variances)} variances and {len(prices)} costs."
        )
    level = math.log((math.sqrt(rivals) if race_of(race, epsilon) == CHAMPION else rivals) / delta)
    needed = [planned_items(items, gap, var, level, epsilon) for gap, var in zip(gaps, variances, strict=True)]
    paid = prices[0] * max(needed) + sum(price * count for price, count in zip(prices[1:], needed, strict=True))
    return paid / (items * sum(prices))


def differences(scores: NDArray[np.float64]) -> tuple[int, list[float], list[float]]:
    """The best arm of a table of scores, and the gaps and variances of the others, in order: for `planned_share`."""
    best = int(scores.mean(axis=1).argmax())
    behind = scores[best] - np.delete(scores, best, axis=0)
    return best, behind.mean(axis=1).tolist(), behind.var(axis=1).tolist()
