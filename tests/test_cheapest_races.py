"""The cheapest arm that is good enough on a dataset: exactly over all orders of a few items, in 20,000 races where it
is hardest, and live as replayed."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

import cabai
import race_schedules
from cabai.core.compiling import compiled
from cabai.core.goal import Cheapest, right_answers
from cabai.datasets.dataset import permutation
from cabai.datasets.race import functions_of
from cabai.datasets.race import started as begin
from cabai.support.specialise import specialised
from test_race_validity import HALVES, arrangements

SLOW = pytest.mark.slow
DELTA, RUNS, ONCE_IN_A_MILLION = 0.1, 20_000, 1e-6


@cache
def kernel(function):
    return compiled(specialised(getattr(race_schedules, function), functions_of("cheapest")))


@pytest.mark.parametrize(
    ("items", "delta"),
    [pytest.param(n, d, marks=[SLOW] if n > 3 else []) for n in (2, 3, 6, 7) for d in (0.1, 0.5, 0.9)],
)
def test_two_arms_on_every_table_and_every_order(items, delta):
    """No table in which arm 0 is within the margin has more than a share delta of orders in which it is excluded,
    and none in which arm 1 is worse than arm 0 by more than epsilon has in which it is shown good."""
    columns = np.asarray(HALVES, float).T.copy()
    kinds, largest = columns.shape[1], 0.0
    digits, same = arrangements(kinds, items)
    lead = columns[:, digits].sum(axis=2)[0] - columns[:, digits].sum(axis=2)[1]
    for epsilon, slack in ((0.5, 0.25), (1 / items, 1 / items), (0.5, 0.1)):
        goal, margin = Cheapest(slack, (1.0, 2.0)), epsilon - slack
        state, fresh = (begin(2, items, delta, epsilon, "cheapest", goal) for _ in range(2))
        seen = np.zeros((kinds**items, 3), np.bool_)
        run = race_schedules.all_orders
        run = kernel(run.__name__) if items > 3 else specialised(run, functions_of("cheapest"))
        run(state, fresh, columns, seen)
        for found, null in ((seen[:, 1], lead >= -margin * items), (seen[:, 2], lead > epsilon * items)):
            if null.any():
                wrong, orders = np.bincount(same[null], found[null]), np.bincount(same[null])
                assert (wrong <= delta * orders).all()
                largest = max(largest, float((wrong[orders > 0] / orders[orders > 0]).max()))
    assert largest > 0 or delta < 0.9 or items < 3  # so it could fail


def table_of(items, behind, seed=0, share=0.6):
    """Scores 0 and 1: arm a has so many ones fewer than the best as `behind` says."""
    rng = np.random.default_rng(seed)
    table = np.zeros((len(behind), items))
    for a, fewer in enumerate(behind):
        table[a, rng.permutation(items)[: round(share * items) - fewer]] = 1.0
    return table


# By running cost: how many items each arm is behind the best of 200, for epsilon 0.1 and slack 0.05.
HARDEST = {
    "just within the margin": [10, 0],
    "just not good": [21, 0],
    "three could exclude it": [10, 0, 0, 0],
    "two are just not good": [21, 21, 10, 0],
    "both": [21, 10, 0, 0, 0],
}
EPSILON, SLACK, ITEMS = 0.1, 0.05, 200


def wrong_races(case, runs):
    """How many races are wrong by an adversary who sees the table and the order, reveals what he likes and stops when
    the answer is wrong. Any workers and delays are one of his strategies."""
    table = table_of(ITEMS, HARDEST[case])
    arms, sums, run = len(table), table.sum(axis=1), kernel("race_with_adversary")
    costs, wrong = np.arange(1.0, arms + 1), 0
    right = np.isin(np.arange(arms), right_answers(table.mean(axis=1), costs.tolist(), EPSILON, SLACK))
    assert 0 < right.sum() < arms
    for r in range(runs):
        state = begin(arms, ITEMS, DELTA, EPSILON, "cheapest", Cheapest(SLACK, tuple(costs)))
        state.running[:], state.close[:] = costs, sums[:, None] - sums[None, :] >= -EPSILON * ITEMS - 1e-9
        order = permutation(ITEMS, 13, r)
        wrong += run(state, order, table, np.ones(arms), np.arange(arms), right, arms - 1, r % 4)
    return wrong


@SLOW
@pytest.mark.parametrize("case", HARDEST)
def test_wrong_answers_are_as_rare_as_promised(case):
    wrong = wrong_races(case, RUNS)
    print(f"\n{case}: wrong {wrong / RUNS:.4f}")
    assert wrong <= binom.isf(ONCE_IN_A_MILLION, RUNS, DELTA)


def scores_of(table, names):
    return {name: row.tolist() for name, row in zip(names, table, strict=True)}


def test_what_is_known_completely_is_known_exactly():
    """Two of 100 items behind is within 0.02, and not within 0.019: where delta is tiny, only all of them tell."""
    table = scores_of(table_of(100, [2, 0], seed=1), ["small", "large"])
    about = {"goal": "cheapest", "seed": 2, "delta": 1e-12, "running_costs": {"small": 1, "large": 2}}
    found = cabai.evaluate(list(table), range(100), lambda arm, item: table[arm][item], epsilon=0.02, **about)
    assert found.decision == "small"
    assert found.spent == found.full_cost == 200
    assert found.statement.endswith("known exactly, since everything was evaluated")
    found = cabai.evaluate(list(table), range(100), lambda arm, item: table[arm][item], epsilon=0.019, **about)
    assert found.decision == "large"


def test_replays_say_what_was_looked_for():
    table = scores_of(table_of(200, [60, 4, 0], seed=3), ["small", "medium", "large"])
    found = cabai.replay(table, costs={"small": 1, "medium": 2, "large": 3}, goal="cheapest", epsilon=0.1, repeats=20)
    told = found.to_dict()
    assert (told["goal"], told["slack"], told["right"], told["same_winner"]) == ("cheapest", 0.05, 1.0, 1.0)
    assert told["decisions"] == {"small": 0, "medium": 20, "large": 0}
    assert "Answer: the same as with all scores in 20 of 20 repeats; as promised in 20." in repr(found)
    minimized = {arm: [1 - score for score in scores] for arm, scores in table.items()}
    again = cabai.replay(
        minimized, costs={"small": 1, "medium": 2, "large": 3}, goal="cheapest", epsilon=0.1, repeats=20,
        direction="minimize",
    )  # fmt: skip
    assert again.pulls.tolist() == found.pulls.tolist()


def test_pairs_of_prices_and_orders_leave_no_race_without_an_end():
    """Ties at the margin, at epsilon and in price; every race ends with an answer that is right by all scores."""
    rng = np.random.default_rng(8)
    for epsilon, slack in itertools.product((0.1, 0.25), (0.1, 0.25)):
        if slack <= epsilon:
            for _ in range(5):
                arms = int(rng.integers(2, 5))
                table = {f"m{a}": (rng.random(20) < 0.5).astype(float).tolist() for a in range(arms)}
                found = cabai.replay(
                    table, goal="cheapest", epsilon=epsilon, slack=slack, delta=1e-9, repeats=5,
                    running_costs=rng.integers(1, 3, arms).tolist(),
                )  # fmt: skip
                assert found.right == 1.0


COMPLETE = {
    "small looks good for a while": ([60, 340], [[1, 0], [0, 1]], "large"),
    "all are beaten at some time": ([35, 5, 160, 200], [[1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]], "large"),
}


@pytest.mark.parametrize("case", COMPLETE)
def test_what_is_known_exactly_overrides_what_was_shown_before(case):
    """All scores are reused, in an order that refutes the truth on the way."""
    lengths, blocks, answer = COMPLETE[case]
    scores, items, seed = np.repeat(np.array(blocks, float), lengths, axis=1), sum(lengths), 5
    table = np.zeros_like(scores)
    table[:, permutation(items, seed)] = scores
    names = ["small", "large"] if len(blocks) == 2 else ["small", "medium", "large"]
    known = {name: dict(enumerate(row.tolist())) for name, row in zip(names, table, strict=True)}
    found = cabai.evaluate(
        names, range(items), lambda arm, item: pytest.fail("nothing is left to evaluate"), goal="cheapest", epsilon=0.1,
        slack=0.05, running_costs=range(1, len(names) + 1), reuse=known, seed=seed,
    )  # fmt: skip
    means = dict(zip(names, table.mean(axis=1), strict=True))
    assert [name for name in names if means[name] >= max(means.values()) - 0.1] == [answer]
    assert found.decision == answer
    assert "known exactly" in found.statement


def test_a_race_does_not_wait_for_an_arm_that_was_shown_too_bad_though_none_is_out():
    """All arms are beaten at some time, so none is out, and the cheapest has finished but not the second."""
    lengths, blocks, ones = [13, 23, 59, 44], [[0, 0, 1, 0], [1, 1, 1, 0], [0, 1, 1, 1]], [228, 229, 15]
    items, told, seed, names = 400, 139, 5, ["small", "medium", "large"]
    rest = [[float(j < ones[a]) for j in range(items - told)] for a in range(3)]
    scores = np.concatenate([np.repeat(np.array(blocks, float), lengths, axis=1), rest], axis=1)
    order, table = permutation(items, seed), np.zeros_like(scores)
    table[:, order] = scores
    known = {name: {int(order[j]): scores[a, j] for j in range(told)} for a, name in enumerate(names)}
    found = cabai.evaluate(
        names, range(items), lambda arm, item: table[names.index(arm), item], goal="cheapest", epsilon=0.1, slack=0.05,
        running_costs=[1, 2, 3], costs=[1, 1, 1], reuse=known, seed=seed,
    )  # fmt: skip
    means = table.mean(axis=1)
    assert means.max() - 0.1 < means[0] < means.max() - 0.05 < means[1]
    assert found.decision == "medium"


# When little is left to evaluate, a race evaluates it and answers exactly


PRICES = {"small": 1, "large": 2}


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
