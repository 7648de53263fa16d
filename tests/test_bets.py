"""Linear bets: their formula, that what is computed is never too large, and that chance crosses the level rarely."""

from __future__ import annotations

import math
import random
from functools import cache

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import stats

import cabai
from cabai import Instance, Statistics, simulate
from cabai.core.compiling import compiled
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import beats, is_settled, surplus
from cabai.families import Bounded, Gaussian
from cabai.support.validation import InvalidInput
from cabai.thresholds import Bets, bets, bets_worth
from worst_rule import most_often_crossed

CHANCE = 1e-6  # how often a statistical test here may fail by chance
SLOW = pytest.mark.slow


@cache
def setup_of(epsilon=0.0, delta=0.1):
    return Setup(Bounded(), Bets(), arms=2, delta=delta, epsilon=epsilon)


def weights():
    """The logs of 1 + c, and W_ij as the module says in words."""
    rows = bets.table()
    smaller = np.minimum.outer(np.arange(len(rows)), np.arange(len(rows)))
    first = np.outer(rows[:, bets.SHARE], rows[:, bets.SHARE]) * np.cumsum(rows[:, bets.GAIN])[smaller]
    products = sum(np.outer(rows[:, column], rows[:, column]) for column in (bets.FLAT, bets.LEANING))
    return rows[:, bets.TILT], first + products


def fill(arm, values, counts, up=0.0):
    """An arm that has had each value so many times; its sums rounded up by the worst that so many additions may do."""
    n = int(sum(counts))
    rounded = 1 + up * 1.1e-16 * (n - 1)
    sums = {"rewards": values, "squares": [y * y for y in values]}
    with mp.workdps(40):
        for name, terms in sums.items():
            arm[name] = float(mp.fdot(counts, [mpf(y) for y in terms]))
        stakes = [mp.exp(mpf(float(tilt))) - 1 for tilt in bets.table()[: bets.KEPT, bets.TILT]]
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


def log_e_at(pair, m, epsilon):
    """log E(m): the sum over every pair of stakes, from the definition, in 40 digits."""
    grid, joint = weights()
    (b, n_b), (a, n_a) = pair
    up, down = [], []
    for tilt in grid:
        c = mp.exp(mpf(float(tilt))) - 1
        up.append(mp.fdot(n_b, [mp.log((1 + c * mpf(y)) / (1 + c * m)) for y in b]))
        down.append(mp.fdot(n_a, [mp.log((1 + c * (1 - mpf(y))) / (1 + c * (1 - m - mpf(epsilon)))) for y in a]))
    v = [mp.exp(x) for x in down]
    return mp.log(mp.fsum(mp.exp(x) * mp.fdot(map(mpf, row), v) for row, x in zip(joint, up, strict=True)))


def least_log_e(pair, epsilon):
    """The least log E(m) of a search, its place found with doubles of 80 bits, its value with 40 digits. Whatever the
    place, the value is not below the minimum."""
    grid, joint = (each.astype(np.longdouble) for each in weights())
    c = np.expm1(grid)[:, None]
    (b, n_b), (a, n_a) = ((np.array(each, np.longdouble) for each in side) for side in pair)

    def value(m):
        up = np.log((1 + c * b) / (1 + c * m)) @ n_b
        down = np.log((1 + c * (1 - a)) / (1 + c * (1 - m - epsilon))) @ n_a
        return np.log(np.exp(up - up.max()) @ joint @ np.exp(down - down.max())) + up.max() + down.max()

    low, high = np.longdouble(0), np.longdouble(1) - epsilon
    for _ in range(60):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if value(left) < value(right) else (left, high)
    with mp.workdps(40):
        return float(log_e_at(pair, mpf(float((low + high) / 2)), epsilon))


# --- The formula -----------------------------------------------------------------------------------------------------


def test_the_weights_are_a_probability():
    _, joint = weights()
    assert joint.min() >= 0
    assert joint.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("count", [30, pytest.param(500, marks=SLOW)])
