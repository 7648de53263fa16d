"""The e-value test: its formula, its mixtures, and that no sampling rule makes it cross more often than promised."""

import itertools
import math
import random

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import special, stats

import reference
from cabai import Statistics
from cabai.core.evidence import evidence
from cabai.core.setup import Setup
from cabai.core.state import Record
from cabai.core.stopping import interval_level
from cabai.families import family_of
from cabai.thresholds import EValue
from conftest import variance_of

FAMILIES = ["gaussian", "gaussian(variance=0.04)", "bernoulli", "bounded", "poisson", "exponential"]


def log_evalue(family, pulls, rewards, first=None):
    """log E of arm 0 against arm 1, through the public statistics."""
    setup = Setup(family_of(family), EValue(), arms=2, delta=0.1)
    arms, _ = Statistics(family, pulls, rewards, first=first).state(setup)
    z = setup.bound(evidence)(Record(setup.rules), Record(arms[0]), Record(arms[1]))
    return z - arms[0]["price"] - arms[1]["price"]


def prices(family, pulls, rewards, first=None):
    data = Statistics(family, pulls, rewards, first=first)
    return data.state(Setup(data.family, EValue(), arms=len(data), delta=0.1))[0]["price"]


def random_reward(source, name, mean):
    if name == "gaussian":
        return mean + source.gauss(0, 1)
    if name == "exponential":
        return source.expovariate(1 / mean)
    if name == "poisson":
        return float(np.random.default_rng(source.getrandbits(32)).poisson(mean))
    return float(source.random() < mean)


def random_arm(source, family, pulls, mean, spread):
    """(pulls, sum of rewards, first reward) as they could be with that mean: off by `spread` standard deviations."""
    kind = family_of(family)
    variance = {"gaussian": variance_of(kind), "poisson": mean, "exponential": mean**2}.get(kind.name, 0.25)
    deviation = math.sqrt(variance)
    first = random_reward(source, kind.name, mean)
    rest = (pulls - 1) * mean + spread * source.gauss(0, 1) * deviation * math.sqrt(pulls - 1)
    if kind.name in ("bernoulli", "bounded"):
        rest = min(max(rest, 0.0), pulls - 1.0)
    if kind.name in ("bernoulli", "poisson"):
        rest = float(max(round(rest), 0))
    if kind.name == "exponential" and rest <= 0:
        rest = mean * (pulls - 1) / 2
    return pulls, first + rest, first


MEANS = {"gaussian": (-2.0, 3.0), "poisson": (0.05, 20.0), "exponential": (0.01, 50.0)}


def random_pair(source, family, most):
    """Two arms with the same mean, or nearly: the test's own ground, where log E is of moderate size."""
    low, high = MEANS.get(family_of(family).name, (0.02, 0.98))
    mean = source.uniform(low, high)
    sizes = [max(2, round(10 ** source.uniform(0.3, math.log10(most)))) for _ in range(2)]
    arms = [random_arm(source, family, n, mean, spread=3.0) for n in sizes]
    return tuple(zip(*arms, strict=True))  # pulls, rewards, first


def exact_log_evalue(family, pulls, rewards, first):
    """M(b) + M(a) - L0 in 60 digits."""
    kind = family_of(family)
    with mp.workdps(60):
        b, a = ((mpf(n), mpf(float(r)), mpf(float(f))) for n, r, f in zip(pulls, rewards, first, strict=True))
        return float(reference.log_evalue(kind.name, *b, *a, mpf(variance_of(kind))))


