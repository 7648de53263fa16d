"""Studies that look for the cheapest arm that is good enough: live, stored, in the shell and over HTTP."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
import re

import pytest

import cabai
from cabai import Instance, InvalidInput
from cabai.errors import NoPull
from cabai.study.settings import Settings
from combinations import covering
from folding import Play
from shell import here
from studies import check_same_pulls, new, reloaded, start

STORAGES = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
CHEAP = {"goal": "cheapest", "epsilon": 0.1}
CASES = {
    "bernoulli": (Instance("bernoulli", [0.9, 0.8, 0.2], [1, 0.1, 0.3]), None, 0.3),
    "gaussian": (Instance("gaussian", [1.0, 0.95, -0.5], [1, 0.1, 0.3], variance=0.01), None, 0.1),
    "poisson": (Instance("poisson", [4, 3.8, 0], [1, 0.1, 0.3]), "contrast", 1.0),
    "range": (Instance("bounded(low=-1, high=7)", [5, 4.8, 1], [1, 0.1, 0.3], law="beta", sd=0.5), "bets", 0.6),
}


def answers(*means, seed=1):
    draw = random.Random(seed).random
    names = ["small", "medium", "large"][: len(means)]
    return names, lambda arm: float(draw() < means[names.index(arm)])


@pytest.mark.parametrize("family", covering(CASES, most=1))
def test_a_study_makes_the_pulls_of_a_simulation(family):
    """Running costs are known costs unless they are declared apart."""
    instance, threshold, epsilon = CASES[family]
    goal = {"goal": "cheapest", "running_costs": [3, 1, 2], "slack": 0.4 * epsilon}
    check_same_pulls(instance, "cheapest", threshold, epsilon, most=60, seed=3, goal=goal, reload=family == "range")
    check_same_pulls(instance, "cheapest", threshold, epsilon, most=60, seed=4, known=True, goal={"goal": "cheapest"})


def test_arms_are_compared_by_running_costs_and_paid_by_trial_costs():
    names, test = answers(0.9, 0.9)
    for running, expected in (([1, 2], "small"), ([2, 1], "medium")):
        study = new(arms=names, policy="top-two", costs=[10, 1], running_costs=running, goal="cheapest", epsilon=0.3)
        status = study.run(test)
        assert status.decision == expected
        pulls = {arm.name: arm.pulls for arm in status.arms}
        assert status.spent == 10 * pulls["small"] + pulls["medium"]
        assert [arm.running_cost for arm in status.arms] == running
        assert status.arms[1].pulls > status.arms[0].pulls  # what is cheap to try is tried more often
    learned = new(arms=names, policy="top-two", goal="cheapest", epsilon=0.3)
    assert learned.run(lambda arm: (test(arm), 3 if arm == "small" else 1)).decision == "medium"


def test_the_level_divides_delta_by_the_tests_that_may_go_wrong():
    for arms, costs, wrong in ((2, [1, 2], 1), (2, None, 2), (4, [1, 2, 3, 4], 5), (4, None, 12)):
        study = new(arms=list("abcd")[:arms], policy="top-two", costs=costs, delta=0.07, **CHEAP)
        assert float(study.settings.setup().rules["level"]) == pytest.approx(math.log(wrong / 0.07))


def test_the_smallest_mean_may_be_wanted():
    draw = random.Random(1).random
    losses = {"small": 0.5, "large": 0.11, "huge": 0.1}
    study = new(arms=list(losses), policy="top-two", direction="minimize", goal="cheapest", epsilon=0.2, slack=0.1,
                costs=[1, 2, 3])  # fmt: skip
    status = study.run(lambda arm: float(draw() < losses[arm]))
    assert status.decision == "large"
    assert "every cheaper arm is more than 0.1 worse than the best" in status.sentence


def test_studies_of_before_have_the_goal_of_before():
    """What is stored of a study that looks for the best arm is what it always was."""
    plain = new().settings
    assert not {"goal", "slack", "running_costs"} & set(json.loads(plain.to_json()))
    assert Settings.from_json(plain.to_json()) == plain
    cheap = new(policy="top-two", running_costs=[1, 2, 0], **CHEAP).settings
    assert Settings.from_json(cheap.to_json()) == cheap
    assert (cheap.goal, cheap.slack, cheap.running_costs) == ("cheapest", 0.05, (1.0, 2.0, 0.0))


def test_a_status_says_what_is_open_and_what_was_decided():
    names, test = answers(0.3, 0.85, 0.8)
    study = new(arms=names, policy="top-two", costs=[1, 2, 3], goal="cheapest", epsilon=0.2)
    for _ in range(100):
        pull = study.ask()
        study.tell(pull, test(pull.arm))
    status = study.status()
    assert status.leader == "medium"
    assert status.claim == "medium is within 0.2 of large"
    assert 0 < status.evidence < status.required
    assert 0 <= status.confidence < 0.95
    assert "medium is the likely answer. Still to show: medium is within 0.2 of large. " in status.sentence
    status = study.run(test)
    assert status.statement == (
        "medium is within 0.2 of the best, and every cheaper arm is more than 0.1 worse than the best, "
        "wrong with probability at most 0.05"
    )
    assert [arm.excluded for arm in status.arms] == [True, False, False]
    assert [row[-1] for row in status.rows()][1:] == ["too bad", "cheapest", ""]
    found = status.to_dict()
    assert (found["goal"], found["slack"]) == ("cheapest", 0.1)
    names, test = answers(0.8, 0.8)
    status = new(arms=names, policy="top-two", costs=[1, 2], goal="cheapest", epsilon=0.3).run(test)
    assert (
        status.statement
        == "small is within 0.3 of the best, and no arm is cheaper, wrong with probability at most 0.05"
    )


def test_a_study_that_ends_at_its_budget_says_how_sure_it_is_and_sums_of_periods_decide():
    """Ten pulls of each arm per period, all told at once: every pair is looked at."""
    names, test = answers(0.3, 0.8, 0.8)
    study = new(arms=names, policy="top-two", costs=[1, 2, 3], goal="cheapest", epsilon=0.2, max_pulls=150)
    status = study.run(test)
    assert status.decision is None
    assert 0 < status.confidence < 0.95
    assert re.match(r"Undecided: medium is the likely answer; .*medium is at most 0\.\d+ worse", status.sentence)
    names, test = answers(0.05, 0.9, 0.9)
    study = new(arms=names, policy="top-two", costs=[1, 2, 3], goal="cheapest", epsilon=0.4)
    for period in range(60):
        if not study.stopped:
            counts = {arm: (10, sum(int(test(arm)) for _ in range(10))) for arm in names}
            study.tell_counts(counts, period=f"hour {period}")
    status = study.status()
    assert status.decision == "medium"
    assert [arm.excluded for arm in status.arms] == [True, False, False]


@pytest.mark.parametrize(("options", "match"), [
    ({"epsilon": 0.0}, "goal 'cheapest' needs an epsilon"),
    ({"slack": 0.2}, "slack must be positive and at most epsilon = 0.1"),
    ({"goal": "best", "slack": 0.05}, "slack is for goal 'cheapest'"),
    ({"goal": "best", "running_costs": [1, 2, 3]}, "running_costs is for goal 'cheapest'"),
    ({"goal": "cheap"}, "goal must be one of best, cheapest, got 'cheap'"),
    ({"running_costs": [1, 2]}, "running_costs must be 3 numbers"),
    ({"running_costs": [1, 2, -1]}, "must not be negative"),
    ({"policy": "co"}, "policy co does not look for goal 'cheapest'"),
    ({"goal": "best", "policy": "cheapest"}, "policy cheapest does not look for goal 'best'"),
    ({"family": "exponential"}, "does not support the family exponential.*not convex"),
    ({"threshold": "evalue"}, "needs a threshold that shows by how much an arm is better: contrast"),
    ({"family": None, "items": 10, "race": "paired"}, "goal 'cheapest' has its own race"),
    ({"reserve": 0.1}, "only if its goal is the best arm"),
])  # fmt: skip
def test_what_has_no_meaning_or_no_proof_is_refused(options, match):
    with pytest.raises(InvalidInput, match=match):
        new(**{"policy": "top-two", **CHEAP, **options})


def test_simulations_and_plans_refuse_the_same():
    instance = Instance("exponential", [1, 2], [1, 2])
    with pytest.raises(InvalidInput, match="does not support the family exponential"):
        cabai.simulate(instance, goal="cheapest", epsilon=0.1)
    with pytest.raises(InvalidInput, match="give one delta at a time"):
        cabai.simulate(Instance("gaussian", [1, 2], [1, 2]), goal="cheapest", epsilon=0.1, delta=[0.1, 0.01])
    with pytest.raises(InvalidInput, match="a plan is for finding the best arm, got goal 'cheapest': simulate it"):
        cabai.plan(new(policy="top-two", costs=[1, 2, 3], **CHEAP))


def test_the_shell_creates_simulates_and_compares(tmp_path):
    store = f"sqlite:///{tmp_path}/c.db"
    create = f"--arms small,large --storage {store} --goal cheapest --epsilon 0.2".split()
    more = "--family bernoulli --costs 1,10 --slack 0.15 --running-costs 2,1"
    made = here("study", "create", "s", *create, *more.split())
    assert made.returncode == 0, made.stderr
    settings = cabai.load_study("s", storage=store).settings
    assert (settings.goal, settings.slack, settings.running_costs) == ("cheapest", 0.15, (2.0, 1.0))
    wrong = here("study", "create", "t", *create, "--family", "exponential")
    assert (wrong.returncode != 0, wrong.stderr.count("\n")) == (True, 1)
    options = "--family gaussian(variance=0.01) --means 1,0.95,0 --costs 1,0.1,0.01 --epsilon 0.1 --goal cheapest"
    done = here("compare", *options.split(), "--trajectories", "100", "--json")
    found = json.loads(done.stdout)["policies"]
    assert [each["policy"] for each in found] == ["cheapest", "cheapest(uniform=True)"]
    assert {(each["goal"], each["slack"], each["lower_bound"]) for each in found} == {("cheapest", 0.05, None)}


def test_if_all_arms_are_excluded_the_most_expensive_is_the_answer():
    """One of them was excluded wrongly: the proof then needs the arm that satisfies both claims if no other does."""
    study = new(arms=["a", "b", "c"], policy="top-two", costs=[1, 3, 2], goal="cheapest", epsilon=0.2)
    play = Play(study.settings)
    for a, reward in itertools.product(range(3), (0, 1, 1)):
        play.observe(a, reward, study.settings.costs[a])
    play.ordered.arms["excluded"] = 1
    assert play.stops()
    assert play.leader == 1


PRICES = {"a": 1.0, "b": 1.05}


def decided(**options):
    """A study that has found the cheapest arm that is good enough, a, and its pulls that are still under way."""
    usual = {"goal": "cheapest", "policy": "cheapest", "arms": ["a", "b"], "epsilon": 0.3}
    study, asked = new(**usual | options), []
    while not study.stopped:
        with contextlib.suppress(NoPull):
            asked += study.ask(4)
        pull = asked.pop(0)
        study.tell(pull, 1, cost=PRICES[pull.arm])
    assert len(asked) >= 2
    return study, asked


def said(study):
    status = study.status()
    return status.statement, [arm.running_cost for arm in status.arms]


@STORAGES
@pytest.mark.parametrize("items", [None, 200])
@pytest.mark.parametrize("fails", [False, True])
def test_what_comes_late_does_not_change_what_was_decided(url, items, fails):
    """Late results make the arm that was decided for the more expensive one, by what was paid in all."""
    family = {} if items is None else {"family": None, "items": items, "policy": "top-two"}
    study, late = decided(storage=url, **family)
    before = said(study)
    assert "and no arm is cheaper" in before[0]
    assert before[1] == [pytest.approx(1), pytest.approx(1.05)]
    for pull in late[:4]:
        cost = {"a": 900.0, "b": 0.01}[pull.arm]
        study.tell(pull, cost=cost, **{"failed": "no answer"} if fails else {"reward": 1})
        assert said(study) == said(cabai.load_study(study.name, storage=url)) == before
    assert study.status().late == len(late[:4])


def test_what_is_cheaper_is_decided_by_what_counts_by_then():
    """The decision is by what counts: a result that is told early, and does not, makes no arm cheaper."""
    about = {"arms": ["a", "b"], "policy": "cheapest", "goal": "cheapest"}
    study = new(**about, epsilon=0.1)
    study.tell_counts({"a": (2000, 1400, 2000), "b": (2000, 1400, 2200)})
    before = said(study)
    assert "and no arm is cheaper" in before[0]
    study.tell_counts({"a": (500, 350, 5000), "b": (100, 70, 1)})
    assert said(study) == said(reloaded(study)) == before
    study = new(**about, epsilon=0.3)
    first, second, third = study.ask(3)
    study.tell(first, 1, cost=1)
    study.tell(third, 1, cost=900)
    assert [each.arm for each in (first, second, third)] == ["a", "b", "a"]
    assert [arm.running_cost for arm in study.status().arms] == [1, None]
    study = new(**about, epsilon=0.01, max_pulls=2)
    start(study, [1, 1])
    study.amend(max_pulls=4)
    start(study, [1, 1], cost=5)
    found = reloaded(study).status()
    assert found.stopped
    assert [arm.running_cost for arm in found.arms] == [arm.spent / arm.pulls for arm in found.arms]


def test_what_a_reward_of_a_dropped_arm_costs_is_the_mean_of_all_that_were_paid():
    study = new(policy="top-two")
    pulls = study.ask(12)
    for pull in pulls:
        study.tell(pull, 1, cost=1)
        if pull.number == 3:
            study.drop("a")
    status = study.status()
    assert status.discarded == 3
    assert [arm.cost for arm in status.arms] == [1, 1, 1]