@pytest.mark.parametrize("epsilon", [0.0, 0.01])
def test_the_least_e_is_never_above_a_search_of_all_pairs_of_stakes(epsilon, count):
    """Random states, counts to 1e7, in 40 digits, with sums that were rounded as badly as can be: never above, and
    seldom visibly below."""
    rng, setup, close, looked = np.random.default_rng(1), setup_of(epsilon), 0, 0
    while looked < count:
        pair = some_pair(rng, 10**7)
        arms = setup.start()[0]
        for arm, (values, counts) in zip(arms, pair, strict=True):
            fill(arm, values, counts, up=1.0)
        b, a = map(Record, arms)
        if not b.mean > a.mean - epsilon:
            continue
        looked += 1
        found = setup.bound(surplus)(Record(setup.rules), 0, b, a) + setup.rules["level"]
        yes = bool(setup.bound(is_settled)(Record(setup.rules), 0, b, a))
        exact = least_log_e(pair, epsilon)
        assert found <= max(exact, 0.0)
        assert not yes or exact > setup.rules["level"]
        close += found >= min(exact, 700) - 0.05
    assert close >= 0.93 * looked  # stakes too small to tell anything are left out


def test_rewards_0_and_1_make_bets_the_tilts_of_bernoulli():
    """E(m) from N and R alone, with e^(l R)/(1 + m (e^l - 1))^N for each tilt l."""
    rng, setup = np.random.default_rng(2), setup_of()
    grid, joint = weights()
    for _ in range(20):
        n, m = rng.integers(1, 1000, 2), rng.uniform(0.1, 0.9)
        ones = rng.binomial(n, m)
        arms = setup.start()[0]
        for arm, count, one in zip(arms, n, ones, strict=True):
            fill(arm, [0.0, 1.0], [int(count - one), int(one)])
        found, _ = setup.bound(bets.pair_log_e)(
            Record(setup.rules), bets.COUNT - 1, Record(arms[0]), Record(arms[1]), 0, 0.0, 0.0, m, 0.0
        )
        u, v = (
            np.exp(tilt * r - k * np.log1p(m * np.expm1(tilt)))
            for tilt, r, k in zip((grid, -grid), ones, n, strict=True)
        )
        assert found == pytest.approx(math.log(u @ joint @ v), abs=1e-3)
        assert found <= math.log(u @ joint @ v)


def test_what_is_kept_of_an_arm_is_what_the_formula_needs():
    setup, rng = setup_of(), np.random.default_rng(3)
    rewards = [*rng.random(50), 0.0, 1.0, 1.0]
    arms, run = setup.start()
    for y in rewards:
        setup.bound(observe)(Records(arms), Record(run), Record(setup.rules), 0, y, 1.0)
    expected = setup.start()[0][0]
    fill(expected, rewards, [1] * len(rewards))
    for name in ("up", "down", "squares"):
        np.testing.assert_allclose(arms[0][name], expected[name], rtol=1e-13)


def test_what_a_quick_look_refuses_is_not_beaten():
    """Filters may only say no, and seldom say it where the test itself would say yes: rewards 0 and 1, nearly so, and
    others."""
    rng, setup = np.random.default_rng(14), setup_of()
    rules, refused, beaten = Record(setup.rules), 0, 0
    for i in range(400):
        pair = some_pair(rng, 10**5)
        if i % 2:
            m, gap = rng.uniform(0.1, 0.9), 10 ** rng.uniform(-2, -0.5)
            n = [max(int(rng.uniform(3, 15) * 2 * m * (1 - m) / gap**2 * 10 ** rng.uniform(0, 1)), 3) for _ in range(2)]
            low = 0.02 if i % 4 == 1 else 0.0
            pair = [([low, 1.0], [k - (ones := round(min(max(m + side * gap / 2, 0), 1) * k)), ones])
                    for k, side in zip(n, (1, -1), strict=True)]  # fmt: skip
        arms = setup.start()[0]
        for arm, (values, counts) in zip(arms, pair, strict=True):
            fill(arm, values, counts)
        b, a = map(Record, arms)
        by, yes = setup.bound(surplus)(rules, 0, b, a), setup.bound(beats)(rules, 0, b, a)
        assert not (yes and by <= 0)
        beaten += yes
        refused += by > 1e-6 and not yes
    assert beaten > 100
    assert refused <= 1


def test_the_bound_without_logarithms_is_above_what_the_best_bet_is_worth():
    rng = np.random.default_rng(15)
    for _ in range(3000):
        m, gap = rng.uniform(0, 1), 10 ** rng.uniform(-6, 0)
        room = 1 - m
        gap = min(gap, room)
        mean = m + gap
        variance = mean * (1 - mean) * rng.choice([1.0, rng.random(), 10 ** rng.uniform(-6, 0)])
        exact = bets_worth.worth(gap, variance, room)[0] - 1e-16  # its logarithms are rounded
        assert exact <= bets_worth.worth_at_most(gap, variance, room)


