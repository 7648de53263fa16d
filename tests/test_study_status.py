"""What a study says of itself."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pytest
from scipy.optimize import brentq

import cabai
import reference
from cabai.study import catalogue
from folding import Play
from storages import looked
from studies import new, play, reloaded, start


def log_wealth(family: str, n: int, r: float, f: float, mean: float, variance: float = 1.0) -> float:
    """log of the mixture over the likelihood at `mean`, of one arm's data, given the first reward but for bernoulli."""
    s, rest = r - f, n - 1
    mixture = reference.log_mixture(family, n, r, f, variance)
    if family in ("bernoulli", "bounded"):
        return mixture - (r * math.log(mean) if r > 0 else 0.0) - ((n - r) * math.log1p(-mean) if n > r else 0.0)
    if family == "gaussian":
        return mixture - (s * mean - rest * mean**2 / 2) / variance
    if family == "poisson":
        return mixture - (s * math.log(mean) if s > 0 else 0.0) + rest * mean
    return mixture + rest * math.log(mean) + s / mean


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "bounded", "poisson", "exponential"])
def test_an_interval_is_where_the_mixture_has_gained_too_little_to_rule_a_mean_out(family, direction):
    """{q : log(mixture / likelihood at q) <= log(K / delta)}, whose ends are found here by bisection."""
    rng = np.random.default_rng(6)
    draws = {
        "gaussian": lambda n: rng.normal(0.3, 1, n),
        "bernoulli": lambda n: (rng.uniform(size=n) < rng.choice([0.5, 0.02, 1.0])).astype(float),
        "bounded": lambda n: rng.uniform(size=n),
        "poisson": lambda n: rng.poisson(rng.choice([0.1, 3, 40]), n).astype(float),
        "exponential": lambda n: rng.exponential(2, n),
    }
    edges = {"gaussian": (-1e6, 1e6), "poisson": (1e-12, 1e6), "exponential": (1e-12, 1e9)}
    lowest, highest = edges.get(family, (1e-14, 1 - 1e-14))
    settings = new(arms=list("abcd"), family=family, direction=direction, policy="uniform", threshold="paper").settings
    for n in (1, 2, 3, 10, 200):
        state, rewards = Play(settings), draws[family](n)
        for reward in rewards:
            state.observe(0, settings.seen(float(reward)), 1.0)
        low, high = state.interval(0)
        assert state.interval(1) == settings.family.mean_range
        if n == 1 and family not in ("bernoulli", "bounded"):
            assert (low, high) == settings.family.mean_range
            continue
        r, f = math.fsum(rewards), float(rewards[0])
        centre = r / n if family in ("bernoulli", "bounded") else (r - f) / (n - 1)

        def gained(q, n=n, r=r, f=f):
            return log_wealth(family, n, r, f, q) - math.log(4 / 0.05)

        for end, edge in ((low, lowest), (high, highest)):
            inside = min(max(centre, lowest), highest)
            if gained(edge) <= 0:
                assert end == pytest.approx(settings.family.mean_range[edge == highest], abs=1e-9)
            else:
                assert end == pytest.approx(brentq(gained, edge, inside, xtol=1e-13), rel=1e-6, abs=1e-9)


def test_evidence_and_what_is_required_of_it_are_those_of_the_closest_rival():
    study = new(policy="uniform", threshold="evalue", delta=0.05)
    start(study, [1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1])
    data = {arm: [o["reward"] for o in study.observations() if o["arm"] == arm] for arm in "abc"}
    sums = {arm: (len(rewards), sum(rewards)) for arm, rewards in data.items()}
    status = study.status()
    b = status.leader
    assert b == max("abc", key=lambda arm: (np.mean(data[arm]), -"abc".index(arm)))
    left = {a: reference.log_evalue("bernoulli", *sums[b], data[b][0], *sums[a], data[a][0]) for a in "abc" if a != b}
    assert status.rival == min(left, key=left.get)
    assert status.evidence - status.required == pytest.approx(min(left.values()) - math.log(2 / 0.05), abs=1e-9)
    z = reference.evidence("bernoulli", *sums[b], *sums[status.rival])
    assert status.evidence == pytest.approx(max(z, 0.0), abs=1e-9)


