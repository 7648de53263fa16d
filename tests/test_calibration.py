"""Calibration: the certificate keeps its word, the search finds what is hard, and nothing is used beyond it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import beta, binom

import cabai
from cabai import InvalidInput
from cabai.calibration import Certificate, binomial, calibrate, search
from cabai.calibration.instances import hard_instances, more_instances
from cabai.calibration.search import Search, descend, hardest, pilot
from cabai.core.setup import Setup
from cabai.families import FAMILIES, family_of
from cabai.policies import policy_of
from cabai.thresholds import Calibrated, Stylized, threshold_of
from shell import here

ONCE_IN_A_MILLION = 1e-6
FULL = "calibrated(c=1.7, policy=co, family=gaussian, arms=3, delta=0.05, max_pulls=10000)"


# --- The threshold ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("calibrated", "needs its constant, as in calibrated"),
        ("calibrated(c=0)", "c must be positive"),
        ("calibrated(c=1, arms=1)", "arms must be a whole number of at least 2"),
        ("calibrated(c=1, delta=2)", "delta must lie strictly between 0 and 1"),
        ("calibrated(c=1, family=normal)", "unknown family 'normal'"),
        ("calibrated(c=1, family=gaussian(variance=2))", "family must be a name without parameters"),
        ("calibrated(c=1, policy=3)", "policy must be the name of a policy"),
    ],
)
def test_a_calibrated_threshold_is_refused(given, message):
    with pytest.raises(InvalidInput, match=message):
        threshold_of(given)


@pytest.mark.parametrize(
    ("family", "arms", "delta", "message"),
    [
        ("poisson", 3, 0.05, "family gaussian, got poisson"),
        ("gaussian", 4, 0.05, "3 arms, got 4"),
        ("gaussian", 3, 0.01, "delta 0.05, got 0.01"),
    ],
)
def test_use_outside_what_was_certified_is_refused(family, arms, delta, message):
    with pytest.raises(InvalidInput, match=message):
        Setup(family_of(family), threshold_of(FULL), arms=arms, delta=delta)
    bare = Setup(family_of(family), threshold_of("calibrated(c=1.7)"), arms=arms, delta=delta)
    assert bare.rules["loglog"] == 1
    instance = cabai.Instance("gaussian", [1.5, 1.0, 0.5], [1, 0.1, 0.01])
    with pytest.raises(InvalidInput, match="certified for policy co, got ctas"):
        cabai.simulate(instance, "ctas", threshold=FULL, delta=0.05, trajectories=1)


def test_summaries_say_that_it_is_certified_and_not_proven(paper_instance):
    options = {"delta": 0.05, "trajectories": 20, "max_pulls": 10_000}
    known = cabai.simulate(paper_instance, "co", threshold=FULL, **options).summary()
    assert (known.proven, known.standing) == (False, "certified by simulation, up to 10000 pulls")
    assert f"{FULL} (certified by simulation, up to 10000 pulls)" in repr(known)
    assert "(certified by simulation, up to 10000 pulls)" in repr(
        cabai.compare(paper_instance, ["co"], threshold=FULL, **options)
    )
    bare = cabai.simulate(paper_instance, "co", threshold="calibrated(c=1.7)", **options).summary()
    assert bare.standing == "not proven for this family"
    assert bare.mean_cost == known.mean_cost


# --- The statistics --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [200, 4000, 100_000])
@pytest.mark.parametrize("delta", [0.3, 0.05, 0.01])
@pytest.mark.parametrize("alpha", [0.05, 0.005])
def test_the_most_errors_that_certify_a_rate_are_those_of_the_exact_binomial_test(n, delta, alpha):
    most = binomial.most_errors(n, delta, alpha)
    assert binom.cdf(most, n, delta) <= alpha < binom.cdf(most + 1, n, delta)
    if most >= 0:
        assert binomial.upper_limit(most, n, alpha) <= delta < binomial.upper_limit(most + 1, n, alpha)
        expected = beta.ppf(1 - alpha, most + 1, n - most)
        assert binomial.upper_limit(most, n, alpha) == pytest.approx(expected, rel=1e-9)


def stand_in(rates, at_once, rng, delta=0.05):
    """A search whose instances err at a known rate rates[j]/c: no simulation, and the truth is known."""
    shared = {}

    def errors(which, constants, trajectories, seed):
        draws = shared.setdefault((which, trajectories, seed), rng.random(trajectories))  # the same luck at every c
        return [int((draws < rates[which] / c).sum()) for c in constants]

    return SimpleNamespace(instances=rates, delta=delta, at_once=at_once, errors=errors)


@pytest.mark.parametrize("at_once", [1, 8])
def test_a_certificate_is_wrong_no_more_often_than_it_admits(at_once):
    """Six instances, four of them equally the hardest: 400 searches at 80 % confidence, one-sided, once in a million.

    Every instance just allowed at c = 1: a smaller c is a wrong certificate.
    """
    rng, wrong, found = np.random.default_rng(1), 0, []
    for attempt in range(400):
        search = stand_in([0.05, 0.05, 0.05, 0.05, 0.03, 0.01], at_once, rng)
        result = descend(search, 1.15, [4000] * 6, 0.2, attempt, [])
        if result is not None:
            found.append(result[0])
            wrong += result[0] < 1
    assert wrong <= binom.isf(ONCE_IN_A_MILLION, 400, 0.2)
    assert len(found) > 300  # and it does find something
    assert np.median(found) < 1.25


def test_the_pilot_finds_the_hardest_instance_and_a_constant_near_the_edge():
    search = stand_in([0.01, 0.4, 0.02, 0.35, 0.1], 1, np.random.default_rng(3))
    guess, order, sizes = pilot(search, 4000, 150, 0.01, 0)
    assert order[:2] == [1, 3]
    assert sizes == [4000, 4000, 1000, 1000, 1000]
    edge = 0.4 / (binomial.most_errors(4000, 0.05, 0.005) / 4000)  # 9.8: where the hardest would just pass
    assert 0.7 * edge < guess < 1.4 * edge


# --- What is searched ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES.names)
@pytest.mark.parametrize("costs", [[1, 1], [1, 0.1, 0.01], [2] * 7, [5, 1, 2, 3, 4, 6]])
def test_hard_instances_have_their_best_arm_last_and_the_costs_given(family, costs):
    found = hard_instances(family_of(family), costs, 0.05, 1000, "beta")
    assert len({each.what for each in found}) == len(found) >= 3
    for each in found:
        assert each.instance.best == len(costs) - 1
        assert sorted(each.instance.costs) == sorted(costs)
        assert each.instance.cost_model == "beta"
    middling = sorted(costs)[len(costs) // 2]
    assert {each.instance.costs[-1] for each in found} == {min(costs), max(costs), middling}


MIDDLING = [-0.45, -1e-9, 0.0], [0.01, 1, 0.1]  # means and costs: the hardest known instance of these costs


def test_a_middling_best_arm_is_searched_tied_with_its_more_expensive_neighbour():
    found = hard_instances(family_of("gaussian"), [1, 0.1, 0.01], 0.05, 1000, "fixed")
    assert MIDDLING in [(each.instance.means.tolist(), each.instance.costs.tolist()) for each in found]
    more = [each.instance for each in more_instances(family_of("gaussian"), [*range(1, 8)], "fixed", 3)]
    tied = {tuple(each.costs[each.means > -1e-8].tolist()) for each in more}
    assert {(5, 4), (5, 6, 7, 4)} <= tied  # the best last


@pytest.mark.slow
def test_a_tight_certificate_holds_where_a_middling_arm_is_tied():
    """Without that instance, c was 0.508 and its rate 0.0510. 400,000 trajectories: at the rate of 0.047 that a
    certificate from 40,000 aims at, more than delta would be 9 standard deviations."""
    found = calibrate("gaussian", [1, 0.1, 0.01], delta=0.05, max_pulls=1000, trajectories=40_000)
    runs = cabai.simulate(
        cabai.Instance("gaussian", *MIDDLING), threshold=found.threshold, delta=0.05, max_pulls=1000,
        trajectories=400_000, keep="summary", seed=20,
    )  # fmt: skip
    print(f"\nc = {found.c}: {runs.sums.errors / 400_000:.5f}")
    assert runs.sums.errors <= 0.05 * 400_000


@pytest.mark.parametrize("family", FAMILIES.names)
@pytest.mark.parametrize("costs", [[1, 0.1, 0.01], [2] * 7, [5, 1, 2, 3, 4, 6]])
def test_the_search_goes_on_among_pairs_of_like_cost_and_random_instances(family, costs):
    found = more_instances(family_of(family), costs, "beta", 3)
    assert [each.instance for each in found] == [
        each.instance for each in more_instances(family_of(family), costs, "beta", 3)
    ]
    assert [each.instance for each in found] != [
        each.instance for each in more_instances(family_of(family), costs, "beta", 4)
    ]
    for each in found:
        assert each.instance.best == len(costs) - 1
        assert sorted(each.instance.costs) == sorted(costs)
        assert each.instance.cost_model == "beta"
    pairs = {tuple(each.instance.costs[-2:]) for each in found if each.what.startswith("2 tied")}
    ordered = sorted(costs)
    assert {(ordered[-2], ordered[-1]), (ordered[1], ordered[0])} <= pairs
    tied = [sum(each.instance.means > each.instance.means[-1] * (1 - 1e-8) - 1e-8) for each in found]
    assert (min(tied), max(tied) <= len(costs) - 1) == (2, True)


def test_the_worst_of_many_instances_are_found_with_few_trajectories():
    search = stand_in([0.02] * 20 + [0.08, 0.07, 0.09] + [0.04] * 10, 1, np.random.default_rng(5))
    assert sorted(hardest(search, 0.5, 250, 0)) == [20, 21, 22]


def test_nothing_is_certified_on_the_random_numbers_that_chose_it(monkeypatch):
    choosing, certifying, errors, descent = set(), set(), Search.errors, search.descend

    def watched_errors(self, which, constants, trajectories, seed):
        choosing.add(seed)
        return errors(self, which, constants, trajectories, seed)

    def watched_descent(search, guess, sizes, alpha, seed, tried):
        assert seed not in choosing
        certifying.add(seed)
        return descent(search, guess, sizes, alpha, seed, tried)

    monkeypatch.setattr(Search, "errors", watched_errors)
    monkeypatch.setattr("cabai.calibration.calibrating.descend", watched_descent)
    calibrate("gaussian", [1, 0.5, 0.1], "uniform", delta=0.1, max_pulls=100, trajectories=800)
    assert certifying
    assert len(choosing - certifying) == 1


@pytest.mark.slow
def test_an_independent_random_search_does_not_refute_a_certificate():
    done = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "benchmarks" / "refute_certificate.py", "--trajectories", "10000"],
        capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none above delta = 0.05" in done.stdout


def test_losing_the_best_arm_counts_though_the_arms_left_are_tied():
    """Without the watch, a run of racing that has dropped the best of three tied arms goes on: few would be wrong."""
    hard = hard_instances(family_of("gaussian"), [1.0] * 3, 0.1, 500, "fixed")[0]
    search = Search([hard], policy_of("racing"), 0.1, 500, None, lambda text: None)
    (lost,) = search.errors(0, [0.5], 2000, 7)
    plain = cabai.simulate(
        hard.instance, "racing", threshold="stylized", delta=0.2, max_pulls=500, trajectories=2000, seed=7
    )
    assert plain.wrong.sum() < 0.6 * lost


def test_one_trajectory_answers_for_several_constants_where_choices_do_not_depend_on_them():
    hard = hard_instances(family_of("bernoulli"), [1, 0.1], 0.1, 300, "fixed")[:1]
    search = Search(hard, policy_of("ctas"), 0.1, 300, None, lambda text: None)
    constants = [2.0, 1.0, 0.5, 0.3]
    assert search.errors(0, constants, 300, 5) == [search.errors(0, [c], 300, 5)[0] for c in constants]
    direct = [
        cabai.simulate(
            hard[0].instance, "ctas", threshold=Calibrated(c=c), delta=0.1, trajectories=300, max_pulls=300, seed=5
        ).wrong.sum()
        for c in constants
    ]
    assert search.errors(0, constants, 300, 5) == direct
    assert (search.at_once, dataclasses.replace(search, policy=policy_of("co")).at_once) == (8, 1)


def test_the_search_finds_that_stylized_breaks_delta_with_elimination():
    """Ten arms, all tied, delta = 0.1: `stylized` is c = 1, where far more than a tenth lose the best arm."""
    certificate = calibrate("gaussian", [1.0] * 10, "racing", delta=0.1, max_pulls=1000, trajectories=800)
    assert certificate.c > 1.5
    assert certificate.searched[0].what == "all arms tied"
    hard = hard_instances(family_of("gaussian"), [1.0] * 10, 0.1, 1000, "fixed")
    search = Search(hard, policy_of("racing"), 0.1, 1000, None, lambda text: None)
    assert search.errors(0, [1.0], 800, 0)[0] > binom.isf(ONCE_IN_A_MILLION, 800, 0.1)


# --- The certificate -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate():
    return calibrate("bernoulli", [1, 0.1, 0.01], "co", delta=0.1, max_pulls=500, trajectories=800, seed=1)


def test_a_certificate_says_what_was_searched_and_how_surely(certificate):
    assert certificate.c == threshold_of(certificate.threshold).c
    assert certificate.threshold == (
        f"calibrated(c={certificate.c:g}, policy=co, family=bernoulli, arms=3, delta=0.1, max_pulls=500)"
    )
    # at so short a horizon, both gaps are the widest there is; three were found among pairs of like cost and at random
    assert len(certificate.searched) == 16 + 3
    for each in certificate.searched:
        assert each.trajectories in (800, 200)
        assert each.rate <= each.upper_limit <= 0.1
    assert "not proven: with 99 % confidence, on each of these 19 instances" in repr(certificate)


def test_errors_stay_below_delta_on_new_trajectories(certificate):
    """Each searched instance again, 4000 trajectories on other random numbers, the best arm dropped or not returned."""
    for each in certificate.searched:
        instance = cabai.Instance(certificate.family, each.means, each.costs)
        runs = cabai.simulate(
            instance, search.watched(policy_of("co")), threshold=f"calibrated(c={certificate.c})", delta=0.1,
            max_pulls=500, trajectories=4000, seed=99,
        )  # fmt: skip
        assert runs.wrong.sum() <= binom.isf(ONCE_IN_A_MILLION, 4000, 0.1)


def test_the_same_seed_gives_the_same_certificate(certificate):
    again = calibrate("bernoulli", [1, 0.1, 0.01], "co", delta=0.1, max_pulls=500, trajectories=800, seed=1, workers=1)
    assert dataclasses.replace(again, seconds=certificate.seconds) == certificate


def test_a_certificate_is_saved_and_loaded_whole(certificate, tmp_path):
    path = tmp_path / "new" / "trial.json"
    certificate.save(path)
    assert Certificate.load(path) == certificate
    fields = json.loads(path.read_text())
    assert fields["threshold"] == certificate.threshold
    del fields["epsilon"]  # as in an earlier version
    path.write_text(json.dumps(fields))
    assert Certificate.load(path) == certificate
    assert "epsilon" not in certificate.threshold


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"costs": [1]}, "at least 2 arms, got 1"),
        ({"costs": [1, -1]}, r"costs\[1\] must be positive"),
        ({"policy": "cos"}, "did you mean co"),
        ({"delta": 0.5}, "delta must be below 0.5 here"),
        ({"delta": 0.001}, "needs at least .* trajectories, got 1000"),
        ({"confidence": 1}, "confidence must lie strictly between 0 and 1"),
        ({"max_pulls": 3}, "max_pulls must be a whole number of at least 4"),
        ({"epsilon": -1}, "epsilon must be"),
        ({"epsilon": "x"}, "epsilon must be"),
        ({"epsilon": float("nan")}, "epsilon must be"),
    ],
)
def test_calibrate_refuses(options, message):
    given = {"family": "gaussian", "costs": [1, 1], "policy": "co", "trajectories": 1000, "max_pulls": 50} | options
    with pytest.raises(InvalidInput, match=message):
        calibrate(given.pop("family"), given.pop("costs"), given.pop("policy"), **given)


@pytest.mark.parametrize("trajectories", [168, 200])
def test_the_fewest_trajectories_end_in_a_certificate_or_a_sentence(trajectories):
    """A pilot of a quarter of them cannot allow any error."""
    found: list[Certificate] = []
    with contextlib.suppress(cabai.InvalidInput):  # not a TypeError
        found += [cabai.calibrate("gaussian", [1, 0.3], "co", delta=0.1, max_pulls=60, trajectories=trajectories)]
    assert all(each.upper_limit <= 0.1 for one in found for each in one.searched)


@pytest.mark.parametrize("epsilon", [[], ["--epsilon", "0.1"]], ids=["best", "within"])
def test_the_command_writes_a_certificate_that_simulate_and_compare_can_use(tmp_path, epsilon):
    common = ["--family", "bernoulli", "--costs", "1,0.1", "--delta", "0.2", "--max-pulls", "100"]
    options = [*common, *epsilon]
    done = here(
        "calibrate", *options, "--policy", "co", "--trajectories", "200", "--out", "trial.json", "--json", cwd=tmp_path
    )
    fields = json.loads(done.stdout)
    assert (done.stderr, fields) == ("", json.loads((tmp_path / "trial.json").read_text()))
    assert ("epsilon=0.1)" in fields["threshold"]) == bool(epsilon)
    more = ["--means", "0.9,0.5", "--trajectories", "50", "--threshold", "trial.json"]
    summary = json.loads(here("simulate", *options, *more, "--policy", "co", "--json", cwd=tmp_path).stdout)
    assert (summary["threshold"], summary["standing"]) == (
        fields["threshold"], "certified by simulation, up to 100 pulls",
    )  # fmt: skip
    refused = here("compare", *options, *more, "--policies", "co,racing", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("cabai: the threshold is certified for policy co, got racing")
    if epsilon:
        assert "certified for epsilon 0.1" in here("simulate", *common, *more, "--policy", "co", cwd=tmp_path).stderr


# --- Held out --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "exponential"])
@pytest.mark.parametrize(("policy", "epsilon"), [("co", 0.0), ("ctas", 0.0), ("co", 0.1), ("top-two", 0.1)])
def test_instances_that_were_not_searched_keep_delta_too(family, policy, epsilon):
    """Not promised, and so it should be: 30 random instances in random places, of near ties and gaps or, with an
    epsilon, of arms that are just not good enough; delta = 0.1.

    5000 trajectories each, one-sided; the chance of a false alarm over all 30 stays below 3e-5.
    """
    costs = [1, 0.1, 0.01, 0.3]
    found = calibrate(family, costs, policy, delta=0.1, epsilon=epsilon, max_pulls=2000, trajectories=4000)
    rng = np.random.default_rng(8)
    for _ in range(30):
        places = {"gaussian": rng.normal(), "bernoulli": rng.uniform(0.05, 0.85), "poisson": 10 ** rng.uniform(-1, 1.5)}
        level = float(places.get(family, max(1.0, epsilon) * 10 ** rng.uniform(-0.5, 1.8)))
        gaps = 10 ** rng.uniform(-6, -0.3, size=3) * (1 if family == "gaussian" else level)
        means = [*(level - gaps), level]
        if epsilon:
            above = epsilon * rng.uniform(0, 1, size=3) * (rng.random(3) < 0.3)
            means = [*(level - 1e-9 + above), level + epsilon]
        runs = cabai.simulate(
            cabai.Instance(family, means, rng.permutation(costs)),
            policy if epsilon else search.watched(policy_of(policy)),
            threshold=found.threshold if epsilon else Stylized(), delta=0.1 if epsilon else 0.1 / found.c,
            epsilon=epsilon, trajectories=5000, max_pulls=2000, seed=int(rng.integers(2**32)),
        )  # fmt: skip
        assert runs.wrong.sum() <= binom.isf(ONCE_IN_A_MILLION, 5000, 0.1)
