"""Whether rewards are more spread than the variance that was declared for them allows."""

from __future__ import annotations

import math

CHANCE = 1e-6  # that there is ever a warning about rewards of the declared variance, for each arm


def is_too_wide(variance: float, n: int, squares: float) -> bool:
    """Whether the squares of n rewards about their mean have a sum too large for gaussian rewards of that variance.

    It is variance times a chi-squared number with n - 1 degrees of freedom, which is n - 1 times x or more with
    probability at most (x e^(1 - x))^((n - 1)/2) (Chernoff). That must be below CHANCE / (n (n - 1)), whose sum over
    all n is CHANCE: so it may be checked after every reward.

    >>> is_too_wide(1.0, 11, 12.0), is_too_wide(1.0, 11, 70.0)
    (False, True)
    """
    if n < 2 or not squares > (n - 1) * variance:
        return False
    x = squares / ((n - 1) * variance)
    return 0.5 * (n - 1) * (x - 1.0 - math.log(x)) > math.log(n * (n - 1) / CHANCE)
