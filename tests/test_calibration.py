"""Calibration: the certificate keeps its word, the search finds what is hard, and nothing is used beyond it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import beta, binom

import cabai
from cabai import InvalidInput
from cabai.calibration import Certificate, binomial, calibrate, search
from cabai.calibration.instances import hard_instances, more_instances
from cabai.calibration.search import Search, descend
from cabai.core.setup import Setup
from cabai.families import FAMILIES, family_of
from cabai.policies import policy_of
from cabai.thresholds import Calibrated, threshold_of
from shell import here

ONCE_IN_A_MILLION = 1e-6
FULL = "calibrated(c=1.7, policy=co, family=gaussian, arms=3, delta=0.05, max_pulls=10000)"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("calibrated", "needs its constant, as in calibrated"),
        ("calibrated(c=0)", "c must be positive"),
        ("calibrated(c=1, arms=1)", "arms must be a whole number of at least 2"),
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


def check_best_last(found, costs):
    for each in found:
        assert each.instance.best == len(costs) - 1
        assert sorted(each.instance.costs) == sorted(costs)
        assert each.instance.cost_model == "beta"


@pytest.mark.parametrize("family", FAMILIES.names)
@pytest.mark.parametrize("costs", [[1, 1], [1, 0.1, 0.01], [2] * 7, [5, 1, 2, 3, 4, 6]])
def test_hard_instances_have_their_best_arm_last_and_the_costs_given(family, costs):
    found = hard_instances(family_of(family), costs, 0.05, 1000, "beta")
    assert len({each.what for each in found}) == len(found) >= 3
    check_best_last(found, costs)
    middling = sorted(costs)[len(costs) // 2]
    assert {each.instance.costs[-1] for each in found} == {min(costs), max(costs), middling}


MIDDLING = [-0.45, -1e-9, 0.0], [0.01, 1, 0.1]  # means and costs


def test_a_middling_best_arm_is_searched_tied_with_its_more_expensive_neighbour():
    found = hard_instances(family_of("gaussian"), [1, 0.1, 0.01], 0.05, 1000, "fixed")
    assert MIDDLING in [(each.instance.means.tolist(), each.instance.costs.tolist()) for each in found]
    more = [each.instance for each in more_instances(family_of("gaussian"), [*range(1, 8)], "fixed", 3)]
    tied = {tuple(each.costs[each.means > -1e-8].tolist()) for each in more}
    assert {(5, 4), (5, 6, 7, 4)} <= tied  # the best last


@pytest.mark.parametrize("family", FAMILIES.names)
@pytest.mark.parametrize("costs", [[1, 0.1, 0.01], [2] * 7, [5, 1, 2, 3, 4, 6]])
def test_the_search_goes_on_among_pairs_of_like_cost_and_random_instances(family, costs):
    found, again, other = (more_instances(family_of(family), costs, "beta", seed) for seed in (3, 3, 4))
    instances = [[each.instance for each in one] for one in (found, again, other)]
    assert instances[0] == instances[1] != instances[2]
    check_best_last(found, costs)
    pairs = {tuple(each.instance.costs[-2:]) for each in found if each.what.startswith("2 tied")}
    ordered = sorted(costs)
    assert {(ordered[-2], ordered[-1]), (ordered[1], ordered[0])} <= pairs
    tied = [sum(each.instance.means > each.instance.means[-1] * (1 - 1e-8) - 1e-8) for each in found]
    assert (min(tied), max(tied) <= len(costs) - 1) == (2, True)


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


@pytest.fixture(scope="module")
def certificate():
    return calibrate("bernoulli", [1, 0.1, 0.01], "co", delta=0.1, max_pulls=500, trajectories=800, seed=1)


def test_a_certificate_says_what_was_searched_is_made_again_by_its_seed_and_saved_whole(certificate, tmp_path):
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
    again = calibrate("bernoulli", [1, 0.1, 0.01], "co", delta=0.1, max_pulls=500, trajectories=800, seed=1, workers=1)
    assert dataclasses.replace(again, seconds=certificate.seconds) == certificate
    path = tmp_path / "new" / "trial.json"
    certificate.save(path)
    assert Certificate.load(path) == certificate
    fields = json.loads(path.read_text())
    assert fields["threshold"] == certificate.threshold
    del fields["epsilon"]  # as in an earlier version
    path.write_text(json.dumps(fields))
    assert Certificate.load(path) == certificate
    assert "epsilon" not in certificate.threshold


def test_errors_stay_below_delta_on_new_trajectories(certificate):
    """Each searched instance again, 4000 trajectories on other random numbers, the best arm dropped or not returned."""
    for each in certificate.searched:
        instance = cabai.Instance(certificate.family, each.means, each.costs)
        runs = cabai.simulate(
            instance, search.watched(policy_of("co")), threshold=f"calibrated(c={certificate.c})", delta=0.1,
            max_pulls=500, trajectories=4000, seed=99,
        )  # fmt: skip
        assert runs.wrong.sum() <= binom.isf(ONCE_IN_A_MILLION, 4000, 0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"costs": [1]}, "at least 2 arms, got 1"),
        ({"policy": "cos"}, "did you mean co"),
        ({"delta": 0.5}, "delta must be below 0.5 here"),
        ({"delta": 0.001}, "needs at least .* trajectories, got 1000"),
        ({"confidence": 1}, "confidence must lie strictly between 0 and 1"),
        ({"max_pulls": 3}, "max_pulls must be a whole number of at least 4"),
        ({"epsilon": -1}, "epsilon must be"),
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
