"""Pairs of arms from their definition: the sum over all pairs of tilts or stakes, and what must hold of every test."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from mpmath import mp, mpf

from cabai.core.setup import Setup
from cabai.core.state import Record
from cabai.core.stopping import beats, is_settled, surplus
from cabai.families import family_of, mirror_image
from cabai.thresholds import bets, tilts

FAMILIES = ["gaussian(variance=0.3)", "bernoulli", "poisson", "exponential"]

# --- From the definition, in numbers of 53 bits (float), of 64 (np.longdouble) or of as many as mpmath is set to (mpf)

EXP_AND_LOG = {mpf: tuple(np.frompyfunc(f, 1, 1) for f in (mp.exp, mp.log))}


def numbers(number, values):
    return np.vectorize(mpf, otypes=[object])(values) if number is mpf else np.asarray(values, number)


def log_of_sum(number, up, joint, down):
    """log of the sum over i, j of e^up_i W_ij e^down_j."""
    exp, log = EXP_AND_LOG.get(number, (np.exp, np.log))
    return log(exp(up - up.max()) @ numbers(number, joint) @ exp(down - down.max())) + up.max() + down.max()


def least_of(value, left, right, times=12):
    """The place of the least of a function's values, closer and closer to where it is least. Whatever the place, the
    value there is not below the minimum."""
    for _ in range(times):
        scan = np.linspace(left, right, 9, dtype=np.longdouble)
        at = int(np.argmin([value(m) for m in scan]))
        left, right = scan[max(at - 1, 0)], scan[min(at + 1, 8)]
    return float((left + right) / 2)


def least_in(value, low, high, points=60):
    """The least of a function's values on a scan of so many places, and on finer ones around the least."""
    for count in (points, 20, 20, 20):
        scan = np.linspace(low, high, count)
        values = [value(m) for m in scan]
        at = int(np.argmin(values))
        low, high = scan[max(at - 1, 0)], scan[min(at + 1, count - 1)]
    return min(values)


def weights(family, m):
    """Of `contrast`: the tilts, and W_ij for the mean m, as the module says in words."""
    ranges = family.tilt_ranges
    inside = [low <= m < high or m == high == family.mean_range[1] for low, high, _ in ranges]
    return weights_of_range(family, inside.index(True))


@cache
def weights_of_range(family, k):
    rows, gained = tilts.table(family), tilts.ranges(family)[1][k, :, tilts.GAINED]
    smaller = np.minimum.outer(np.arange(len(rows)), np.arange(len(rows)))
    return rows[:, tilts.TILT], np.outer(rows[:, tilts.SHARE], rows[:, tilts.SHARE]) * gained[smaller]


@cache
def weights_of_bets():
    """Of `bets`: the logs of 1 + c, and W_ij, as the module says in words."""
    rows = bets.table()
    smaller = np.minimum.outer(np.arange(len(rows)), np.arange(len(rows)))
    first = np.outer(rows[:, bets.SHARE], rows[:, bets.SHARE]) * np.cumsum(rows[:, bets.GAIN])[smaller]
    products = sum(np.outer(rows[:, column], rows[:, column]) for column in (bets.FLAT, bets.LEANING))
    return rows[:, bets.TILT], first + products


def log_factors(family, number, tilt, n, mean, m):
    """log of the product of L_l(y; m) over n rewards, for each tilt."""
    exp, log = EXP_AND_LOG.get(number, (np.exp, np.log))
    if family.name == "gaussian":
        return n * (tilt * (mean - m) / number(family.variance) ** number(0.5) - tilt * tilt / 2)
    if family.name == "poisson":
        return n * (tilt * mean - m * (exp(tilt) - 1))
    if family.name == "exponential":
        return n * (mean / m * (1 - exp(-tilt)) - tilt)
    return n * (tilt * mean - log(1 + m * (exp(tilt) - 1)))


def log_e(family, pulls, means, m, epsilon=0.0, weighed_at=0.0, number=float):
    """log E(m) of `contrast`, the sum over every pair of tilts, with the weights of m + weighed_at."""
    grid, joint = weights(family, float(m) + weighed_at)
    grid, m = numbers(number, grid), number(m)
    up = log_factors(family, number, grid, pulls[0], number(means[0]), m)
    down = log_factors(family, number, -grid, pulls[1], number(means[1]), m + number(epsilon))
    return log_of_sum(number, up, joint, down)


def least_log_e(family, pulls, means, epsilon, weighed_at=0.0):
    """The least log E(m) over a scan of m and a search around its least, in 50 digits."""
    low, high = family.mean_range
    middle = (pulls[0] * means[0] + pulls[1] * (means[1] - epsilon)) / sum(pulls)
    spread = abs(means[0] - means[1]) + abs(epsilon) + 1e-9 * (1 + abs(middle))
    low, high = max(low, low - epsilon), min(high, high - epsilon)
    left, right = max(middle - 2 * spread, low + 1e-12), min(middle + 2 * spread, high - 1e-12)
    at = least_of(lambda m: log_e(family, pulls, means, m, epsilon, weighed_at, np.longdouble), left, right)
    with mp.workdps(50):
        return float(log_e(family, pulls, means, at, epsilon, weighed_at, mpf))


