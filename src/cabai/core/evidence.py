"""The evidence of a pair of arms:

    Z_{a,b} = N_a d(mean_a, m) + N_b d(mean_b, m),   m the pooled mean of the two arms.

It counts for a over b only if mean_a > mean_b. N and mean include only the pulls that the threshold counts.
"""

from __future__ import annotations

import numpy as np

from cabai.families.slots import divergence, variance_at
from cabai.support.specialise import slot

ROUNDING = 1.0 + 1e-9  # allowance for the rounding of the number that is bounded
TWO_THIRDS = 2.0 / 3.0


@slot
def pair_evidence(rules, n_a, mean_a, n_b, mean_b):
    """Z of two samples, from their sizes and means, without a sign."""
    gap = mean_a - mean_b
    n = n_a + n_b
    to_a, to_b = gap * (n_b / n), -gap * (n_a / n)  # mean_a - m and mean_b - m
    m = (n_a * mean_a + n_b * mean_b) / n
    complement = (n_a * (1.0 - mean_a) + n_b * (1.0 - mean_b)) / n
    return n_a * divergence(rules, mean_a, to_a, m, complement) + n_b * divergence(rules, mean_b, to_b, m, complement)


def evidence(rules, a, b):
    """Z_{a,b}: how strongly the data prefer arm record a to arm record b; 0 if they do not."""
    if not a.tested_mean > b.tested_mean:
        return 0.0
    return pair_evidence(rules, a.tested, a.tested_mean, b.tested, b.tested_mean)


@slot
def evidence_at_most(rules, b, a):
    """An upper bound on Z_{b,a} without logarithms; tight if the means are close.

    d(p, q) is the integral of |x - p|/V(x) between p and q. In every family here 1/V is convex, so it lies below the
    line between its values at p and q, and d(p, q) <= (p - q)² (1/(6 V(p)) + 1/(3 V(q))). A family whose 1/V is not
    convex must replace this function; it may return infinity.
    """
    gap = b.tested_mean - a.tested_mean
    if not gap > 0.0:
        return 0.0
    n_b, n_a = b.tested, a.tested
    per_pull = gap / (n_b + n_a)
    to_b, to_a = per_pull * n_a, per_pull * n_b  # mean - m, without signs
    m = b.tested_mean - to_b
    V_b = variance_at(rules, b.tested_mean, 1.0 - b.tested_mean)
    V_a = variance_at(rules, a.tested_mean, 1.0 - a.tested_mean)
    V_m = variance_at(rules, m, (1.0 - b.tested_mean) + to_b)  # 1 - m would lose digits near 1
    if not (V_b > 0.0 and V_a > 0.0 and V_m > 0.0):
        return np.inf
    part_b, part_a = n_b * to_b * to_b, n_a * to_a * to_a
    return (ROUNDING / 6.0) * ((part_b + part_a) * 2.0 / V_m + (part_b / V_b + part_a / V_a))


@slot
def evidence_at_least(rules, b, a):
    """A lower bound on Z_{b,a} without logarithms; usually tight.

    1/V is convex in every family here, so by Jensen's inequality d(p, q) >= (p - q)²/(2 V(x)) with x two thirds of
    the way from p to q.
    """
    gap = b.tested_mean - a.tested_mean
    if not gap > 0.0:
        return 0.0
    n_b, n_a = b.tested, a.tested
    per_pull = gap / (n_b + n_a)
    to_b, to_a = per_pull * n_a, per_pull * n_b  # mean - m, without signs
    far_b, far_a = TWO_THIRDS * to_b, TWO_THIRDS * to_a
    V_b = variance_at(rules, b.tested_mean - far_b, (1.0 - b.tested_mean) + far_b)
    V_a = variance_at(rules, a.tested_mean + far_a, (1.0 - a.tested_mean) - far_a)
    return (0.5 / ROUNDING) * (n_b * to_b * to_b / V_b + n_a * to_a * to_a / V_a)
