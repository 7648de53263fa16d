"""Linear bets: their formula, that what is computed is never too large, and that no sampling rule misleads them."""

from __future__ import annotations

import math
import random
from functools import partial

import numpy as np
import pytest
from mpmath import mp, mpf

import cabai
import pairs
from cabai import Statistics
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import beats
from cabai.families import Bounded, Gaussian
from cabai.support.validation import InvalidInput
from cabai.thresholds import Bets, bets
from cabai.thresholds.bets import FLAT, KEPT, LEANING, STAKE
from pairs import check_extremes, check_never_above, check_quick_look, least_log_e_of_bets, log_e_of, weights_of_bets

SLOW = pytest.mark.slow
setup_of = partial(pairs.setup_of, "bounded", Bets)


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


def some_pair(rng, most):
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


def pair_of(setup, pair, up=0.0):
    return tuple(map(Record, arms_of(setup, pair, up)))


def test_the_weights_are_a_probability_and_what_is_kept_is_what_the_formula_needs():
    _, joint = weights_of_bets()
    assert joint.min() >= 0
    assert joint.sum() == pytest.approx(1, abs=1e-12)
    setup, rng = setup_of(), np.random.default_rng(3)
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
def test_the_least_e_is_never_above_a_search_of_all_pairs_of_stakes(epsilon, count):
    """Random states, counts to 1e7, in 40 digits, with sums that were rounded as badly as can be: never above, and
    seldom visibly below."""
    rng, setup, found, exact = np.random.default_rng(1), setup_of(epsilon=epsilon), [], []
    while len(found) < count:
        pair = some_pair(rng, 10**7)
        b, a = pair_of(setup, pair, up=1.0)
        if b.mean > a.mean - epsilon:
            found.append(log_e_of(setup, b, a))
            exact.append(least_log_e_of_bets(pair, epsilon))
    check_never_above(found, exact, share=0.93)


def test_what_a_quick_look_refuses_is_not_beaten():
    """Rewards 0 and 1, nearly so, and others."""
    rng, setup, states = np.random.default_rng(14), setup_of(), []
    for i in range(300):
        pair = some_pair(rng, 10**5)
        if i % 2:
            m, gap = rng.uniform(0.1, 0.9), 10 ** rng.uniform(-2, -0.5)
            n = [max(int(rng.uniform(3, 15) * 2 * m * (1 - m) / gap**2 * 10 ** rng.uniform(0, 1)), 3) for _ in range(2)]
            low = 0.02 if i % 4 == 1 else 0.0
            pair = [([low, 1.0], [k - (ones := round(min(max(m + side * gap / 2, 0), 1) * k)), ones])
                    for k, side in zip(n, (1, -1), strict=True)]  # fmt: skip
        states.append(pair_of(setup, pair))
    check_quick_look(setup, states, beaten=75, refused=1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
def test_extremes_do_no_harm(epsilon):
    """Counts to 1e9, means at the edge, pull ratios to 1e9: a number, and no arm beats one that is no worse."""
    rng, setup = np.random.default_rng(8), setup_of(epsilon=epsilon)
    for i in range(24):
        means = [float(rng.choice([0.0, 1.0, 1e-9, 1 - 1e-9, rng.random()])) for _ in range(2)]
        if i % 2:  # nearly tied
            means[1] = min(means[0] * (1 + 10 ** rng.uniform(-12, 0)), 1.0)
        pair = [some_rewards(rng, mean, int(10 ** rng.uniform(0, 9))) for mean in means]
        check_extremes(setup, arms_of(setup, pair, up=1.0), epsilon)


@pytest.mark.parametrize(("b", "a", "n"), [
    (([1.0], [1]), ([0.0], [1]), 9), (([0.6], [1]), ([0.59], [1]), 1000),
    (([0.0, 1.0], [1, 1]), ([0.0, 1.0], [3, 2]), 2000), (([0.0, 1.0], [50, 51]), ([0.0, 1.0], [51, 50]), 2_000_000),
])  # fmt: skip
def test_what_is_plain_is_seen(b, a, n):
    setup = setup_of()
    pair = [(values, [count * n // sum(counts) for count in counts]) for values, counts in (b, a)]
    one, other = pair_of(setup, pair)
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
    from folding import Play

    chance = random.Random(0)
    study = cabai.create_study("ctas, bets", arms=["a", "b", "c"], family="bounded", policy="ctas", storage="memory")
    play = Play(study.settings)
    for _ in range(60):
        arm = play.choose([0, 0, 0])
        assert play.arms["cost"].tolist() == (play.arms["costs"] / np.maximum(play.arms["pulls"], 1)).tolist()
        play.observe(arm, chance.random(), chance.random())


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_interval_of_an_arm_is_what_its_bets_do_not_refute(direction):
    """Against products over the rewards themselves, on a grid of means; for K = 3 arms and both ends."""
    rng, study = np.random.default_rng(3), cabai.create_study(
        f"one arm {direction}", arms=["a", "b", "c"], family="bounded(low=-1, high=3)", policy="uniform",
        direction=direction, delta=0.1, costs=[1, 1, 1], storage="memory",
    )  # fmt: skip
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
