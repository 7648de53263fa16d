"""The policies of the literature: published numbers, and our own made with other code (see BASELINES in the issue)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import cabai
from cabai.core.compiling import compiled
from cabai.families.slots import draw_mean
from cabai.policies import POLICIES, bibtex
from cabai.policies.citations import CITED, PAPERS
from cabai.support.specialise import binding, specialised

MU2 = cabai.Instance("bernoulli", [0.3, 0.21, 0.2, 0.19, 0.18], [1] * 5)
FOUR = cabai.Instance("gaussian", [1, 0.85, 0.8, 0.7], [1] * 4)
THREE = cabai.Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01])

# Mean pulls and their standard error, 1,000 runs of independent code, threshold stylized, delta 0.1 (THREE: 0.05).
FOUND = {
    "gaussian": (FOUR, 0.1, {
        "thompson": (1827, 36), "thompson(challenger=resample)": (1921, 36), "at2": (1883, 40),
        "at2(challenger=tci)": (1868, 36), "eb-tci": (1934, 38), "eb-tci(coin=half)": (1988, 37),
        "eb-tci(challenger=tc)": (2236, 78), "eb-tci(coin=half, challenger=tc)": (2296, 70), "fws": (1938, 52),
        "lma": (2048, 48), "dkm": (2380, 48), "ugape": (3849, 91),
    }),
    "bernoulli": (MU2, 0.1, {
        "thompson": (1379, 22), "at2": (1351, 23), "at2(challenger=tci)": (1427, 22), "eb-tci": (1453, 25),
        "eb-tci(coin=half)": (1553, 23), "eb-tci(challenger=tc)": (3418, 292),
        "eb-tci(coin=half, challenger=tc)": (4447, 383), "fws": (1347, 43), "lma": (1674, 33), "ugape": (2584, 56),
    }),
    "costs": (THREE, 0.05, {
        "at2": (60.7, 0.7), "at2(challenger=tci)": (60.7, 0.7), "eb-tci(challenger=tc)": (60.7, 0.7),
        "eb-tci": (61.2, 0.7), "lma": (67.9, 1.1),
    }),
}  # fmt: skip
QUICK = {("gaussian", "thompson"), ("gaussian", "fws"), ("gaussian", "lma"), ("gaussian", "dkm"), ("bernoulli", "at2"),
         ("bernoulli", "eb-tci"), ("bernoulli", "ugape"), ("costs", "lma"), ("costs", "eb-tci")}  # fmt: skip
CELLS = [
    pytest.param(where, policy, id=f"{where}-{policy}", marks=() if (where, policy) in QUICK else pytest.mark.slow)
    for where, (_, _, found) in FOUND.items()
    for policy in found
]


@pytest.mark.parametrize(("where", "policy"), CELLS)
def test_a_policy_pays_what_other_code_found(where, policy):
    instance, delta, found = FOUND[where]
    expected, error = found[policy]
    summary = cabai.simulate(instance, policy, delta=delta, threshold="stylized", trajectories=1000, seed=1).summary()
    assert abs(summary.mean_cost - expected) <= 3 * math.hypot(error, summary.se_cost)
    assert summary.unfinished == 0


def test_without_an_improvement_the_challenger_starves_and_the_tail_shows_it():
    options = {"delta": 0.1, "threshold": "stylized", "trajectories": 1000}
    tci = cabai.simulate(MU2, "eb-tci", **options).summary()
    tc = cabai.simulate(MU2, "eb-tci(challenger=tc)", **options).summary()
    assert tc.cost_quantiles["0.5"] < 1.1 * tci.cost_quantiles["0.5"]
    assert tc.cost_quantiles["0.99"] > 5 * tci.cost_quantiles["0.99"]


def next_means(rules, record, n, total, out):
    for i in range(len(out)):
        out[i] = draw_mean(rules, record, n, total)


POSTERIORS = {
    "gaussian(variance=4)": (7, 3.5, stats.norm(0.5, math.sqrt(4 / 7))),
    "bernoulli": (9, 2.0, stats.beta(3, 8)),
    "bounded": (9, 8.5, stats.beta(9.5, 1.5)),
    "poisson": (4, 0.0, stats.gamma(1, scale=1 / 4)),
    "exponential": (5, 2.5, stats.invgamma(5, scale=2.5)),
}


@pytest.mark.parametrize("family", POSTERIORS)
def test_means_are_drawn_from_their_posterior(family):
    """100,000 draws; Kolmogorov-Smirnov, failing by chance once in a million."""
    n, total, law = POSTERIORS[family]
    kind = cabai.families.family_of(family)
    setup = cabai.core.setup.Setup(kind, cabai.thresholds.threshold_of("stylized"), arms=2, delta=0.1)
    record = np.zeros(1, [("stream", "u8")])
    record["stream"], out = 12345, np.empty(100_000)
    compiled(specialised(next_means, binding(setup.family.functions)))(setup.rules, record[0], n, total, out)
    assert stats.kstest(out, law.cdf).pvalue > 1e-6


def test_every_policy_says_what_to_cite():
    assert set(CITED) >= {*POLICIES.names, "cheapest"}
    assert {key for keys in CITED.values() for key in keys} == set(PAPERS)
    assert bibtex("lma").count("@") == 2
    assert bibtex("thompson(challenger=resample)").startswith("@inproceedings{shang20,")
    assert bibtex("mine:own") == ""


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("eb-tci(coin=fair)", "coin must be one of ids, half, got 'fair'"),
        ("eb-tci(epsilon=0.1)", "needs challenger=tc"),
        ("thompson(challenger=tci)", "challenger must be one of tc, resample"),
        ("at2(challenger=resample)", "challenger must be one of tc, tci"),
        ("tas(tracking=c)", "tracking must be one of deficit, ratio, sums"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(policy, message):
    with pytest.raises(cabai.InvalidInput, match=message):
        cabai.policies.policy_of(policy)
