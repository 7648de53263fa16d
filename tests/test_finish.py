"""When little is left to evaluate, a race evaluates it and answers exactly."""

from __future__ import annotations

import numpy as np
import pytest

import cabai

ITEMS, PRICES = 200, {"small": 1, "large": 2}


def on_the_edge(seed=1):
    """Two arms whose difference is just what is good enough: the cheap one is, by all scores."""
    rng = np.random.default_rng(seed)
    large = (rng.random(ITEMS) < 0.7).astype(float)
    small = large.copy()
    right = np.flatnonzero(large)
    small[right[:18]] = 0  # worse by 18 items, of which 20 are allowed
    return {"small": small, "large": large}


def shares_and_answers(finish, slack, **options):
    found = cabai.replay(
        on_the_edge(), costs=PRICES, goal="cheapest", epsilon=0.1, slack=slack, finish=finish,
        repeats=50, **options,
    )  # fmt: skip
    return found.shares, found.same_winner, found


def test_a_race_that_has_nearly_paid_for_everything_pays_for_the_rest_and_is_exact():
    before, right_before, _ = shares_and_answers(0, 0.05)
    after, right_after, _ = shares_and_answers(0.5, 0.05)
    assert right_before < right_after
    changed = after > before
    assert changed.any()
    assert (after[changed] == 1).all()
    assert (after <= 1.5 * before + 1e-12).all()
    assert (after <= 1).all()
    assert (before[changed] >= 1 / 1.5 - 1e-12).all()
    usual = shares_and_answers(None, 0.05)[0]
    assert (usual == shares_and_answers(0.1, 0.05)[0]).all()
    table = on_the_edge(2)
    plain = cabai.replay(table, epsilon=0.02, repeats=20).costs
    assert (plain == cabai.replay(table, epsilon=0.02, finish=0, repeats=20).costs).all()
    assert (cabai.replay(table, epsilon=0.02, finish=100, repeats=20).shares == 1).all()
    for wrong in (-0.1, "much", float("nan")):
        with pytest.raises(cabai.InvalidInput, match="finish must"):
            cabai.replay(table, finish=wrong)


@pytest.mark.parametrize("finish", [0, None, 0.5])
def test_a_study_pays_what_a_replay_does(finish):
    """The same evaluations, the same answer, with scores that come one by one."""
    table = on_the_edge()
    for seed in range(8):
        given = {"costs": PRICES, "running_costs": PRICES, "goal": "cheapest", "epsilon": 0.1, "finish": finish}
        replay = cabai.replay(table, repeats=1, seed=seed, **given)
        live = cabai.evaluate(list(table), range(ITEMS), lambda arm, item: float(table[arm][item]), seed=seed, **given)
        assert (live.spent, live.decision) == (replay.costs[0], replay.table.arms[replay.decisions[0]])
        assert [arm.pulls for arm in live.status.arms] == replay.pulls[0].tolist()
        if finish and live.status.is_complete:
            assert live.statement.endswith("known exactly, since everything was evaluated")


def test_it_does_not_take_a_decision_back_at_a_limit():
    table, given = on_the_edge(), {"costs": PRICES, "goal": "cheapest", "epsilon": 0.1, "seed": 3}

    def score(arm, item):
        return float(table[arm][item])

    free = cabai.evaluate(["small", "large"], range(ITEMS), score, finish=0, **given)
    for limit in (free.spent, free.spent + 5):
        found = cabai.evaluate(["small", "large"], range(ITEMS), score, finish=100, max_cost=limit, **given)
        assert (found.decision, found.spent) == (free.decision, free.spent)
    everything = cabai.evaluate(["small", "large"], range(ITEMS), score, finish=100, **given)
    assert (everything.spent, everything.decision) == (3 * ITEMS, "small")
    many = cabai.evaluate(["small", "large"], range(ITEMS), score, finish=100, workers=8, **given)
    assert (many.spent, many.decision) == (3 * ITEMS, "small")
