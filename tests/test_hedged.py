"""The hedged test of two gaussian arms, and the hedged part of champion for three and four: its stakes, that what is
computed is never too large, and what it costs."""

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
from cabai.thresholds import Champion, Contrast, Hedged
from folding import check_order_of_asking
from pairs import check_never_above, check_quick_look, least_in, log_e
from studies import check_same_pulls, new, reloaded
from test_study_order import run_with_delays
from workers import check_replay

FAMILY = family_of("gaussian(variance=0.3)")
SD = math.sqrt(0.3)


@cache
def setup_of(threshold=Hedged, arms=2, epsilon=0.0):
    return Setup(FAMILY, threshold(), arms=arms, delta=0.1, epsilon=epsilon)


def some_run(rng, arms=2, most=400):
    """Pulls and rewards: a sampler whose preference changes, and a gap that the test may notice."""
    count = int(10 ** rng.uniform(0.7, math.log10(most / 2)))
    pulled = [rng.choice(arms, count, p=rng.dirichlet(np.full(arms, 0.5))) for _ in range(2)]
    pulled = np.concatenate([np.arange(arms), *pulled])
    n = np.bincount(pulled)
    gap = math.sqrt(2 * rng.uniform(1, 25) * (1 / n[0] + 1 / n[1])) * SD
    means = rng.normal(0, 3) - gap * np.array([0, 1, *rng.uniform(1, 3, arms - 2)])
    return pulled, means[pulled] + SD * rng.normal(size=len(pulled))


def state_after(setup, pulled, rewards):
    """The records, and for every pull the arms that it counted for."""
    arms, run = setup.start()
    counted = np.ones((len(pulled), len(arms)), bool)
    if "rivals" not in arms.dtype.names:
        pull_all(setup)(arms, run.base, setup.rules.base, pulled, rewards)
        return arms, counted
    look = compiled(setup.bound(observe))
    for i, (b, y) in enumerate(zip(pulled, rewards, strict=True)):
        before = arms["rivals"].copy()
        look(arms, run, setup.rules, b, y, 1.0)
        counted[i] = arms["rivals"] > before
    return arms, counted


def take(arms, runs, all_rules, pulled, rewards):
    for i in range(len(pulled)):
        observe(arms, runs[0], all_rules[0], pulled[i], rewards[i], 1.0)


@cache
def pull_all(setup):
    return compiled(setup.bound(take))


def stakes_of(a, pulled, counted):
    """The stakes in the two sequences of arm a, for its rivals and for a itself, as the page says in words."""
    both = []
    for is_for_rivals in (True, False):
        found, n = [], [0, 0]
        for b, counts in zip(pulled, counted[:, a], strict=True):
            if b != a and not counts:
                found.append(0.0)
                continue
            n[int(b == a)] += 1
            D, part = sum(found), (n[int(b != a)] + 1) / (sum(n) + 1)
            c = D / (4 + n[0] * n[1] / sum(n))
            found.append(part * (1.25 - c) if (b != a) == is_for_rivals else -min(D, part * (0.75 + c)))
        both.append(np.array(found))
    return both


def log_sum(pulled, rewards, counted, a, parts, hedged, epsilon=0.0):
    """The log of the sum against arm a, as a function of m, from every reward: parts of `contrast`, each with a share
    and the pulls whose rewards it has, and a share for each of the two sequences of stakes."""
    scales = 8 * 1.7 ** -np.arange(24.0)
    weights = 1 / (1 + (np.log(scales / 0.8) / 1.2) ** 2)
    own, (v, w) = rewards[pulled == a], stakes_of(a, pulled, counted)

    def at(m):
        away = (rewards - np.where(pulled == a, m + epsilon, m)) / SD
        logs = [
            math.log(share) + log_e(FAMILY, [of.sum(), len(own)], [rewards[of].mean(), own.mean() - epsilon], m)
            for share, of in parts
            if of.any()
        ]
        for each in (v, -w):
            worth = scales * (each @ away) - scales**2 / 2 * (each @ each)
            logs += list(np.log(hedged * weights / weights.sum()) + worth)
        return np.logaddexp.reduce(logs)

    return at


