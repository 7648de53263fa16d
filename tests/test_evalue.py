"""The e-value test: its formula, its mixtures, and that chance crosses it as rarely as promised."""

import itertools
import math
import random
from functools import cache

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import special, stats

import reference
from cabai import Statistics
from cabai.core.compiling import compiled
from cabai.core.evidence import evidence
from cabai.core.observe import weigh
from cabai.core.setup import Setup
from cabai.core.state import Record
from cabai.core.stopping import interval_level
from cabai.families import family_of
from cabai.thresholds import EValue
from combinations import covering
from conftest import variance_of
from worst_rule import check_no_rule_crosses

FAMILIES = ["gaussian", "gaussian(variance=0.04)", "bernoulli", "bounded", "poisson", "exponential"]
CHANCE = 1e-6  # how often a statistical test here may fail by chance


@cache
def evalue_setup(family):
    return Setup(family_of(family), EValue(), arms=2, delta=0.1)


def log_evalues(b, a, rules, log_e):
    """log_e[i] = log E of arm record b[i] against arm record a[i]; renews what the records hold of the threshold."""
    for i in range(len(b)):
        weigh(b[i], rules)
        weigh(a[i], rules)
        price = b[i].price + a[i].price
        log_e[i] = evidence(rules, b[i], a[i]) - price if price < np.inf else -np.inf


def arm_records(pulls, rewards, first):
    """One record for each entry; they have the same fields for every family."""
    pulls, rewards, first = np.broadcast_arrays(pulls, rewards, first)
    arms = np.zeros(pulls.shape, evalue_setup("gaussian").layout.arm)
    arms["pulls"], arms["rewards"], arms["first"], arms["mean"] = pulls, rewards, first, rewards / pulls
    return arms


def all_log_evalues(family, b, a):
    setup, log_e = evalue_setup(family), np.empty(len(b))
    compiled(setup.bound(log_evalues))(b, a, setup.rules, log_e)
    return log_e


def log_evalue(family, pulls, rewards, first=None):
    """log E of arm 0 against arm 1, through the public statistics."""
    setup = evalue_setup(family)
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


# --- The formula -----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("shift", [0.0, 1.0, 1e6, -1e6])
def test_log_e_of_gaussian_rewards_does_not_depend_on_where_zero_is(shift):
    """2^k + 1 pulls, so that the means of what counts are exact."""
    pulls, first, sums = np.array([4097, 1025]), np.array([0.25, -0.5]), np.array([64.25, -32.5])
    plain = exact_log_evalue("gaussian", pulls, sums, first)
    assert log_evalue("gaussian", pulls, sums + pulls * shift, first + shift) == pytest.approx(plain, abs=1e-9)


@pytest.mark.parametrize("mean", [1e4, 1e6, 1e8])
def test_log_e_of_large_counts_is_exact(mean):
    pulls, first = [500, 300], [mean + 2 * math.sqrt(mean), mean - math.sqrt(mean)]
    sums = [float(round(500 * mean + 40 * math.sqrt(mean))), float(round(300 * mean - 40 * math.sqrt(mean)))]
    first = [float(round(f)) for f in first]
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


# --- The mixtures ----------------------------------------------------------------------------------------------------


def integrated_mixture(family, n, r, f):
    """log of the likelihood averaged over Jeffreys' prior, given the first reward but for bernoulli, by quadrature.

    Jeffreys' prior is flat in the coordinate in which the Fisher information is constant: the mean for gaussian,
    theta with p = sin² theta for bernoulli, the root of the mean for poisson, its logarithm for exponential.
    """
    kind = family_of(family)
    n, r, f, v = mpf(n), mpf(r), mpf(f), mpf(variance_of(kind))
    if kind.name in ("bernoulli", "bounded"):
        # The prior is proper: density 2/pi in theta on [0, pi/2].
        def likelihood(x):
            return abs(mp.sin(x)) ** (2 * r) * abs(mp.cos(x)) ** (2 * (n - r))

        return mp.log(mp.quad(likelihood, mp.linspace(0, mp.pi / 2, 33)) * 2 / mp.pi)

    def log_likelihood(x, n, r):
        if kind.name == "gaussian":
            return (r * x - n * x * x / 2) / v
        if kind.name == "poisson":
            return 2 * r * mp.log(x) - n * x * x if x > 0 else (mpf(0) if r == 0 else -mp.inf)
        return -n * x - r * mp.exp(-x)

    def log_integral(n, r):
        if kind.name == "gaussian":
            peak, width = r / n, mp.sqrt(v / n)
        elif kind.name == "poisson":
            peak, width = mp.sqrt(r / n), 1 / mp.sqrt(n)
        else:
            peak, width = mp.log(r / n), 1 / mp.sqrt(n)
        points = [peak + k * width for k in range(-40, 41, 2)]
        if kind.name == "exponential":  # falls as exp(-n x) only, to the right
            points += [peak + 60 * width * 2**k for k in range(6)]
        if kind.name == "poisson":
            points = [mpf(0), *(x for x in points if x > 0)]
        top = log_likelihood(peak, n, r)
        return top + mp.log(mp.quad(lambda x: mp.exp(log_likelihood(x, n, r) - top), points))

    return log_integral(n, r) - log_integral(mpf(1), f)


