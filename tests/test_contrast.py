"""The contrast test: its formula, that what it computes is never too large, and that no sampling rule misleads it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cabai import Statistics
from cabai.families import family_of, mirror_image
from cabai.thresholds import Contrast, contrast, tilts
from pairs import (
    FAMILIES,
    check_extremes,
    check_never_above,
    check_quick_look,
    least_log_e,
    log_e,
    log_e_of,
    mirrored_pair,
    pair_of,
    put,
    setup_of,
    some_pair,
    weights,
)


def test_the_weights_are_a_probability_and_ranges_of_means_leave_none_out():
    for family in FAMILIES:
        for m in (0.5, 1.0, 30.0, 1e3, 1e15) if family == "poisson" else (0.5,):
            _, joint = weights(family_of(family), m)
            assert joint.min() >= 0
            assert joint.sum() == pytest.approx(1, abs=1e-12)
            assert (joint == joint.T).all()
    for kind in (family_of("poisson"), mirror_image(family_of("poisson"))):
        found = kind.tilt_ranges
        assert (found[0][0], found[-1][1]) == kind.mean_range
        assert [high for _, high, _ in found[:-1]] == [low for low, _, _ in found[1:]]
    kind = family_of("poisson")
    joint = [weights(kind, low)[1] for low, _, _ in kind.tilt_ranges]
    for k, own in enumerate(joint):
        least = min(float((other / own).min()) for other in joint)
        assert math.exp(tilts.ranges(kind)[0][k, tilts.LOG_LEAST]) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.05])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_least_e_is_never_above_a_scan_of_all_pairs_of_tilts(family, epsilon, mirrored):
    """200 random states in all, counts to 1e7, in 50 digits: never above, and seldom visibly below."""
    kind, rng, found, exact = family_of(family), np.random.default_rng(1), [], []
    setup = setup_of(family, Contrast, epsilon=epsilon, mirrored=mirrored)
    weighed_at = epsilon if mirrored and not kind.is_symmetric else 0.0  # the m of the arm that is to win
    for _ in range(13):
        pair = some_pair(rng, kind, 10**7, largest=10**7)
        exact.append(least_log_e(kind, *pair, epsilon, weighed_at))
        found.append(log_e_of(setup, *pair_of(setup, *(mirrored_pair(kind, *pair) if mirrored else pair))))
    check_never_above(found, exact, share=10 / 13)


@pytest.mark.parametrize("mirrored", [False, True])
def test_where_two_ranges_of_means_meet_neither_is_forgotten(mirrored):
    """Poisson pairs whose common mean is about an end of a range, few pulls to many: E jumps there, and its least may
    be on either side. Never above 400 means around it and the ends of all ranges."""
    kind, rng, found, exact = family_of("poisson"), np.random.default_rng(11), [], []
    setup, ends = setup_of("poisson", Contrast, mirrored=mirrored), [low for low, _, _ in kind.tilt_ranges[1:]]
    for i in range(40):
        n_b, n_a = (int(10 ** rng.uniform(0, 4)) for _ in range(2))
        m = ends[i % 5] * (1 + rng.normal() / math.sqrt(ends[i % 5] * (n_a + n_b)))
        gap = math.sqrt(2 * rng.uniform(3, 20) * m * (1 / n_b + 1 / n_a))
        pair = (n_b, n_a), (m + gap * n_a / (n_a + n_b), max(m - gap * n_b / (n_a + n_b), 0.0))
        scan = [*np.linspace(m - 6 * gap, m + 6 * gap, 400), *ends, *np.nextafter(ends, 0)]
        exact.append(min(log_e(kind, *pair, x) for x in scan if x > 0))
        found.append(log_e_of(setup, *pair_of(setup, *(mirrored_pair(kind, *pair) if mirrored else pair))))
    check_never_above(found, exact, share=0.9, within=0.1, slack=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_quick_look_refuses_is_not_beaten(family):
    rng, setup = np.random.default_rng(4), setup_of(family, Contrast)
    pairs = (some_pair(rng, family_of(family), 10**5) for _ in range(400))
    check_quick_look(setup, (pair_of(setup, *each) for each in pairs if each[1][0] > each[1][1]), beaten=100, refused=2)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_factor_has_mean_one_at_its_own_mean(family, sign):
    """Also the largest tilts, by their moments in closed form."""
    kind, m = family_of(family), 0.37
    for row in tilts.table(kind):
        l = sign * row[tilts.TILT]  # noqa: E741
        columns = (tilts.RATE_UP, tilts.PRICE_UP) if sign > 0 else (tilts.RATE_DOWN, tilts.PRICE_DOWN)

        def log(y, tilt=l, row=row, columns=columns):
            return kind.call(contrast.tilted, tilt, *row[list(columns)], 1.0, y - m, m)[0]

        at_zero, per_reward = log(0.0), log(1.0) - log(0.0)
        moment = {  # log of the mean of e^(s y)
            "gaussian": lambda s: s * m + s * s * getattr(kind, "variance", 1) / 2,
            "bernoulli": lambda s: math.log1p(m * math.expm1(s)),
            "poisson": lambda s: m * math.expm1(s),
            "exponential": lambda s: -math.log1p(-s * m),
        }[kind.name]
        assert at_zero + moment(per_reward) == pytest.approx(0, abs=1e-12)


def extreme_mean(rng, name):
    if name == "gaussian":
        return float(rng.normal() * 10 ** rng.uniform(-12, 12))
    if name == "bernoulli":
        return float(rng.choice([0.0, 1.0, 1e-9, 1 - 1e-9, rng.random()]))
    if name == "exponential":
        return float(10 ** rng.uniform(-90, 15))
    return float(rng.choice([0, 10 ** rng.uniform(-9, 15)]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "poisson", "exponential"])
def test_extremes_do_no_harm(name, epsilon, mirrored):
    """Counts to 1e9, means at the edge, variances over 20 orders, pull ratios to 1e9."""
    rng = np.random.default_rng(8)
    for i in range(60):
        family = f"gaussian(variance={10 ** rng.uniform(-10, 10):.3g})" if name == "gaussian" else name
        setup = setup_of(family, Contrast, epsilon=epsilon, mirrored=mirrored)
        n, means = 10 ** rng.uniform(0, 9, 2), [extreme_mean(rng, name) for _ in range(2)]
        if i % 2:  # nearly tied
            means[1] = min(means[0] * (1 + 10 ** rng.uniform(-12, 0)), family_of(family).mean_range[1])
        if mirrored:
            means = [1 - mean if name == "bernoulli" else -mean for mean in means]
        arms = setup.start()[0]
        for arm, count, mean in zip(arms, n, means, strict=True):
            put(arm, int(count), mean)
        check_extremes(setup, arms, epsilon)


@pytest.mark.parametrize(("name", "means", "pulls"), [
    ("gaussian", (1000.0, 0.0), (1, 1)), ("gaussian(variance=1e-10)", (3.0, 2.9999), (50, 50)),
    ("gaussian(variance=1e10)", (5e5, 0.0), (9, 9)), ("bernoulli", (1.0, 0.0), (9, 9)),
    ("bernoulli", (1e-6, 1e-7), (10**8, 10**8)), ("bernoulli", (1 - 1e-7, 1 - 1e-6), (10**8, 10**8)),
    ("poisson", (1.0, 0.0), (9, 9)),
    ("poisson", (1e12, 1e12 - 1e6), (100, 100)), ("poisson", (1e12, 1e12 - 3e6), (6, 6)),
    ("poisson", (1030.0, 1000.0), (60, 60)), ("exponential", (1e9, 1e-9), (2, 2)),
    ("gaussian", (0.05, 0.0), (10**9, 10**4)), ("gaussian", (0.05, 0.0), (10**4, 10**9)),
    ("exponential", (1.05, 1.0), (10**9, 2 * 10**4)), ("poisson", (1.05, 1.0), (2 * 10**4, 10**9)),
])  # fmt: skip
def test_what_is_plain_is_seen(name, means, pulls):
    """Wide gaps after few pulls, edges, large counts, and lopsided pulls."""
    data = Statistics(name, pulls, [n * mean for n, mean in zip(pulls, means, strict=True)])
    assert Contrast().beats(data, 0, 1, delta=0.05)
    assert not Contrast().beats(data, 1, 0, delta=0.05)
    assert Contrast().stops(data, delta=0.05)
