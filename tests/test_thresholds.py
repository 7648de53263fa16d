"""Thresholds: every formula against an independent evaluation, what is proven, names and parameters."""

import itertools
import math
import random
import re
from functools import cache, partial

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import special, stats

import reference
from cabai import InvalidInput, Statistics
from cabai.core.evidence import evidence
from cabai.core.setup import Setup
from cabai.core.state import Record
from cabai.core.stopping import interval_level
from cabai.families import family_of
from cabai.thresholds import KT, EValue, Mixture, Paper, threshold_of
from cabai.thresholds.paper import smallest_log_B
from combinations import covering
from conftest import variance_of

ALL = ("gaussian", "bernoulli", "poisson", "exponential", "bounded")
FAMILIES = ["gaussian", "gaussian(variance=0.04)", "bernoulli", "bounded", "poisson", "exponential"]
PULLS = [(1, 1), (1, 2), (3, 7, 2), (40, 60), (1, 999), (5000, 5000, 10, 10**6), (10**9, 3), (10**9,) * 3, (2,) * 50]
DELTAS = [0.998, 0.9, 0.5, 0.05, 1e-6, 1e-100, 1e-300]


def rules_of(family, threshold, **options):
    return Setup(family_of(family), threshold_of(threshold), **options).rules


def flat(family, pulls):
    """Data of some pulls in which every arm's mean is 1/2 or, for whole rewards, as near to it as can be."""
    whole = family_of(family).name in ("bernoulli", "poisson")
    rewards = [n // 2 if whole else n / 2 for n in pulls]
    return Statistics(family, pulls, rewards, first=None if whole else [0.5] * len(pulls))


OF_T = {
    "paper": {}, "paper(B=7)": {"B": 7.0}, "paper(alpha=1.3, B=1e30)": {"alpha": 1.3, "B": 1e30}, "stylized": {},
    "mixture(pairwise=false)": {}, "kt": {},
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_required_equals_the_reference(family):
    name = family_of(family).name
    for pulls, delta in itertools.product(PULLS, DELTAS):
        data, arms = flat(family, pulls), len(pulls)
        for threshold, parameters in OF_T.items():
            if threshold != "kt" or name in ("bernoulli", "bounded"):
                rule = threshold_of(threshold)
                expected = reference.beta(rule.name, sum(pulls), delta, arms, name, parameters)
                assert rule.required(data, 0, 1, delta=delta) == pytest.approx(expected, rel=1e-12)
        for b, a in itertools.permutations(range(min(arms, 4)), 2):
            expected = reference.beta("mixture", 0, delta, arms, name, pair=(pulls[b], pulls[a]))
            assert Mixture().required(data, b, a, delta=delta) == pytest.approx(expected, rel=1e-12)
        if delta == 0.05 and arms < 5:
            expected = smallest_log_B(1.2, arms, delta) + 1.2 * math.log(sum(pulls)) - math.log(delta)
            required = threshold_of("paper(alpha=1.2)").required(data, 0, 1, delta=delta)
            assert required == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("family", "threshold"), covering(FAMILIES, ["paper", "stylized", "mixture", "evalue"], times=2)
)
def test_b_beats_a_exactly_when_the_reference_says_so(family, threshold):
    source = random.Random(f"{family} {threshold}")
    kind, rule = family_of(family), threshold_of(threshold)
    answers = []
    for _ in range(150):
        arms = source.choice([2, 4])
        pulls = [source.randint(2, 3000) for _ in range(arms)]
        means = [source.uniform(0.1, 0.9) for _ in range(arms)]
        whole = kind.name in ("bernoulli", "poisson")
        rewards = [float(round(n * mean)) if whole else n * mean for n, mean in zip(pulls, means, strict=True)]
        first = [source.choice([0, 1]) if whole else mean * source.uniform(0.5, 1) for mean in means]
        first = [min(f, r) for f, r in zip(first, rewards, strict=True)]
        data = Statistics(kind, pulls, rewards, first=first)
        delta = 10 ** source.uniform(-6, -0.1)
        run = reference.Run(kind.name, variance_of(kind), arms, threshold, delta, lambda a, of=first: (of[a], 1))
        run.N, run.R, run.order = pulls, rewards, [0] * sum(pulls)
        for b, a in itertools.permutations(range(arms), 2):
            beats = rule.beats(data, b, a, delta=delta)
            assert beats == run.beats(b, a)
            answers.append(beats)
        beaten = (rule.beats(data, data.leader, a, delta=delta) for a in range(arms) if a != data.leader)
        assert rule.stops(data, delta=delta) == all(beaten)
    assert 0.05 < np.mean(answers) < 0.95  # both answers were put to the test


@cache
def logs(last):
    return np.log(np.arange(2.0, last))


def log_terms(log_t, log_b, arms, alpha, delta):
    """log of e^(K+1)/K^K (log²(B t^alpha / delta) log t)^K / t^alpha."""
    inner = 2 * np.log(log_b - math.log(delta) + alpha * log_t) + np.log(log_t)
    return arms + 1 - arms * math.log(arms) + arms * inner - alpha * log_t


def condition(log_b, arms, alpha, delta, last=2_000_000):
    """(low, high) around  1/B sum over t of e^(K+1)/K^K (log²(B t^alpha / delta) log t)^K / t^alpha: the first terms
    summed, and the others' integral, of a polynomial times an exponential, which is off by their largest at most."""
    head = float(np.exp(log_terms(logs(last), log_b, arms, alpha, delta) - log_b).sum())
    start = math.log(last)
    with mp.workdps(40):
        c, a, beyond = mpf(log_b) - mp.log(mpf(delta)), mpf(alpha), mpf(alpha) - 1
        tail = mp.fsum(
            mp.binomial(2 * arms, j) * c ** (2 * arms - j) * a**j
            * mp.gammainc(arms + j + 1, beyond * mp.log(last)) / beyond ** (arms + j + 1)
            for j in range(2 * arms + 1)
        )  # fmt: skip
        tail = float(tail * mp.exp(arms + 1 - mpf(log_b)) / mpf(arms) ** arms)
    # The slope of log f in L, 2 K alpha/(C + alpha L) + K/L - alpha, falls; past L = 3 K/alpha it is negative.
    peak = log_terms(np.linspace(start, max(start, 3 * arms / alpha) + 1, 1000), log_b, arms, alpha, delta).max()
    slack = 2 * math.exp(peak - log_b)
    return head + tail - slack, head + tail + slack


ALPHAS = [1 + 1e-6, 1.05, 1.2, math.e / 2, 2.0]


@pytest.mark.parametrize("delta", [0.1, 1e-6, 1e-12])
@pytest.mark.parametrize("arms", [2, 10, 50])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_B_is_the_smallest_for_which_the_proof_holds(alpha, arms, delta):
    log_b = smallest_log_B(alpha, arms, delta)
    low, high = condition(log_b, arms, alpha, delta)
    assert high - low < 1e-6
    assert 1 - 1e-6 < low <= high < 1 + 1e-6
    smaller, _ = condition(log_b - 1e-4, arms, alpha, delta, last=200_000)
    assert smaller > 1
    _, larger = condition(log_b + 1e-4, arms, alpha, delta, last=200_000)
    assert larger < 1


@pytest.mark.parametrize("family", ["gaussian", "poisson", "exponential"])
def test_evalue_needs_two_pulls_of_both_arms_outside_bernoulli(family):
    for pulls in [(1, 1), (1, 100), (100, 1)]:
        data = Statistics(family, pulls, [100 * n for n in pulls], first=[100, 100])
        assert EValue().required(data, 0, 1, delta=0.9) == math.inf
        assert not EValue().stops(data, delta=0.9)
    assert EValue().required(Statistics(family, [2, 2], [3, 3], first=[1, 1]), 0, 1, delta=0.9) < math.inf


PROVEN = {
    "paper": ("bernoulli", "bounded"), "paper(B=100)": (), "paper(alpha=1.2)": ALL, "paper(alpha=1.2, B=100)": (),
    "stylized": (), "kt": ("bernoulli", "bounded"), "mixture": ALL, "mixture(pairwise=false)": ALL, "evalue": ALL,
    "champion": ALL,
}  # fmt: skip


@pytest.mark.parametrize("threshold", PROVEN)
def test_a_threshold_is_proven_for(threshold):
    rule, proven = threshold_of(threshold), PROVEN[threshold]
    assert tuple(family for family in ALL if rule.is_proven_for(family)) == tuple(f for f in ALL if f in proven)
    assert rule.is_proven_for("gaussian(variance=3)") == ("gaussian" in proven)
    assert rule.proof
    assert (rule.proof == "none") == (threshold == "stylized")


FULL = "calibrated(c=1.7, policy=co, family=gaussian, arms=3, delta=0.05, max_pulls=10000)"
CALIBRATED = ["calibrated(c=0.6)", FULL, FULL.replace("=co", "=ctas(exploration=0.5, tracking=ratio)")]


@pytest.mark.parametrize(
    ("written", "value", "normal"),
    [
        ("paper", Paper(), "paper"),
        (" Paper ( ) ", Paper(), "paper"),
        ("paper( alpha = 1.2 ,B=1e9)", Paper(alpha=1.2, B=1e9), "paper(alpha=1.2, B=1e+09)"),
        ("paper(alpha=1.23456789012)", Paper(alpha=1.23456789012), "paper(alpha=1.23456789012)"),
        ("paper(B=none)", Paper(), "paper"),
        ("paper(alpha=1)", Paper(), "paper"),
        ("mixture(pairwise=false)", Mixture(pairwise=False), "mixture(pairwise=False)"),
        ("EVALUE", EValue(), "evalue"),
        *((each, threshold_of(each), each) for each in CALIBRATED),
    ],
)
def test_a_threshold_is_written_and_read_the_same_way(written, value, normal):
    rule = threshold_of(written)
    assert rule == value
    assert str(rule) == normal
    assert threshold_of(normal) == rule
    assert threshold_of(rule) is rule


KNOWN = "known: paper, stylized, kt, mixture, evalue, contrast, hedged, champion, bets, symmetric, calibrated."


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("e-value", f"unknown threshold 'e-value'; did you mean evalue? {KNOWN}"),
        ("", f"unknown threshold ''; {KNOWN}"),
        ("paper(1.2)", "threshold paper cannot take '1.2'; its parameters: alpha, B."),
        ("paper(alpha=1.2, alpha=1.3)", "threshold paper cannot take 'alpha=1.3'; its parameters: alpha, B."),
        ("kt(alpha=1.2)", "threshold kt cannot take 'alpha=1.2'; its parameters: none."),
        ("mixture(pair=true)", "threshold mixture cannot take 'pair=true'; did you mean pairwise? its parameters: pai"),
        ("mixture(pairwise=2)", "pairwise must be"),
        ("paper(alpha=0.9)", "alpha must be at least 1, got 0.9."),
        ("paper(B=0)", "B must be positive, got 0."),
        (lambda: Paper(alpha="1.2"), "alpha must be a finite number, got '1.2'"),
        (family_of("poisson"), "threshold must be a name or a threshold, got Poisson()."),
    ],
)
def test_a_threshold_is_refused(given, message):
    with pytest.raises(InvalidInput) as error:
        given() if callable(given) else threshold_of(given)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("family", ["poisson", "gaussian(variance=2)"])