def test_the_slope_is_that_of_the_value():
    rng, setup = np.random.default_rng(4), setup_of()
    at = setup.bound(bets.pair_log_e)
    for _ in range(20):
        pair = some_pair(rng, 10**4)
        arms = setup.start()[0]
        for arm, (values, counts) in zip(arms, pair, strict=True):
            fill(arm, values, counts)
        b, a = map(Record, arms)
        m = 0.5 * (b.mean + a.mean)
        step = 1e-6 * m * (1 - m)
        values = [at(Record(setup.rules), 35, b, a, 0, 0.0, 0.0, x, 0.0)[0] for x in (m - step, m + step)]
        _, slope = at(Record(setup.rules), 35, b, a, 0, 0.0, 0.0, m, 0.0)
        assert (values[1] - values[0]) / (2 * step) == pytest.approx(slope, rel=1e-3, abs=1e-2)


def test_the_quick_look_is_an_upper_bound_of_the_best_bet():
    """`worth` against every stake, for samples of many laws."""
    rng = np.random.default_rng(5)
    stakes = np.expm1(np.append(np.linspace(1e-4, 10, 2000), 10))[:, None]
    for _ in range(300):
        n = int(rng.integers(1, 40))
        y = rng.choice([rng.random(n), (rng.random(n) < 0.7) * 1.0, 0.6 + 0.01 * rng.random(n)])
        m = rng.uniform(0.01, 0.99)
        for side, at in ((y, m), (1 - y, 1 - m)):
            best = max(np.log((1 + stakes * side) / (1 + stakes * at)).mean(1).max(), 0.0)
            assert best <= bets_worth.worth(side.mean() - at, side.var(), 1 - at)[0] + 1e-12


# --- The proof, step by step -----------------------------------------------------------------------------------------


def test_the_weighted_sum_does_not_rise_in_mean_where_the_null_holds():
    """One pull ahead of random states, for random laws on [0, 1] whose means are on either side of m."""
    rng, setup = np.random.default_rng(7), setup_of()
    rules, at, look = Record(setup.rules), setup.bound(bets.pair_log_e), setup.bound(observe)

    def e(arms, m):
        return math.exp(at(rules, bets.COUNT - 1, Record(arms[0]), Record(arms[1]), 0, 0.0, 0.0, m, 0.0)[0])

    for _ in range(15):
        arms, run = setup.start()
        for arm, (values, counts) in zip(arms, some_pair(rng, 100), strict=True):
            fill(arm, values, counts)
        atoms, chances = rng.beta(0.5, 0.5, 4), rng.dirichlet(np.ones(4))
        mu = float(atoms @ chances)
        for side in (0, 1):
            for m in (mu, mu + (1 - mu) * 0.1 if side == 0 else mu * 0.9):
                now, after = e(arms, m), 0.0
                for y, chance in zip(atoms, chances, strict=True):
                    ahead = arms.copy()
                    look(Records(ahead), Record(run.copy()), rules, side, float(y), 1.0)
                    after += chance * e(ahead, m)
                assert after <= now * (1 + 1e-9)
                assert m != mu or after >= now * (1 - 1e-4)  # of the smallest stakes, a bound only


def all_log_e(b, a, rules, found):
    for i in range(len(b)):
        for j in range(len(a)):
            found[i, j] = surplus(rules, 0, b[i], a[j]) + rules.level


def arms_after(setup, values, n):
    """An arm's records after n pulls of which 0, ..., n had the larger value."""
    low, high = values
    many, few = np.arange(n + 1.0), n - np.arange(n + 1.0)
    arms = np.zeros(n + 1, setup.layout.arm)
    stakes = np.expm1(bets.table()[: bets.KEPT, bets.TILT])
    arms["up"] = np.outer(few, np.log1p(stakes * low)) + np.outer(many, np.log1p(stakes * high))
    arms["down"] = np.outer(few, np.log1p(stakes * (1 - low))) + np.outer(many, np.log1p(stakes * (1 - high)))
    arms["rewards"], arms["squares"] = few * low + many * high, few * low**2 + many * high**2
    arms["pulls"] = arms["tested"] = n
    arms["mean"] = arms["tested_mean"] = arms["rewards"] / n
    for arm in Records(arms):
        bets.weigh(arm, None)
    return arms