@pytest.mark.parametrize(
    ("family", "n", "r", "f"),
    [
        ("bernoulli", 1, 0, 0), ("bernoulli", 1, 1, 1), ("bernoulli", 5, 2, 0), ("bernoulli", 40, 40, 1),
        ("bernoulli", 100, 93, 1), ("bounded", 1, 0.3, 0.3), ("bounded", 7, 2.625, 0.5), ("bounded", 60, 0.01, 0),
        ("gaussian", 2, 1.0, -3.0), ("gaussian", 30, 45.5, 2.25), ("gaussian(variance=0.04)", 10, -3.0, 0.0),
        ("poisson", 2, 0, 0), ("poisson", 2, 9, 0), ("poisson", 3, 9, 9), ("poisson", 50, 70, 3),
        ("exponential", 2, 1.0, 0.001), ("exponential", 2, 1.0, 0.999), ("exponential", 80, 30.0, 0.5),
    ],
)  # fmt: skip
def test_the_mixture_is_the_average_likelihood_over_jeffreys_prior(family, n, r, f):
    """M, as the best fit of what counts less the arm's price, against a numerical integral over the prior."""
    kind = family_of(family)
    count, total = (n, r) if kind.name in ("bernoulli", "bounded") else (n - 1, r - f)
    fit = reference.log_largest_likelihood(kind.name, count, total, variance_of(kind))
    price = prices(family, [n, n], [r, r], first=[f, f])[0]
    with mp.workdps(25):
        expected = float(integrated_mixture(family, n, r, f))
    assert fit - price == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("n", [1, 2, 5, 11, 12, 13, 50, 1000, 5000])
def test_the_bernoulli_mixture_is_a_probability_over_all_outcomes(n):
    """sum over R of binomial(N, R) e^M = 1: nothing is lost or gained."""
    r = np.arange(n + 1.0)
    p = r / n
    fit = stats.binom.logpmf(r, n, p)  # binomial(N, R) p^R (1-p)^(N-R)
    assert np.exp(fit - prices("bernoulli", [n] * (n + 1), r)).sum() == pytest.approx(1, abs=1e-10)


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


# --- Chance: exactly, for bernoulli ----------------------------------------------------------------------------------


def bernoulli_log_evalues(n_b, n_a):
    """log E for every outcome, as a table over R_b and R_a."""
    r_b, r_a = (np.ravel(x) for x in np.meshgrid(np.arange(n_b + 1.0), np.arange(n_a + 1.0), indexing="ij"))
    log_e = all_log_evalues("bernoulli", arm_records(n_b, r_b, 0.0), arm_records(n_a, r_a, 0.0))
    return log_e.reshape(n_b + 1, n_a + 1)


@pytest.mark.parametrize(("n_b", "n_a"), [(1, 1), (2, 2), (1, 30), (30, 1), (30, 30), (5, 200), (150, 150)])
def test_the_mean_of_the_bernoulli_evalue_is_at_most_one_wherever_the_null_holds(n_b, n_a):
    e = np.exp(bernoulli_log_evalues(n_b, n_a))
    for mu_a in (0.01, 0.1, 0.3, 0.5, 0.8, 0.99):
        for mu_b in (mu_a, mu_a / 2):
            chance = np.outer(
                stats.binom.pmf(np.arange(n_b + 1), n_b, mu_b), stats.binom.pmf(np.arange(n_a + 1), n_a, mu_a)
            )
            assert (chance * e).sum() <= 1


def test_no_sampling_rule_makes_a_bernoulli_evalue_cross_more_often_than_promised():
    check_no_rule_crosses(bernoulli_log_evalues, [0.05, 0.5, 0.9], horizon=40)


# --- Chance: by simulation, for every family -------------------------------------------------------------------------


