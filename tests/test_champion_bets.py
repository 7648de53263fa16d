"""The champion test on bounded rewards: what it counts and keeps, and that what it computes is never too large."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

import cabai
from cabai import Instance, simulate
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import is_settled, surplus
from cabai.families import Bounded
from cabai.thresholds import Bets, Champion, bets
from pairs import check_never_above, check_quick_look, least_of, log_e_of_bets
from studies import new
from test_study_order import run_with_delays
from workers import check_replay


@cache
def setup_of(arms=3, delta=0.1, epsilon=0.0):
    return Setup(Bounded(), Champion(), arms=arms, delta=delta, epsilon=epsilon)


def some_rewards(rng, mean, n):
    """Rewards 0 and 1, hardly varying ones, or anything between."""
    kind = rng.integers(3)
    if kind == 0:
        return (rng.random(n) < mean).astype(float)
    spread = 10 ** rng.uniform(-3, 0) * min(mean, 1 - mean)
    return mean + spread * rng.uniform(-1, 1, n)


def put(arm, rewards, counted=()):
    """An arm with these rewards, and these counted ones of its rivals."""
    stakes = np.expm1(bets.table()[: bets.KEPT, bets.TILT])[:, None]
    y, other = np.asarray(rewards, float), np.asarray(counted, float)
    arm["pulls"], arm["rewards"], arm["squares"] = len(y), y.sum(), (y * y).sum()
    arm["mean"] = arm["rewards"] / len(y)
    arm["up"], arm["down"] = np.log1p(stakes * y).sum(1), np.log1p(stakes * (1 - y)).sum(1)
    arm["rivals"], arm["rival_rewards"], arm["rival_squares"] = len(other), other.sum(), (other * other).sum()
    arm["rival_up"] = np.log1p(stakes * other).sum(1)
    bets.weigh(Record(arm), None)


def log_e(b, a, m):
    """log E(m) of `bets`, from the rewards."""
    return log_e_of_bets([(each, np.ones(len(each))) for each in (b, a)], m)


def log_f(counted, b, a, arms, m):
    parts = math.log(1 - 1 / (2 * arms)) + log_e(counted, a, m), log_e(b, a, m) - math.log(2 * arms * (arms - 1))
    return np.logaddexp(*parts)


def some_state(rng, most):
    """Counted rewards, those of b and those of a."""
    m = rng.uniform(0.05, 0.9)
    gap = min(m, 1 - m) * 10 ** rng.uniform(-1.5, -0.1)
    n = [int(10 ** rng.uniform(0.5, math.log10(most))) for _ in range(3)]
    means = m + gap * rng.uniform(0.2, 1), m + gap * rng.uniform(0.2, 1), m - gap * rng.uniform(0, 1)
    return [some_rewards(rng, mean, k) for mean, k in zip(means, n, strict=True)]


def counts_for(told, b, a):
    """The rule in words: b has the best mean of all arms but a, and is ahead of the next by enough."""
    if not told[b] or not told[a]:
        return False
    mean = [np.mean(each) if each else -np.inf for each in told]
    rivals = [i for i in np.argsort([-each for each in mean], kind="stable") if i != a and told[i]]
    if rivals[0] != b:
        return False
    if len(rivals) == 1:
        return True
    spread = 0.0
    for y in (told[b], told[rivals[1]]):
        share = (sum(y) + 0.5) / (len(y) + 1)
        spread += (np.var(y) + share * (1 - share) / len(y) ** 2) / len(y)
    gap = mean[b] - mean[rivals[1]]
    return gap**2 / (2 * spread) > math.log1p(len(told[b]) / len(told[a])) / 4


@pytest.mark.parametrize("arms", [3, 6])
def test_what_counts_is_what_the_rule_says_and_its_sums_are_kept(arms):
    """Pulls of random arms, some with rewards 0 and 1 only, and arms not pulled for a while."""
    setup, rng = setup_of(arms), np.random.default_rng(1)
    look, rules, stakes = setup.bound(observe), Record(setup.rules), np.expm1(bets.table()[: bets.KEPT, bets.TILT])
    for binary in (False, True):
        (records, run), told, counted = setup.start(), [[] for _ in range(arms)], [[] for _ in range(arms)]
        for t in range(250):
            b = int(rng.integers(arms if t > 20 else arms - 1))
            y = float(rng.random() < 0.5 + 0.05 * b) if binary else float(0.4 + 0.05 * b + 0.3 * rng.random())
            for a in range(arms):
                if a != b and counts_for(told, b, a):
                    counted[a].append(y)
            look(Records(records), Record(run), rules, b, y, 1.0)
            told[b].append(y)
        assert records["rivals"].tolist() == [len(each) for each in counted]
        assert sum(map(len, counted)) > 20
        for arm, own in zip(records, counted, strict=True):
            y = np.array(own)
            np.testing.assert_allclose(arm["rival_up"], np.log1p(np.outer(stakes, y)).sum(1), rtol=1e-12)
            assert (arm["rival_rewards"], arm["rival_squares"]) == pytest.approx((y.sum(), (y * y).sum()))


@pytest.mark.parametrize("count", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_the_least_f_is_never_above_a_search_of_all_pairs_of_stakes(count):
    rng, arms, found, exact, states = np.random.default_rng(2), 5, [], [], []
    setup = setup_of(arms)
    while len(states) < count:
        counted, b, a = some_state(rng, 1000)
        if b.mean() > a.mean():
            records, _ = setup.start()
            put(records[0], b)
            put(records[1], a, counted)
            states.append((Record(records[0]), Record(records[1])))
            found.append(float(setup.bound(surplus)(Record(setup.rules), 0, *states[-1])) + setup.rules["level"])
            at = least_of(lambda m, state=(counted, b, a): log_f(*state, arms, m), 0.0, 1.0)
            exact.append(float(log_f(counted, b, a, arms, at)))
    check_never_above(found, exact, share=0.9, slack=1e-12)
    check_quick_look(setup, states, beaten=0.2 * count, refused=0.05 * count, slack=0.02)


def test_it_is_cheaper_than_bets_and_the_default():
    """0.6 against nine arms of 0.5: below 0.8 of the bill of bets. 500 trajectories with the same rewards; the ratio
    is 0.745, with a standard error of 0.006."""
    ten = Instance("bounded", [0.6, *[0.5] * 9], [1] * 10, law="beta", sd=0.2)
    mine, other = (simulate(ten, delta=0.05, threshold=each, trajectories=500) for each in (None, "bets"))
    assert (mine.summary().threshold, mine.summary().proven) == ("champion", True)
    assert mine.costs.mean() < 0.8 * other.costs.mean()


RANGE = {"family": "bounded(low=-1, high=3)", "policy": "top-two", "costs": [1, 1, 1]}


def tell_some(study, means, rounds, spread=0.4):
    rng = np.random.default_rng(9)
    for _ in range(rounds):
        pull = study.ask()
        study.tell(pull, float(rng.uniform(-spread, spread)) + means[pull.arm])


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_study_counts_in_the_order_of_asking_and_survives_being_replayed(clock, direction):
    """16 workers with delays that depend on the rewards."""
    rng = np.random.default_rng(4)

    def draw(pull):
        reward = float(rng.beta(3, 2) * 4 - 1) - 0.5 * study.arms.index(pull.arm)
        reward = max(reward, -1.0)
        return reward, 10.0 if reward < 1 else 0.5

    study = new(**RANGE, direction=direction, lease=1e9, delta=0.1, seed=1)
    assert study.status().threshold == "champion"
    run_with_delays(study, clock, 16, draw)
    check_replay(study)
    assert study.decision == ("a" if direction == "maximize" else "c")


def test_pairs_intervals_and_distances_are_those_of_bets():
    """Ranks and intervals rest on bets; `within` on the test of pairs at 2 K (K - 1)/delta, or on what is
    beaten."""
    options = RANGE | {"policy": "uniform", "seed": 3, "delta": 0.001}
    one, other = new(**options), new(**options, threshold="bets")
    tell_some(one, {"a": 1.0, "b": 0.9, "c": 0.0}, 90)
    for each in one.observations():
        other_pull = other.ask()
        assert other_pull.arm == each["arm"]
        other.tell(other_pull, each["reward"])
    mine, theirs = one.status(), other.status()
    assert (mine.threshold, theirs.threshold) == ("champion", "bets")
    for arm, same in zip(mine.arms, theirs.arms, strict=True):
        assert (arm.low, arm.high, arm.ranks) == (same.low, same.high, same.ranks)
    assert [arm.may_be_best for arm in mine.arms] == [True, True, False]
    assert 0 < mine.within < 1
    pair = Setup(one.settings.family, Bets(), arms=3, delta=0.001 / 6, epsilon=mine.within)
    arms, rules = other._current.look(lambda found: found.ordered.arms), pair.rules
    leader, rival = (0, 1) if arms["mean"][0] > arms["mean"][1] else (1, 0)
    for part, holds in ((1.0, True), (0.98, False)):
        rules["epsilon"] = part * mine.within / 4
        settled = pair.bound(is_settled)(Record(rules), 0, Record(arms[leader]), Record(arms[rival]))
        assert bool(settled) is holds
    one.accept()
    assert one.decision == one.arms[leader]


def test_what_depends_on_no_order_is_tested_by_bets():
    with pytest.raises(cabai.InvalidInput, match=r"champion looks for the best arm: with goal 'cheapest', .* use bets"):
        new(**RANGE | {"policy": "cheapest"}, threshold="champion", epsilon=0.1, goal="cheapest")
    with pytest.raises(cabai.InvalidInput, match=r"depends on the order of the pulls, .*: use bets"):
        Champion().stops(cabai.Statistics("bounded", [9, 9, 9], [8, 5, 2], squares=[8, 5, 2]), delta=0.1)
    for options in ({"epsilon": 0.1}, {"reserve": 0.1}, {"arms": ["a", "b"], "costs": [1, 1]}):
        assert new(**RANGE | options).status().threshold == "bets"