@pytest.mark.parametrize(("values", "horizon"), [
    ((0.0, 1.0), 40), ((0.2, 0.9), 40),
    *(pytest.param(values, 80, marks=SLOW) for values in ((0.0, 1.0), (0.2, 0.9), (0.0, 0.3), (0.6, 1.0))),
])  # fmt: skip
def test_no_sampling_rule_makes_e_cross_more_often_than_promised(values, horizon):
    """The rule that maximises the chance of E >= x within so many pulls of two equal arms whose rewards are one of two
    values: all that can go wrong with two arms at delta = 1/x."""
    setup, most = setup_of(), 0.0
    fill_in, tables = compiled(setup.bound(all_log_e)), {}
    for n_b in range(1, horizon):
        for n_a in range(1, horizon + 1 - n_b):
            tables[n_b, n_a] = np.empty((n_b + 1, n_a + 1))
            fill_in(arms_after(setup, values, n_b), arms_after(setup, values, n_a), setup.rules, tables[n_b, n_a])
    for mu in (0.05, 0.5, 0.95):
        for x in (1.5, 2.0, 5.0, 20.0):
            crossed = {pulls: log_e >= math.log(x) for pulls, log_e in tables.items()}
            found = most_often_crossed(crossed, mu, horizon)
            assert found <= 1 / x
            most = max(most, found * x)
    assert most > 0.05  # so that it could have failed


# --- Chance: by simulation -------------------------------------------------------------------------------------------


@cabai.policy
def spoil(arms, run, rules):
    """Knows that the last arm is the best: pulls it while it looks good, and leaves it as soon as it looks bad."""
    best = len(arms) - 1
    other = run.t % best
    return best if arms[best].mean >= arms[other].mean else other


@cabai.policy
def hunt(arms, run, rules):
    """Knows that the last arm is the best: pulls the rival that is closest to beating it, and the arm itself when that
    rival is behind."""
    best, closest, most = len(arms) - 1, 0, -np.inf
    for a in range(best):
        n = arms[a].pulls * arms[best].pulls / (arms[a].pulls + arms[best].pulls)
        gap = arms[a].mean - arms[best].mean
        if gap * abs(gap) * n > most:
            closest, most = a, gap * abs(gap) * n
    return closest if most > 0.0 and run.t % 4 != 0 else best


SAMPLERS = {"uniform": "uniform", "co": "co", "top-two": "top-two", "spoil": spoil, "hunt": hunt}
RARE = [1.0] * 49 + [0.02]  # mean 0.9804


def tied(law, arms, gap):
    """All arms of one law, but for a gap by which the last is better."""
    costs = np.linspace(1, 0.3, arms)
    if law == "rare zeros":  # the best arm is now and then a disaster, which takes a while to be seen
        better = [y + gap if y < 0.5 else y - gap / 99 for y in RARE]
        return Instance.of_samples("bounded", [[float(np.mean(better)) - 2 * gap] * 50] * (arms - 1) + [better], costs)
    mean, kind, sd = {
        "beta": (0.6, "beta", 0.05), "bimodal": (0.5, "beta", 0.45), "uniform": (0.5, "uniform", None),
        "0 or 1": (0.5, "two-point", None), "mostly 0": (0.02, "two-point", None),
    }[law]  # fmt: skip
    return Instance("bounded", [mean - gap] * (arms - 1) + [mean], costs, law=kind, sd=sd)


def assert_errs_rarely(law, sampler, arms, trajectories, max_pulls, epsilon=0.0):
    """Wrong decisions have an exact binomial bound."""
    delta = 0.1
    runs = simulate(
        tied(law, arms, 1e-9 + epsilon), SAMPLERS[sampler], delta=delta, threshold="bets", trajectories=trajectories,
        seed=6, max_pulls=max_pulls, epsilon=epsilon,
    )  # fmt: skip
    errors = int(runs.wrong.sum())
    print(f"{law} {sampler} {arms} arms, epsilon {epsilon}: wrong {errors / trajectories:.5f}")
    assert stats.binom.sf(errors - 1, trajectories, delta) > CHANCE, errors / trajectories
    return errors


