"""A decision is reported in the same words for ever, whatever is told later."""

from __future__ import annotations

import contextlib

import pytest

import cabai
from cabai.errors import NoPull
from studies import new, reloaded

STORAGES = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
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


def test_sums_that_come_late_do_not_change_it_either():
    study = new(arms=["a", "b"], policy="cheapest", goal="cheapest", epsilon=0.1)
    study.tell_counts({"a": (2000, 1400, 2000), "b": (2000, 1400, 2200)})
    before = said(study)
    assert "and no arm is cheaper" in before[0]
    study.tell_counts({"a": (500, 350, 5000), "b": (100, 70, 1)})
    assert said(study) == said(reloaded(study)) == before


def test_results_that_wait_have_no_part_in_what_is_cheaper():
    """The decision is by what counts: a result that is told early, and does not, makes no arm cheaper."""
    study = new(arms=["a", "b"], policy="cheapest", goal="cheapest", epsilon=0.3)
    first, second, third = study.ask(3)
    study.tell(first, 1, cost=1)
    study.tell(third, 1, cost=900)
    assert {first.arm, third.arm} == {"a"}
    assert second.arm == "b"
    assert [arm.running_cost for arm in study.status().arms] == [1, None]


def test_a_study_that_goes_on_compares_what_arms_cost_by_then():
    study = new(arms=["a", "b"], policy="cheapest", goal="cheapest", epsilon=0.01, max_pulls=2)
    for pull in study.ask(2):
        study.tell(pull, 1, cost=PRICES[pull.arm])
    assert study.stopped
    study.amend(max_pulls=4)
    for _ in range(2):
        study.tell(study.ask(), 1, cost=5)
    found = reloaded(study).status()
    assert found.stopped
    assert [arm.running_cost for arm in found.arms] == [arm.spent / arm.pulls for arm in found.arms]


def test_what_a_reward_of_a_dropped_arm_costs_is_the_mean_of_all_that_were_paid():
    study = new(policy="top-two")
    pulls = study.ask(12)
    for pull in pulls[:3]:
        study.tell(pull, 1, cost=1)
    study.drop("a")
    for pull in pulls[3:]:
        study.tell(pull, 1, cost=1)
    status = study.status()
    assert status.discarded == 3
    assert [arm.cost for arm in status.arms] == [1, 1, 1]