@pytest.mark.parametrize(("threshold", "arms", "runs"), [(Hedged, 2, 40), (Champion, 3, 12), (Champion, 4, 12)])
def test_stakes_are_those_of_the_page_and_do_not_look_at_rewards(threshold, arms, runs):
    """Compiled and plain to the last bit; stakes never change sign, nor does their sum."""
    rng, setup = np.random.default_rng(1), setup_of(threshold, arms)
    for _ in range(runs):
        pulled, rewards = some_run(rng, arms, 200)
        records, counted = state_after(setup, pulled, rewards)
        for a in range(arms):
            of_rivals, of_own = stakes_of(a, pulled, counted)
            for name, v, side in (("rival_stakes", of_rivals, pulled != a), ("stakes", of_own, pulled == a)):
                assert (v[side] >= 0).all()
                assert (v[~side] <= 0).all()
                assert np.cumsum(v).min() >= -1e-12
                expected = v[side].sum(), -v[~side].sum(), v @ rewards, v @ v
                if name in records.dtype.names:
                    assert records[a][name].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)
        plain, run = setup.start()
        for b, y in zip(pulled[:60].tolist(), rewards[:60].tolist(), strict=True):
            setup.bound(observe)(Records(plain), Record(run), Record(setup.rules), b, y, 1.0)
        assert plain.tobytes() == state_after(setup, pulled[:60], rewards[:60])[0].tobytes()


@pytest.mark.parametrize(
    ("threshold", "arms", "epsilon", "states", "beaten", "refused"),
    [
        (Hedged, 2, 0.0, 400, 100, 4),
        (Hedged, 2, 0.2, 400, 100, 4),
        (Champion, 3, 0.0, 30, 5, 1),
        (Champion, 4, 0.0, 30, 5, 1),
    ],
)
def test_the_least_e_is_never_above_a_scan(threshold, arms, epsilon, states, beaten, refused):
    """30 random runs: never above the least of 100 means and of finer scans around it, and seldom visibly below. What a
    quick look refuses is seldom beaten."""
    rng, setup, found, exact, looked = np.random.default_rng(2), setup_of(threshold, arms, epsilon), [], [], []
    by, p = compiled(setup.bound(surplus)), 1 - 1 / (2 * arms)
    for i in range(states):
        pulled, rewards = some_run(rng, arms)
        records, counted = state_after(setup, pulled, rewards)
        b, a = (0, 1) if threshold is Hedged else np.argsort(-records["mean"])[[0, rng.integers(1, arms)]]
        looked.append((Record(records[b]), Record(records[a])))
        if i < 30:
            found.append(by(setup.rules, 0, records[b], records[a]) + setup.rules["level"])
            parts, hedged = [(0.2, pulled == b)], 0.4
            if threshold is Champion:
                parts, hedged = [(0.7 * p, counted[:, a]), ((1 - p) / (arms - 1), pulled == b)], 0.15 * p
            value = log_sum(pulled, rewards, counted, a, parts, hedged, epsilon)
            low, high = min(records["mean"]) - epsilon - 3 * SD, max(records["mean"]) + 3 * SD
            exact.append(least_in(value, low, high, points=100))
    check_never_above(found, exact, share=26 / 30, slack=1e-9)
    check_quick_look(setup, looked, beaten=beaten, refused=refused, slack=0.02, test=is_settled)


def test_for_pairs_and_other_numbers_of_arms_nothing_is_staked():
    rng = np.random.default_rng(3)
    hedged_pairs, champion_pairs = type(Hedged().of_pairs), type(Champion().of_pairs)
    for threshold, arms in ((hedged_pairs, 2), (Hedged, 3), (Champion, 5), (Champion, 2), (champion_pairs, 3)):
        one, other = setup_of(Contrast, arms), setup_of(threshold, arms)
        for _ in range(10):
            run, found = some_run(rng, arms, 60), []
            for setup in (one, other):
                records, _ = state_after(setup, *run)
                found.append(setup.bound(surplus)(Record(setup.rules), 0, *map(Record, records[:2])))
            assert threshold not in (Hedged, hedged_pairs) or found[0] == found[1]
            for name in {"stakes", "rival_stakes"} & {*records.dtype.names}:
                assert not records[name].any()


@pytest.mark.parametrize(("costs", "share"), [([1, 1], 0.93), ([1, 100], 0.86)])
def test_it_is_cheaper_than_contrast(costs, share):
    """A gap of half a standard deviation at delta 0.05: 0.87 and 0.81 of contrast's bill, in 1000 trajectories with the
    same rewards; standard errors are 0.008."""
    two = Instance("gaussian", [0.5, 0], costs)
    mine, other = (simulate(two, delta=0.05, threshold=each, trajectories=1000) for each in ("hedged", "contrast"))
    assert mine.costs.mean() < share * other.costs.mean()


