"""Policies compared on random instances."""

from __future__ import annotations

import json

import numpy as np
import pytest

import cabai
from cabai.simulation.grid import grid, random_instance
from shell import here


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "exponential", "bounded"])
@pytest.mark.parametrize("arms", [3, 50])
def test_random_instances_are_as_described_and_differ(family, arms):
    drawn = [random_instance(family, arms, seed=1, number=i) for i in range(200)]
    for instance in drawn:
        assert len(instance) == arms
        assert len(instance.best_arms) == 1
        others = np.delete(instance.means, instance.best)
        assert (others <= 0.85 * instance.means.max() * (1 + 1e-12)).all()
        assert (instance.costs >= 0.01).all()
        assert (instance.costs <= 1).all()
    assert len(set(drawn)) == 200
    assert random_instance(family, arms, seed=1, number=3) == drawn[3]
    costs = np.log10([instance.costs for instance in drawn]) / -2  # uniform in [0, 1]
    assert abs(costs.mean() - 0.5) < 5.2 * np.sqrt(1 / 12 / costs.size)


def test_a_cell_is_what_simulations_of_its_instances_say():
    deltas = [0.1, 1e-3]
    options = {"thresholds": ["paper"], "deltas": deltas, "arms": [4], "instances": 3, "trajectories": 40, "seed": 5}
    found = {(cell.policy, cell.delta): cell for cell in grid("poisson", ["co", "ctas"], **options).cells}
    assert set(found) == {("co", 0.1), ("ctas", 0.1), ("co", 1e-3), ("ctas", 1e-3)}
    for (policy, delta), cell in found.items():
        ratios = []
        for i in range(3):
            instance = random_instance("poisson", 4, seed=5, number=i)
            runs = cabai.simulate(instance, policy, delta=delta, trajectories=40, seed=5, threshold="paper")
            ratios.append(runs.costs / cabai.bound(instance).cost(delta))
        means = [ratio.mean() for ratio in ratios]
        assert cell.mean_ratio == pytest.approx(np.mean(means))
        assert cell.se_ratio == pytest.approx(np.std(means, ddof=1) / np.sqrt(3))
        assert cell.worst_ratio == pytest.approx(np.quantile(ratios, 0.99))
        assert (cell.trajectories, cell.unfinished) == (120, 0)


def test_a_grid_prints_a_column_a_policy_and_counts_its_work():
    told = []
    found = grid(
        "bernoulli", ["co", "racing"], thresholds=[None, "evalue"], deltas=[0.1], arms=[2, 3], instances=2,
        trajectories=5, progress=told.append,
    )  # fmt: skip
    lines = repr(found).splitlines()
    assert lines[2].split() == ["arms", "delta", "threshold", "co", "racing"]
    assert len(lines) == 3 + 2 * 2 + 1
    assert told == list(range(1, 2 * 2 * 2 * 2 + 1))
    assert len(found.to_frame()) == len(found.to_dicts()) == 8
    assert {cell.threshold for cell in found.cells} == {"contrast", "evalue"}


def test_a_grid_uses_the_threshold_that_is_given_or_the_familys_own():
    usual = ["compare", "--grid", "--family", "bernoulli", "--policies", "co", "--deltas", "0.1", "--arms", "2",
             "--instances", "2", "--trajectories", "5", "--json"]  # fmt: skip
    for more, expected in (([], "contrast"), (["--threshold", "kt"], "kt")):
        found = here(*usual, *more)
        assert {cell["threshold"] for cell in json.loads(found.stdout)["cells"]} == {expected}
    found = here(*usual, "--threshold", "kt,paper(alpha=1.2)")
    assert [cell["threshold"] for cell in json.loads(found.stdout)["cells"]] == ["kt", "paper(alpha=1.2)"]


def test_a_grid_of_bounded_rewards_counts_errors_and_has_no_ratios():
    found = grid("bounded", ["co"], thresholds=["evalue"], deltas=[0.1], arms=[2], instances=2, trajectories=5)
    cell = found.to_dicts()[0]
    assert (cell["mean_ratio"], cell["se_ratio"], cell["worst_ratio"]) == (None, None, None)
    assert (cell["trajectories"], cell["unfinished"]) == (10, 0)
    assert repr(found).splitlines()[3].split() == ["2", "0.1", "evalue", "-"]
    assert "lower bound, which this family does not have" in repr(found)


@pytest.mark.parametrize(
    "wrong",
    [{"policies": []}, {"deltas": [0.5]}, {"deltas": []}, {"arms": [1]}, {"instances": 1}, {"family": "gamma"},
     {"thresholds": ["none"]}, {"seed": -1}],
)  # fmt: skip
def test_bad_input_is_refused(wrong):
    with pytest.raises(cabai.InvalidInput):
        grid(**{"arms": [2], "instances": 2, "trajectories": 2, "policies": ["co"], **wrong})