@pytest.mark.parametrize(("law", "sampler"), [("bimodal", "co"), ("rare zeros", "spoil")])
def test_tied_arms_are_told_apart_as_rarely_as_promised(law, sampler):
    """2000 trajectories of at most 400 pulls."""
    errors = assert_errs_rarely(law, sampler, 2, 2000, 400)
    assert sampler == "spoil" or errors > 0


LAWS = ["beta", "bimodal", "rare zeros", "uniform", "0 or 1", "mostly 0"]
PAIRS = [(law, sampler) for i, law in enumerate(LAWS) for j, sampler in enumerate(SAMPLERS) if (i + j) % 3 == 0]


@SLOW
@pytest.mark.parametrize("arms", [2, 3, 10])
@pytest.mark.parametrize(("law", "sampler"), PAIRS)
def test_tied_arms_are_told_apart_as_rarely_as_promised_in_the_long_run(law, sampler, arms):
    """100 000 trajectories of at most 150 pulls for each arm."""
    assert_errs_rarely(law, sampler, arms, 100_000, 150 * arms)


@SLOW
@pytest.mark.parametrize(
    ("law", "sampler"), [pair for pair in PAIRS if pair[0] != "rare zeros" and pair[0] != "mostly 0"]
)
def test_an_arm_that_is_just_not_within_epsilon_is_taken_as_rarely_as_promised(law, sampler):
    assert_errs_rarely(law, sampler, 3, 20_000, 1000, epsilon=0.02)


# --- Extremes --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
def test_extremes_do_no_harm(epsilon):
    """Counts to 1e9, means at the edge, pull ratios to 1e9: a number, and no arm beats one that is no worse."""
    rng, setup = np.random.default_rng(8), setup_of(epsilon)
    rules = Record(setup.rules)
    for i in range(24):
        arms = setup.start()[0]
        means = [float(rng.choice([0.0, 1.0, 1e-9, 1 - 1e-9, rng.random()])) for _ in range(2)]
        if i % 2:  # nearly tied
            means[1] = min(means[0] * (1 + 10 ** rng.uniform(-12, 0)), 1.0)
        for arm, mean in zip(arms, means, strict=True):
            n = int(10 ** rng.uniform(0, 9))
            values, counts = some_rewards(rng, mean, n)
            fill(arm, values, counts, up=1.0)
        for one, other in ((0, 1), (1, 0)):
            b, a = Record(arms[one]), Record(arms[other])
            with np.errstate(all="ignore"):
                by = float(setup.bound(surplus)(rules, 0, b, a))
                settled, won = (bool(setup.bound(of)(rules, 0, b, a)) for of in (is_settled, beats))
            assert not math.isnan(by)
            assert by >= -setup.rules["level"]
            assert not won or b.mean > a.mean
            assert not settled or b.mean > a.mean - epsilon
            assert not settled or by > -1e-6


@pytest.mark.parametrize(("b", "a", "n"), [
    (([1.0], [1]), ([0.0], [1]), 9), (([0.6], [1]), ([0.59], [1]), 1000),
    (([0.0, 1.0], [1, 1]), ([0.0, 1.0], [3, 2]), 2000), (([0.0, 1.0], [50, 51]), ([0.0, 1.0], [51, 50]), 2_000_000),
])  # fmt: skip
def test_what_is_plain_is_seen(b, a, n):
    setup = setup_of()
    arms = setup.start()[0]
    for arm, (values, counts) in zip(arms, (b, a), strict=True):
        fill(arm, values, [count * n // sum(counts) for count in counts])
    one, other = map(Record, arms)
    assert setup.bound(beats)(Record(setup.rules), 0, one, other)
    assert not setup.bound(beats)(Record(setup.rules), 0, other, one)


# --- Data that were summed up ----------------------------------------------------------------------------------------


def log_e_of_data(data, setup=None):
    setup = setup or Setup(data.family, Bets(), arms=2, delta=0.1)
    arms, _ = data.state(setup)
    return setup.bound(surplus)(Record(setup.rules), 0, Record(arms[0]), Record(arms[1])) + setup.rules["level"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0), (1e6, 1e6 + 1)])
