"""Exact statements about a rate of errors."""

from __future__ import annotations

import math

import numpy as np


def log_cdf(most: int, n: int, p: float) -> float:
    """The log of the probability of at most `most` successes in n trials of probability p."""
    i = np.arange(1, most + 1)
    steps = np.log((n - i + 1) / i) + math.log(p) - math.log1p(-p)
    log_pmf = n * math.log1p(-p) + np.concatenate([[0.0], np.cumsum(steps)])
    return float(np.logaddexp.reduce(log_pmf))


def most_errors(n: int, delta: float, alpha: float) -> int:
    """The largest number of errors in n trajectories that certifies a rate of at most delta; -1 if not even 0 does.

    >>> most_errors(4000, 0.05, 0.005)
    164
    """
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if log_cdf(middle, n, delta) <= math.log(alpha) else (low, middle)
    return low


def upper_limit(errors: int, n: int, alpha: float) -> float:
    """The largest rate at which so few errors have probability alpha (Clopper and Pearson 1934)."""
    if errors == n:
        return 1.0
    low, high = errors / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if log_cdf(errors, n, middle) <= math.log(alpha) else (middle, high)
    return high
