"""Contrast and bets, tests of pairs of arms: their formulas, that what they compute is never too large, and what they
see. (Sampling rules that mislead: test_worst_rule.py.)"""

from __future__ import annotations

import math
import random
from functools import partial

import numpy as np
import pytest
from mpmath import mp, mpf

import pairs
from cabai import Statistics
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import beats
from cabai.families import Bounded, Gaussian, family_of, mirror_image
from cabai.support.validation import InvalidInput
from cabai.thresholds import Bets, Contrast, bets, contrast, tilts
from cabai.thresholds.bets import FLAT, KEPT, LEANING, STAKE
from folding import Play
from pairs import FAMILIES, log_e_of, mirrored_pair, pair_of, setup_of
from studies import new


def test_the_weights_are_a_probability_and_ranges_of_means_leave_none_out():
    for family in FAMILIES:
        for m in (0.5, 1.0, 30.0, 1e3, 1e15) if family == "poisson" else (0.5,):
            _, joint = pairs.weights(family_of(family), m)
            assert joint.min() >= 0
            assert joint.sum() == pytest.approx(1, abs=1e-12)
            assert (joint == joint.T).all()
    for kind in (family_of("poisson"), mirror_image(family_of("poisson"))):
        found = kind.tilt_ranges
        assert (found[0][0], found[-1][1]) == kind.mean_range
        assert [high for _, high, _ in found[:-1]] == [low for low, _, _ in found[1:]]
    kind = family_of("poisson")
    joint = [pairs.weights(kind, low)[1] for low, _, _ in kind.tilt_ranges]
    for k, own in enumerate(joint):
        least = min(float((other / own).min()) for other in joint)
        assert math.exp(tilts.ranges(kind)[0][k, tilts.LOG_LEAST]) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.05])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_least_e_is_never_above_a_scan_of_all_pairs_of_tilts(family, epsilon, mirrored):
    """200 random states in all, counts to 1e7, in 50 digits: never above, and seldom visibly below."""
    kind, rng, found, exact = family_of(family), np.random.default_rng(1), [], []
    setup = setup_of(family, Contrast, epsilon=epsilon, mirrored=mirrored)
    weighed_at = epsilon if mirrored and not kind.is_symmetric else 0.0  # the m of the arm that is to win
    for _ in range(13):
        pair = pairs.some_pair(rng, kind, 10**7, largest=10**7)
        exact.append(pairs.least_log_e(kind, *pair, epsilon, weighed_at))
        found.append(log_e_of(setup, *pair_of(setup, *(mirrored_pair(kind, *pair) if mirrored else pair))))
    pairs.check_never_above(found, exact, share=10 / 13)