def test_what_a_status_says_as_a_study_goes_on():
    study = new()
    assert study.status().sentence == "Nothing observed yet."
    study.tell(study.ask(), failed="no answer", cost=0.5)
    assert study.status().sentence == "No reward yet: 1 failed. 0.5 spent."
    study = new(arms=["small", "large"], delta=0.01, policy="uniform", max_pulls=100)
    study.tell(study.ask(), 0, 0.5)
    assert study.status().sentence == "small leads so far; it is too early to tell more. 0.5 spent."
    means = {"small": 0, "large": 1}
    status = play(study, means, 5, cost=0.5)
    lines = str(status).splitlines()
    assert lines[0] == f"{study.name}: bernoulli, maximize, delta 0.01, policy uniform, threshold contrast"
    assert lines[1].split() == ["arm", "pulls", "mean", "0.99", "interval", "mean", "cost", "spent"]
    assert lines[2].split()[:3] == ["small", "3", "0.00"]
    assert lines[3].split()[-1] == "leads"
    assert (status.evidence, status.required) == pytest.approx((2.14, 4.61), abs=0.01)  # log E, log(1 / delta)
    assert lines[4] == "Proven: large is at most 0.44 worse than the best, wrong with probability at most 0.01."
    assert re.match(r"large leads, ahead of small by 1\. .* % done: 3 spent, ", lines[5])
    n = play(study, means, cost=0.5).pulls
    assert study.status().sentence == (
        f"Decided: large has the largest mean, wrong with probability at most 0.01; {n / 2:g} spent on {n} pulls."
    )
    assert str(study).splitlines()[3].split()[-1] == "best"
    assert repr(study) == f"Study({study.name!r}, arms=['small', 'large'], storage='memory')"


def test_a_status_says_what_is_not_proven_and_what_is_enough():
    study = new(family="gaussian", threshold="stylized", epsilon=0.5, policy="uniform", direction="minimize")
    start(study, [1, 2, 3])
    assert study.status().warnings == ["threshold stylized: not proven for this family."]
    assert not study.status().proven
    while not study.stopped:
        start(study, [1.0])
    assert study.status().sentence.startswith(
        f"Decided: {study.decision} has a mean within 0.5 of the smallest mean, at delta 0.05 but by a threshold "
        "that is not proven, so without a guarantee; "
    )
    assert "wrong with probability" not in str(study)
    study = new(family="gaussian", threshold="stylized", policy="uniform", max_pulls=9)
    start(study, [1.0, 0.0, 0.0] * 3)
    assert study.status().reason == "max_pulls"
    assert study.status().sentence == "Undecided: a leads, but nothing is proven. Stopped at max_pulls = 9; 9 spent."


CERTIFIED = "calibrated(c=1.4, policy=uniform, family=gaussian, arms=3, delta=0.05, max_pulls=50)"


def test_a_study_stops_without_a_decision_where_its_certificate_ends(clock):
    """Later its threshold would be reached by chance, some day."""
    study = new(family="gaussian", threshold=CERTIFIED, policy="uniform", lease=10)
    start(study, [0.0, 0.0, 0.0] * 15)
    assert study.status().promise.startswith("certified by simulation up to 50 pulls")
    pulls = study.ask(20)
    assert len(pulls) == 5  # none is handed out for nothing
    with pytest.raises(cabai.NoPull):
        study.ask()
    study.tell(pulls[0], failed="broke", cost=1.0)
    for pull in pulls[1:]:
        study.tell(pull, 0.0, 1.0)
    status = study.status()
    assert (status.stopped, status.reason, status.decision, study.decision) == (True, "certificate", None, None)
    assert (status.pulls, status.failures) == (49, 1)
    assert status.sentence == (
        "Undecided: a leads, but nothing is proven. Stopped at 50 pulls, where the certificate of its threshold ends; "
        "50 spent."
    )
    with pytest.raises(cabai.StudyStopped):
        study.ask()


