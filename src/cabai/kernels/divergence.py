"""The families' divergences d(p, q), variances and interval ends.

A divergence near p = q is a small difference of large terms in its textbook form. Callers know p - q exactly, from
the way q was pooled, so it is handed in; with u = (p - q)/q, each form below is a sum of terms that cannot cancel:

    poisson      d = q psi(u)                              psi(u) = (1 + u) log(1 + u) - u
    bernoulli    d = q psi(u) + (1-q) psi(-(p-q)/(1-q))
    exponential  d = u - log(1 + u)
    gaussian     d = (p - q)^2 / (2v)
"""

from __future__ import annotations

import math

import numpy as np

from cabai.kernels import only_for
from cabai.state import BERNOULLI, EXPONENTIAL, GAUSSIAN, MIRROR, MIRRORED_POISSON, POISSON

SMALL = 0.03  # below, the power series is accurate to 1e-15 and quicker than the logarithm
FAR = 8.0  # a factor from the mean beyond which an interval's end is solved for directly, not as a distance


@only_for("bernoulli", "poisson")
def psi(u):
    """(1 + u) log(1 + u) - u, for u >= -1."""
    if abs(u) < SMALL:
        # sum over k >= 2 of (-u)^k / (k (k - 1))
        return (
            u
            * u
            * (
                1 / 2
                - u
                * (
                    1 / 6
                    - u
                    * (
                        1 / 12
                        - u
                        * (1 / 20 - u * (1 / 30 - u * (1 / 42 - u * (1 / 56 - u * (1 / 72 - u * (1 / 90 - u / 110))))))
                    )
                )
            )
        )
    if u <= -1.0:
        return 1.0
    return (1.0 + u) * math.log(1.0 + u) - u


@only_for("exponential")
def excess(u):
    """u - log(1 + u), for u > -1."""
    if abs(u) < SMALL:
        # sum over k >= 2 of (-u)^k / k
        return (
            u
            * u
            * (
                1 / 2
                - u
                * (
                    1 / 3
                    - u
                    * (
                        1 / 4
                        - u * (1 / 5 - u * (1 / 6 - u * (1 / 7 - u * (1 / 8 - u * (1 / 9 - u * (1 / 10 - u / 11))))))
                    )
                )
            )
        )
    if u <= -1.0:
        return np.inf
    return u - math.log(1.0 + u)


def divergence(family, variance, p, difference, q, complement):
    """d(p, q) for difference = p - q and complement = 1 - q (which bernoulli alone looks at).

    Only exponential looks at p, where q is more than twice as large: there p - q says too little about log(p/q).
    """
    if family == GAUSSIAN:
        return difference * difference / (2.0 * variance)
    if difference == 0.0:
        return 0.0
    if family == BERNOULLI:
        above = q * psi(difference / q) if q > 0.0 else np.inf
        below = complement * psi(-difference / complement) if complement > 0.0 else np.inf
        return above + below
    if family > EXPONENTIAL:
        return mirrored_divergence(family, p, difference, q)
    return positive_divergence(family, p, difference, q)


@only_for("mirrored")
def mirrored_divergence(family, p, difference, q):
    """d(p, q) where the kernels see means negated because the smallest is wanted."""
    return positive_divergence(family - MIRROR, -p, -difference, -q)


@only_for("poisson", "exponential")
def positive_divergence(family, p, difference, q):
    """d(p, q) of the families whose means are positive."""
    if q <= 0.0:
        return np.inf
    if family == POISSON:
        return q * psi(difference / q)
    return exponential_divergence(p, difference, q)


@only_for("exponential")
def exponential_divergence(p, difference, q):
    if p < 0.5 * q:
        ratio = p / q
        return difference / q - math.log(ratio) if ratio > 0.0 else np.inf
    return excess(difference / q)


def variance_at(family, variance, q, complement):
    """V(q), the variance of a reward with mean q: the derivative of d(p, q) in q is (q - p)/V(q)."""
    if family == GAUSSIAN:
        return variance
    if family == BERNOULLI:
        return q * complement
    if family == POISSON:
        return q
    if family == MIRRORED_POISSON:
        return -q
    return q * q


def variance_slope(family, q):
    """V'(q)."""
    if family == GAUSSIAN:
        return 0.0
    if family == BERNOULLI:
        return 1.0 - 2.0 * q
    if family == POISSON:
        return 1.0
    if family == MIRRORED_POISSON:
        return -1.0
    return 2.0 * q


def upper_end(family, variance, mean, level):
    """The largest q with d(mean, q) <= level, for level >= 0."""
    if family == GAUSSIAN:
        return mean + math.sqrt(2.0 * variance * level)
    if family > EXPONENTIAL:
        return mirrored_upper_end(family, variance, mean, level)
    return _upper_end(family, variance, mean, level)