def test_sums_of_squares_say_less_than_the_rewards_and_never_more(low, high):
    """Each sum of log(1 + c y) against 40 digits, and log E, for many laws; also where the range is far from 0."""
    rng, family, stakes = np.random.default_rng(21), Bounded(low, high), np.expm1(bets.table()[: bets.KEPT, bets.TILT])
    setup, seen = Setup(family, Bets(), arms=2, delta=0.1), 0
    for _ in range(25):
        shares = [some_sample(rng, int(rng.integers(2, 60)), mean) for mean in (0.7, 0.5)]
        samples = [np.clip(low + (high - low) * each, low, high) for each in shares]
        data = Statistics(
            family,
            [len(each) for each in samples],
            [math.fsum(each) for each in samples],
            squares=[math.fsum(each * each) for each in samples],
        )
        arms, _ = data.state(setup)
        for arm, rewards in zip(arms, samples, strict=True):
            with mp.workdps(40):
                exact = [(mpf(float(y)) - mpf(low)) / (mpf(high) - mpf(low)) for y in rewards]
                for i, c in enumerate(stakes):
                    assert arm["up"][i] <= float(mp.fsum(mp.log(1 + mpf(float(c)) * y) for y in exact)) + 1e-12
                    assert arm["down"][i] <= float(mp.fsum(mp.log(1 + mpf(float(c)) * (1 - y)) for y in exact)) + 1e-12
        full = log_e_of_data(Statistics.of(family, samples), setup)
        less = log_e_of_data(data, setup)
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


def test_rewards_given_at_once_are_those_that_were_told():
    samples = [[0.9, 0.8, 1.0, 0.0], [0.2, 0.3, 0.1, 0.25]]
    setup = setup_of()
    arms, run = setup.start()
    look = setup.bound(observe)
    for a, rewards in enumerate(samples):
        for reward in rewards:
            look(Records(arms), Record(run), Record(setup.rules), a, reward, 1.0)
    found, _ = Statistics.of("bounded", samples).state(setup)
    for name in ("up", "down", "squares", "variance", "reserved", "tested_mean"):
        assert (found[name] == arms[name]).all()


def test_zeros_and_ones_need_no_squares():
    data = Statistics("bernoulli", [100, 100], [80, 30])
    assert Bets().beats(data, 0, 1, delta=0.05)
    squares = Statistics("bounded", [100, 100], [80, 30], squares=[80, 30])
    assert log_e_of_data(data) == pytest.approx(log_e_of_data(squares), abs=1e-6)
    with pytest.raises(InvalidInput, match="give the sums of their squares"):
        Bets().beats(Statistics("bounded", [100, 100], [80, 30]), 0, 1, delta=0.05)


@pytest.mark.parametrize("squares", [[81, 30], [63.9, 30]])
def test_squares_that_cannot_be_are_refused(squares):
    with pytest.raises(InvalidInput, match=r"squares\[0\] = .* cannot be the sum of the squares of 100 rewards"):
        Bets().beats(Statistics("bounded", [100, 100], [80, 30], squares=squares), 0, 1, delta=0.05)


def test_bets_need_a_range():
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
    from cabai.thresholds.bets import FLAT, KEPT, LEANING, STAKE, table

    rng, study = np.random.default_rng(3), cabai.create_study(
        f"one arm {direction}", arms=["a", "b", "c"], family="bounded(low=-1, high=3)", policy="uniform",
        direction=direction, delta=0.1, costs=[1, 1, 1], storage="memory",
    )  # fmt: skip
    told = {arm: [] for arm in study.arms}
    for _ in range(90):
        pull = study.ask()
        told[pull.arm].append(float(rng.beta(3, 2) * 4 - 1))
        study.tell(pull, told[pull.arm][-1])
    rows = table()[:KEPT]
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


def test_the_bets_on_one_arm_ever_refute_its_mean_as_rarely_as_they_say():
    """20,000 paths of 200 rewards 0 or 1 with mean 0.3, looked at after each: at most a share alpha = 0.1."""
    from cabai.thresholds.bets import FLAT, KEPT, LEANING, STAKE, table

    rows = table()[:KEPT]
    prior = sum(rows[:, each] / rows[:, each].sum() for each in (FLAT, LEANING)) / 2
    rng, c = np.random.default_rng(8), rows[:, STAKE]
    for mean in (0.3, 0.7):  # of the second, these are the bets downwards
        wealth, most = np.ones((20_000, KEPT)), np.zeros(20_000)
        for _ in range(200):
            wealth *= (1 + c * (rng.random(20_000) < mean)[:, None]) / (1 + c * mean)
            most = np.maximum(most, wealth @ prior)
        assert (most >= 10).mean() <= 0.1 + 5 * np.sqrt(0.1 * 0.9 / 20_000)
