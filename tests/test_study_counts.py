"""Results that are told as sums of a period."""

from __future__ import annotations

import json
import random

import pytest

import cabai
import shell
from cabai.errors import AlreadyTold
from cabai.study import Study
from shell import here
from studies import new, refused, reloaded, tables

MEANS = {"a": 0.9, "b": 0.5, "c": 0.2}


def both(**options) -> tuple[Study, Study]:
    """Two studies alike."""
    usual = {"policy": "top-two", "arms": list(MEANS), "costs": [1, 2, 3]} | options
    return new(**usual), new(**usual)


@pytest.mark.parametrize(
    ("policy", "family", "direction"),
    [("top-two", "bernoulli", "maximize"), ("co", "bernoulli", "minimize"), ("ctas", "bernoulli", "maximize"),
     ("top-two", "poisson", "minimize")],
)  # fmt: skip
def test_sums_count_as_the_single_results_would(family, policy, direction):
    """The same rewards, told one by one and in sums: the same evidence wherever a period ends, if no order counts."""
    threshold = "evalue" if policy == "ctas" else "contrast"
    summed, single = both(family=family, policy=policy, direction=direction, threshold=threshold)
    chance, period = random.Random(5), 0
    while not (summed.stopped or single.stopped):
        period += 1
        counts = {arm: [0, 0] for arm in MEANS}
        for _ in range(15):
            pull = single.ask()
            reward = int(chance.random() < MEANS[pull.arm])
            single.tell(pull, reward)
            counts[pull.arm][0] += 1
            counts[pull.arm][1] += reward
            if single.stopped:
                break
        summed.tell_counts(counts, period=str(period))
        mine, its = reloaded(summed).status(), single.status()
        assert (mine.leader, mine.rival) == (its.leader, its.rival)
        assert mine.spent == pytest.approx(its.spent, rel=1e-12)
        assert mine.evidence is None if its.evidence is None else mine.evidence == pytest.approx(its.evidence, rel=1e-9)
        assert [(arm.pulls, arm.mean) for arm in mine.arms] == [
            (arm.pulls, pytest.approx(arm.mean, rel=1e-12)) for arm in its.arms
        ]
    assert summed.decision == single.decision is not None
    assert summed.status().pulls == single.status().pulls
    if family == "poisson":  # of first rewards that are only known with others no interval is made
        assert {(arm.low, arm.high) for arm in mine.arms} == {(0.0, None)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "gaussian"}, "bernoulli and poisson rewards, got family gaussian"),
        ({"family": "bounded"}, "bernoulli and poisson rewards, got family bounded"),
        ({"family": "exponential"}, "bernoulli and poisson rewards"),
        ({"threshold": "bets"}, "threshold bets looks at single rewards of bernoulli arms"),
        ({"family": "poisson", "threshold": "evalue"}, "threshold evalue looks at single rewards of poisson arms"),
        ({"family": "poisson", "policy": "d-lucb"}, "threshold evalue looks at single rewards of poisson arms"),
        ({"threshold": "calibrated(c=3)"}, "calibrated threshold is certified only for pulls"),
        ({"family": None, "policy": "top-two", "items": 10}, "takes evaluations one by one"),
    ],
)
def test_sums_are_refused_where_the_test_looks_at_more(options, message):
    study = new(**options)
    with refused(study, message):
        study.tell_counts({"a": (10, 5, 1.0)})
    if "items" in options:
        with refused(study, "has items: its race asks for them one by one"):
            study.split(10)


BAD = [
    ({}, "must be a dictionary that maps names of arms"),
    ({"x": (1, 1, 1)}, "must be a dictionary that maps names of arms"),
    ({"a": 5}, r"counts of arm 'a' must be \(pulls, reward, cost\)"),
    ({"a": (5, 3, None)}, "need a cost"),
    ({"a": (5, 6, 1.0)}, "was pulled 5 times: its bernoulli rewards cannot sum to 6"),
    ({"a": (5, -1, 1.0)}, "reward of arm 'a' must be a whole number of at least 0"),
    ({"a": (5.5, 1, 1.0)}, "pulls of arm 'a' must be a whole number"),
    ({"a": (5, 1, -1.0)}, "cost of arm 'a' must be positive"),
    ({"a": (0, 0, 0)}, "at least one arm must have been pulled"),
    ({"a": (0, 1, 1.0)}, "was pulled 0 times"),
    ({"a": (10, 1, 1.0), "b": (1, 5, 1.0)}, "cannot sum to 5"),
    ({"a": (2**53, 5, 1)}, r"pulls of arm 'a' must be below 2\*\*53"),
    ({"a": (2**52, 5, 1), "b": (2**52, 6, 1)}, r"fewer than 2\*\*53 pulls in all, and would have"),
    ({"a": (10, 5, 1e308), "b": (10, 5, 1e308)}, "add up to a number that is too large to store"),
    ({"a": (10, 5, 10**400)}, "cost of arm 'a' must be"),
]


