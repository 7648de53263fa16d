"""How often a race is wrong: exactly, over all orders of a few items; and in 20,000 races each, where it is hardest."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

import race_schedules
from cabai.core.compiling import compiled
from cabai.datasets.dataset import permutation
from cabai.datasets.race import PAIRED, RACES, functions_of, started
from cabai.support.specialise import specialised

SLOW = pytest.mark.slow
DELTA, RUNS, ONCE_IN_A_MILLION = 0.1, 20_000, 1e-6
AT_MOST = binom.isf(ONCE_IN_A_MILLION, RUNS, DELTA)  # wrong answers of 20,000: 2204


@cache
def kernel(function, race):
    return compiled(specialised(getattr(race_schedules, function), functions_of(race)))


def arrangements(kinds, items):
    """The columns of each sequence, and for each which sequences have the same ones in other orders."""
    digits = np.array(list(itertools.product(range(kinds), repeat=items)))[:, ::-1]
    _, same = np.unique(np.sort(digits, axis=1), axis=0, return_inverse=True)
    return digits, same.ravel()


def check_all_orders(race, columns, items, delta, epsilon=0.0):
    """No table in the null, that is one in which arm 0 is best and arm 1 worse by more than epsilon if there is one,
    has orders in which arm 0 is beaten in a larger share than delta. Returns the largest share."""
    columns = np.asarray(columns, float).T.copy()
    arms, kinds = columns.shape
    seen = np.zeros((kinds**items, 3), np.bool_)
    state, fresh = (started(arms, items, delta, epsilon, race) for _ in range(2))
    kernel("all_orders", race)(state, fresh, columns, seen)
    found = seen[:, 0] | seen[:, 2]
    digits, same = arrangements(kinds, items)
    sums = columns[:, digits].sum(axis=2)  # exact: all in halves
    null = (sums[0] >= sums).all(axis=0) if epsilon == 0 else sums[0] > sums[1] + epsilon * items
    wrong, orders = np.bincount(same[null], found[null]), np.bincount(same[null])
    there = orders > 0
    shares = wrong[there] / orders[there]
    assert (wrong[there] <= delta * orders[there]).all()
    return shares.max()


HALVES = [(1, 0), (0.5, 0), (0, 0), (0, 0.5), (0, 1)]  # all differences of scores in 0, 1/2 and 1
THREE = list(itertools.product((0, 1), repeat=3))
EXACT = [
    pytest.param(columns, items, delta, marks=[SLOW] if items > most else [], id=f"{len(columns[0])}-{items}-{delta}")
    for columns, lengths, deltas, most in [
        (HALVES, (1, 2, 3, 5, 7, 8), (0.05, 0.1, 0.3, 0.5, 0.9), 5), (THREE, (4, 6), (0.1, 0.4, 0.8), 4),
    ]
    for items in lengths
    for delta in deltas
]  # fmt: skip


@pytest.mark.parametrize(("columns", "items", "delta"), EXACT)
@pytest.mark.parametrize("race", RACES)
def test_two_or_three_arms_on_every_table_and_every_order(race, columns, items, delta):
    check_all_orders(race, columns, items, delta)
    if race == PAIRED and items > 1 and columns is HALVES:
        for epsilon in (0.1, 1 / items, 0.5):
            check_all_orders(race, columns, items, delta, epsilon)


# Twenty thousand races each, at delta = 0.1


def table_of(arms, items, behind, share=0.5, seed=0, alike=0.0):
    """Scores 0 and 1: arm 0 has as many ones as `share` says, each rival so many fewer as `behind`; which items is
    random, and the same for all arms as far as they are `alike`."""
    rng = np.random.default_rng(seed)
    common = rng.random(items)
    table = np.zeros((arms, items))
    ones = max(round(share * items), behind + 1)
    for a in range(arms):
        liking = alike * common + (1 - alike) * rng.random(items)
        table[a, np.argsort(liking)[: ones - (a > 0) * behind]] = 1.0
    return table


def wrong_with_adversary(race, table, epsilon=0.0, good=(0,), runs=RUNS, seed=12):
    """How often an adversary gets a wrong answer, by strategy (5000 orders each), and how often the event happens that
    every wrong answer needs. That it needs it is checked."""
    arms, items = table.shape
    run = kernel("race_with_adversary", race)
    prices, rank = np.ones(arms), np.arange(arms)
    right = np.isin(np.arange(arms), good)
    wrong = events = 0
    for r in range(runs):
        state = started(arms, items, DELTA, epsilon, race)
        is_wrong = run(state, permutation(items, seed, r), table, prices, rank, right, 0, r % 4)
        within = race == PAIRED and (state.best[-1, ~right, 0] >= state.target).any()
        event = state.beaten[0] or within
        assert event or not is_wrong
        wrong += is_wrong
        events += event
    return wrong, events


HARDEST = [
    *itertools.product((2, 5), (30, 300, 1000), ((0.5, 0.0), (0.1, 0.0), (0.5, 0.9))),
    *itertools.product((30,), (30, 100), ((0.5, 0.0), (0.1, 0.0), (0.5, 0.9))),
    (30, 300, (0.5, 0.0)),
]


@SLOW
@pytest.mark.parametrize(("arms", "items", "kind"), HARDEST)
@pytest.mark.parametrize("race", RACES)
def test_an_adversary_who_sees_everything_does_not_mislead(race, arms, items, kind):
    """The best arm is better by exactly one item. Other strategies than these four could not do better: the event is
    that of all paths together."""
    share, alike = kind
    wrong, events = wrong_with_adversary(race, table_of(arms, items, 1, share, alike=alike))
    print(f"\n{race} K={arms} n={items} ones {share} alike {alike}: wrong {wrong / RUNS:.4f} of {events / RUNS:.4f}")
    assert wrong <= events <= AT_MOST


@SLOW
@pytest.mark.parametrize("race", RACES)
def test_a_search_for_the_hardest_table_finds_none_that_misleads(race):
    """Of 200 random tables, tried with 2000 orders each, the five that mislead most, with 20,000 other orders."""
    rng, found = np.random.default_rng(27), []
    for _ in range(200):
        arms, items = int(rng.integers(2, 7)), round(10 * 100 ** rng.random())
        table = table_of(arms, items, int(rng.integers(2)), rng.random(), int(rng.integers(2**32)), rng.random())
        good = np.flatnonzero(table.sum(axis=1) == table[0].sum())
        found.append((wrong_with_adversary(race, table, good=good, runs=2000)[1], len(found), table, good))
    for _, _, table, good in sorted(found, key=lambda each: -each[0])[:5]:
        wrong, events = wrong_with_adversary(race, table, good=good, seed=13)
        shape = "K={} n={}".format(*table.shape)
        print(f"\n{race} {shape} ones {table[0].mean():.2f}: wrong {wrong / RUNS:.4f} of {events / RUNS:.4f}")
        assert wrong <= events <= AT_MOST


@SLOW
@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.2])
@pytest.mark.parametrize(("arms", "items"), [(2, 100), (2, 1000), (5, 300), (30, 100)])
def test_an_arm_that_is_worse_by_epsilon_and_one_item_is_seldom_chosen(arms, items, epsilon):
    """Arm 1 of several is within epsilon, all others are worse by one item more."""
    behind = round(epsilon * items)
    table = table_of(arms, items, behind + 1)
    if arms > 2:
        table[1] = table_of(2, items, behind, seed=1)[1]
    good = (0, 1) if arms > 2 else (0,)
    assert table[0].sum() - table[-1].sum() == behind + 1
    wrong, events = wrong_with_adversary(PAIRED, table, epsilon, good)
    print(f"\npaired K={arms} n={items} epsilon {epsilon}: wrong {wrong / RUNS:.4f} of {events / RUNS:.4f}")
    assert wrong <= events <= AT_MOST


@pytest.mark.parametrize("race", RACES)
def test_an_adversary_does_not_mislead_a_few_races(race):
    """The slow run has 20,000 of each: here 1000, so that what it calls is known to work."""
    assert wrong_with_adversary(race, table_of(5, 60, 1), runs=1000)[1] <= binom.isf(ONCE_IN_A_MILLION, 1000, DELTA)
