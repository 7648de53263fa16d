"""The hedged test of two gaussian arms: its stakes, and that what it computes is never too large."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from cabai import Instance, InvalidInput, Statistics, simulate
from cabai.core.compiling import compiled
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import is_settled, surplus
from cabai.families import family_of
from cabai.thresholds import Contrast, Hedged, hedged, tilts
from cabai.thresholds.hedged import HedgedOfPairs
from folding import check_order_of_asking
from pairs import check_never_above, check_quick_look, least_in, log_e, mean_after
from studies import check_same_pulls, new, reloaded
from test_contrast import without_large_tilts
from test_study_order import run_with_delays
from workers import check_replay

FAMILY = family_of("gaussian(variance=0.3)")
SD = math.sqrt(0.3)


@cache
def setup_of(epsilon=0.0, delta=0.1, threshold=None, arms=2):
    return Setup(FAMILY, threshold or Hedged(), arms=arms, delta=delta, epsilon=epsilon)


def stakes_of(x, pulled):
    """The stakes of arm x on each of these pulls, as the page about it says in words."""
    found, n = [], [0, 0]
    for arm in pulled:
        n[arm] += 1
        D, part, c = sum(found), (n[1 - arm] + 1) / (sum(n) + 1), 0.0
        c = D / (4 + n[0] * n[1] / sum(n))
        found.append(part * (1.25 - c) if arm == x else -min(D, part * (0.75 + c)))
    return np.array(found)


def some_run(rng, most=400, gap=None):
    """Pulls and rewards: a sampler with any, perhaps changing, preference, and a gap that the test may notice."""
    count = int(10 ** rng.uniform(0.7, math.log10(most)))
    share = 10 ** rng.uniform(-1.5, 0)
    share = np.where(np.arange(count) < rng.uniform(0, 2) * count, share / (1 + share), rng.random())
    pulled = np.concatenate([[0, 1], rng.random(count) < share]).astype(int)
    n = np.bincount(pulled)
    gap = math.sqrt(2 * rng.uniform(1, 25) * len(pulled) / n[0] / n[1]) * SD if gap is None else gap
    return pulled, rng.normal(0, 3) + SD * rng.normal(size=len(pulled)) + np.where(pulled == 0, gap, 0.0)


def state_after(setup, pulled, rewards):
    records, run = setup.start()
    look = pull_all(setup)
    look(records, run.base, setup.rules.base, pulled, rewards)
    return records, run


def take(arms, runs, all_rules, pulled, rewards):
    for i in range(len(pulled)):
        observe(arms, runs[0], all_rules[0], pulled[i], rewards[i], 1.0)


@cache
def pull_all(setup):
    return compiled(setup.bound(take))


def log_sum(pulled, rewards, m, epsilon=0.0):
    """The log of the sum at m, for arm 0 over arm 1, from every reward and its stake."""
    scales = 8 * 1.7 ** -np.arange(24.0)
    weights = 1 / (1 + (np.log(scales / 0.8) / 1.2) ** 2)
    away = (rewards - np.where(pulled == 0, m, m + epsilon)) / SD
    logs = [math.log(0.2) + contrast_log_e(pulled, rewards, m, epsilon)]
    for v in (stakes_of(0, pulled), -stakes_of(1, pulled)):
        assert (v[pulled == 0] >= 0).all()
        assert (v[pulled == 1] <= 0).all()
        logs += list(np.log(0.4 * weights / weights.sum()) + scales * (v @ away) - scales**2 / 2 * (v @ v))
    return np.logaddexp.reduce(logs)


def contrast_log_e(pulled, rewards, m, epsilon):
    n = [int((pulled == a).sum()) for a in (0, 1)]
    means = [rewards[pulled == 0].mean(), rewards[pulled == 1].mean() - epsilon]
    return log_e(FAMILY, n, means, m)


# --- The stakes ------------------------------------------------------------------------------------------------------


def test_stakes_are_those_of_the_page_and_do_not_look_at_rewards():
    """Records after 40 random runs, compiled and plain to the last bit; stakes never change sign, nor does their
    sum."""
    rng, setup = np.random.default_rng(1), setup_of()
    for _ in range(40):
        pulled, rewards = some_run(rng)
        records, _ = state_after(setup, pulled, rewards)
        for x in (0, 1):
            v = stakes_of(x, pulled)
            assert (v[pulled == x] >= 0).all()
            assert np.cumsum(v).min() >= -1e-12
            expected = v[v > 0].sum(), -v[v < 0].sum(), v @ rewards, v @ v
            assert records[x]["stakes"].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)
        plain, run = setup.start()
        look = setup.bound(observe)
        for a, reward in zip(pulled[:60].tolist(), rewards[:60].tolist(), strict=True):
            look(Records(plain), Record(run), Record(setup.rules), a, reward, 1.0)
        again, _ = state_after(setup, pulled[:60], rewards[:60])
        assert plain.tobytes() == again.tobytes()


# --- The computed minimum --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_the_least_e_is_never_above_a_scan(epsilon):
    """40 random runs: never above the least of 60 means and of finer scans around it, and seldom visibly below."""
    rng, setup, computed, exact = np.random.default_rng(2), setup_of(epsilon), [], []
    test = compiled(setup.bound(surplus))
    for _ in range(40):
        pulled, rewards = some_run(rng)
        records, _ = state_after(setup, pulled, rewards)
        computed.append(test(setup.rules, 0, records[0], records[1]) + setup.rules["level"])
        means = [rewards[pulled == a].mean() for a in (0, 1)]
        low, high = min(means) - epsilon - 2 * SD, max(means) + 2 * SD
        exact.append(least_in(lambda m, run=(pulled, rewards): log_sum(*run, m, epsilon), low, high))
    check_never_above(computed, exact, share=37 / 40, slack=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_what_a_quick_look_refuses_is_seldom_settled(epsilon):
    rng, setup = np.random.default_rng(4), setup_of(epsilon)
    runs = (state_after(setup, *some_run(rng))[0] for _ in range(400))
    check_quick_look(setup, (map(Record, each) for each in runs), beaten=100, refused=4, test=is_settled)


def test_for_pairs_and_with_three_arms_it_is_contrast():
    rng = np.random.default_rng(3)
    for arms, threshold in ((2, HedgedOfPairs()), (3, Hedged())):
        one, other = setup_of(threshold=Contrast(), arms=arms), setup_of(threshold=threshold, arms=arms)
        for _ in range(10):
            run = some_run(rng)
            found = []
            for setup in (one, other):
                records, _ = state_after(setup, *run)
                found.append(setup.bound(surplus)(Record(setup.rules), 0, *map(Record, records[:2])))
            assert found[0] == found[1]
            assert not records["stakes"].any()


# --- The proof, step by step -----------------------------------------------------------------------------------------


def test_the_sum_does_not_rise_in_mean_where_the_null_holds():
    """One pull of either arm ahead of random states, for mu_b <= m <= mu_a: a supermartingale, and a martingale at
    m = mu. Tilts and scales up to 1, so that the means can be integrated."""
    setup, rng = setup_of(), np.random.default_rng(5)
    rules = without_large_tilts(setup.rules)
    rules["scales"][rules["scales"][:, tilts.RATE] > 1 / SD, tilts.WEIGHT] = 0
    at, look = compiled(setup.bound(hedged.pair_log_e)), compiled(setup.bound(observe))
    for _ in range(12):
        pulled, rewards = some_run(rng, most=100)
        records, run = state_after(setup, pulled, rewards)
        m = float(rewards.mean()) + SD * rng.normal() / 4

        def log(state, m=m):
            to_b, to_a = state["tested_mean"] - m
            return at(rules, tilts.COUNT - 1, state[0], state[1], 0, to_b, to_a, m, 0.0)[0]

        before = log(records)
        for arm, worse in ((0, m - 0.1), (1, m + 0.1)):

            def after(y, arm=arm, records=records, run=run, before=before, log=log):
                state = records.copy()
                look(state, run.base.copy()[0], rules, arm, y, 1.0)
                return math.exp(log(state) - before)

            assert mean_after(FAMILY, m, after) == pytest.approx(1, abs=1e-7)
            assert mean_after(FAMILY, worse, after) <= 1 + 1e-7


# --- Bills: by simulation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("costs", "share"), [([1, 1], 0.93), ([1, 100], 0.86)])
def test_it_is_cheaper_than_contrast(costs, share):
    """A gap of half a standard deviation at delta 0.05: 0.87 and 0.81 of contrast's bill, in 1000 trajectories with the
    same rewards; standard errors are 0.008."""
    two = Instance("gaussian", [0.5, 0], costs)
    mine, other = (simulate(two, delta=0.05, threshold=each, trajectories=1000) for each in ("hedged", "contrast"))
    assert mine.costs.mean() < share * other.costs.mean()


# --- Studies ---------------------------------------------------------------------------------------------------------


def test_a_study_makes_the_pulls_of_a_simulation():
    two = Instance("gaussian(variance=0.3)", [1.0, 0.2], [1, 0.3], cost_model="beta")
    check_same_pulls(two, "top-two", "hedged", 0.0, most=60, seed=3, reload=True)


def late_losses(seed):
    """Rewards of two arms, those of b below its mean 200 times as late as any other."""
    rng = np.random.default_rng(seed)

    def draw(pull):
        away = rng.normal()
        return float(away + (pull.arm == "a")), 200.0 if pull.arm == "b" and away < 0 else 1.0

    return draw


def test_hostile_delays_change_neither_the_stakes_nor_what_is_decided(clock):
    """32 workers, low rewards of one arm come late: the records are those of one worker who is told in the order of
    asking, also when the log is folded again."""
    for seed in range(3):
        study = new(arms=["a", "b"], family="gaussian", policy="top-two", lease=1e9, delta=1e-3, seed=seed)
        assert str(study.settings.threshold) == "hedged"
        run_with_delays(study, clock, 32, late_losses(seed))
        check_replay(study)
        for found in (study, reloaded(study)):
            check_order_of_asking(found, "stakes")
        assert study.decision == "a"


def some_study(threshold, pulls, seed=5):
    study = new(arms=["a", "b"], family="gaussian", policy="top-two", threshold=threshold, delta=0.1)
    rng = np.random.default_rng(seed)
    for _ in range(pulls):
        pull = study.ask()
        study.tell(pull, float(rng.normal(0.1 * (pull.arm == "a"))), 1.0)
    return study


def test_an_epsilon_and_accepting_share_the_decisions_delta():
    """A leader that is close enough: by the same sum, at all epsilons from `within` on."""
    study = some_study(None, 100)
    within = study.status().within
    pair = Setup(study.settings.family, Hedged(), arms=2, delta=0.1, epsilon=within)
    arms, rules = study._current.look(lambda found: found.ordered.arms), pair.rules
    b = int(np.argmax(arms["mean"]))
    assert pair.bound(surplus)(Record(rules), 0, Record(arms[b]), Record(arms[1 - b])) > 0
    rules["epsilon"] = 0.99 * within
    assert not pair.bound(surplus)(Record(rules), 0, Record(arms[b]), Record(arms[1 - b])) > 0
    assert within < some_study("contrast", 100).status().within
    study.amend(epsilon=within)
    assert (study.decision, study.status().confidence) == (study.arms[b], 0.9)


def test_ranks_and_a_lead_are_those_of_contrast():
    mine, theirs = (some_study(each, 100).status() for each in ("hedged", "contrast"))
    assert [arm.pulls for arm in mine.arms] == [arm.pulls for arm in theirs.arms]
    assert [arm.ranks for arm in mine.arms] == [arm.ranks for arm in theirs.arms]


def test_it_is_the_default_where_it_is_valid_and_cheaper():
    """For the best of two gaussian arms, from results in the order of asking."""
    two, usual = Instance("gaussian", [1, 0], [1, 1]), {"arms": ["a", "b"], "family": "gaussian"}
    assert str(simulate(two, trajectories=2).threshold) == "hedged"
    assert str(new(**usual, direction="minimize").settings.threshold) == "hedged"
    for more in ({"epsilon": 0.1}, {"reserve": 0.1, "policy": "top-two"}, {"family": "poisson"}):
        assert str(new(**(usual | more)).settings.threshold) == "contrast"


def test_it_refuses_what_it_is_not_for():
    with pytest.raises(InvalidInput, match="needs gaussian rewards of known variance, got bernoulli"):
        simulate(Instance("bernoulli", [0.9, 0.5], [1, 1]), threshold="hedged")
    with pytest.raises(InvalidInput, match="hedged looks for the best arm: with goal 'cheapest'"):
        new(family="gaussian", threshold="hedged", goal="cheapest", policy="cheapest", epsilon=0.3)
    with pytest.raises(InvalidInput, match="hedged depends on the order of the pulls"):
        Hedged().beats(Statistics("gaussian", pulls=[9, 9], rewards=[9, 0]), 0, 1, delta=0.1)
