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
from cabai.calibration.instances import hard_instances, more_instances, set_apart, some_within
from cabai.calibration.search import Search, descend
from cabai.core.setup import Setup
from cabai.families import FAMILIES, family_of
from cabai.policies import policy_of
from cabai.simulation.sums import right_arms
from cabai.thresholds import Calibrated, threshold_of
from shell import here
from storages import close

ONCE_IN_A_MILLION = 1e-6
FULL = "calibrated(c=1.7, policy=co, family=gaussian, arms=3, delta=0.05, max_pulls=10000)"


def use(family="gaussian", arms=3, delta=0.05):
    return lambda: Setup(family_of(family), threshold_of(FULL), arms=arms, delta=delta)


def trial(costs=(1, 1), policy="co", **options):
    return lambda: calibrate("gaussian", costs, policy, **{"trajectories": 1000, "max_pulls": 50} | options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: threshold_of("calibrated"), "needs its constant, as in calibrated"),
        (lambda: threshold_of("calibrated(c=0)"), "c must be positive"),
        (lambda: threshold_of("calibrated(c=1, arms=1)"), "arms must be a whole number of at least 2"),
        (lambda: threshold_of("calibrated(c=1, family=normal)"), "unknown family 'normal'"),
        (lambda: threshold_of("calibrated(c=1, family=gaussian(variance=2))"), "must be a name without parameters"),
        (lambda: threshold_of("calibrated(c=1, policy=3)"), "policy must be the name of a policy"),
        (use(family="poisson"), "certified for family gaussian, got poisson"),
        (use(arms=4), "certified for 3 arms, got 4"),
        (use(delta=0.01), "certified for delta 0.05, got 0.01"),
        (trial(costs=[1]), "at least 2 arms, got 1"),
        (trial(policy="cos"), "did you mean co"),
        (trial(delta=0.5), "delta must be below 0.5 here"),
        (trial(delta=0.001), "needs at least .* trajectories, got 1000"),
        (trial(confidence=1), "confidence must lie strictly between 0 and 1"),
        (trial(max_pulls=3), "max_pulls must be a whole number of at least 4"),
        (trial(epsilon=-1), "epsilon must be"),
    ],
)
def test_what_makes_no_sense_and_use_outside_what_was_certified_is_refused(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


def test_a_constant_alone_is_certified_for_nothing_and_refuses_nothing(paper_instance):
    for family, arms, delta in (("poisson", 3, 0.05), ("gaussian", 4, 0.05), ("gaussian", 3, 0.01)):
        bare = Setup(family_of(family), threshold_of("calibrated(c=1.7)"), arms=arms, delta=delta)
        assert bare.rules["loglog"] == 1
    with pytest.raises(InvalidInput, match="certified for policy co, got ctas"):
        cabai.simulate(paper_instance, "ctas", threshold=FULL, delta=0.05, trajectories=1)


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
    options = {"delta": 0.1, "trajectories": 300, "max_pulls": 300, "seed": 5}
    direct = [cabai.simulate(hard[0].instance, "ctas", threshold=Calibrated(c=c), **options) for c in constants]
    assert search.errors(0, constants, 300, 5) == [runs.wrong.sum() for runs in direct]
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


# --- Its file is accepted wherever a threshold is; with an epsilon, only for that epsilon


OPTIONS = {"delta": 0.2, "max_pulls": 100, "trajectories": 200}


@pytest.fixture(scope="module")
def plain():
    return calibrate("gaussian", [1, 0.1], "co", **OPTIONS)


@pytest.fixture(scope="module")
def with_epsilon():
    return calibrate("gaussian(variance=4)", [1, 0.1], "co", epsilon=1, **OPTIONS)


@pytest.fixture
def files(plain, with_epsilon, tmp_path):
    plain.save(tmp_path / "trial.json")
    with_epsilon.save(tmp_path / "close.json")
    yield tmp_path
    close(str(tmp_path))


STUDY = {"arms": ["a", "b"], "family": "gaussian(variance=1)", "policy": "co", "delta": 0.2}


def test_a_study_takes_a_file_and_keeps_what_it_says(files, plain):
    study = cabai.create_study("a file", **STUDY, threshold=str(files / "trial.json"), storage="memory")
    assert str(study.settings.threshold) == plain.threshold
    (files / "trial.json").unlink()
    assert cabai.load_study("a file", storage="memory").status().threshold == plain.threshold


def test_the_shell_takes_a_file_for_studies_too(files, plain):
    options = ["--arms", "a,b", "--family", "gaussian(variance=1)", "--policy", "co", "--delta", "0.2"]
    done = here("study", "create", "x", *options, "--threshold", "trial.json", cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(here("study", "status", "x", "--json", cwd=files).stdout)["threshold"] == plain.threshold
    again = here("study", "create", "x", *options, "--threshold", "trial.json", "--load-if-exists", cwd=files)
    assert again.returncode == 0
    refused = here("study", "create", "y", *options[:-1], "0.1", "--threshold", "trial.json", cwd=files)
    assert refused.stderr.startswith("cabai: the threshold is certified for delta 0.2, got 0.1")
    options[3] = "gaussian"
    refused = here("study", "create", "y", *options, "--threshold", "trial.json", cwd=files)
    assert refused.stderr.startswith("cabai: the threshold is certified for family gaussian, got gaussian(")
    assert "name a variance" in refused.stderr


def test_a_study_file_finds_it_beside_itself(files, plain):
    text = 'family = "gaussian(variance=1)"\npolicy = "co"\ndelta = 0.2\nthreshold = "trial.json"\narms = ["a", "b"]\n'
    (files / "study.toml").write_text(text + 'command = "echo \'{\\"reward\\": 0, \\"cost\\": 1}\'"\nmax_pulls = 2\n')
    shown = json.loads(here("run", str(files / "study.toml"), "--json", cwd="/").stdout)
    assert shown["threshold"] == plain.threshold
    (files / "study.toml").write_text(text.replace("trial", "other") + 'command = "true"\n')
    refused = here("run", "study.toml", cwd=files).stderr
    assert refused.startswith("cabai: study.toml: cannot read ")
    assert refused.count("\n") == 1


def test_a_server_gets_the_threshold_and_opens_no_file(files, plain, serve, monkeypatch):
    monkeypatch.chdir(files)
    server = serve(f"sqlite:///{files}/cabai.db")
    study = cabai.create_study("over HTTP", **STUDY, threshold="trial.json", storage=server.address)
    assert str(study.settings.threshold) == plain.threshold
    body = {"name": "y", **STUDY, "threshold": "trial.json"}
    code, _, problem = server.send("POST", "/api/studies", body)
    assert (code, "and opens no file" in json.dumps(problem)) == (422, True)


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "other.json"
    for content, message in (
        (None, "cannot read .*other.json: No such file"),
        ("{", "is not a certificate"),
        ("[]", "is not a certificate"),
        ('{"threshold": "calibrated(c=3)"}', "is not a certificate"),
        ('{"threshold": "paper"}', "its threshold is paper"),
        ('{"threshold": 5}', "threshold must be a name"),
    ):
        if content is not None:
            path.write_text(content)
        with pytest.raises(cabai.InvalidInput, match=message):
            cabai.create_study("refused", **STUDY, threshold=str(path), storage="memory")
        if message.startswith(("cannot", "is not")):
            with pytest.raises(cabai.InvalidInput, match=message):
                cabai.Certificate.load(path)


def test_a_certificate_with_an_epsilon_is_for_that_epsilon(files, with_epsilon):
    path = str(files / "close.json")
    assert "epsilon=0.5)" in with_epsilon.threshold  # standard deviations, of which there are 2 in 1
    assert cabai.Certificate.load(path) == with_epsilon
    assert "worse than the best by more than 0.5 standard deviations is returned" in repr(with_epsilon)
    assert all(each.upper_limit <= 0.2 for each in with_epsilon.searched)
    given = STUDY | {"threshold": path, "storage": "memory"}
    for number, (variance, epsilon) in enumerate([(4, 1.0), (1, 0.5)]):
        study = cabai.create_study(
            f"close {number}", **given | {"family": f"gaussian(variance={variance})"}, epsilon=epsilon
        )
        assert study.settings.is_certified
    for variance, epsilon in [(4, 0.5), (4, 2.0), (1, 1.0)]:
        with pytest.raises(cabai.InvalidInput, match=r"the threshold is certified for epsilon .* got"):
            cabai.create_study("no", **given | {"family": f"gaussian(variance={variance})"}, epsilon=epsilon)
    with pytest.raises(cabai.InvalidInput, match=r"certified for epsilon 0\.5 of gaussian rewards, got 0\.0"):
        cabai.create_study("no", **given)
    given |= {"threshold": str(files / "trial.json")}
    with pytest.raises(cabai.InvalidInput, match=r"certified without an epsilon, got epsilon=0\.1; cabai"):
        cabai.create_study("no", **given, epsilon=0.1)


@pytest.mark.parametrize("family", FAMILIES.names)
@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.4])
def test_on_what_is_searched_no_other_arm_is_good_enough(family, epsilon):
    """But just not: the nearest is worse by epsilon and next to nothing, in most."""
    found = set_apart(hard_instances(family_of(family), [1, 0.1, 0.01], 0.05, 1000, "fixed"), epsilon)
    assert len({each.what for each in found}) == len(found) >= 3
    for each in found:
        assert right_arms(each.instance, epsilon).tolist() == [2]
    nearest = [np.sort(each.instance.means)[-1] - np.sort(each.instance.means)[-2] for each in found]
    assert sum(abs(gap - epsilon) < 1e-6 * max(1.0, epsilon) for gap in nearest) >= len(found) / 2
    [half] = some_within(found[:1], epsilon)
    assert right_arms(half.instance, epsilon).tolist() == [0, 2]