def log_e_of_bets(pair, m, epsilon=0.0, number=np.longdouble):
    """log E(m) of `bets`, the sum over every pair of stakes; each arm has values and how often it had them."""
    exp, log = EXP_AND_LOG.get(number, (np.exp, np.log))
    grid, joint = weights_of_bets()
    c, m = (exp(numbers(number, grid)) - 1)[:, None], number(m)
    (b, n_b), (a, n_a) = ((numbers(number, values), numbers(number, counts)) for values, counts in pair)
    up, down = log((1 + c * b) / (1 + c * m)) @ n_b, log((1 + c * (1 - a)) / (1 + c * (1 - m - number(epsilon)))) @ n_a
    return log_of_sum(number, up, joint, down)


def least_log_e_of_bets(pair, epsilon=0.0):
    at = least_of(lambda m: log_e_of_bets(pair, m, epsilon), max(0.0, -epsilon), min(1.0, 1.0 - epsilon), times=16)
    with mp.workdps(40):
        return float(log_e_of_bets(pair, at, epsilon, mpf))


@cache
def setup_of(family, threshold, *, arms=2, epsilon=0.0, mirrored=False, delta=0.1):
    kind = family_of(family)
    return Setup(mirror_image(kind) if mirrored else kind, threshold(), arms=arms, delta=delta, epsilon=epsilon)


def some_pair(rng, family, most, largest=100.0):
    """Two arms near the threshold: Z between 1 and 40, pulls in any ratio, poisson means up to the largest."""
    n_b, n_a = (int(10 ** rng.uniform(0, math.log10(most))) for _ in range(2))
    z = rng.uniform(1, 40)
    m = {"gaussian": rng.normal(0, 3), "bernoulli": rng.uniform(0.01, 0.99)}.get(family.name, 10 ** rng.uniform(-2, 2))
    m = 10 ** rng.uniform(-2, math.log10(largest)) if family.name == "poisson" else m
    V = {"gaussian": 0.3, "bernoulli": m * (1 - m), "poisson": m, "exponential": m * m}[family.name]
    gap = math.sqrt(2 * z * V * (1 / n_b + 1 / n_a))
    b, a = m + gap * n_a / (n_a + n_b), m - gap * n_b / (n_a + n_b)
    if family.name in ("bernoulli", "poisson"):
        b, a = round(b * n_b) / n_b, round(a * n_a) / n_a
    if family.name == "bernoulli":
        b, a = min(b, 1.0), max(a, 0.0)
    if family.name == "poisson":
        a = max(a, 0.0)
    if family.name == "exponential":
        a = max(a, 1e-3 * m)
    return (n_b, n_a), (b, a)


def mirrored_pair(family, pulls, means):
    """The same arms where the smallest mean is wanted: what is seen of them, and they change places."""
    return pulls[::-1], tuple(family.mirror(mean) if family.is_symmetric else -mean for mean in means[::-1])


def put(arm, n, mean):
    arm["pulls"], arm["tested"], arm["mean"], arm["tested_mean"], arm["rewards"] = n, n, mean, mean, n * mean


def pair_of(setup, pulls, means):
    arms = setup.start()[0]
    for arm, n, mean in zip(arms, pulls, means, strict=False):
        put(arm, n, mean)
    return Record(arms[0]), Record(arms[1])


def log_e_of(setup, b, a):
    """log E of b over a, as a study's status computes it; the decision does not contradict it."""
    rules = Record(setup.rules)
    with np.errstate(all="ignore"):  # as where a study calls it
        found = float(setup.bound(surplus)(rules, 0, b, a) + rules.level)
        assert found > rules.level or not setup.bound(is_settled)(rules, 0, b, a)
    return found


def check_never_above(found, exact, *, share, within=0.05, slack=0.0):
    """What is computed is never above the definition and, for this share of the states, hardly below: stakes too small
    to tell anything are left out."""
    found, exact = np.array(found), np.array(exact)
    assert (found <= np.maximum(exact, 0.0) + slack).all()
    assert np.mean(found >= np.minimum(exact, 700) - within) >= share


def check_quick_look(setup, states, *, beaten, refused, slack=1e-6, test=beats):
    """Filters may only say no, and seldom say it where the test itself would say yes: so often, at most."""
    rules, by_how_much, is_yes = Record(setup.rules), setup.bound(surplus), setup.bound(test)
    yes = no = 0
    for b, a in states:
        with np.errstate(all="ignore"):
            by, answer = by_how_much(rules, 0, b, a), bool(is_yes(rules, 0, b, a))
        assert not (answer and by <= 0)
        yes, no = yes + answer, no + (by > slack and not answer)
    assert yes > beaten
    assert no <= refused


def check_extremes(setup, arms, epsilon=0.0):
    """A number, not below what no data give, and no arm beats one that is no worse."""
    rules = Record(setup.rules)
    for b, a in (map(Record, arms), map(Record, arms[::-1])):
        with np.errstate(all="ignore"):
            by = float(setup.bound(surplus)(rules, 0, b, a))
            settled, won = (bool(setup.bound(of)(rules, 0, b, a)) for of in (is_settled, beats))
        assert by >= -rules.level  # and is a number
        assert not won or b.mean > a.mean
        assert not settled or (b.mean > a.mean - epsilon and by > -1e-6)