def test_kt_refuses_a_family_for_which_it_is_not_proven(family):
    said = f"threshold kt holds for bernoulli and bounded rewards only, got family {re.escape(family)}"
    with pytest.raises(InvalidInput, match=said):
        rules_of(family, KT(), arms=3, delta=0.1)
    with pytest.raises(InvalidInput, match=said):
        KT().stops(Statistics(family, [3, 3], [3, 6]), delta=0.1)


def test_a_threshold_refuses_a_delta_that_is_no_probability_and_fewer_than_two_arms():
    data, rule = flat("bernoulli", [4, 4]), threshold_of("paper")
    asks = partial(rule.required, data, 0, 1), partial(rule.beats, data, 0, 1), partial(rule.stops, data)
    for delta, message in (
        (0, "strictly between 0 and 1, got 0."), (1, "strictly between 0 and 1, got 1."),
        (math.nan, "finite number, got nan."), ("0.1", "finite number, got '0.1'."),
    ):  # fmt: skip
        for ask in (partial(rules_of, "bernoulli", rule, arms=2), *asks):
            with pytest.raises(InvalidInput, match=f"delta must .*{re.escape(message)}"):
                ask(delta=delta)
    for arms in (1, 2.5, True):
        with pytest.raises(InvalidInput, match=f"arms must be a whole number of at least 2, got {arms!r}"):
            rules_of("gaussian", Paper(), arms=arms, delta=0.1)


# --- The e-value: its formula and its mixtures


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