@pytest.mark.parametrize("mirrored", [False, True])
def test_where_two_ranges_of_means_meet_neither_is_forgotten(mirrored):
    """Poisson pairs whose common mean is about an end of a range, few pulls to many: E jumps there, and its least may
    be on either side. Never above 400 means around it and the ends of all ranges."""
    kind, rng, found, exact = family_of("poisson"), np.random.default_rng(11), [], []
    setup, ends = setup_of("poisson", Contrast, mirrored=mirrored), [low for low, _, _ in kind.tilt_ranges[1:]]
    for i in range(40):
        n_b, n_a = (int(10 ** rng.uniform(0, 4)) for _ in range(2))
        m = ends[i % 5] * (1 + rng.normal() / math.sqrt(ends[i % 5] * (n_a + n_b)))
        gap = math.sqrt(2 * rng.uniform(3, 20) * m * (1 / n_b + 1 / n_a))
        pair = (n_b, n_a), (m + gap * n_a / (n_a + n_b), max(m - gap * n_b / (n_a + n_b), 0.0))
        scan = [*np.linspace(m - 6 * gap, m + 6 * gap, 400), *ends, *np.nextafter(ends, 0)]
        exact.append(min(pairs.log_e(kind, *pair, x) for x in scan if x > 0))
        found.append(log_e_of(setup, *pair_of(setup, *(mirrored_pair(kind, *pair) if mirrored else pair))))
    pairs.check_never_above(found, exact, share=0.9, within=0.1, slack=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_quick_look_refuses_is_not_beaten(family):
    rng, setup = np.random.default_rng(4), setup_of(family, Contrast)
    states = (pairs.some_pair(rng, family_of(family), 10**5) for _ in range(400))
    states = (pair_of(setup, *each) for each in states if each[1][0] > each[1][1])
    pairs.check_quick_look(setup, states, beaten=100, refused=2)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_factor_has_mean_one_at_its_own_mean(family, sign):
    """Also the largest tilts, by their moments in closed form."""
    kind, m = family_of(family), 0.37
    for row in tilts.table(kind):
        l = sign * row[tilts.TILT]  # noqa: E741
        columns = (tilts.RATE_UP, tilts.PRICE_UP) if sign > 0 else (tilts.RATE_DOWN, tilts.PRICE_DOWN)

        def log(y, tilt=l, row=row, columns=columns):
            return kind.call(contrast.tilted, tilt, *row[list(columns)], 1.0, y - m, m)[0]

        at_zero, per_reward = log(0.0), log(1.0) - log(0.0)
        moment = {  # log of the mean of e^(s y)
            "gaussian": lambda s: s * m + s * s * getattr(kind, "variance", 1) / 2,
            "bernoulli": lambda s: math.log1p(m * math.expm1(s)),
            "poisson": lambda s: m * math.expm1(s),
            "exponential": lambda s: -math.log1p(-s * m),
        }[kind.name]
        assert at_zero + moment(per_reward) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("name", "means", "pulls"), [
    ("gaussian", (1000.0, 0.0), (1, 1)), ("gaussian(variance=1e-10)", (3.0, 2.9999), (50, 50)),
    ("gaussian(variance=1e10)", (5e5, 0.0), (9, 9)), ("bernoulli", (1.0, 0.0), (9, 9)),
    ("bernoulli", (1e-6, 1e-7), (10**8, 10**8)), ("bernoulli", (1 - 1e-7, 1 - 1e-6), (10**8, 10**8)),
    ("poisson", (1.0, 0.0), (9, 9)),
    ("poisson", (1e12, 1e12 - 1e6), (100, 100)), ("poisson", (1e12, 1e12 - 3e6), (6, 6)),
    ("poisson", (1030.0, 1000.0), (60, 60)), ("exponential", (1e9, 1e-9), (2, 2)),
    ("gaussian", (0.05, 0.0), (10**9, 10**4)), ("gaussian", (0.05, 0.0), (10**4, 10**9)),
    ("exponential", (1.05, 1.0), (10**9, 2 * 10**4)), ("poisson", (1.05, 1.0), (2 * 10**4, 10**9)),
])  # fmt: skip
def test_what_is_plain_is_seen(name, means, pulls):
    """Wide gaps after few pulls, edges, large counts, and lopsided pulls."""
    data = Statistics(name, pulls, [n * mean for n, mean in zip(pulls, means, strict=True)])
    assert Contrast().beats(data, 0, 1, delta=0.05)
    assert not Contrast().beats(data, 1, 0, delta=0.05)
    assert Contrast().stops(data, delta=0.05)


# --- Bets: rewards in [0, 1]


SLOW = pytest.mark.slow
bets_of = partial(setup_of, "bounded", Bets)


def fill(arm, values, counts, up=0.0):
    """An arm that has had each value so many times; its sums rounded up by the worst that so many additions may do."""
    n = int(sum(counts))
    rounded = 1 + up * 1.1e-16 * (n - 1)
    sums = {"rewards": values, "squares": [y * y for y in values]}
    with mp.workdps(40):
        for name, terms in sums.items():
            arm[name] = float(mp.fdot(counts, [mpf(y) for y in terms]))
        stakes = [mp.exp(mpf(float(tilt))) - 1 for tilt in bets.table()[:KEPT, bets.TILT]]
        for name, side in (("up", list(map(mpf, values))), ("down", [1 - mpf(y) for y in values])):
            arm[name] = [rounded * float(mp.fdot(counts, [mp.log(1 + c * y) for y in side])) for c in stakes]
    arm["pulls"] = arm["tested"] = n
    arm["mean"] = arm["tested_mean"] = min(arm["rewards"] / n, 1.0)
    bets.weigh(Record(arm), None)


