"""log(B t^alpha / delta): the threshold used in the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cabai.families import Family
from cabai.support.validation import InvalidInput, number, positive
from cabai.thresholds.base import Threshold


@dataclass(frozen=True)
class Paper(Threshold):
    """log(B t^alpha / delta), the threshold used in the paper, by default with alpha = 1 and B = 2K.

    With alpha = 1, an error probability of at most delta is proven for bernoulli (Garivier and Kaufmann 2016, Theorem
    10, which needs B = 2(K - 1)) and for bounded, because `evalue` already stops at that level. For the other families
    nothing is proven. With alpha > 1 and the smallest valid B, which is then the default, it is proven for every
    exponential family (Magureanu, Combes and Proutiere 2014, Theorem 2, as used in the paper's Proposition 1); but that
    B is so large that the guarantee is expensive. The paper's own condition on B omits delta inside the squared
    logarithm; `smallest_log_B` includes it. alpha above e/2 invalidates the paper's theorem on cost, not the guarantee.

    >>> Paper().is_proven_for("bernoulli"), Paper().is_proven_for("gaussian")
    (True, False)
    >>> Paper(alpha=1.2).is_proven_for("gaussian")
    True
    """

    alpha: float = 1.0
    B: float | None = None
    name = "paper"
    proof = "Garivier and Kaufmann (2016), Theorem 10, for alpha = 1; with Magureanu et al. (2014) for alpha > 1"
    proven_for = ("bernoulli", "bounded")

    def __post_init__(self) -> None:
        if number(self.alpha, "alpha") < 1:
            raise InvalidInput(f"alpha must be at least 1, got {self.alpha!r}.")
        if self.B is not None:
            positive(self.B, "B")

    def is_proven_for(self, family: str | Family) -> bool:
        if self.B is not None:
            return False  # whether a given B is large enough depends on K and delta
        return self.alpha > 1 or super().is_proven_for(family)

    def log_B(self, arms: int, delta: float) -> float:
        if self.B is not None:
            return math.log(self.B)
        return math.log(2 * arms) if self.alpha == 1 else smallest_log_B(self.alpha, arms, delta)

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        return {"level": self.log_B(arms, delta) - math.log(delta), "slope": self.alpha}


def smallest_log_B(alpha: float, arms: int, delta: float) -> float:
    """The log of the smallest B with  sum_t e^(K+1)/K^K (log²(B t^alpha / delta) log t)^K / t^alpha <= B,  for alpha >
    1.

    That sum, times delta/B, bounds the probability of ever crossing log(B t^alpha / delta). Its terms rise until t is
    about e^(3K/(alpha-1)), so all but the first are summed as an integral over log t.
    """
    head = np.log(np.arange(2, 20_001))
    peak, width = 3 * arms / (alpha - 1), math.sqrt(3 * arms) / (alpha - 1)
    start = math.log(20_000.5)
    edges = np.linspace(start, max(start, peak) + 40 * width, 401)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    middle, half = (edges[1:] + edges[:-1])[:, None] / 2, (edges[1:] - edges[:-1])[:, None] / 2
    tail, log_weights = (middle + half * nodes).ravel(), np.log(half * weights).ravel()
    constant = arms + 1 - arms * math.log(arms)

    def log_sum(log_B: float) -> float:
        def terms(log_t: NDArray[np.float64]) -> NDArray[np.float64]:
            squared = 2 * np.log(np.abs(log_B - math.log(delta) + alpha * log_t))
            return constant + arms * (squared + np.log(log_t)) - alpha * log_t

        return float(np.logaddexp.reduce(np.concatenate([terms(head), terms(tail) + tail + log_weights])))

    # The sum grows more slowly than B, so iterating from below converges to the smallest solution.
    log_B = 0.0
    for _ in range(10_000):
        new = log_sum(log_B)
        if new - log_B <= 1e-13 * new:
            return new + 1e-12 * abs(new)
        log_B = new
    raise InvalidInput(f"cannot compute B for alpha={alpha!r}, {arms} arms; use a larger alpha.")
