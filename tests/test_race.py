"""Races on shared items: the same as a plain version in fractions, whatever the order of arrival; and their edges."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cabai.core.compiling import compiled
from cabai.datasets import board
from cabai.datasets.dataset import ScoreTable, permutation
from cabai.datasets.race import RACES, Race, functions_of, race_of, started
from cabai.datasets.replaying import replay
from cabai.support.specialise import specialised
from cabai.support.validation import InvalidInput
from plain_race import PlainRace

EVIDENCE = ["sums", "carry", "prefix", "beaten", "out", "capital", "best", "settled", "squares", "column"]


def some_table(rng, arms, items):
    """Scores 0 and 1 with easy and hard items, or in eighths, or any; arms may be alike, or copies of each other."""
    quality = rng.uniform(0.2, 0.8, arms)[:, None] if rng.random() < 0.7 else np.full((arms, 1), 0.5)
    kind = rng.integers(4)
    if kind == 0:
        return (rng.random((arms, items)) < quality).astype(float)
    if kind == 1:
        return (rng.random(items) < quality + rng.normal(0, 0.1, (arms, items))).astype(float)
    if kind == 2:
        return rng.integers(0, 9, (arms, items)) / 8
    scores = rng.beta(8 * quality, 8 * (1 - quality), (arms, items))
    scores[rng.integers(arms)] = scores[0]
    return scores


def run(race, table, costs, workers=1, rng=None, plain=None):
    """A race to its end; with `plain`, which must do the same at each pull. Returns who won and how much was told."""
    arms, items = table.shape
    under_way = [set() for _ in range(arms)]
    told = 0
    while True:
        winner = race.winner(costs)
        if plain is not None:
            same(race, plain, costs)
        if winner is not None:
            return winner, told
        pull = None
        if sum(map(len, under_way)) < workers:
            pull = race.next(costs, under_way)
            if plain is not None:
                assert plain.next(costs, under_way) == pull
        if pull is not None:
            under_way[pull[0]].add(pull[1])
        if pull is None or workers == 1 or rng.random() < 0.3:
            busy = [(a, position) for a in range(arms) for position in sorted(under_way[a])]
            arm, position = busy[rng.integers(len(busy))] if workers > 1 else busy[0]
            under_way[arm].remove(position)
            for each in (race, plain):
                if each is not None:
                    each.tell(arm, position, table[arm, position])
            told += 1
            assert told <= arms * items


def same(race, plain, costs):
    assert race.board.prefix.tolist() == plain.prefix
    assert race.board.out.tolist() == plain.out
    assert race.leader(costs) == plain.leader(costs)
    assert race.active(costs) == plain.active(costs)
    assert race.winner(costs) == plain.winner(costs)
    leader = board.find_leader(race.board, costs)  # as a replay has it
    assert leader == (board.NO_ARM if race.leader(costs) is None else race.leader(costs))
    is_decided = specialised(board.is_decided, functions_of(race.name))
    assert is_decided(race.board, leader) == (race.winner(costs) is not None)
    for key, best in plain.best.items():
        found = race.board.best[0, 0, key] if plain.race == "champion" else race.board.best[key]
        if best < plain.target:
            assert math.isclose(found, best, rel_tol=1e-9)
        else:
            assert found >= race.board.target


@pytest.mark.parametrize("workers", [1, 7])
@pytest.mark.parametrize("race", RACES)
def test_each_pull_is_that_of_the_plain_version(race, workers):
    ends = set()
    for seed in range(30):
        rng = np.random.default_rng([seed, workers])
        arms, items = int(rng.integers(2, 6)), int(rng.integers(1, 50))
        table, costs = some_table(rng, arms, items), rng.integers(1, 4, arms).tolist()
        epsilon = 0 if race == "champion" else float(rng.choice([0, 0, 1 / items, 0.05, 0.3, 1.5]))
        terms = {"delta": float(rng.choice([0.01, 0.1, 0.4])), "epsilon": epsilon, "race": race}
        terms["speculate"] = float(rng.choice([0.1, math.inf]))
        plain = PlainRace(arms, items, **terms)
        _, told = run(Race(arms, items, **terms), table, costs, workers, rng, plain)
        ends.add(told == arms * items)
    assert ends == {False, True}  # some races end early, and some with everything


def told(name, order, table, terms):
    race = Race(*table.shape, race=name, **terms)
    for arm, position in order:
        race.tell(arm, position, table[arm, position])
    return race.board


def told_at_once(name, order, table, terms, rng):
    """In a few lots."""
    race = Race(*table.shape, race=name, **terms)
    cuts = sorted(rng.integers(0, len(order), 3).tolist())
    for begin, end in itertools.pairwise([0, *cuts, len(order)]):
        race.tell_many([(arm, position, table[arm, position]) for arm, position in order[begin:end]])
    return race.board


def told_to_kernel(tell, name, order, table, terms):
    state = started(*table.shape, terms["delta"], terms["epsilon"], name)
    for arm, position in order:
        tell(state, arm, position, table[arm, position])
    return state


@pytest.mark.parametrize("name", RACES)
def test_evidence_is_the_same_to_the_last_bit_whatever_the_order_of_arrival_and_the_form_of_the_code(name):
    kernel = specialised(board.tell, functions_of(name))
    for seed in range(12):
        rng = np.random.default_rng([seed, 1])
        arms, items = int(rng.integers(2, 7)), int(rng.integers(1, 80))
        table = some_table(rng, arms, items)
        terms = {"delta": 0.1, "epsilon": 0.0 if name == "champion" else float(rng.choice([0, 0.03]))}
        cells = [(a, i) for a in range(arms) for i in range(items) if i < 0.7 * items or rng.random() < 0.9]
        orders = [rng.permutation(cells).tolist() for _ in range(3)]
        found = [told(name, each, table, terms) for each in (cells, *orders[:2])]
        found.append(told_at_once(name, orders[0], table, terms, rng))
        found += [told_to_kernel(form, name, orders[2], table, terms) for form in (kernel, compiled(kernel))]
        for other in found[1:]:
            for field in EVIDENCE:
                assert getattr(found[0], field).tobytes() == getattr(other, field).tobytes(), field


@pytest.mark.parametrize("name", RACES)
def test_a_replayed_race_is_the_live_race(name):
    rng = np.random.default_rng(5)
    table = rng.beta(4, 4, (4, 60))
    table[2] += (1 - table[2]) * 0.3
    costs = np.repeat([[1.0], [2.0], [3.0], [0.5]], 60, axis=1)
    named = ScoreTable(tuple("abcd"), tuple(map(str, range(60))), table, costs)
    found = replay(named, delta=0.1, repeats=10, seed=3, race=name)
    for r in range(10):
        race = Race(4, 60, delta=0.1, race=name)
        winner, told = run(race, table[:, permutation(60, 3, r)], costs[:, 0].tolist())
        assert (winner, told) == (found.decisions[r], found.pulls[r].sum())
        assert race.board.prefix.tolist() == found.pulls[r].tolist()


def test_sums_are_rounded_once():
    rng = np.random.default_rng(6)
    for shares in (rng.random(3000), rng.random(3000) ** 40, np.full(3000, 0.1), rng.integers(0, 2, 3000) * 1.0):
        race = Race(2, 3000, delta=0.1)
        race.tell_many([(0, j, share) for j, share in enumerate(shares)])
        exact = [math.fsum(shares[:j]) for j in range(0, 3001, 100)]
        assert race.board.sums[0, ::100].tolist() == exact


@pytest.mark.parametrize("race", RACES)
def test_exact_ties_end_with_everything_and_the_cheapest(race):
    table = np.tile((np.random.default_rng(1).random(40) < 0.6).astype(float), (3, 1))
    for workers in (1, 5):
        rng = np.random.default_rng(workers)
        assert run(Race(3, 40, delta=0.1, race=race), table, [3, 1, 2], workers, rng)[0] == 1
    assert run(Race(3, 40, delta=0.1, race=race), table, [3, 1, 2])[1] == 120


@pytest.mark.parametrize("race", RACES)
def test_sums_that_are_equal_by_other_items_are_a_tie_and_the_smallest_lead_decides(race):
    """The sums of both arms are 0.6 and 0.6000000000000001 if added up from the left."""
    table = np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])
    assert sum(table[0]) != sum(table[1])
    for costs, winner in (([1, 1], 0), ([2, 1], 1), ([1, 2], 0)):
        assert run(Race(2, 3, delta=0.1, race=race), table, costs)[0] == winner
    better = np.array([[0.3, 0.2, np.nextafter(0.1, 1)], [0.1, 0.2, 0.3]])
    assert run(Race(2, 3, delta=0.1, race=race), better[::-1], [1, 2])[0] == 1


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("better_by", [1.0, 1e-3, 1e-12, 2.0**-52])
def test_the_arm_that_is_better_by_one_item_wins_a_finished_race(race, better_by):
    """delta is so small that nothing is decided before the end."""
    for last in (True, False):
        table = np.tile([0.5, 0.25] * 30, (3, 1))
        table[:, -1 if last else 0] = 0.0
        table[1, -1 if last else 0] = better_by
        winner, told = run(Race(3, 60, delta=1e-300, race=race), table, [1, 5, 1])
        assert winner == 1
        assert told == 180 if better_by < 1 else told > 170


def test_none_is_out_if_each_is_beaten():
    """The first items speak for arm 0 and all others for arm 1; both come to beat each other. The means decide."""
    table = np.zeros((2, 200))
    table[0, :12] = 1
    table[1, 12:] = 1
    race = Race(2, 200, delta=0.1, race="paired")
    assert run(race, table, [1, 1]) == (0, 10)
    race.tell_many([(a, j, table[a, j]) for a in (0, 1) for j in range(5, 150)])
    assert race.board.beaten.all()
    assert not race.board.out.any()
    assert race.winner([1, 1]) == 1


@pytest.mark.parametrize("race", RACES)
def test_the_smallest_scores_can_be_wanted_and_the_range_declared(race):
    rng = np.random.default_rng(8)
    table = some_table(rng, 4, 64).round() * 0.5
    one = Race(4, 64, delta=0.1, race=race)
    plain = run(one, table, [1, 2, 3, 4])
    other = Race(4, 64, delta=0.1, race=race, low=-4, high=4)
    assert run(other, table * 8 - 4, [1, 2, 3, 4]) == plain
    least = Race(4, 64, delta=0.1, race=race, low=2, high=4, minimize=True)
    assert run(least, 4 - table * 2, [1, 2, 3, 4]) == plain
    for each in (other, least):
        assert np.array_equal(each.board.best, one.board.best)


def test_epsilon_is_in_units_of_the_scores_and_the_champion_race_takes_none():
    table = np.array([[0.4], [0.5]]) + np.random.default_rng(9).random(200) / 2
    told = [
        run(Race(2, 200, delta=0.1, epsilon=0.25 * s, low=0, high=s), table * s, [1, 1])[1] for s in (1.0, 2.0, 1024.0)
    ]
    assert told[0] == told[1] == told[2] < 300
    assert race_of(None, 0.1) == "paired"
    with pytest.raises(InvalidInput, match="epsilon 0"):
        race_of("champion", 0.1)


@pytest.mark.parametrize("race", RACES)
def test_confidence_is_that_of_the_delta_at_which_it_would_end_and_1_when_all_is_known(race):
    table = (np.random.default_rng(3).random((3, 50)) < [[0.9], [0.6], [0.5]]).astype(float)
    one = Race(3, 50, delta=0.05, race=race)
    confidences = []
    for j, arm in itertools.product(range(50), range(3)):
        one.tell(arm, j, table[arm, j])
        leader = one.leader([1, 1, 1])
        confidences.append(one.confidence(leader, 0.05))
        left = one.active([1, 1, 1])
        assert (confidences[-1] >= 0.95) == (left == [leader]) or j == 49
    assert confidences[0] == 0
    assert confidences[-1] == 1


def test_orders_stay_as_they_are():
    """Stored studies find their order again: these may never change."""
    assert permutation(1, seed=0).tolist() == [0]
    assert permutation(10, seed=0).tolist() == [6, 7, 1, 2, 9, 0, 5, 8, 3, 4]
    assert permutation(10, seed=2**64 - 1).tolist() == [8, 4, 2, 1, 3, 0, 9, 6, 5, 7]
    assert permutation(10, seed=12345, repeat=3).tolist() == [1, 6, 2, 3, 5, 4, 7, 9, 8, 0]
    assert sorted(permutation(1000, seed=1).tolist()) == list(range(1000))