def certified(pulls: int = 50):
    """A study whose threshold is certified for that many pulls, in which the first arm is the best by far."""
    study = new(family="gaussian", threshold=CERTIFIED.replace("=50", f"={pulls}"), policy="uniform")
    while not study.stopped:
        pull = study.ask()
        study.tell(pull, 2.0 if pull.arm == "a" else 0.0, 1.0)
    return study


def test_evidence_with_the_last_certified_pull_is_a_decision_and_one_pull_later_it_is_none():
    status = certified().status()
    assert 3 < (n := status.pulls) < 50
    assert (status.decision, status.proven, status.certified, status.reason) == ("a", False, True, "evidence")
    assert status.sentence == (
        "Decided: a has the largest mean, certified by simulation up to 50 pulls to be wrong with probability at most "
        f"0.05, not proven; {n} spent on {n} pulls."
    )
    assert [certified(most).status().decision for most in (n, n - 1)] == ["a", None]


def test_a_study_that_an_older_version_let_run_past_its_certificate_claims_nothing():
    study = new(family="gaussian", threshold=CERTIFIED, policy="uniform")
    start(study, [0.0] * 45)

    def back(study, change, value):
        looked(study._storage, change, (value, study._row.id))
        looked(study._storage, "DELETE FROM cabai_snapshot WHERE study = ?", (study._row.id,))
        return reloaded(study)

    def is_for(study, pulls):
        recipe = study.settings.to_json().replace("max_pulls=50", f"max_pulls={pulls}")
        study = back(study, "UPDATE cabai_study SET recipe = ? WHERE id = ?", recipe)
        with pytest.raises(cabai.StudyStopped):
            study.ask()
        assert (study.status().reason, study.decision) == ("certificate", None)
        return study

    study = back(is_for(study, 30), "UPDATE cabai_event SET words = ? WHERE kind = 'stop' AND study = ?", "evidence")
    assert "by a threshold that is not proven, so without a guarantee" in study.status().sentence
    study = certified()
    looked(study._storage, "DELETE FROM cabai_event WHERE kind = 'stop' AND study = ?", (study._row.id,))
    is_for(study, study.status().pulls - 1)


@pytest.mark.parametrize("family", ["gaussian", "poisson", "exponential"])
def test_a_certificate_speaks_of_the_largest_mean(family):
    options = {"family": family, "threshold": CERTIFIED.replace("gaussian", family), "policy": "uniform"}
    new(**options)
    if family == "gaussian":
        assert new(**options, direction="minimize").status().certified
        return
    with pytest.raises(cabai.InvalidInput, match=f"certified only for the largest mean of {family} rewards"):
        new(**options, direction="minimize")


def test_rewards_wider_than_declared_are_warned_of():
    """Two in a hundred rewards are outliers: times in seconds, with a variance declared that the others have."""
    rng = np.random.default_rng(5)
    study, caught = new(arms=["a", "b"], family="gaussian(variance=1)", policy="uniform", delta=1e-9), []
    for _ in range(400):
        pull = study.ask()
        with warnings.catch_warnings(record=True) as more:
            warnings.simplefilter("always")
            outlier = pull.arm == "b" and rng.uniform() < 0.02
            study.tell(pull, float(rng.normal(0, 12 if outlier else 1)), 1.0)
        caught += more
    assert caught
    assert {each.category for each in caught} == {cabai.WideRewards}
    [text] = study.status().warnings
    assert text == reloaded(study).status().warnings[0]
    rewards = [each["reward"] for each in study.observations() if each["arm"] == "b"]
    assert f"the 200 rewards of arm 'b' have a sample variance of {np.var(rewards, ddof=1):.4g}, but 1 was" in text
    assert "Warning: the 200 rewards" in str(study)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_rewards_of_the_declared_variance_are_not_warned_of(direction):
    """2,000 arms, looked at after each of 60 rewards; by chance one in a million is ever warned of."""
    from cabai.study.rules.warnings import is_too_wide

    rewards = np.random.default_rng(4).normal(5, 2, (2000, 60))
    squares = np.cumsum(rewards**2, axis=1) - np.cumsum(rewards, axis=1) ** 2 / np.arange(1, 61)
    for declared, is_warned in ((4.0, False), (0.5, True)):
        assert all(any(is_too_wide(declared, k, arm[k - 1]) for k in range(2, 61)) == is_warned for arm in squares)
    study = new(family="gaussian(variance=4)", policy="uniform", delta=1e-9, direction=direction)
    start(study, map(float, rewards[0]))
    assert study.status().warnings == []
    for a, arm in enumerate(study.arms):
        mine = [each["reward"] for each in study.observations() if each["arm"] == arm]
        variance = study._current.look(lambda state, a=a: state.variance(a))
        assert variance == pytest.approx(np.var(mine, ddof=1))