@pytest.mark.parametrize(("counts", "message"), BAD)
def test_bad_counts_count_nothing(counts, message):
    study, other = new(), new(family="poisson", policy="top-two")
    with refused(study, message):
        study.tell_counts(counts)
    with refused(study, r"following must be below 2\*\*53"):
        study.tell_counts({"a": (10, 5, 1)}, following=2**53)
    with refused(study, r"reward of arm 'a' must be below 2\*\*53"):
        other.tell_counts({"a": (10, 2**53, 1)})


def test_a_period_counts_once():
    study = new(costs=[1, 1, 1])
    first = study.tell_counts({"a": (10, 5), "b": (10, 4)}, period="Monday")
    before = tables(study)
    assert study.tell_counts({"b": (10, 4), "a": (10, 5)}, period="Monday") == first
    assert tables(study) == before
    with refused(study, "period 'Monday' was told before with other counts", AlreadyTold):
        study.tell_counts({"a": (10, 6), "b": (10, 4)}, period="Monday")
    for wrong in ("", 7, "x" * 201):
        with refused(study, "period must be a string"):
            study.tell_counts({"a": (10, 5)}, period=wrong)
    study.tell_counts({"a": (10, 5), "b": (10, 4)})  # one without a name is another
    study.tell_counts({"a": (10, 5), "b": (10, 4)})
    assert study.status().pulls == 60


def test_single_pulls_under_way_must_be_told_first_and_may_follow():
    study = new()
    pull = study.ask()
    with pytest.raises(cabai.InvalidInput, match="asked for one by one are under way: tell or release them first"):
        study.tell_counts({"a": (10, 5, 1.0)})
    study.tell(pull, 1, 1.0)
    study.tell_counts({"a": (10, 5, 1.0), "b": (10, 5, 1.0), "c": (10, 5, 1.0)})
    first, second = study.ask(2)
    study.tell(second, 1, 1.0)
    assert (study.status().pulls, study.status().waiting) == (31, 1)
    study.tell(first, 1, 1.0)
    assert (study.status().pulls, study.status().waiting) == (33, 0)


def test_limits_count_every_pull():
    study, counts = new(costs=[1, 1, 1], max_pulls=100), dict.fromkeys("abc", (30, 5))
    assert study.tell_counts(counts) != {}
    assert study.tell_counts(counts) == {}
    assert (study.status().reason, study.status().pulls) == ("max_pulls", 180)
    with refused(study, "has stopped at max_pulls: raise it with amend"):
        study.tell_counts({"a": (30, 5)})
    study.amend(max_pulls=1000)
    study.tell_counts({"a": (30, 5)})
    assert study.status().pulls == 210
    rich = new(costs=[1, 1, 1], max_cost=50)
    rich.tell_counts(counts)
    assert rich.status().reason == "max_cost"


def test_what_comes_after_a_decision_is_paid_and_late():
    study = new(costs=[1, 1, 1, 1], policy="top-two", arms=["a", "b", "c", "d"])
    study.drop("d")
    counts = {"a": (100, 90), "b": (100, 10), "c": (100, 10), "d": (50, 50)}  # the last is paid, and counts nowhere
    study.tell_counts(counts, period="Monday")
    assert study.decision == "a"
    assert study.tell_counts({"b": (100, 100)}) == {}
    status = study.status()
    assert (status.decision, status.spent, status.late, status.pulls, status.discarded) == ("a", 450.0, 1, 300, 150)
    assert reloaded(study).status() == status
    assert "\n100 told as sums after the study stopped: they do not count\n" in str(status)
    rows = study.observations()
    assert [row["counted"] for row in rows] == [True] * 3 + [False] * 2
    assert [(row["arm"], row["pulls"], row["reward"], row["cost"], row["period"]) for row in rows[:2]] == [
        ("a", 100, 90.0, 100.0, "Monday"), ("b", 100, 10.0, 100.0, "Monday"),
    ]  # fmt: skip