# family, how rewards are drawn, and their mean
TRUTHS = {
    "gaussian": ("gaussian", lambda rng, size: rng.normal(0.7, 1, size), 0.7),
    "gaussian of another variance": ("gaussian(variance=0.04)", lambda rng, size: rng.normal(-3, 0.2, size), -3.0),
    "bernoulli": ("bernoulli", lambda rng, size: (rng.random(size) < 0.3).astype(float), 0.3),
    "poisson": ("poisson", lambda rng, size: rng.poisson(0.7, size).astype(float), 0.7),
    "exponential": ("exponential", lambda rng, size: rng.exponential(2.0, size), 2.0),
    "bounded, uniform": ("bounded", lambda rng, size: rng.random(size), 0.5),
    "bounded, beta": ("bounded", lambda rng, size: rng.beta(0.4, 0.6, size), 0.4),
    "bounded, two points": ("bounded", lambda rng, size: np.where(rng.random(size) < 0.6, 0.1, 0.95), 0.44),
}
LEVELS = (1.5, 2.0, 5.0, 20.0, 100.0)


def assert_rarely_above(log_e, what):
    """P(E >= x) <= 1/x: the number of times it was has an exact binomial bound."""
    for x in LEVELS:
        count = int((log_e >= math.log(x)).sum())
        assert stats.binom.sf(count - 1, len(log_e), 1 / x) > CHANCE, (what, x, count / len(log_e))


def assert_mean_at_most_one(log_e, cut=50.0):
    """The mean of min(E, cut) is at most 1, by the empirical Bernstein bound of Maurer and Pontil (2009, Theorem 4).

    E itself is heavy-tailed; min(E, cut) is bounded, and its mean is no larger.
    """
    e, n = np.minimum(np.exp(log_e), cut), len(log_e)
    log_term = math.log(2 / CHANCE)
    allowed = math.sqrt(2 * e.var(ddof=1) * log_term / n) + 7 * cut * log_term / (3 * (n - 1))
    assert e.mean() <= 1 + allowed


def log_mixture_over_truth(family, mean, *arms):
    """log W: both arms' mixtures over the likelihood of the true mean.

    M - L(mean) = (L(best fit) - L(mean)) - (L(best fit) - M) = n d(mean of what counts, mean) - price. An arm of which
    nothing counts yet adds 0.
    """
    kind = family_of(family)
    total = np.zeros(len(arms[0]))
    for arm in arms:
        known = arm["tested"] > 0
        p, q = arm["tested_mean"][known], mean
        if kind.name == "gaussian":
            d = (p - q) ** 2 / (2 * kind.variance)
        elif kind.name == "poisson":
            d = special.kl_div(p, q)
        elif kind.name == "exponential":
            d = p / q - 1 - np.log(p / q)
        else:
            d = special.rel_entr(p, q) + special.rel_entr(1 - p, 1 - q)
        total[known] += arm["tested"][known] * d - arm["price"][known]
    return total


RULES = {
    "the worse arm": lambda b, a, t, rng: b["mean"] < a["mean"],
    "the better arm, one time in four the other": lambda b, a, t, rng: (
        (b["mean"] > a["mean"]) ^ (rng.random(len(b)) < 0.25)
    ),
    "b while it is below one half": lambda b, a, t, rng: b["mean"] < 0.5,
}


@pytest.mark.parametrize(("truth", "rule"), covering(TRUTHS, RULES))
def test_adaptive_sampling_of_two_equal_arms_crosses_as_rarely_as_promised(truth, rule):
    """The largest E and W over 100 pulls in 20 000 trajectories: P(max >= x) <= 1/x, by Ville's inequality."""
    family, draw, mean = TRUTHS[truth]
    rng = np.random.default_rng([2, list(RULES).index(rule)])
    count = 20_000
    b, a = (arm_records(1, first, first) for first in (draw(rng, count), draw(rng, count)))
    largest_e, largest_w = np.full(count, -np.inf), np.full(count, -np.inf)
    for t in range(2, 100):
        of_b = RULES[rule](b, a, t, rng)
        reward = draw(rng, count)
        for arm, chosen in ((b, of_b), (a, ~of_b)):
            arm["pulls"] += chosen
            arm["rewards"] += np.where(chosen, reward, 0.0)
            arm["mean"] = arm["rewards"] / arm["pulls"]
        log_e = all_log_evalues(family, b, a)
        log_w = log_mixture_over_truth(family, mean, b, a)
        assert (log_e <= log_w + 1e-9).all()
        largest_e, largest_w = np.maximum(largest_e, log_e), np.maximum(largest_w, log_w)
    assert_rarely_above(largest_e, truth)
    assert_rarely_above(largest_w, truth)
    assert_mean_at_most_one(log_w)