def some_rewards(rng, mean, n):
    """Values and counts: 0 and 1, two values close together or apart, or nearly always the same."""
    kind = rng.integers(4)
    if kind == 0:
        ones = round(mean * n)
        return [0.0, 1.0], [n - ones, ones]
    if kind == 1:
        return [mean], [n]
    spread = 10 ** rng.uniform(-4, 0) * min(mean, 1 - mean)
    rare = n // 2 if kind == 2 else min(1, n // 2)
    return [mean - spread, mean + spread], [rare, n - rare]


def some_rewards_of_two(rng, most):
    n = [int(10 ** rng.uniform(0.3, math.log10(most))) for _ in range(2)]
    m = rng.uniform(0.02, 0.98)
    gap = min(math.sqrt(rng.uniform(1, 40) * 2 * m * (1 - m) * 10 ** rng.uniform(-2, 0) / min(n)), min(m, 1 - m))
    return [
        some_rewards(rng, m + side * gap * rng.uniform(0, 1), count) for side, count in zip((1, -1), n, strict=True)
    ]


def arms_of(setup, pair, up=0.0):
    """Records of two arms, each of which has had its values so many times."""
    arms = setup.start()[0]
    for arm, (values, counts) in zip(arms, pair, strict=True):
        fill(arm, values, counts, up)
    return arms


def bets_pair(setup, pair, up=0.0):
    return tuple(map(Record, arms_of(setup, pair, up)))


def test_the_weights_of_bets_are_a_probability_and_what_is_kept_is_what_the_formula_needs():
    _, joint = pairs.weights_of_bets()
    assert joint.min() >= 0
    assert joint.sum() == pytest.approx(1, abs=1e-12)
    setup, rng = bets_of(), np.random.default_rng(3)
    samples = [[*rng.random(50), 0.0, 1.0, 1.0], [0.2, 0.3, 0.1, 0.25]]
    arms, run = setup.start()
    for a, rewards in enumerate(samples):
        for y in rewards:
            setup.bound(observe)(Records(arms), Record(run), Record(setup.rules), a, y, 1.0)
    expected = arms_of(setup, [(rewards, [1] * len(rewards)) for rewards in samples])
    found, _ = Statistics.of("bounded", samples).state(setup)
    for name in ("up", "down", "squares", "variance", "reserved", "tested_mean"):
        np.testing.assert_allclose(arms[name][0], expected[name][0], rtol=1e-13)
        assert (found[name] == arms[name]).all()


@pytest.mark.parametrize("count", [30, pytest.param(500, marks=SLOW)])
@pytest.mark.parametrize("epsilon", [0.0, 0.01])
def test_the_least_e_of_bets_is_never_above_a_search_of_all_pairs_of_stakes(epsilon, count):
    """Random states, counts to 1e7, in 40 digits, with sums that were rounded as badly as can be: never above, and
    seldom visibly below."""
    rng, setup, found, exact = np.random.default_rng(1), bets_of(epsilon=epsilon), [], []
    while len(found) < count:
        pair = some_rewards_of_two(rng, 10**7)
        b, a = bets_pair(setup, pair, up=1.0)
        if b.mean > a.mean - epsilon:
            found.append(log_e_of(setup, b, a))
            exact.append(pairs.least_log_e_of_bets(pair, epsilon))
    pairs.check_never_above(found, exact, share=0.93)


def test_what_a_quick_look_at_bets_refuses_is_not_beaten():
    """Rewards 0 and 1, nearly so, and others."""
    rng, setup, states = np.random.default_rng(14), bets_of(), []
    for i in range(300):
        pair = some_rewards_of_two(rng, 10**5)
        if i % 2:
            m, gap = rng.uniform(0.1, 0.9), 10 ** rng.uniform(-2, -0.5)
            n = [max(int(rng.uniform(3, 15) * 2 * m * (1 - m) / gap**2 * 10 ** rng.uniform(0, 1)), 3) for _ in range(2)]
            low = 0.02 if i % 4 == 1 else 0.0
            pair = [([low, 1.0], [k - (ones := round(min(max(m + side * gap / 2, 0), 1) * k)), ones])
                    for k, side in zip(n, (1, -1), strict=True)]  # fmt: skip
        states.append(bets_pair(setup, pair))
    pairs.check_quick_look(setup, states, beaten=75, refused=1)


