"""The e-value test: its formula, its mixtures, and that no sampling rule makes it cross more often than promised."""

import itertools
import math

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


MEANS = {"gaussian": (-2.0, 3.0), "poisson": (0.05, 20.0), "exponential": (0.01, 50.0)}


def random_pair(rng, family, most):
    """Pulls, sums and first rewards of two arms with the same mean, or off by about 3 standard deviations: the test's
    own ground, where log E is of moderate size."""
    kind = family_of(family)
    mean = rng.uniform(*MEANS.get(kind.name, (0.02, 0.98)))
    draw = {"gaussian": rng.normal, "poisson": rng.poisson, "exponential": rng.exponential}
    first = draw.get(kind.name, lambda mean, size: rng.random(size) < mean)(mean, size=2).astype(float)
    variance = {"gaussian": variance_of(kind), "poisson": mean, "exponential": mean**2}.get(kind.name, 0.25)
    rest = np.maximum(1, np.round(10 ** rng.uniform(0.3, math.log10(most), 2)) - 1)
    sums = rest * mean + 3 * rng.normal(size=2) * np.sqrt(variance * rest)
    if kind.name in ("bernoulli", "bounded"):
        sums = np.clip(sums, 0, rest)
    if kind.whole_rewards:
        sums = np.maximum(np.round(sums), 0)
    if kind.name == "exponential":
        sums = np.where(sums > 0, sums, mean * rest / 2)
    return rest + 1, first + sums, first


def exact_log_evalue(family, pulls, rewards, first):
    """M(b) + M(a) - L0 in 60 digits."""
    kind = family_of(family)
    with mp.workdps(60):
        b, a = ((mpf(n), mpf(float(r)), mpf(float(f))) for n, r, f in zip(pulls, rewards, first, strict=True))
        return float(reference.log_evalue(kind.name, *b, *a, mpf(variance_of(kind))))


def far_from_zero(family):
    """2^k + 1 pulls, so that the means of what counts are exact; and large counts."""
    for shift in (0.0, 1.0, 1e6, -1e6) if "gaussian" in family else ():
        pulls, first = np.array([4097, 1025]), np.array([0.25, -0.5])
        yield pulls, [64.25, -32.5] + pulls * shift, first + shift
    for mean in (1e4, 1e6, 1e8) if family == "poisson" else ():
        pulls, root = np.array([500, 300]), math.sqrt(mean)
        yield pulls, np.round(pulls * mean + [40 * root, -40 * root]), np.round([mean + 2 * root, mean - root])


@pytest.mark.parametrize("family", FAMILIES)
def test_log_e_is_exact_up_to_a_billion_pulls(family):
    rng, favoured = np.random.default_rng(FAMILIES.index(family)), 0
    for data in (*(random_pair(rng, family, most=10**9) for _ in range(300)), *far_from_zero(family)):
        found = log_evalue(family, *data)
        assert found == pytest.approx(exact_log_evalue(family, *data), abs=1e-9)
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
