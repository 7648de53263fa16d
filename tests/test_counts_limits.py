"""Sums at the edge: numbers that are too large, limits of the study, pulls that have lapsed, and names told twice."""

from __future__ import annotations

import json
import time

import pytest

import cabai
from shell import here
from studies import new, reloaded, tables

POLICIES = ["top-two", "co", "ctas", "tas", "uniform", "racing"]


@pytest.mark.parametrize(
    ("family", "counts", "following", "message"),
    [
        ("bernoulli", {"a": (2**53, 5, 1)}, None, r"pulls of arm 'a' must be below 2\*\*53"),
        ("bernoulli", {"b": (10**400, 5, 1)}, None, r"pulls of arm 'b' must be below 2\*\*53"),
        ("poisson", {"a": (10, 2**53, 1)}, None, r"reward of arm 'a' must be below 2\*\*53"),
        (
            "bernoulli",
            {"a": (2**52, 5, 1), "b": (2**52, 6, 1)},
            None,
            r"fewer than 2\*\*53 pulls in all, and would have",
        ),
        ("bernoulli", {"a": (10, 5, 1)}, 2**53, r"following must be below 2\*\*53"),
        (
            "bernoulli",
            {"a": (10, 5, 1e308), "b": (10, 5, 1e308)},
            None,
            "add up to a number that is too large to store",
        ),
        ("bernoulli", {"a": (10, 5, 10**400)}, None, "cost of arm 'a' must be"),
    ],
)
def test_numbers_that_are_too_large_are_refused_and_leave_nothing(family, counts, following, message):
    study = new(family=family, policy="top-two")
    before = tables(study)
    with pytest.raises(cabai.InvalidInput, match=message):
        study.tell_counts(counts, following=following)
    assert tables(study) == before
    study.tell_counts({"a": (10, 5, 1)})
    assert reloaded(study).status().pulls == 10


def test_the_pulls_of_all_periods_together_are_limited():
    study = new(policy="top-two", arms=["a", "b"])
    half = {"a": (2**51, 2**50, 1), "b": (2**51, 2**50, 1)}
    study.tell_counts(half, period="1")
    before = tables(study)
    with pytest.raises(cabai.InvalidInput, match=r"fewer than 2\*\*53 pulls in all, and would have 9007199254740992"):
        study.tell_counts(half, period="2")
    assert tables(study) == before
    study.tell_counts(half, period="1")  # the same again
    assert reloaded(study).status().pulls == 2**52


@pytest.mark.parametrize("policy", POLICIES)
def test_the_largest_number_of_pulls_is_divided(policy):
    study = new(policy=policy)
    assert sum(study.split(2**53 - 1).values()) == 2**53 - 1
    study.tell_counts(dict.fromkeys("abc", (2**51, 2**50, 1)))
    assert sum(reloaded(study).split(2**53 - 1).values()) == 2**53 - 1
    with pytest.raises(cabai.InvalidInput, match=r"pulls must be below 2\*\*53"):
        study.split(2**53)


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


def test_a_pull_that_has_lapsed_and_counts_as_failed_is_in_nobodys_way():
    study = new(policy="top-two", lease=0.01, on_lapse="fail")
    pull = study.ask()
    time.sleep(0.05)
    study.tell_counts({"a": (5, 1, 1), "b": (5, 2, 1), "c": (5, 3, 1)})
    status = reloaded(study).status()
    assert (status.pulls, status.failures, status.under_way) == (15, 1, 0)
    assert study.observations()[0]["pull"] == pull.id
    study.ask()
    study.amend(lease=1000)
    held = study.ask()
    time.sleep(0.05)
    before = tables(study)
    with pytest.raises(cabai.InvalidInput, match="one by one are under way"):
        study.tell_counts({"a": (5, 1, 1)})
    assert tables(study) == before
    study.tell(held, 1, 1)


def test_sums_told_to_a_stopped_study_are_said_to_be_that():
    study = new(policy="top-two", arms=["a", "b"])
    study.tell_counts({"a": (1000, 900, 1), "b": (1000, 100, 1)})
    assert study.stopped
    study.tell_counts({"a": (30, 20, 1)})
    assert "\n30 told as sums after the study stopped: they do not count\n" in str(study.status())


def test_in_the_shell(tmp_path):
    storage = ["--storage", f"sqlite:///{tmp_path}/cabai.db"]
    study = cabai.create_study("near", arms=["a", "b"], family="bernoulli", policy="co", storage=storage[1])
    counts = '{"a": [100, 40, 2.5], "b": [100, 31, 2.5]}'
    done = here("study", "tell-counts", "near", counts, "--period", "Tuesday", "--json", *storage)
    assert json.loads(done.stdout)["spent"] == 5.0
    assert here("study", "split", "near", "10", *storage).stdout == "a\t5\nb\t5\n"
    for wrong, said in (("{", "counts must be JSON"), ('{"a": [1, 1, 1], "a": [9, 9, 9]}', "'a' is named twice")):
        done = here("study", "tell-counts", "near", wrong, *storage)
        assert (done.returncode, done.stderr.count("\n"), said in done.stderr) == (2, 1, True)
    assert study.status().pulls == 200