@pytest.mark.parametrize("family", FAMILIES)
def test_log_e_is_exact_up_to_a_billion_pulls(family):
    source = random.Random(f"exact {family}")
    favoured = 0
    for _ in range(300):
        pulls, rewards, first = random_pair(source, family, most=10**9)
        found = log_evalue(family, pulls, rewards, first)
        assert found == pytest.approx(exact_log_evalue(family, pulls, rewards, first), abs=1e-9)
        favoured += found > 0
    assert favoured > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_log_e_is_exact_for_few_pulls(family):
    """Every small sample of a few rewards, ends of the families included."""
    rewards = [0.0, 1.0] if family == "bernoulli" else [0.0, 1.0, 4.0] if family == "poisson" else [0.125, 0.5, 1.0]
    arms = [(2 + extra, f + rest, f) for extra in (0, 1) for f in rewards for rest in rewards]
    for b, a in itertools.product(arms, arms):
        pulls, sums, first = zip(b, a, strict=True)
        expected = exact_log_evalue(family, pulls, sums, first)
        assert log_evalue(family, pulls, sums, first) == pytest.approx(expected, abs=1e-12)


def test_log_e_is_exact_far_from_zero():
    """2^k + 1 pulls, so that the means of what counts are exact; and large counts."""
    pulls, first, sums = np.array([4097, 1025]), np.array([0.25, -0.5]), np.array([64.25, -32.5])
    plain = exact_log_evalue("gaussian", pulls, sums, first)
    for shift in (0.0, 1.0, 1e6, -1e6):
        assert log_evalue("gaussian", pulls, sums + pulls * shift, first + shift) == pytest.approx(plain, abs=1e-9)
    for mean in (1e4, 1e6, 1e8):
        pulls, root = np.array([500, 300]), math.sqrt(mean)
        sums, first = np.round(pulls * mean + [40 * root, -40 * root]), np.round([mean + 2 * root, mean - root])
        expected = exact_log_evalue("poisson", pulls, sums, first)
        assert log_evalue("poisson", pulls, sums, first) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_b_beats_a_when_the_evalue_reaches_k_minus_1_over_delta(family):
    source, kind, rule = random.Random(f"beats {family}"), family_of(family), EValue()
    answers = set()
    for _ in range(100):
        pulls, rewards, first = random_pair(source, family, most=1000)
        data = Statistics(family, pulls, rewards, first=first)
        log_e = exact_log_evalue(family, pulls, rewards, first)
        for delta in (0.9, 0.3, 1e-2, 1e-6):
            assert rule.beats(data, 0, 1, delta=delta) == (log_e > math.log(1 / delta))
            answers.add(rule.beats(data, 0, 1, delta=delta))
        # With more arms the same pair has to reach K - 1 times as much.
        more = Statistics(kind, [*pulls, 5, 5], [*rewards, 2, 2], first=[*first, 1, 1])
        assert rule.beats(more, 0, 1, delta=0.3) == (log_e > math.log(3 / 0.3))
    assert answers == {True, False}


def test_the_intervals_of_all_arms_share_delta():
    """The mean of an arm with a price p after n pulls that count is ruled out where n d > log(K/delta) + p."""
    setup = Setup(family_of("poisson"), EValue(), arms=3, delta=0.1)
    arms, run = Statistics("poisson", [40, 50, 60], [30, 60, 90], first=[1, 0, 2]).state(setup)
    for arm in arms:
        level = setup.bound(interval_level)(Record(arm), int(run["t"]), Record(setup.rules), 3)
        assert level == pytest.approx((math.log(3 / 0.1) + arm["price"]) / (arm["pulls"] - 1), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 40, 1000])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.1, 0.95), (0.4, 0.5), (0.0, 0.03), (0.9, 1.0)])
def test_the_bounded_mixture_over_truth_is_at_most_one_on_average_and_one_for_bernoulli(low, high, n):
    """Rewards of two values, k of them high: the sum over k of P(k) e^M / (mu^R (1 - mu)^(N - R))."""
    k = np.arange(n + 1)
    r = n * low + k * (high - low)
    for chance in (0.05, 0.5, 0.8):
        mu = low + chance * (high - low)
        fit = n * (special.rel_entr(r / n, mu) + special.rel_entr(1 - r / n, 1 - mu))
        mean = np.exp(stats.binom.logpmf(k, n, chance) + fit - prices("bounded", [n] * (n + 1), r)).sum()
        if (low, high) == (0.0, 1.0):
            assert mean == pytest.approx(1, abs=1e-10)
        else:
            assert mean < 1