@pytest.mark.parametrize(("b", "a", "n"), [
    (([1.0], [1]), ([0.0], [1]), 9), (([0.6], [1]), ([0.59], [1]), 1000),
    (([0.0, 1.0], [1, 1]), ([0.0, 1.0], [3, 2]), 2000), (([0.0, 1.0], [50, 51]), ([0.0, 1.0], [51, 50]), 2_000_000),
])  # fmt: skip
def test_what_is_plain_is_seen_by_bets(b, a, n):
    setup = bets_of()
    pair = [(values, [count * n // sum(counts) for count in counts]) for values, counts in (b, a)]
    one, other = bets_pair(setup, pair)
    assert setup.bound(beats)(Record(setup.rules), 0, one, other)
    assert not setup.bound(beats)(Record(setup.rules), 0, other, one)


def log_e_of_data(data):
    setup = Setup(data.family, Bets(), arms=2, delta=0.1)
    return log_e_of(setup, *map(Record, data.state(setup)[0]))


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0), (1e6, 1e6 + 1)])
def test_sums_of_squares_say_less_than_the_rewards_and_never_more(low, high):
    """Each sum of log(1 + c y) against 40 digits, and log E, for many laws; also where the range is far from 0."""
    rng, family, stakes = np.random.default_rng(21), Bounded(low, high), np.expm1(bets.table()[:KEPT, bets.TILT])
    setup, seen = Setup(family, Bets(), arms=2, delta=0.1), 0
    for _ in range(25):
        shares = [some_sample(rng, int(rng.integers(2, 60)), mean) for mean in (0.7, 0.5)]
        samples = [np.clip(low + (high - low) * each, low, high) for each in shares]
        sums, squares = ([math.fsum(each**power) for each in samples] for power in (1, 2))
        data = Statistics(family, [len(each) for each in samples], sums, squares=squares)
        arms, _ = data.state(setup)
        for arm, rewards in zip(arms, samples, strict=True):
            with mp.workdps(40):
                exact = [(mpf(float(y)) - mpf(low)) / (mpf(high) - mpf(low)) for y in rewards]
                for i, c in enumerate(stakes):
                    assert arm["up"][i] <= float(mp.fsum(mp.log(1 + mpf(float(c)) * y) for y in exact)) + 1e-12
                    assert arm["down"][i] <= float(mp.fsum(mp.log(1 + mpf(float(c)) * (1 - y)) for y in exact)) + 1e-12
        full, less = log_e_of_data(Statistics.of(family, samples)), log_e_of_data(data)
        assert less <= full + 1e-9
        seen += full > 1 and less > 0.5 * full
    assert seen >= (5 if low < 1e5 else 0)


def some_sample(rng, n, mean):
    spread = 10 ** rng.uniform(-1, 3)
    return (
        rng.choice([0.0, 1.0], n, p=[1 - mean, mean])
        if rng.random() < 0.2
        else rng.beta(mean * spread, (1 - mean) * spread, n)
    )


def test_sums_need_squares_but_of_zeros_and_ones_and_bets_need_a_range():
    data = Statistics("bernoulli", [100, 100], [80, 30])
    assert Bets().beats(data, 0, 1, delta=0.05)
    squares = Statistics("bounded", [100, 100], [80, 30], squares=[80, 30])
    assert log_e_of_data(data) == pytest.approx(log_e_of_data(squares), abs=1e-6)
    with pytest.raises(InvalidInput, match="give the sums of their squares"):
        Bets().beats(Statistics("bounded", [100, 100], [80, 30]), 0, 1, delta=0.05)
    for wrong in (81, 63.9):
        with pytest.raises(InvalidInput, match=r"squares\[0\] = .* cannot be the sum of the squares of 100 rewards"):
            Bets().beats(Statistics("bounded", [100, 100], [80, 30], squares=[wrong, 30]), 0, 1, delta=0.05)
    with pytest.raises(InvalidInput, match="rewards in a known range"):
        Setup(Gaussian(), Bets(), arms=2, delta=0.1)


