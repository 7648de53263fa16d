"""New arms that challenge the winner of an earlier race, in the same order of items."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import cabai
from cabai.datasets.race import OpenRace, Race

ARMS = ["a", "b", "c"]
SKILLS = {"a": 0.55, "b": 0.75, "c": 0.6, "worse": 0.6, "better": 0.9, "equal": 0.75}


def table_of(items=600, seed=3):
    rng = np.random.default_rng(seed)
    hard = rng.random(items)
    return {arm: (0.6 * hard + 0.4 * rng.random(items) < skill).astype(float) for arm, skill in SKILLS.items()}


TABLE = table_of()


def scored(calls):
    def test(arm, item):
        calls[arm] += 1
        return float(TABLE[arm][item])

    return test


@pytest.fixture(autouse=True)
def memory() -> None:
    """What is in memory stays until all tests of this file have ended: `first` is there."""


@pytest.fixture(scope="module")
def first():
    found = cabai.evaluate(ARMS, range(600), scored(Counter()), seed=5)
    assert found.decision == "b"
    return found


@pytest.mark.parametrize(("new", "wins"), [("worse", False), ("better", True)])
def test_a_newcomer_pays_mostly_for_itself(first, new, wins):
    calls = Counter()
    found = cabai.evaluate([new], range(600), scored(calls), join=first)
    assert found.decision == (new if wins else "b")
    assert found.study.arms == ("b", new)
    assert found.spent == sum(calls.values())
    assert calls[new] >= 0.7 * found.spent
    assert found.study.settings.seed == 5
    assert found.statement == (
        f"{found.decision} has the highest mean of these two and the two of the earlier race on these 600 items, wrong "
        "with probability at most 0.1"
    )
    assert found.status.confidence == pytest.approx(0.9)
    reused = cabai.evaluate([*ARMS, new], range(600), scored(Counter()), reuse=first, seed=6)
    assert found.spent < reused.spent


def test_a_third_race_joins_the_second_and_errors_add_up(first, tmp_path):
    second = cabai.evaluate([*ARMS, "better"], range(600), scored(Counter()), join=first, delta=0.01)
    third = cabai.evaluate(["worse"], range(600), scored(Counter()), join=second, delta=0.02)
    assert (third.decision, third.study.arms) == ("better", ("better", "worse"))
    assert set(third.status.earlier) == set(ARMS)
    assert third.study.settings.error == pytest.approx(0.08)


def test_it_is_stored_and_goes_on(tmp_path):
    url, calls = f"sqlite:///{tmp_path}/cabai.db", Counter()
    cabai.evaluate(ARMS, range(600), scored(Counter()), name="old", storage=url, seed=5)
    given = {"name": "new", "join": "old", "storage": url}
    stopped = cabai.evaluate(["better"], range(600), scored(calls), max_cost=3, **given)
    assert (stopped.decision, stopped.spent) == (None, 3)
    found = cabai.evaluate(["better"], range(600), scored(calls), max_cost=600, **given)
    assert (found.decision, found.spent) == ("better", sum(calls.values()))
    loaded = cabai.load_study("new", storage=url)
    assert loaded.status().statement == found.statement


def test_equal_arms_are_known_exactly_only_if_the_earlier_race_was():
    items = range(40)
    test = lambda arm, item: float(item % 2)  # noqa: E731
    first = cabai.evaluate(["a", "b"], items, test, costs={"a": 1, "b": 2})
    found = cabai.evaluate(["c"], items, test, join=first, costs={"a": 1, "c": 2})
    assert found.decision == "a"
    assert found.statement.endswith("known exactly, since everything was evaluated")
    decided = cabai.evaluate(["a", "b"], items, lambda arm, item: float(arm == "a" and item % 2), seed=1)
    again = cabai.evaluate(["c"], items, lambda arm, item: float(item % 2), join=decided)
    assert again.status.is_complete
    assert again.statement.endswith("wrong with probability at most 0.1")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epsilon": 0.1}, "epsilon is another"),
        ({"direction": "minimize"}, "direction is another"),
        ({"goal": "cheapest", "epsilon": 0.1}, "goal is another"),
        ({"race": "champion"}, "race is another"),
        ({"family": "bounded(low=0, high=2)"}, "family is another"),
        ({"items": range(599)}, "items is another"),
        ({"seed": 6}, "leave out seed"),
        ({"reuse": {"b": {0: 1.0}}}, "leave out reuse"),
        ({"arms": ["a", "c"]}, "there is no new arm"),
        ({"costs": [1, 2]}, "costs as a dictionary"),
        ({"join": {"b": {0: 1.0}}}, "join must be one earlier evaluation"),
    ],
)
def test_what_cannot_be_joined(first, given, said):
    with pytest.raises(cabai.InvalidInput, match=said):
        cabai.evaluate(
            given.pop("arms", ["worse"]), given.pop("items", range(600)), scored(Counter()), **{"join": first, **given}
        )


def test_a_newcomer_must_itself_be_shown_better_than_the_incumbent():
    """Within epsilon of it is not enough: it may be epsilon below the best of the earlier race itself."""
    shares = np.zeros((2, 400))
    shares[1, [10, 60]] = 1  # the newcomer leads a little, and is soon shown to be within epsilon of the incumbent
    plain, challenged = (Race(2, 400, delta=0.05, epsilon=0.1, earlier=each) for each in (0, 1))
    for race in (plain, challenged):
        race.tell_many([(arm, j, shares[arm, j]) for arm in range(2) for j in range(100)])
    assert (plain.leader([1, 1]), plain.winner([1, 1])) == (1, 1)
    assert challenged.board.best[0, 1, 0] < challenged.board.target <= challenged.board.best[1, 1, 0]
    assert (challenged.leader([1, 1]), challenged.winner([1, 1])) == (1, None)
    assert challenged.confidence(1, 0.05) < 0.95 <= plain.confidence(1, 0.05)


def open_race(name="open", url="memory", **given):
    return cabai.create_study(name, arms=ARMS, items=600, reserve=0.1, storage=url, seed=5, **given)


def pull(study, times):
    for _ in range(times):
        if not study.stopped:
            each = study.ask()
            study.tell(each, reward=TABLE[each.arm][each.item], cost=1)


@pytest.mark.parametrize("epsilon", [0.0, 0.02])
@pytest.mark.parametrize(("new", "wins"), [("worse", False), ("better", True)])
def test_an_arm_joins_a_race_in_its_order_while_it_runs(epsilon, new, wins, tmp_path):
    study = open_race(url=(url := f"sqlite:///{tmp_path}/cabai.db"), epsilon=epsilon)
    pull(study, 60)
    study.add_arm(new, metadata={"month": "next"})
    study.add_arm(new)  # once is enough
    assert (study.arms, study.status().joined) == ((*ARMS, new), [new])
    order = study.settings.items.order(5).tolist()
    asked = study.ask(4)
    assert [(each.arm, each.item) for each in asked] == [(new, item) for item in order[:4]]  # it catches up first
    study.tell_many({"pull": each, "reward": TABLE[new][each.item], "cost": 1} for each in asked)
    loaded = cabai.load_study("open", storage=url)
    loaded.run(lambda arm, item: (TABLE[arm][item], 1))
    assert loaded.decision == (new if wins else "b")
    assert loaded.status().statement.endswith("these four on these 600 items, wrong with probability at most 0.05")
    assert loaded.status().spent <= 4 * 600
    for refused in (lambda: loaded.add_arm("equal"), lambda: loaded.drop("a")):
        with pytest.raises(cabai.InvalidInput, match="has stopped: its arms can no longer change"):
            refused()


def test_what_an_open_race_refuses(first):
    undecided = cabai.evaluate(ARMS, range(600), scored(Counter()), max_cost=5)
    with pytest.raises(cabai.InvalidInput, match="has no decision that new arms could challenge"):
        cabai.evaluate(["worse"], range(600), scored(Counter()), join=undecided)
    with pytest.raises(cabai.InvalidInput, match="Once it is decided, new arms can challenge its winner"):
        first.study.add_arm("new")
    study = open_race()
    pull(study, 30)
    for refused, said in [
        (lambda: study.drop("a"), "a race drops arms by itself"),
        (lambda: study.amend(epsilon=0.1), "a test for this epsilon only"),
        (study.accept, "nothing is proven yet"),
        (lambda: study.add_arm("a"), "there is already an arm 'a'"),
        (lambda: cabai.create_study("x", arms=ARMS, items=9, reserve=0.1, race="champion", storage="memory"), "paired"),
        (lambda: cabai.create_study("x", arms=ARMS, items=9, reserve=0.1, goal="cheapest", epsilon=0.1,
                                    storage="memory"), "only if its goal is the best arm"),
    ]:  # fmt: skip
        with pytest.raises(cabai.InvalidInput, match=said):
            refused()


def test_the_winner_of_an_open_race_must_itself_beat_every_arm():
    """Here b beats a, and c, which joined, is as good as b. It has to show that itself, at its own level."""
    race, costs = OpenRace(3, 200, first=2, reserve=0.2, delta=0.05), [1, 1, 2]
    assert [race.target(a) * 0.05 for a in range(3)] == pytest.approx([2.5, 2.5, 10], rel=1e-5)
    told = 0
    while race.board.best[0, 1, 0] < race.target(1):
        race.tell_many([(a, told, float(a)) for a in range(2)])
        told += 1
    assert (race.leader(costs), race.active(costs), race.winner(costs)) == (1, [1, 2], None)
    race.tell_many([(1, j, 1.0) for j in range(told, 200)] + [(2, j, 1.0) for j in range(200)])
    assert race.board.best[0, 1, 0] == race.board.best[0, 2, 0] < race.target(2)
    assert (race.winner(costs), race.confidence(1, 0.05) >= 0.95) == (1, True)
    costs = [1, 2, 1]  # now c, which ties, is the one to return
    assert (race.winner(costs), race.active(costs)) == (None, [0, 1, 2])
    while race.winner(costs) is None:
        arm, position = race.next(costs, [()] * 3)
        assert arm == 0
        race.tell(arm, position, 0.0)
    assert race.winner(costs) == 2
