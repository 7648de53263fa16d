"""Champion, also for bounded rewards, and the hedged test of gaussian arms: what they count and stake, that what is
computed is never too large, and what they cost. (Sampling rules that mislead: test_worst_rule.py.)"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

import cabai
import pairs
from cabai import Instance, InvalidInput, Statistics, simulate
from cabai.core.compiling import compiled
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import is_settled, surplus
from cabai.families import family_of, mirror_image
from cabai.thresholds import Bets, Champion, Contrast, Hedged, bets
from combinations import covering
from folding import check_order_of_asking
from pairs import FAMILIES, check_never_above, check_quick_look, least_in, log_e, log_e_of_bets, put, some_pair
from studies import check_same_pulls, new, reloaded
from test_study_order import run_with_delays
from workers import check_replay

GAUSSIAN = "gaussian(variance=0.3)"
FAMILY, SD = family_of(GAUSSIAN), math.sqrt(0.3)


@cache
def setup_of(family=GAUSSIAN, threshold=Champion, arms=3, *, mirrored=False, epsilon=0.0):
    kind = family_of(family)
    return Setup(mirror_image(kind) if mirrored else kind, threshold(), arms=arms, delta=0.1, epsilon=epsilon)


# --- What counts


def reward_of(rng, family, mean):
    if family == GAUSSIAN:
        return float(rng.normal(mean, SD))
    if family == "bounded":
        return float(mean + 0.2 * rng.random())
    return float(rng.random() < mean if family == "bernoulli" else getattr(rng, family)(mean))


def uncertainty(family, *samples):
    """Of the difference of two means: their variance, as the rule takes it."""
    if family == "bounded":
        shares = [(sum(y) + 0.5) / (len(y) + 1) for y in samples]
        return sum((np.var(y) + p * (1 - p) / len(y) ** 2) / len(y) for y, p in zip(samples, shares, strict=True))
    m = sum(map(sum, samples)) / sum(map(len, samples))
    variance = {"bernoulli": m * (1 - m), "poisson": m, "exponential": m * m}.get(family, 0.3)
    return variance * sum(1 / len(y) for y in samples)


def counts_for(told, b, a, family):
    """The rule in words: b has the best mean of all arms but a, and is ahead of the next by enough."""
    mean = [sum(each) / len(each) if each else -np.inf for each in told]
    rivals = [i for i in np.argsort([-each for each in mean], kind="stable") if i != a and told[i]]
    if not told[b] or not told[a] or rivals[0] != b:
        return False
    if len(rivals) == 1:
        return True
    gap = mean[b] - mean[rivals[1]]
    enough = math.log1p(len(told[b]) / len(told[a])) / 4
    return gap > 0 and gap**2 / (2 * uncertainty(family, told[b], told[rivals[1]])) > enough


@pytest.mark.parametrize(("family", "arms"), covering([*FAMILIES, "bounded"], [3, 7]))
def test_what_counts_is_what_the_rule_says_and_depends_on_the_past_only(family, arms):
    """Pulls of random arms, many with ties, one of them not pulled for a while; bounded rewards also of 0 and 1."""
    setup, rng, credited = setup_of(family, arms=arms), np.random.default_rng(1), 0
    look, rules, stakes = setup.bound(observe), Record(setup.rules), np.expm1(bets.table()[: bets.KEPT, bets.TILT])
    for drawn in (family, "bernoulli" if family == "bounded" else family):
        (records, run), told, counted = setup.start(), [[] for _ in range(arms)], [[] for _ in range(arms)]
        for t in range(250):
            b = int(rng.integers(arms if t > 20 else arms - 1))
            y = reward_of(rng, drawn, 0.2 + 0.1 * b)
            for a in range(arms):
                if a != b and counts_for(told, b, a, family):
                    counted[a].append(y)
            look(Records(records), Record(run), rules, b, y, 1.0)
            told[b].append(y)
            assert records["rivals"].tolist() == [len(each) for each in counted]
        credited += sum(map(len, counted))
        np.testing.assert_allclose(records["rival_rewards"], [sum(each) for each in counted], rtol=1e-12)
        for arm, y in zip(records, map(np.array, counted), strict=True):
            if family == "bounded":
                np.testing.assert_allclose(arm["rival_up"], np.log1p(np.outer(stakes, y)).sum(1), rtol=1e-12)
                assert arm["rival_squares"] == pytest.approx((y * y).sum())
    assert credited > 100


def test_for_pairs_and_other_numbers_of_arms_it_is_contrast_and_nothing_is_staked():
    rng, hedged_pairs, champion_pairs = np.random.default_rng(3), type(Hedged().of_pairs), type(Champion().of_pairs)
    of_gaussians = (hedged_pairs, 2), (Hedged, 3), (champion_pairs, 3), (Champion, 5)
    cases = [(family, each, 2) for family in FAMILIES for each in (Champion, champion_pairs)]
    for family, threshold, arms in [*cases, *((GAUSSIAN, *each) for each in of_gaussians)]:
        for _ in range(10):
            pulled, found = [*range(arms), *rng.integers(arms, size=40)], []
            rewards = [reward_of(rng, family, 0.8 - 0.3 * a) for a in pulled]
            for setup in (setup_of(family, Contrast, arms), setup_of(family, threshold, arms)):
                records, run = setup.start()
                for a, y in zip(pulled, rewards, strict=True):
                    setup.bound(observe)(Records(records), Record(run), Record(setup.rules), a, y, 1.0)
                found.append(setup.bound(surplus)(Record(setup.rules), 0, *map(Record, records[:2])))
            close = 0 if threshold in (Hedged, hedged_pairs) else 1e-3 if arms < 5 else math.inf
            assert abs(found[0] - found[1]) <= close
            for name in {"stakes", "rival_stakes"} & {*records.dtype.names}:
                assert not records[name].any()


# --- What is computed


@pytest.mark.parametrize(("family", "mirrored"), covering(FAMILIES, [False, True]))
def test_the_least_f_is_never_above_a_scan(family, mirrored):
    """40 random states: never above the least of 60 means and of finer scans around it, and seldom visibly below. A
    quick look seldom refuses what is beaten, of 300."""
    kind, rng, computed, exact, looked = family_of(family), np.random.default_rng(2), [], [], []
    setup = setup_of(family, arms=5, mirrored=mirrored)
    shares = [math.log(0.9), math.log(1 / 80 if kind.name == "poisson" else 1 / 40)]
    low_edge, high_edge = {"gaussian": (-np.inf, np.inf), "bernoulli": (1e-9, 1 - 1e-9)}.get(kind.name, (1e-9, np.inf))
    for i in range(40 if mirrored else 300):
        (n_b, n_a), (mean_b, mean_a) = some_pair(rng, kind, 10**4)
        n, counted = int(n_b * 10 ** rng.uniform(-1, 1)) + 1, mean_a + (mean_b - mean_a) * rng.uniform(0.5, 1.5)
        counted = min(counted, 1.0) if kind.name == "bernoulli" else counted
        if mirrored:  # a low mean is wanted: now b is to be beaten, by a and by the counted rewards below it
            counted = mean_b - (counted - mean_a) * 0.5
            counted = counted if kind.name == "gaussian" else max(counted, 1e-3 * mean_a)
        sign, offset = (-1, kind.name == "bernoulli") if mirrored else (1, 0)
        winner, loser = ((n_a, mean_a), (n_b, mean_b)) if mirrored else ((n_b, mean_b), (n_a, mean_a))
        records, _ = setup.start()
        for arm, (k, mean) in zip(records, (winner, loser), strict=False):
            put(arm, k, offset + sign * mean)
        records[1]["rivals"], records[1]["rival_rewards"] = n, n * (offset + sign * counted)
        looked.append((Record(records[0]), Record(records[1])))
        if i >= 40:
            continue
        computed.append(float(setup.bound(surplus)(Record(setup.rules), 0, *looked[-1])) + setup.rules["level"])

        def value(m, parts=((n, counted), winner), loser=loser, sign=sign):
            both = [(part, loser)[::sign] for part in parts]  # upward tilts of negated rewards are downward tilts
            each = [log_e(kind, *zip(*pair, strict=True), m) for pair in both]
            return np.logaddexp(*(log + share for log, share in zip(each, shares, strict=True)))

        low, high = min(mean_a, mean_b, counted), max(mean_a, mean_b, counted)
        low, high = max(low - (high - low), low_edge), min(high + (high - low), high_edge)
        exact.append(least_in(value, low, high))
    check_never_above(computed, exact, share=0.85, within=0.15, slack=1e-9)
    if not mirrored:
        check_quick_look(setup, looked, beaten=80, refused=6, slack=0.02)


def some_rewards(rng, mean, n):
    """Rewards 0 and 1, hardly varying ones, or anything between."""
    kind = rng.integers(3)
    if kind == 0:
        return (rng.random(n) < mean).astype(float)
    spread = 10 ** rng.uniform(-3, 0) * min(mean, 1 - mean)
    return mean + spread * rng.uniform(-1, 1, n)


def put_rewards(arm, rewards, counted=()):
    """An arm with these rewards, and these counted ones of its rivals."""
    stakes = np.expm1(bets.table()[: bets.KEPT, bets.TILT])[:, None]
    y, other = np.asarray(rewards, float), np.asarray(counted, float)
    arm["pulls"], arm["rewards"], arm["squares"] = len(y), y.sum(), (y * y).sum()
    arm["mean"] = arm["rewards"] / len(y)
    arm["up"], arm["down"] = np.log1p(stakes * y).sum(1), np.log1p(stakes * (1 - y)).sum(1)
    arm["rivals"], arm["rival_rewards"], arm["rival_squares"] = len(other), other.sum(), (other * other).sum()
    arm["rival_up"] = np.log1p(stakes * other).sum(1)
    bets.weigh(Record(arm), None)


def log_f(counted, b, a, arms, m):
    """log F(m), from the rewards."""
    one, other = (log_e_of_bets([(y, np.ones(len(y))) for y in (each, a)], m) for each in (counted, b))
    return np.logaddexp(math.log(1 - 1 / (2 * arms)) + one, other - math.log(2 * arms * (arms - 1)))


def some_state(rng, most):
    """Counted rewards, those of b and those of a."""
    m = rng.uniform(0.05, 0.9)
    gap = min(m, 1 - m) * 10 ** rng.uniform(-1.5, -0.1)
    n = [int(10 ** rng.uniform(0.5, math.log10(most))) for _ in range(3)]
    means = m + gap * rng.uniform(0.2, 1), m + gap * rng.uniform(0.2, 1), m - gap * rng.uniform(0, 1)
    return [some_rewards(rng, mean, k) for mean, k in zip(means, n, strict=True)]


@pytest.mark.parametrize("count", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_for_bounded_rewards_it_is_never_above_a_search_of_all_pairs_of_stakes(count):
    rng, arms, found, exact, states = np.random.default_rng(2), 5, [], [], []
    setup = setup_of("bounded", arms=arms)
    while len(states) < count:
        counted, b, a = some_state(rng, 1000)
        if b.mean() > a.mean():
            records, _ = setup.start()
            put_rewards(records[0], b)
            put_rewards(records[1], a, counted)
            states.append((Record(records[0]), Record(records[1])))
            found.append(float(setup.bound(surplus)(Record(setup.rules), 0, *states[-1])) + setup.rules["level"])
            at = pairs.least_of(lambda m, state=(counted, b, a): log_f(*state, arms, m), 0.0, 1.0)
            exact.append(float(log_f(counted, b, a, arms, at)))
    check_never_above(found, exact, share=0.9, slack=1e-12)
    check_quick_look(setup, states, beaten=0.2 * count, refused=0.05 * count, slack=0.02)


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
    rng, setup = np.random.default_rng(1), setup_of(GAUSSIAN, threshold, arms)
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
    [(Hedged, 2, 0.0, 400, 100, 4), (Hedged, 2, 0.2, 400, 100, 4), *((Champion, K, 0.0, 30, 5, 1) for K in (3, 4))],
)
def test_the_least_e_is_never_above_a_scan(threshold, arms, epsilon, states, beaten, refused):
    """30 random runs: never above the least of 100 means and of finer scans around it, and seldom visibly below. What a
    quick look refuses is seldom beaten."""
    rng, setup, found, exact, looked = (
        np.random.default_rng(2),
        setup_of(GAUSSIAN, threshold, arms, epsilon=epsilon),
        [],
        [],
        [],
    )
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


# --- What it costs, and studies


@pytest.mark.parametrize(
    ("instance", "threshold", "other", "share", "trajectories"),
    [
        (Instance("gaussian", [0.5, 0], [1, 1]), "hedged", "contrast", 0.93, 1000),
        (Instance("gaussian", [0.5, 0], [1, 100]), "hedged", "contrast", 0.86, 1000),
        (Instance("gaussian", [1, *[0.5] * 9], [1] * 10), "champion", "contrast", 0.85, 1000),
        (Instance("bounded", [0.6, *[0.5] * 9], [1] * 10, law="beta", sd=0.2), "champion", "bets", 0.8, 500),
    ],
)
def test_it_is_cheaper_than_its_test_of_pairs(instance, threshold, other, share, trajectories):
    """At delta 0.05, with the same rewards: 0.87, 0.81, 0.84 and 0.745 of the bill, standard errors at most 0.008."""
    options = {"delta": 0.05, "trajectories": trajectories}
    mine, theirs = (simulate(instance, threshold=each, **options) for each in (None, other))
    assert (mine.summary().threshold, mine.summary().proven) == (threshold, True)
    assert mine.costs.mean() < share * theirs.costs.mean()
    assert other == "bets" or len(instance) == 2 or mine.summary().ratio < 2.6  # its standard error is 0.03


def test_it_costs_what_the_page_says_on_the_papers_instance(paper_instance):
    """At most 2.2, 1.72 and 1.31 times the lower bound; 3000 trajectories, standard errors 0.022, 0.016 and 0.008."""
    runs = simulate(paper_instance, delta=[0.05, 0.01, 1e-6], trajectories=3000)
    for each, most in zip(runs, (2.2, 1.72, 1.31), strict=True):
        assert each.summary().ratio < most


@pytest.mark.parametrize(("means", "costs"), [([1.0, 0.2], [1, 0.3]), ([1.0, 0.4, 0.2], [1, 0.3, 0.1])])
def test_a_study_makes_the_pulls_of_a_simulation(means, costs):
    instance = Instance(FAMILY, means, costs, cost_model="beta")
    check_same_pulls(instance, "top-two", None, 0.0, most=60, seed=3, reload=True)


@pytest.mark.parametrize(
    ("threshold", "arms", "family", "kept"),
    [
        ("hedged", "ab", "gaussian", ["stakes"]),
        ("champion", "abc", "gaussian", ["stakes", "rival_stakes", "rivals"]),
        ("champion", "abc", "bounded", ["rivals", "rival_rewards", "rival_squares"]),
    ],
)
def test_hostile_delays_change_neither_what_is_kept_nor_what_is_decided(clock, threshold, arms, family, kept):
    """32 workers, low rewards of one arm come 200 times as late as any other: the records are those of one worker who
    is told in the order of asking, also when the log is folded again."""
    for seed in range(2):
        rng = np.random.default_rng(seed)

        def draw(pull, rng=rng):
            away = rng.normal()
            late = 200.0 if pull.arm == "b" and away < 0 else 1.0
            reward = float(away + (pull.arm == "a"))
            return (reward if family == "gaussian" else min(max(0.5 + reward / 6, 0.0), 1.0)), late

        study = new(arms=list(arms), family=family, policy="top-two", lease=1e9, delta=1e-3, seed=seed)
        assert str(study.settings.threshold) == threshold
        run_with_delays(study, clock, 32, draw)
        check_replay(study)
        for found in (study, reloaded(study)):
            check_order_of_asking(found, *kept)
        assert study.decision == "a"


def test_a_period_counts_as_was_clear_before_it(clock):
    """Sums of a period count whole, or not at all, by what was known before the period: a leads then, and falls
    behind b in it."""
    study = new(threshold="champion", costs=[1, 1, 1])
    study.tell_counts({"a": (10, 9), "b": (10, 5), "c": (10, 1)}, period="1")
    study.tell_counts({"a": (40, 1), "b": (20, 20), "c": (3, 0)}, period="2")
    arms = study._current.look(lambda found: found.ordered.arms)
    assert arms["rivals"].tolist() == [20, 40, 40]
    assert arms["rival_rewards"].tolist() == [20, 1, 1]
    check_replay(study)


RANGE = {"family": "bounded(low=-1, high=3)", "costs": [1, 1, 1]}


@pytest.mark.parametrize(
    ("threshold", "base", "options", "unit", "delta", "draw", "rounds"),
    [
        (Hedged, Hedged, {"family": "gaussian", "arms": ["a", "b"]}, 1, 0.1, lambda rng, a: rng.normal(-0.1 * a), 100),
        (Champion, Contrast, {"family": "bernoulli"}, 1, 0.1, lambda rng, a: rng.random() < (0.75, 0.7, 0.2)[a], 300),
        (Champion, Bets, RANGE, 4, 0.001, lambda rng, a: rng.uniform(-0.4, 0.4) + (1.0, 0.9, 0.0)[a], 90),
    ],
)
def test_an_epsilon_and_accepting_share_the_decisions_delta(threshold, base, options, unit, delta, draw, rounds):
    """A leader that is close enough: by the test of pairs at 2 K (K - 1)/delta or, with two arms, by the same sum, at
    all epsilons from `within` on. Ranks and intervals are those of the test of pairs."""
    of_pairs = Contrast if base is Hedged else base
    study, other = (new(**options, policy="uniform", delta=delta, threshold=each()) for each in (threshold, of_pairs))
    rng = np.random.default_rng(5)
    for _ in range(rounds):
        one, two = study.ask(), other.ask()
        assert one.arm == two.arm
        reward = float(draw(rng, "abc".index(one.arm)))
        study.tell(one, reward, 1.0)
        other.tell(two, reward, 1.0)
    mine, theirs, arms = study.status(), other.status(), study._current.look(lambda found: found.ordered.arms)
    assert (mine.threshold, theirs.threshold) == (str(threshold()), str(of_pairs()))
    for arm, same in zip(mine.arms, theirs.arms, strict=True):
        assert (arm.low, arm.high, arm.ranks) == (same.low, same.high, same.ranks)
        assert arm.may_be_best is (arm.name != "c")
    K = len(mine.arms)
    pair = Setup(study.settings.family, base(), arms=K, delta=delta / (1 if K == 2 else 2 * K), epsilon=mine.within)
    rules, (rival, leader) = pair.rules, np.argsort(arms["mean"])[-2:]
    for part, holds in ((1.0, True), (0.98 if base is Bets else 0.99, False)):
        rules["epsilon"] = part * mine.within / unit
        given = Record(rules), 0, Record(arms[leader]), Record(arms[rival])
        assert (pair.bound(surplus)(*given) > 0, bool(pair.bound(is_settled)(*given))) == (holds, holds)
    assert 0 < mine.within < (theirs.within if threshold is Hedged else unit / 4)
    study.amend(epsilon=mine.within)
    assert (study.decision, study.status().confidence) == (study.arms[leader], 1 - delta)


def test_arms_dropped_by_hand_are_tested_by_pairs():
    one, other = (new(threshold=each, policy="top-two", seed=3) for each in ("champion", "contrast"))
    for study in (one, other):
        study.tell_counts({"a": (30, 25, 1), "b": (30, 20, 1), "c": (30, 5, 1)}, period="1")
        study.drop("c")
    mine, theirs = one.status(), other.status()
    assert (mine.evidence, mine.required, mine.confidence) == (theirs.evidence, theirs.required, theirs.confidence)


def test_it_is_the_default_where_it_is_valid_and_cheaper_and_refuses_the_rest():
    """For the best arm, from results in the order of asking."""
    two = {"arms": ["a", "b"], "family": "gaussian"}
    for options, threshold in (
        (two, "hedged"), (two | {"direction": "minimize"}, "hedged"), (two | {"epsilon": 0.1}, "contrast"),
        (two | {"reserve": 0.1, "policy": "top-two"}, "contrast"), (two | {"family": "poisson"}, "contrast"),
        (RANGE, "champion"), (RANGE | {"epsilon": 0.1}, "bets"),
        (RANGE | {"reserve": 0.1, "policy": "top-two"}, "bets"),
        (RANGE | {"arms": ["a", "b"], "costs": [1, 1]}, "bets"),
    ):  # fmt: skip
        assert str(new(**options).settings.threshold) == threshold
    with pytest.raises(InvalidInput, match="needs gaussian rewards of known variance, got bernoulli"):
        simulate(Instance("bernoulli", [0.9, 0.5], [1, 1]), threshold="hedged")
    for threshold, options, instead in (("hedged", two, ""), ("champion", {}, ""), ("champion", RANGE, ".* use bets")):
        with pytest.raises(InvalidInput, match=f"{threshold} looks for the best arm: with goal 'cheapest'{instead}"):
            new(**options, threshold=threshold, goal="cheapest", policy="cheapest", epsilon=0.3)
    for rule, family, instead in (
        (Hedged(), "gaussian", ""), (Champion(), "bernoulli", ""), (Champion(), "bounded", ".*: use bets"),
    ):  # fmt: skip
        data = Statistics(family, pulls=[9, 9, 9], rewards=[9, 5, 2], squares=[9, 5, 2])
        with pytest.raises(cabai.InvalidInput, match=f"depends on the order of the pulls{instead}"):
            rule.stops(data, delta=0.1)