def test_choosing_leaves_the_costs_as_they_are():
    """ctas solves for its shares with other costs; put back by a division, they differed in their last digit."""
    chance = random.Random(0)
    play = Play(new(family="bounded", policy="ctas").settings)
    for _ in range(60):
        arm = play.choose([0, 0, 0])
        assert play.arms["cost"].tolist() == (play.arms["costs"] / np.maximum(play.arms["pulls"], 1)).tolist()
        play.observe(arm, chance.random(), chance.random())


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_interval_of_an_arm_with_bets_is_what_its_bets_do_not_refute(direction):
    """Against products over the rewards themselves, on a grid of means; for K = 3 arms and both ends."""
    rng, family = np.random.default_rng(3), "bounded(low=-1, high=3)"
    study = new(family=family, policy="uniform", direction=direction, delta=0.1, costs=[1, 1, 1])
    told = {arm: [] for arm in study.arms}
    for _ in range(90):
        pull = study.ask()
        told[pull.arm].append(float(rng.beta(3, 2) * 4 - 1))
        study.tell(pull, told[pull.arm][-1])
    rows = bets.table()[:KEPT]
    prior = sum(rows[:, each] / rows[:, each].sum() for each in (FLAT, LEANING)) / 2
    grid = np.linspace(0.001, 0.999, 999)
    for arm in study.status().arms:
        y = (np.array(told[arm.name]) + 1) / 4
        refuted = np.zeros(len(grid), bool)
        for rewards, means in ((y, grid), (1 - y, 1 - grid)):
            factors = (1 + rows[:, STAKE, None, None] * rewards) / (1 + rows[:, STAKE, None] * means)[:, :, None]
            refuted |= (prior[:, None] * factors.prod(axis=2)).sum(axis=0) >= 2 * 3 / 0.1
        inside = grid[~refuted] * 4 - 1
        assert arm.low == pytest.approx(inside[0], abs=0.005)
        assert arm.high == pytest.approx(inside[-1], abs=0.005)
        assert arm.low < arm.mean < arm.high


# --- Both


def extreme_mean(rng, name):
    if name == "gaussian":
        return float(rng.normal() * 10 ** rng.uniform(-12, 12))
    if name in ("bernoulli", "bounded"):
        return float(rng.choice([0.0, 1.0, 1e-9, 1 - 1e-9, rng.random()]))
    if name == "exponential":
        return float(10 ** rng.uniform(-90, 15))
    return float(rng.choice([0, 10 ** rng.uniform(-9, 15)]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
@pytest.mark.parametrize(
    ("name", "mirrored"),
    [*((family, side) for family in ("gaussian", *FAMILIES[1:]) for side in (False, True)), ("bounded", False)],
)
def test_extremes_do_no_harm(name, mirrored, epsilon):
    """Counts to 1e9, means at the edge, variances over 20 orders, pull ratios to 1e9: a number, and no arm beats one
    that is no worse."""
    rng = np.random.default_rng(8)
    for i in range(24 if name == "bounded" else 60):
        family = f"gaussian(variance={10 ** rng.uniform(-10, 10):.3g})" if name == "gaussian" else name
        setup = setup_of(family, Bets if name == "bounded" else Contrast, epsilon=epsilon, mirrored=mirrored)
        n, means = 10 ** rng.uniform(0, 9, 2), [extreme_mean(rng, name) for _ in range(2)]
        if i % 2:  # nearly tied
            means[1] = min(means[0] * (1 + 10 ** rng.uniform(-12, 0)), family_of(family).mean_range[1])
        if mirrored:
            means = [1 - mean if name == "bernoulli" else -mean for mean in means]
        if name == "bounded":
            arms = arms_of(setup, [some_rewards(rng, mean, int(k)) for mean, k in zip(means, n, strict=True)], up=1.0)
        else:
            arms = setup.start()[0]
            for arm, count, mean in zip(arms, n, means, strict=True):
                pairs.put(arm, int(count), mean)
        pairs.check_extremes(setup, arms, epsilon)