def lower_end(family, variance, mean, level):
    """The smallest q with d(mean, q) <= level, for level >= 0."""
    if family == GAUSSIAN:
        return mean - math.sqrt(2.0 * variance * level)
    if family > EXPONENTIAL:
        return mirrored_lower_end(family, variance, mean, level)
    return _lower_end(family, variance, mean, level)


@only_for("mirrored")
def mirrored_upper_end(family, variance, mean, level):
    return -_lower_end(family - MIRROR, variance, -mean, level)


@only_for("mirrored")
def mirrored_lower_end(family, variance, mean, level):
    return -_upper_end(family - MIRROR, variance, -mean, level)


@only_for("bernoulli", "poisson", "exponential")
def _upper_end(family, variance, mean, level):
    if family == BERNOULLI:
        if mean >= 1.0:
            return 1.0
        far = (1.0 - mean) / FAR  # as for the lower end, with failures for successes
        if level > divergence(family, variance, mean, mean - 1.0 + far, 1.0 - far, far):
            return 1.0 - _far_end(family, 1.0 - mean, level, -1.0)
    if family == EXPONENTIAL and level > divergence(family, variance, mean, mean - FAR * mean, FAR * mean, 1.0):
        return _far_end(family, mean, level, 1.0)
    return _end(family, variance, mean, level, 1.0)


@only_for("bernoulli", "poisson", "exponential")
def _lower_end(family, variance, mean, level):
    if mean <= 0.0:
        return 0.0
    far = mean / FAR
    if level > divergence(family, variance, mean, mean - far, far, 1.0 - far):
        return _far_end(family, mean, level, -1.0)
    return _end(family, variance, mean, level, -1.0)


@only_for("bernoulli", "poisson", "exponential")
def _end(family, variance, mean, level, side):
    """Solve d(mean, q) = level on one side of the mean by Newton's method on sqrt(2 d), kept inside a bracket.

    sqrt(2 d(mean, q)) is nearly linear in q around the mean. The step is taken on the distance q - mean, which stays
    accurate when the interval is narrow.
    """
    if level <= 0.0:
        return mean
    goal = math.sqrt(2.0 * level)
    # `near` and `far` bracket the distance |q - mean|; the farthest is the edge of the family.
    near = 0.0
    if side < 0.0:
        far = mean
    elif family == BERNOULLI:
        far = 1.0 - mean
    else:
        far = np.inf
    distance = goal * math.sqrt(variance_at(family, variance, mean, 1.0 - mean))
    if mean <= 0.0 or not 0.0 < distance < far:
        distance = 0.5 * far if far < np.inf else mean + level + goal
    for _ in range(200):
        q = mean + side * distance
        root = math.sqrt(2.0 * divergence(family, variance, mean, -side * distance, q, 1.0 - q))
        if root < goal:
            near = distance
        else:
            far = distance
        # d sqrt(2d) / d distance = distance / (V(q) sqrt(2d))
        step = (goal - root) * root * variance_at(family, variance, q, 1.0 - q) / distance
        new = distance + step
        if near < new < far:
            if abs(step) <= 1e-8 * distance:  # so close, a step of Newton's leaves an error of its square
                return mean + side * new
        else:  # also when new is nan
            new = 0.5 * (near + far) if far < np.inf else 2.0 * distance
            if not near < new < far:
                return mean + side * new
        distance = new
    return mean + side * distance


@only_for("bernoulli", "poisson", "exponential")
def _far_end(family, mean, level, side):
    """Solve d(mean, q) = level where q is more than FAR times smaller than the mean, or larger (exponential only).

    There q itself must stay accurate, not its distance from the mean. Each form below has one large term, and the rest
    hardly depends on q: putting the last value into it gains at least a factor of FAR each time.
    """
    if family == EXPONENTIAL and side < 0.0:  # x - 1 - log x = level, x = mean/q
        x = FAR
        for _ in range(40):
            x, before = 1.0 + level + math.log(x), x
            if abs(x - before) <= 1e-15 * x:
                break
        return mean / x
    s = math.log(FAR)  # |log(q/mean)|
    for _ in range(40):
        before = s
        if family == EXPONENTIAL:  # s + e^-s - 1 = level
            s = level - math.expm1(-s)
        elif family == POISSON:  # mean (s + e^-s - 1) = level
            s = level / mean - math.expm1(-s)
        elif mean < 1.0:  # mean s + (1 - mean) log((1 - mean)/(1 - mean e^-s)) = level
            s = (level - (1.0 - mean) * (math.log1p(-mean) - math.log1p(-mean * math.exp(-s)))) / mean
        else:
            s = level
        if abs(s - before) <= 1e-15 * s:
            break
    return mean * math.exp(side * s) if side * s < 709.0 else np.inf
