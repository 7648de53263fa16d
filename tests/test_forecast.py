"""What a study will still cost: a range that holds as often as it says, and that nothing depends on."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binom

import cabai
from cabai.planning import forecast as module
from held_out import PRIORS, held_out, truth_of
from shell import here
from storages import BOTH
from studies import new


def begun(pulls: int = 40, **options) -> cabai.study.Study:
    """A study of two arms that are close, after some pulls."""
    study = new(arms=["a", "b"], policy="top-two", costs=[1, 2], seed=3, **options)
    rng = np.random.default_rng(0)
    for _ in range(pulls):
        pull = study.ask()
        study.tell(pull, float(rng.random() < {"a": 0.5, "b": 0.6}[pull.arm]))
    return study


def covered(family: str, pulls: int, studies: int, first: int = 0) -> tuple[int, int]:
    """Of so many simulated studies that were not over after so many pulls: in how many the range held; how many."""
    found = (held_out(family, pulls, seed) for seed in range(first, first + 20 * studies))
    kept = [each for each, _ in zip((each for each in found if each is not None), range(studies), strict=False)]
    return sum(range_.low <= paid <= range_.high for range_, paid in kept), len(kept)


def test_a_range_of_80_percent_holds_about_that_often(monkeypatch):
    """20 gaussian studies after 30 pulls, with fewer continuations than usual. At least 0.7 is promised."""
    monkeypatch.setattr(module, "COUNT", 60)
    monkeypatch.setattr(module, "STEPS", 60_000)
    inside, studies = covered("gaussian", 30, 20)
    assert studies == 20
    assert inside >= binom.ppf(1e-6, studies, 0.7)


@pytest.mark.slow
@pytest.mark.parametrize("family", PRIORS)
def test_a_range_of_80_percent_holds_in_70_to_90_percent_of_studies_that_it_has_not_seen(family):
    """100 studies each at 10, 30 and 200 pulls, of 2 to 4 arms with means from `PRIORS` and costs that differ up to
    twentyfold."""
    inside, studies = np.array([covered(family, pulls, 100) for pulls in (10, 30, 200)]).T
    print(family, inside / studies)
    for k, n in [*zip(inside, studies, strict=True), (inside.sum(), studies.sum())]:
        assert binom.ppf(1e-6, n, 0.7) <= k <= binom.isf(1e-6, n, 0.9)


def test_continuations_from_the_start_are_the_trajectories_of_a_simulation():
    from cabai.simulation.continuing import Continuations, Truths
    from folding import Play
    from held_out import settings_of

    instance = cabai.Instance("gaussian", [1.5, 1.0, 0.5], [1, 0.1, 0.01])
    runs = cabai.simulate(instance, delta=0.05, trajectories=20, seed=5)
    play, one = (
        Play(settings_of("gaussian", 3, instance.costs.tolist())),
        truth_of("gaussian", instance.means, instance.costs),
    )
    truths = Truths(*(np.repeat(each, 20, axis=0) for each in one[:4]), one.draw)
    found = Continuations(play.setup, play.arms, play.run, truths, seed=5)
    found.carry_on(np.arange(20), 2**40, 2**62, np.inf)
    assert found.over.all()
    assert found.paid == pytest.approx(runs.costs, rel=1e-12)


def test_a_forecast_is_made_when_asked_for_and_not_anew_for_every_pull(monkeypatch):
    made = []
    usual = module.forecast_of
    monkeypatch.setattr(module, "forecast_of", lambda play: made.append(1) or usual(play))
    study = begun(60)
    assert study.status().forecast is None
    assert not made
    first = study.status(forecast=True)
    assert first.forecast is not None
    assert 0 <= first.forecast.low <= first.forecast.median <= first.forecast.high
    assert first.remaining_cost == first.forecast.median
    assert study.status(forecast=True).forecast == first.forecast
    pull = study.ask()
    study.tell(pull, 1)
    after = study.status(forecast=True)
    paid = after.spent - first.spent
    assert after.forecast.high == pytest.approx(first.forecast.high - paid)
    assert made == [1]
    assert "more (80 %)" in after.sentence


@pytest.mark.parametrize("error", [ZeroDivisionError, ValueError, KeyError, MemoryError])
@pytest.mark.parametrize(
    "where", ["cabai.planning.forecast.truths_of", "cabai.simulation.continuing.Continuations.carry_on"]
)
def test_a_forecast_that_fails_is_missing_and_the_rest_of_the_status_is_shown(monkeypatch, error, where):
    def fails(*arguments, **options):
        raise error

    study = begun()
    before = study.status()
    monkeypatch.setattr(where, fails)
    assert study.status(forecast=True) == before
    assert before.sentence.endswith(" spent.")
    assert before.sentence in str(study)
    study.tell(study.ask(), 1)


def test_with_a_budget_no_more_than_its_rest_is_forecast():
    status = begun(max_cost=100).status(forecast=True)
    rest = 100 - status.spent
    assert status.at_most == pytest.approx(rest)
    assert status.forecast.high <= rest * (1 + 1e-9)
    assert 0 <= status.forecast.chance < 1
    assert "; chance of a decision within the budget: " in status.sentence
    by_pulls = begun(max_pulls=50).status(forecast=True)
    assert by_pulls.forecast.high <= 10 * 2
    assert by_pulls.forecast.chance is not None


@pytest.mark.slow
def test_an_epsilon_makes_a_forecast_smaller():
    usual, close = (begun(epsilon=epsilon).status(forecast=True).forecast for epsilon in (0.0, 0.2))
    assert close.high < usual.high / 2


def test_before_every_arm_has_returned_a_reward_there_is_no_forecast():
    study = new(arms=["a", "b"], policy="top-two")
    study.tell(study.ask(), 1, cost=1)
    assert study.status(forecast=True).forecast is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"family": "exponential", "direction": "minimize"},
        {"policy": "co"},
        {"family": "bounded", "direction": "minimize"},
    ],
    ids=str,
)
def test_costs_that_are_learned_and_the_smallest_mean_are_forecast_too(options):
    study = new(**{"policy": "top-two", "seed": 1} | options)
    rng = np.random.default_rng(0)
    for _ in range(30):
        pull = study.ask()
        reward = float(rng.integers(0, 2)) or (0.1 if options.get("family") == "exponential" else 0.0)
        study.tell(pull, reward, cost={"a": 1.0, "b": 2.0, "c": 0.5}[pull.arm])
    found = study.status(forecast=True).forecast
    assert 0 <= found.low < found.median < found.high


def test_what_cannot_be_compiled_has_no_forecast():
    study = new(policy="test_forecast:by_a_list")
    for reward in [1, 0, 1, 1, 0, 1]:
        study.tell(study.ask(), reward, cost=1)
    status = study.status(forecast=True)
    assert status.forecast is None
    assert status.leader is not None


@cabai.policy
def by_a_list(arms, run, rules):
    return sorted([arm.pulls for arm in arms]).index(min([arm.pulls for arm in arms]))


@BOTH
def test_a_forecast_is_the_same_from_the_storage_over_http_and_in_the_shell(url):
    from served import InThread

    study = begun(storage=url)
    status = study.status(forecast=True)
    assert status.forecast is not None
    assert cabai.load_study(study.name, storage=url).status(forecast=True) == status
    server = InThread(url)
    try:
        there = cabai.load_study(study.name, storage=server.address)
        assert there.status(forecast=True) == status
        assert there.status().forecast is None
        assert str(there) == str(study)
    finally:
        server.close()
    shown = json.loads(here("study", "status", study.name, "--storage", url, "--json").stdout)
    assert shown == json.loads(json.dumps(status.to_dict()))
    assert status.sentence in here("study", "status", study.name, "--storage", url).stdout
    quick = json.loads(here("study", "status", study.name, "--no-forecast", "--storage", url, "--json").stdout)
    assert quick["forecast"] is None


# --- Races ------------------------------------------------------------------------------------------------------------


def race_begun(seed: int, each: int, items: int = 300, **options) -> tuple[cabai.study.Study, np.ndarray]:
    """A race of 2 to 4 arms that share what makes an item hard, after so many items; and their scores on all."""
    rng = np.random.default_rng(seed)
    arms = int(rng.integers(2, 5))
    hard = rng.random(items)
    means = rng.uniform(0.3, 0.9, arms)
    scores = np.array([0.6 * hard + 0.4 * rng.random(items) < 0.2 + 0.6 * mean for mean in means]).astype(float)
    names = [str(a) for a in range(arms)]
    study = new(arms=names, family=None, policy="top-two", items=items, costs=[1.0] * arms, seed=seed, **options)
    told = 0
    while told < each * arms and not study.stopped:
        pull = study.ask()
        study.tell(pull, scores[int(pull.arm), pull.item])
        told += 1
    return study, scores


def test_a_race_is_forecast_from_its_scores(monkeypatch):
    study, scores = race_begun(1, each=3)
    assert study.status(forecast=True).forecast is None
    while study.status().arms[0].pulls < 12:
        pull = study.ask()
        study.tell(pull, scores[int(pull.arm), pull.item])
    status = study.status(forecast=True)
    found = status.forecast
    assert 0 < found.low <= found.median <= found.high <= status.at_most
    assert status.remaining_cost == found.median
    assert status.sentence.endswith(f" spent{found}.")
    assert study.status().sentence.endswith("more for these.")
    before = study.scores()
    study.run(lambda arm, item: scores[int(arm), item])
    assert {arm: {i: known[i] for i in before[arm]} for arm, known in study.scores().items()} == before


def test_a_forecast_of_a_race_that_fails_is_missing(monkeypatch):
    study, _ = race_begun(2, each=12)
    before = study.status()

    def fails(*arguments):
        raise ValueError

    monkeypatch.setattr("cabai.planning.race_forecast.filled", fails)
    assert study.status(forecast=True) == before


def test_a_race_with_a_budget_is_forecast_within_it():
    study, _ = race_begun(1, each=12, max_cost=50)
    status = study.status(forecast=True)
    assert status.forecast.high <= 50 - status.spent
    assert 0 <= status.forecast.chance <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("race", "epsilon"), [("champion", 0.0), ("paired", 0.0), ("paired", 0.05)])
def test_a_range_of_80_percent_holds_in_70_to_90_percent_of_races_that_it_has_not_seen(race, epsilon):
    """60 races each after 10 and 30 items."""
    inside = races = 0
    for each, seed in ((each, seed) for each in (10, 30) for seed in range(60)):
        study, scores = race_begun(seed, each, race=race, epsilon=epsilon)
        found = None if study.stopped else study.status(forecast=True)
        if found is not None and found.forecast is not None:
            paid = study.run(lambda arm, item, scores=scores: scores[int(arm), item]).spent - found.spent
            inside, races = inside + (found.forecast.low <= paid <= found.forecast.high), races + 1
    print(race, epsilon, inside / races, races)
    assert binom.ppf(1e-6, races, 0.7) <= inside <= binom.isf(1e-6, races, 0.9)
