"""Known costs of 0, as of a model that runs on one's own machine."""

from __future__ import annotations

import random

import pytest

import cabai
from cabai.study.settings import FREE
from studies import new, reloaded


def run(study, means, seed=1):
    chance = random.Random(seed)
    return study.run(lambda arm: int(chance.random() < means[arm]))


@pytest.mark.parametrize("policy", ["top-two", "co", "ctas", "tas", "d-lucb", "uniform"])
def test_a_free_arm_is_on_no_bill_and_pulled_as_if_it_cost_a_hundredth_of_the_cheapest(policy):
    means = {"local": 0.5, "small": 0.6, "large": 0.9}
    free, cheap = (new(arms=list(means), policy=policy, costs=[cost, 2.0, 5.0], seed=3) for cost in (0.0, FREE * 2.0))
    found, other = run(free, means), run(cheap, means)
    assert [arm.pulls for arm in found.arms] == [arm.pulls for arm in other.arms]
    assert found.decision == other.decision == "large"
    assert (found.arms[0].spent, found.arms[0].cost) == (0.0, 0.0)
    assert found.spent == sum(arm.spent for arm in found.arms[1:])
    again = reloaded(free)
    assert again.settings.costs == (0.0, 2.0, 5.0)
    assert again.status() == free.status()


def test_where_nothing_costs_anything_all_count_the_same():
    means = {"a": 0.2, "b": 0.8}
    free, equal = (new(arms=list(means), policy="top-two", costs=[cost] * 2, seed=3) for cost in (0, 1))
    found, other = run(free, means), run(equal, means)
    assert [arm.pulls for arm in found.arms] == [arm.pulls for arm in other.arms]
    assert (found.spent, found.decision) == (0.0, "b")


def test_a_free_pull_may_be_told_with_its_cost_and_a_cost_that_is_learned_is_not_free():
    study = new(arms=["local", "large"], costs=[0, 1])
    study.tell(study.ask(), 1, cost=0)
    with pytest.raises(cabai.InvalidInput, match="cost must not be negative"):
        study.tell(study.ask(), 1, cost=-1)
    other = new(arms=["local", "large"])
    with pytest.raises(cabai.InvalidInput, match="cost must be positive"):
        other.tell(other.ask(), 1, cost=0)


def test_the_smallest_costs_do_not_vanish():
    study = new(arms=["a", "b"], policy="co", costs=[0, 5e-324])
    assert study.settings.steering_costs == (5e-324, 5e-324)
    assert run(study, {"a": 0.1, "b": 0.9}).decision == "b"