def test_it_costs_what_the_page_says_on_the_papers_instance(paper_instance):
    """At most 2.2, 1.72 and 1.31 times the lower bound; 3000 trajectories, standard errors 0.022, 0.016 and 0.008."""
    runs = simulate(paper_instance, delta=[0.05, 0.01, 1e-6], trajectories=3000)
    for each, most in zip(runs, (2.2, 1.72, 1.31), strict=True):
        assert each.summary().ratio < most


@pytest.mark.parametrize(("means", "costs"), [([1.0, 0.2], [1, 0.3]), ([1.0, 0.4, 0.2], [1, 0.3, 0.1])])
def test_a_study_makes_the_pulls_of_a_simulation(means, costs):
    instance = Instance(FAMILY, means, costs, cost_model="beta")
    check_same_pulls(instance, "top-two", None, 0.0, most=60, seed=3, reload=True)


def late_losses(seed):
    """Rewards of two arms, those of b below its mean 200 times as late as any other."""
    rng = np.random.default_rng(seed)

    def draw(pull):
        away = rng.normal()
        return float(away + (pull.arm == "a")), 200.0 if pull.arm == "b" and away < 0 else 1.0

    return draw


@pytest.mark.parametrize("threshold", ["hedged", "champion"])
def test_hostile_delays_change_neither_the_stakes_nor_what_is_decided(clock, threshold):
    """32 workers, low rewards of one arm come late: the records are those of one worker who is told in the order of
    asking, also when the log is folded again. `champion` has three arms."""
    arms, kept = ("ab", ["stakes"]) if threshold == "hedged" else ("abc", ["stakes", "rival_stakes", "rivals"])
    for seed in range(2):
        study = new(arms=list(arms), family="gaussian", policy="top-two", lease=1e9, delta=1e-3, seed=seed)
        assert str(study.settings.threshold) == threshold
        run_with_delays(study, clock, 32, late_losses(seed))
        check_replay(study)
        for found in (study, reloaded(study)):
            check_order_of_asking(found, *kept)
        assert study.decision == "a"


def test_an_epsilon_and_accepting_share_the_decisions_delta_and_ranks_are_those_of_contrast():
    """A leader that is close enough: by the same sum, at all epsilons from `within` on."""

    def played(threshold):
        study = new(arms=["a", "b"], family="gaussian", policy="top-two", threshold=threshold, delta=0.1)
        rng = np.random.default_rng(5)
        for _ in range(100):
            pull = study.ask()
            study.tell(pull, float(rng.normal(0.1 * (pull.arm == "a"))), 1.0)
        return study

    study, theirs = played("hedged"), played("contrast").status()
    mine = study.status()
    within = mine.within
    assert [(arm.pulls, arm.ranks) for arm in mine.arms] == [(arm.pulls, arm.ranks) for arm in theirs.arms]
    pair = Setup(study.settings.family, Hedged(), arms=2, delta=0.1, epsilon=within)
    arms, rules = study._current.look(lambda found: found.ordered.arms), pair.rules
    b = int(np.argmax(arms["mean"]))
    assert pair.bound(surplus)(Record(rules), 0, Record(arms[b]), Record(arms[1 - b])) > 0
    rules["epsilon"] = 0.99 * within
    assert not pair.bound(surplus)(Record(rules), 0, Record(arms[b]), Record(arms[1 - b])) > 0
    assert within < theirs.within
    study.amend(epsilon=within)
    assert (study.decision, study.status().confidence) == (study.arms[b], 0.9)


def test_it_is_the_default_where_it_is_valid_and_cheaper_and_refuses_the_rest():
    """For the best of two gaussian arms, from results in the order of asking."""
    two, usual = Instance("gaussian", [1, 0], [1, 1]), {"arms": ["a", "b"], "family": "gaussian"}
    assert str(simulate(two, trajectories=2).threshold) == "hedged"
    assert str(new(**usual, direction="minimize").settings.threshold) == "hedged"
    for more in ({"epsilon": 0.1}, {"reserve": 0.1, "policy": "top-two"}, {"family": "poisson"}):
        assert str(new(**(usual | more)).settings.threshold) == "contrast"
    with pytest.raises(InvalidInput, match="needs gaussian rewards of known variance, got bernoulli"):
        simulate(Instance("bernoulli", [0.9, 0.5], [1, 1]), threshold="hedged")
    with pytest.raises(InvalidInput, match="hedged looks for the best arm: with goal 'cheapest'"):
        new(family="gaussian", threshold="hedged", goal="cheapest", policy="cheapest", epsilon=0.3)
    with pytest.raises(InvalidInput, match="hedged depends on the order of the pulls"):
        Hedged().beats(Statistics("gaussian", pulls=[9, 9], rewards=[9, 0]), 0, 1, delta=0.1)
