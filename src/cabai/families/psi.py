"""The building block of the bernoulli and poisson divergences, accurate when p and q are close."""

from __future__ import annotations

import math

SMALL = 0.03  # below this, the power series is accurate to 1e-15 and faster than the logarithm
# fmt: off


def psi(u):
    """(1 + u) log(1 + u) - u, for u >= -1."""
    if abs(u) < SMALL:  # sum over k >= 2 of (-u)^k / (k (k - 1))
        return u * u * (1/2 - u * (1/6 - u * (1/12 - u * (1/20 - u * (1/30 - u * (1/42 - u * (1/56 - u * (1/72 - u * (1/90 - u * (1/110))))))))))  # noqa: E501
    if u <= -1.0:
        return 1.0
    return (1.0 + u) * math.log(1.0 + u) - u


def excess_of_exp(x):
    """e^x - 1 - x."""
    if abs(x) < SMALL:  # sum over k >= 2 of x^k / k!
        return x * x * (1/2 + x * (1/6 + x * (1/24 + x * (1/120 + x * (1/720 + x * (1/5040 + x * (1/40320)))))))
    return math.expm1(x) - x
