"""The mixture-martingale threshold of Kaufmann and Koolen (2021), and the numbers in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from cabai.families import Family, Gaussian
from cabai.support.validation import true_or_false
from cabai.thresholds.base import ALL_FAMILIES, Threshold


@dataclass(frozen=True)
class Mixture(Threshold):
    """The mixture-martingale threshold of Kaufmann and Koolen (JMLR 22(246), 2021): proven for all families, and loose.

    With L = log((K - 1)/delta)/2 it requires 2 T(L) + 3 log(1 + log N_a) + 3 log(1 + log N_b), and for gaussian rewards
    2 C_G(L) + 2 log(4 + log N_a) + 2 log(4 + log N_b). `pairwise=False` is the weaker form that only depends on t.

    >>> from cabai import Statistics
    >>> data = Statistics("gaussian", pulls=[100, 100], rewards=[150, 50])
    >>> round(Mixture().required(data, 0, 1, delta=0.05), 2), Mixture().beats(data, 0, 1, delta=0.05)
    (14.7, True)
    """

    pairwise: bool = True
    name = "mixture"
    proof = "Kaufmann and Koolen (2021)"
    proven_for = ALL_FAMILIES

    def __post_init__(self) -> None:
        true_or_false(self.pairwise, "pairwise")

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        half = math.log((arms - 1) / delta) / 2
        if isinstance(family, Gaussian):
            level, weight, offset = 2 * gaussian_calibration(half), 2.0, 4.0
        else:
            level, weight, offset = 2 * calibration(half), 3.0, 1.0
        if self.pairwise:
            return {"level": level, "pair_loglog": weight, "pair_offset": offset}
        return {"level": level, "loglog": 2 * weight, "offset": offset - math.log(2)}


def h_inverse(x: float) -> float:
    """The u >= 1 with u - log u = x."""
    u = x + math.sqrt(2 * (x - 1)) if x > 1 else 1.0
    for _ in range(100):
        if u <= 1:
            return 1.0
        step = (u - math.log(u) - x) * u / (u - 1)
        u -= step
        if abs(step) <= 1e-15 * u:
            break
    return u


def calibration(x: float) -> float:
    """Kaufmann and Koolen's T(x) = 2 htilde((h^-1(1 + x) + log(2 zeta(2))) / 2)."""
    z = 1.5
    y = (h_inverse(1 + x) + math.log(math.pi**2 / 3)) / 2
    turn = 1 / math.log(z)
    if y >= turn - math.log(turn):
        u = h_inverse(y)
        return 2 * math.exp(1 / u) * u
    return 2 * z * (y - math.log(math.log(z)))


@lru_cache(maxsize=1024)
def gaussian_calibration(x: float) -> float:
    """Kaufmann and Koolen's C_G(x) = min over l in (1/2, 1] of (g(l) + x)/l."""

    def value(l: float) -> float:  # noqa: E741
        g = 2 * l - 2 * l * math.log(4 * l) + math.log(zeta(2 * l)) - math.log(1 - l) / 2
        return (g + x) / l

    return minimum(value, 0.5 + 1e-12, 1 - 1e-12)


def minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a unimodal function, by golden-section search."""
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(80):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(right)
    return min(at_left, at_right)


def zeta(s: float) -> float:
    """Riemann's zeta for s > 1, by Euler-Maclaurin summation."""
    n = 40
    head: float = sum(k**-s for k in range(1, n))
    last: float = n**-s
    third, fifth = s * (s + 1) * (s + 2), s * (s + 1) * (s + 2) * (s + 3) * (s + 4)
    tail = n / (s - 1) + 1 / 2 + s / (12 * n) - third / (720 * n**3) + fifth / (30240 * n**5)
    return head + last * tail
