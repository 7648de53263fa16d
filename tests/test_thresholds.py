"""Thresholds: every formula against an independent evaluation, what is proven, names and parameters."""

import itertools
import math
import random
import re
from functools import cache

import numpy as np
import pytest
from mpmath import mp, mpf

import reference
from cabai import InvalidInput, Statistics
from cabai.core.setup import Setup
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


@pytest.mark.parametrize(
    ("family", "threshold"),
    [(f, t) for f in FAMILIES for t in OF_T if t != "kt" or f in ("bernoulli", "bounded")],
)
def test_a_threshold_in_t_equals_the_reference(family, threshold):
    rule, name, parameters = threshold_of(threshold), family_of(family).name, OF_T[threshold]
    for pulls, delta in itertools.product(PULLS, DELTAS):
        data = flat(family, pulls)
        expected = reference.beta(rule.name, sum(pulls), delta, len(pulls), name, parameters)
        assert rule.required(data, 0, 1, delta=delta) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mixture_of_a_pair_equals_the_reference(family):
    for pulls, delta in itertools.product(PULLS, DELTAS):
        data = flat(family, pulls)
        for b, a in itertools.permutations(range(min(len(pulls), 4)), 2):
            name = family_of(family).name
            expected = reference.beta_mixture_pairwise(pulls[b], pulls[a], delta, len(pulls), name)
            assert Mixture().required(data, b, a, delta=delta) == pytest.approx(expected, rel=1e-12)


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


@pytest.mark.parametrize("family", FAMILIES)
def test_paper_with_alpha_above_one_takes_the_smallest_B_by_itself(family):
    for pulls, delta in itertools.product(PULLS[:4], [0.1, 1e-6]):
        expected = smallest_log_B(1.2, len(pulls), delta) + 1.2 * math.log(sum(pulls)) - math.log(delta)
        required = threshold_of("paper(alpha=1.2)").required(flat(family, pulls), 0, 1, delta=delta)
        assert required == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("family", ["gaussian", "poisson", "exponential"])
def test_evalue_needs_two_pulls_of_both_arms_outside_bernoulli(family):
    for pulls in [(1, 1), (1, 100), (100, 1)]:
        data = Statistics(family, pulls, [100 * n for n in pulls], first=[100, 100])
        assert EValue().required(data, 0, 1, delta=0.9) == math.inf
        assert not EValue().stops(data, delta=0.9)
    assert EValue().required(Statistics(family, [2, 2], [3, 3], first=[1, 1]), 0, 1, delta=0.9) < math.inf


@pytest.mark.parametrize(
    ("threshold", "proven"),
    [
        ("paper", ("bernoulli", "bounded")),
        ("paper(B=100)", ()),
        ("paper(alpha=1.2)", ALL),
        ("paper(alpha=1.2, B=100)", ()),
        ("stylized", ()),
        ("kt", ("bernoulli", "bounded")),
        ("mixture", ALL),
        ("mixture(pairwise=false)", ALL),
        ("evalue", ALL),
        ("champion", ALL),
    ],
)
def test_a_threshold_is_proven_for(threshold, proven):
    rule = threshold_of(threshold)
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


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        (0, "strictly between 0 and 1, got 0."),
        (1, "strictly between 0 and 1, got 1."),
        (math.nan, "finite number, got nan."),
        ("0.1", "finite number, got '0.1'."),
    ],
)
def test_a_threshold_refuses_a_delta_that_is_no_probability_and_fewer_than_two_arms(delta, message):
    data, rule = flat("bernoulli", [4, 4]), threshold_of("paper")
    for ask in (
        lambda: rules_of("bernoulli", rule, arms=2, delta=delta),
        lambda: rule.required(data, 0, 1, delta=delta),
        lambda: rule.beats(data, 0, 1, delta=delta),
        lambda: rule.stops(data, delta=delta),
    ):
        with pytest.raises(InvalidInput, match=f"delta must .*{re.escape(message)}"):
            ask()
    for arms in (1, 2.5, True):
        with pytest.raises(InvalidInput, match=f"arms must be a whole number of at least 2, got {arms!r}"):
            rules_of("gaussian", Paper(), arms=arms, delta=0.1)