POLICIES = ["top-two", "co", "ctas", "tas", "uniform", "racing"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_next_period_is_divided_as_the_policy_divides_pulls(policy):
    """By the policy itself, asked so often: as many pulls of each as `ask` hands out; the largest number too."""
    study = new(policy=policy, arms=list(MEANS), costs=[1, 1, 1], delta=1e-6)
    study.tell_counts({"a": (200, 60), "b": (200, 52), "c": (200, 40)})
    given = study.split(100)
    assert sum(given.values()) == 100
    assert study.split(100) == given
    shares = study.tell_counts({"a": (1, 0)}, following=100)
    assert sum(shares.values()) == pytest.approx(1)
    asked = [pull.arm for pull in study.ask(100)]
    for arm, share in shares.items():
        assert share * 100 == asked.count(arm)
    if policy == "co":
        assert study.split(3_000_000)["a"] == pytest.approx(1_000_000, rel=0.02)
    for wrong in (0, -1, 2.5, 2**53):
        with pytest.raises(cabai.InvalidInput, match="pulls must be"):
            study.split(wrong)
    most = new(policy=policy)
    for _ in range(2):
        assert sum(reloaded(most).split(2**53 - 1).values()) == 2**53 - 1
        most.tell_counts(dict.fromkeys("abc", (2**51, 2**50, 1)), period="twice")


def test_the_pulls_of_all_periods_together_are_limited():
    study = new(policy="top-two", arms=["a", "b"])
    half = {"a": (2**51, 2**50, 1), "b": (2**51, 2**50, 1)}
    study.tell_counts(half, period="1")
    with refused(study, r"fewer than 2\*\*53 pulls in all, and would have 9007199254740992"):
        study.tell_counts(half, period="2")
    study.tell_counts(half, period="1")  # the same again
    assert reloaded(study).status().pulls == 2**52


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_divided_is_paid_for(policy, known):
    costs = {"a": 1.0, "b": 2.0, "c": 4.0}
    study = new(policy=policy, costs=list(costs.values()) if known else None, max_cost=1000)
    study.tell_counts({arm: (20, 10, 20 * cost) for arm, cost in costs.items()})
    under_way = [costs[pull.arm] for pull in study.ask(3)]
    given = study.split(100_000)
    paid = sum(number * costs[arm] for arm, number in given.items())
    left = 1000 - 140 - sum(under_way)
    assert left - 4 < paid <= left
    study.amend(max_cost=10_000_000)
    assert sum(study.split(100_000).values()) == 100_000


def test_a_pull_that_has_lapsed_and_counts_as_failed_is_in_nobodys_way(clock):
    study = new(policy="top-two", lease=10, on_lapse="fail")
    pull = study.ask()
    clock.now += 11
    study.tell_counts({"a": (5, 1, 1), "b": (5, 2, 1), "c": (5, 3, 1)})
    status = reloaded(study).status()
    assert (status.pulls, status.failures, status.under_way) == (15, 1, 0)
    assert study.observations()[0]["pull"] == pull.id
    study.ask()
    study.amend(lease=1000)
    held = study.ask()
    clock.now += 11
    with refused(study, "one by one are under way"):
        study.tell_counts({"a": (5, 1, 1)})
    study.tell(held, 1, 1)


def test_in_the_shell(tmp_path):
    storage = ["--storage", f"sqlite:///{tmp_path}/cabai.db"]
    study = cabai.create_study("near", arms=["a", "b"], family="bernoulli", policy="co", storage=storage[1])
    counts = '{"a": [100, 40, 2.5], "b": [100, 31, 2.5]}'
    done = here("study", "tell-counts", "near", counts, "--period", "Tuesday", "--json", *storage)
    assert json.loads(done.stdout)["spent"] == 5.0
    assert here("study", "split", "near", "10", *storage).stdout == "a\t5\nb\t5\n"
    for wrong, said in (("{", "counts must be JSON"), ('{"a": [1, 1, 1], "a": [9, 9, 9]}', "'a' is named twice")):
        assert said in shell.refused("study", "tell-counts", "near", wrong, *storage)
    assert study.status().pulls == 200