@pytest.mark.parametrize("options", [{"family": "bernoulli"}, {"items": 50}])
def test_a_study_that_was_stopped_by_hand_stays_so_and_has_no_decision(options):
    study = cabai.create_study(f"by hand {options}", arms=["a", "b"], costs=[1, 1], storage="memory", **options)
    first, second = study.ask(2)
    study.tell(first, reward=1)
    study.stop()
    study.stop()
    status = study.status()
    assert (status.stopped, status.reason, status.decision, study.decision) == (True, "by hand", None, None)
    assert status.sentence.startswith("Undecided: a leads, but nothing is proven. Stopped by hand; ")
    with pytest.raises(cabai.StudyStopped):
        study.ask()
    study.tell(second, reward=0)
    assert (study.status().late, study.status().spent) == (1, 2.0)


def test_a_study_knows_when_it_began_and_when_it_ended_and_its_observations_are_a_table(clock):
    began, study = clock.now, new(max_pulls=2)
    pull = study.ask(worker="w")
    clock.now += 10
    study.tell(pull, 1, 0.25)
    assert (study.status().created, study.status().ended) == (began, None)
    clock.now += 10
    start(study, [0])
    assert (study.status().created, study.status().ended) == (began, began + 20)
    frame = study.to_frame()
    names = "pull arm reward cost failed asked told worker offers counted late pulls period origin"
    assert frame.columns.tolist() == names.split()
    assert frame.loc[0, ["arm", "reward", "cost", "worker", "late"]].tolist() == ["a", 1.0, 0.25, "w", False]
    assert (frame.loc[0, "told"] - frame.loc[0, "asked"]).total_seconds() == pytest.approx(10)
    assert str(frame["told"].dt.tz) == "UTC"
    assert len(new().to_frame()) == 0


def test_a_list_shows_of_each_study_what_its_status_does_and_reads_only_those_that_changed(tmp_path):
    storage, kept = f"sqlite:///{tmp_path}/cabai.db", {}
    kinds = [{"family": "bernoulli"}, {"items": 50}, {"family": "gaussian(variance=1)"}]
    studies = [
        cabai.create_study(f"s{at}", arms=["a", "b"], costs=[1, 2], storage=storage, **about)
        for at, about in enumerate(kinds)
    ]
    for step in range(36):
        play(studies[step % 3], {"a": 0, "b": 1}, 1, cost=None)
        found, damaged = catalogue.every("listed", storage, kept)
        assert not damaged
        for one, (place, listed) in zip(studies, found.values(), strict=True):
            status = one.status()
            assert listed == {name: getattr(status, name) for name in listed}
            assert place == catalogue.revision(one)[1]
        assert sum(each is not kept.get(id_) for id_, each in found.items()) <= (1 if kept else 3)
        kept = found
    assert {each["stopped"] for _, each in kept.values()} == {True, False}
    cabai.delete_study("s0", storage=storage)
    assert [each["name"] for _, each in catalogue.every("listed", storage, kept)[0].values()] == ["s1", "s2"]
