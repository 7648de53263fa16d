"""The contrast test: its formula, that what it computes is never too large, and that chance crosses it rarely."""

from __future__ import annotations

import math
from functools import cache, partial

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import integrate, stats

import cabai
from cabai import Instance, Statistics, simulate
from cabai.core.compiling import compiled
from cabai.core.setup import Setup
from cabai.core.state import Record
from cabai.core.stopping import beats, is_settled, surplus
from cabai.families import family_of, mirror_image
from cabai.thresholds import Contrast, contrast, tilts
from worst_rule import most_often_crossed

FAMILIES = ["gaussian(variance=0.3)", "bernoulli", "poisson", "exponential"]
ALONE = 1.0, 0, 0.0, 0.0  # for `log_e`: no other sample
CHANCE = 1e-6  # how often a statistical test here may fail by chance
SLOW = pytest.mark.slow


@cache
def setup_of(family, epsilon=0.0, mirrored=False, delta=0.1):
    kind = family_of(family)
    return Setup(mirror_image(kind) if mirrored else kind, Contrast(), arms=2, delta=delta, epsilon=epsilon)


def log_e_of(setup, pulls, means):
    """log E of arm 0 over arm 1, as a study's status computes it."""
    arms = setup.start()[0]
    for arm, n, mean in zip(arms, pulls, means, strict=True):
        arm["pulls"], arm["tested"], arm["mean"], arm["tested_mean"], arm["rewards"] = n, n, mean, mean, n * mean
    b, a = map(Record, arms)
    found = setup.bound(surplus)(Record(setup.rules), 0, b, a) + setup.rules["level"]
    yes = bool(setup.bound(is_settled)(Record(setup.rules), 0, b, a))
    assert not yes or found > setup.rules["level"]
    return float(found)


# --- The formula: every pair of tilts, in 50 digits ------------------------------------------------------------------


def weights(family, m):
    """W_ij for the mean m, as the module says in words."""
    rows = tilts.table(family)
    k = [low <= m < high or m == high == family.mean_range[1] for low, high, _ in family.tilt_ranges].index(True)
    gained = tilts.ranges(family)[1][k, :, tilts.GAINED]
    smaller = np.minimum.outer(np.arange(len(rows)), np.arange(len(rows)))
    return rows[:, tilts.TILT], np.outer(rows[:, tilts.SHARE], rows[:, tilts.SHARE]) * gained[smaller]


def log_factors(family, number, log, exp, signed, n, mean, m):
    """log of the product of L_l(y; m) over n rewards, for each of some tilts, from its definition."""
    found = []
    for tilt in signed:
        l = number(tilt)  # noqa: E741
        if family.name == "gaussian":
            found.append(n * (l * (mean - m) / number(family.variance) ** number(0.5) - l * l / 2))
        elif family.name == "poisson":
            found.append(n * (l * mean - m * (exp(l) - 1)))
        elif family.name == "exponential":
            found.append(n * (mean / m * (1 - exp(-l)) - l))
        else:
            found.append(n * (l * mean - log(1 + m * (exp(l) - 1))))
    return found


def log_e_at(family, pulls, means, m, epsilon, weighed_at=0.0):
    """log E(m): the sum over every pair of tilts, with the weights of m + weighed_at."""
    (n_b, n_a), (mean_b, mean_a) = pulls, map(mpf, means)
    grid, joint = weights(family, m + weighed_at)
    up = log_factors(family, mpf, mp.log, mp.exp, grid, n_b, mean_b, m)
    down = log_factors(family, mpf, mp.log, mp.exp, -grid, n_a, mean_a, m + mpf(epsilon))
    u, v = map(mp.exp, up), [mp.exp(x) for x in down]
    return mp.log(mp.fsum(x * mp.fdot(map(mpf, row), v) for row, x in zip(joint, u, strict=True)))


def least_log_e(family, pulls, means, epsilon, weighed_at=0.0):
    """The least log E(m) over a scan of m and a search around its least; its place is found with doubles of 80 bits,
    its value with 50 digits. Whatever the place, the value is not below the minimum."""
    long, low, high = np.longdouble, *family.mean_range
    grid = tilts.grid().astype(long)
    factors = partial(log_factors, family, long, np.log, np.exp)

    def value(m):
        up = np.array(factors(grid, pulls[0], long(means[0]), long(m)))
        down = np.array(factors(-grid, pulls[1], long(means[1]), long(m) + long(epsilon)))
        joint = weights(family, m + weighed_at)[1].astype(long)
        return np.log(np.exp(up - up.max()) @ joint @ np.exp(down - down.max())) + up.max() + down.max()

    middle = (pulls[0] * means[0] + pulls[1] * (means[1] - epsilon)) / sum(pulls)
    spread = abs(means[0] - means[1]) + epsilon + 1e-9 * (1 + abs(middle))
    left, right = max(middle - 2 * spread, low + 1e-12), min(middle + 2 * spread, high - epsilon - 1e-12)
    for _ in range(12):
        scan = np.linspace(left, right, 9)
        at = int(np.argmin([value(m) for m in scan]))
        left, right = scan[max(at - 1, 0)], scan[min(at + 1, 8)]
    with mp.workdps(50):
        return float(log_e_at(family, pulls, means, mpf(float((left + right) / 2)), epsilon, weighed_at))


def some_pair(rng, family, most, largest=100.0):
    """Two arms near the threshold: Z between 1 and 40, pulls in any ratio, poisson means up to the largest."""
    n_b, n_a = (int(10 ** rng.uniform(0, math.log10(most))) for _ in range(2))
    z = rng.uniform(1, 40)
    m = {"gaussian": rng.normal(0, 3), "bernoulli": rng.uniform(0.01, 0.99)}.get(family.name, 10 ** rng.uniform(-2, 2))
    m = 10 ** rng.uniform(-2, math.log10(largest)) if family.name == "poisson" else m
    V = {"gaussian": 0.3, "bernoulli": m * (1 - m), "poisson": m, "exponential": m * m}[family.name]
    gap = math.sqrt(2 * z * V * (1 / n_b + 1 / n_a))
    b, a = m + gap * n_a / (n_a + n_b), m - gap * n_b / (n_a + n_b)
    if family.name in ("bernoulli", "poisson"):
        b, a = round(b * n_b) / n_b, round(a * n_a) / n_a
    if family.name == "bernoulli":
        b, a = min(b, 1.0), max(a, 0.0)
    if family.name == "poisson":
        a = max(a, 0.0)
    if family.name == "exponential":
        a = max(a, 1e-3 * m)
    return (n_b, n_a), (b, a)


def test_the_weights_are_a_probability():
    for family in FAMILIES:
        for m in (0.5, 1.0, 30.0, 1e3, 1e15) if family == "poisson" else (0.5,):
            _, joint = weights(family_of(family), m)
            assert joint.min() >= 0
            assert joint.sum() == pytest.approx(1, abs=1e-12)
            assert (joint == joint.T).all()


def test_ranges_of_means_leave_none_out_and_know_how_their_weights_differ():
    for kind in (family_of("poisson"), mirror_image(family_of("poisson"))):
        found = kind.tilt_ranges
        assert (found[0][0], found[-1][1]) == kind.mean_range
        assert [high for _, high, _ in found[:-1]] == [low for low, _, _ in found[1:]]
    kind = family_of("poisson")
    joint = [weights(kind, low)[1] for low, _, _ in kind.tilt_ranges]
    for k, own in enumerate(joint):
        least = min(float((other / own).min()) for other in joint)
        assert math.exp(tilts.ranges(kind)[0][k, tilts.LOG_LEAST]) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.05])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_least_e_is_never_above_a_scan_of_all_pairs_of_tilts(family, epsilon, mirrored):
    """200 random states in all, counts to 1e7, in 50 digits: never above, and seldom visibly below."""
    kind, rng = family_of(family), np.random.default_rng(1)
    setup, close, count = setup_of(family, epsilon, mirrored), 0, 13
    for _ in range(count):
        pulls, means = some_pair(rng, kind, 10**7, largest=10**7)
        weighed_at = epsilon if mirrored and not kind.is_symmetric else 0.0  # the m of the arm that is to win
        exact = least_log_e(kind, pulls, means, epsilon, weighed_at)
        if mirrored and kind.is_symmetric:
            pulls, means = pulls[::-1], tuple(kind.mirror(mean) for mean in means[::-1])
        elif mirrored:  # the smallest mean is wanted: the arms change places
            pulls, means = pulls[::-1], tuple(-mean for mean in means[::-1])
        found = log_e_of(setup, pulls, means)
        assert found <= max(exact, 0.0)
        close += found >= exact - 0.05
    assert close >= count - 3  # tilts too small to tell anything are left out


@pytest.mark.parametrize("mirrored", [False, True])
def test_where_two_ranges_of_means_meet_neither_is_forgotten(mirrored):
    """Poisson pairs whose common mean is about an end of a range, few pulls to many: E jumps there, and its least may
    be on either side. Never above 400 means around it and the ends of all ranges."""
    kind, rng, setup, close = family_of("poisson"), np.random.default_rng(11), setup_of("poisson", 0.0, mirrored), 0
    ends = [low for low, _, _ in kind.tilt_ranges[1:]]
    for i in range(40):
        n_b, n_a = (int(10 ** rng.uniform(0, 4)) for _ in range(2))
        m = ends[i % 5] * (1 + rng.normal() / math.sqrt(ends[i % 5] * (n_a + n_b)))
        gap = math.sqrt(2 * rng.uniform(3, 20) * m * (1 / n_b + 1 / n_a))
        b, a = m + gap * n_a / (n_a + n_b), max(m - gap * n_b / (n_a + n_b), 0.0)
        scan = [*np.linspace(m - 6 * gap, m + 6 * gap, 400), *ends, *np.nextafter(ends, 0)]
        exact = min(quick_log_e(kind, (n_b, n_a), (b, a), x) for x in scan if x > 0)
        found = log_e_of(setup, (n_a, n_b), (-a, -b)) if mirrored else log_e_of(setup, (n_b, n_a), (b, a))
        assert found <= max(exact, 0.0) + 1e-9
        close += found >= exact - 0.1
    assert close >= 36


def quick_log_e(family, pulls, means, m):
    """As `log_e_at`, with doubles."""
    grid, joint = weights(family, m)
    up, down = (
        np.array(log_factors(family, float, math.log, math.exp, sign * grid, n, mean, m))
        for sign, n, mean in zip((1, -1), pulls, means, strict=True)
    )
    return math.log(np.exp(up - up.max()) @ joint @ np.exp(down - down.max())) + up.max() + down.max()


def test_dropping_rows_and_rounding_never_add_to_log_e():
    """E(m) itself, at any m, with tilts left out: at most what 50 digits say."""
    rng = np.random.default_rng(2)
    for family in FAMILIES:
        kind, setup = family_of(family), setup_of(family)
        at = setup.bound(contrast.log_e)
        for _ in range(10):
            pulls, means = some_pair(rng, kind, 10**7)
            m = means[1] + rng.uniform(0.2, 0.8) * (means[0] - means[1])
            last, k = int(rng.integers(5, tilts.COUNT)), contrast.range_of(Record(setup.rules), m)
            found, _ = at(Record(setup.rules), last, k, pulls[0], means[0] - m, pulls[1], means[1] - m, m, 0.0, *ALONE)
            with mp.workdps(50):
                exact = log_e_at(kind, pulls, means, mpf(m), 0.0)
            assert found <= float(exact) + 1e-15 * sum(pulls) + 1e-13 * abs(float(exact)) + 1e-12


def test_the_slope_is_that_of_the_value():
    rng = np.random.default_rng(3)
    for family in FAMILIES:
        kind, setup = family_of(family), setup_of(family)
        at, rules = setup.bound(contrast.log_e), Record(setup.rules)
        for _ in range(10):
            pulls, means = some_pair(rng, kind, 10**4)
            m = means[1] + 0.4 * (means[0] - means[1])
            step = 1e-6 * (means[0] - means[1])
            values = [at(rules, 30, 0, pulls[0], means[0] - x, pulls[1], means[1] - x, x, 0.0, *ALONE)[0]
                      for x in (m - step, m + step)]  # fmt: skip
            _, slope = at(rules, 30, 0, pulls[0], means[0] - m, pulls[1], means[1] - m, m, 0.0, *ALONE)
            assert (values[1] - values[0]) / (2 * step) == pytest.approx(slope, rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_quick_look_refuses_is_not_beaten(family):
    """Filters may only say no, and seldom say it where the test itself would say yes."""
    rng, setup = np.random.default_rng(4), setup_of(family)
    rules, refused, beaten = Record(setup.rules), 0, 0
    for _ in range(400):
        pulls, means = some_pair(rng, family_of(family), 10**5)
        if not means[0] > means[1]:
            continue
        arms = setup.start()[0]
        for arm, n, mean in zip(arms, pulls, means, strict=True):
            arm["tested"], arm["tested_mean"] = n, mean
        b, a = map(Record, arms)
        by, yes = setup.bound(surplus)(rules, 0, b, a), setup.bound(beats)(rules, 0, b, a)
        assert not (yes and by <= 0)
        beaten += yes
        refused += by > 1e-6 and not yes
    assert beaten > 100
    assert refused <= 2


# --- The proof, step by step -----------------------------------------------------------------------------------------


def mean_after(family, mu, value):
    """The mean of value(y) for a reward y with mean mu."""
    if family.name == "bernoulli":
        return mu * value(1.0) + (1 - mu) * value(0.0)
    if family.name == "poisson":
        counts = np.arange(0, int(mu * 400) + 3000)
        chances = stats.poisson.pmf(counts, mu)
        return sum(p * value(float(y)) for y, p in zip(counts, chances, strict=True) if p > 0)
    if family.name == "exponential":
        return integrate.quad(lambda p: value(-mu * math.log(p)), 0, 1, limit=2000, epsabs=1e-11, epsrel=1e-9)[0]
    sd = math.sqrt(family.variance)
    nodes, chances = np.polynomial.hermite_e.hermegauss(100)
    return sum(p * value(mu + sd * y) for y, p in zip(nodes, chances, strict=True)) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_weighted_sum_does_not_rise_in_mean_where_the_null_holds(family):
    """One pull ahead of random states, for m between mu_b and mu_a: E(m) is a supermartingale, and a martingale at
    m = mu. Tilts up to 1, so that the means can be integrated."""
    kind, setup = family_of(family), setup_of(family)
    rng, rules = np.random.default_rng(5), setup.rules.copy()
    rules["gains"][:, rules["tilts"][:, tilts.TILT] > 1, tilts.GAIN] = 0
    rules["gains"][..., tilts.GAINED] = np.cumsum(rules["gains"][..., tilts.GAIN], axis=1)
    at = compiled(setup.bound(contrast.log_e))
    for _ in range(12):
        (n_b, n_a), (mean_b, mean_a) = some_pair(rng, kind, 100)
        m = max(0.5 * (mean_b + mean_a), -np.inf if kind.name == "gaussian" else 1e-3)
        less, more = m * 0.9, m * 1.05 if kind.name != "bernoulli" else m + 0.05 * (1 - m)
        if m < 0:
            less, more = more, less

        def log_e(n, total, k, sum_a, m=m):
            weighed = contrast.range_of(Record(rules), m)
            return at(rules, tilts.COUNT - 1, weighed, n, total / n - m, k, sum_a / k - m, m, 0.0, *ALONE)[0]

        def e(*state):  # relative to what it is now, which may be too large a number
            return math.exp(log_e(*state) - before)  # noqa: B023

        total, sum_a = n_b * mean_b, n_a * mean_a
        before, now = log_e(n_b, total, n_a, sum_a), 1.0
        for mu_b in (m, less):
            after = mean_after(kind, mu_b, lambda y: e(n_b + 1, total + y, n_a, sum_a))  # noqa: B023
            assert after <= now * (1 + 1e-7)
            assert mu_b != m or after >= now * (1 - 1e-7)
        for mu_a in (m, more):
            after = mean_after(kind, mu_a, lambda y: e(n_b, total, n_a + 1, sum_a + y))  # noqa: B023
            assert after <= now * (1 + 1e-7)
            assert mu_a != m or after >= now * (1 - 1e-7)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_factor_has_mean_one_at_its_own_mean(family, sign):
    """Also the largest tilts, by their moments in closed form."""
    kind = family_of(family)
    m = 0.37
    for row in tilts.table(kind):
        l = sign * row[tilts.TILT]  # noqa: E741
        columns = (tilts.RATE_UP, tilts.PRICE_UP) if sign > 0 else (tilts.RATE_DOWN, tilts.PRICE_DOWN)
        rate, price = row[list(columns)]

        def log(y, tilt=l, rate=rate, price=price):
            return kind.call(contrast.tilted, tilt, rate, price, 1.0, y - m, m)[0]

        at_zero, per_reward = log(0.0), log(1.0) - log(0.0)
        moment = {  # log of the mean of e^(s y)
            "gaussian": lambda s: s * m + s * s * getattr(kind, "variance", 1) / 2,
            "bernoulli": lambda s: math.log1p(m * math.expm1(s)),
            "poisson": lambda s: m * math.expm1(s),
            "exponential": lambda s: -math.log1p(-s * m),
        }[kind.name]
        assert at_zero + moment(per_reward) == pytest.approx(0, abs=1e-12)


def log_e_table(n_b, n_a):
    """log E for every outcome of bernoulli arms, over R_b and R_a."""
    setup = setup_of("bernoulli")
    arms = np.zeros((n_b + 1, n_a + 1, 2), setup.layout.arm)
    r_b, r_a = np.meshgrid(np.arange(n_b + 1.0), np.arange(n_a + 1.0), indexing="ij")
    for side, n, r in ((0, n_b, r_b), (1, n_a, r_a)):
        arms["tested"][..., side], arms["tested_mean"][..., side] = n, r / n
    found = np.empty((n_b + 1) * (n_a + 1))
    fill(setup)(arms[..., 0].ravel(), arms[..., 1].ravel(), setup.rules, found)
    return found.reshape(n_b + 1, n_a + 1)


def all_log_e(b, a, rules, found):
    for i in range(len(b)):
        found[i] = surplus(rules, 0, b[i], a[i]) + rules.level


@cache
def fill(setup):
    return compiled(setup.bound(all_log_e))


@pytest.fixture(scope="module")
def tables():
    """log E after every outcome of at most 60 pulls."""
    return {(n, t - n): log_e_table(n, t - n) for t in range(2, 61) for n in range(1, t)}


@pytest.mark.parametrize("mu", [0.05, 0.5, 0.9])
def test_no_sampling_rule_makes_e_cross_more_often_than_promised(mu, tables):
    """The rule that maximises the chance of E >= x within 60 pulls of two equal arms, by dynamic programming: all that
    can go wrong with two arms at delta = 1/x."""
    found = {}
    for x in (1.5, 2.0, 5.0, 20.0):
        crossed = {pulls: log_e >= math.log(x) for pulls, log_e in tables.items()}
        found[x] = most_often_crossed(crossed, mu, horizon=60)
        assert found[x] <= 1 / x
    assert found[1.5] > 0.02  # so that it could have failed


# --- Chance: by simulation -------------------------------------------------------------------------------------------


@cabai.policy
def follow(arms, run, rules):
    """Always the leader: the others stay as unlucky as they were."""
    return run.leader


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


TIES = {"gaussian": 0.5, "bernoulli": 0.5, "poisson": 1.5, "exponential": 1.0}
SAMPLERS = {"uniform": "uniform", "co": "co", "top-two": "top-two", "follow": follow, "spoil": spoil, "hunt": hunt}


def assert_errs_rarely(family, sampler, arms, trajectories, max_pulls, epsilon=0.0, mean=None):
    """All arms tied, but for 1e-9 by which the last is better. Wrong decisions have an exact binomial bound."""
    mean, delta = TIES[family] if mean is None else mean, 0.1
    instance = Instance(family, [mean - 1e-9 - epsilon] * (arms - 1) + [mean], np.linspace(1, 0.3, arms))
    runs = simulate(
        instance, SAMPLERS[sampler], delta=delta, threshold="contrast", trajectories=trajectories, seed=6,
        max_pulls=max_pulls, epsilon=epsilon,
    )  # fmt: skip
    errors = int(runs.wrong.sum())
    print(f"{family} {sampler} {arms} arms, epsilon {epsilon}: wrong {errors / trajectories:.5f}")
    assert stats.binom.sf(errors - 1, trajectories, delta) > CHANCE, errors / trajectories
    return errors


@pytest.mark.parametrize(("family", "sampler"), [("gaussian", "co"), ("bernoulli", "spoil")])
def test_tied_arms_are_told_apart_as_rarely_as_promised(family, sampler):
    """5000 trajectories of at most 1000 pulls."""
    errors = assert_errs_rarely(family, sampler, 2, 5000, 1000)
    assert sampler == "spoil" or errors > 0


@pytest.mark.parametrize("mean", [64.0, 3000.0])
def test_tied_poisson_arms_with_large_means_are_told_apart_as_rarely_as_promised(mean):
    """5000 trajectories of at most 500 pulls, also where two ranges of means meet."""
    assert assert_errs_rarely("poisson", "co", 2, 5000, 500, mean=mean) > 0


@SLOW
@pytest.mark.parametrize("mean", [4.0, 64.0, 3000.0, 1024.0**2])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_tied_poisson_arms_with_large_means_are_told_apart_rarely_in_the_long_run(mean, sampler):
    """100 000 trajectories of at most 900 pulls."""
    assert_errs_rarely("poisson", sampler, 3, 100_000, 900, mean=mean)


@SLOW
@pytest.mark.parametrize("arms", [2, 3, 10])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("family", TIES)
def test_tied_arms_are_told_apart_as_rarely_as_promised_in_the_long_run(family, sampler, arms):
    """100 000 trajectories of at most 300 pulls for each arm."""
    assert_errs_rarely(family, sampler, arms, 100_000, 300 * arms)


@SLOW
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("family", TIES)
def test_an_arm_that_is_just_not_within_epsilon_is_taken_as_rarely_as_promised(family, sampler):
    assert_errs_rarely(family, sampler, 3, 20_000, 1000, epsilon=0.1)


# --- Extremes --------------------------------------------------------------------------------------------------------


def extreme_mean(rng, name):
    if name == "gaussian":
        return float(rng.normal() * 10 ** rng.uniform(-12, 12))
    if name == "bernoulli":
        return float(rng.choice([0.0, 1.0, 1e-9, 1 - 1e-9, rng.random()]))
    return (
        float(10 ** rng.uniform(-90, 15))
        if name == "exponential"
        else float(rng.choice([0, 10 ** rng.uniform(-9, 15)]))
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
@pytest.mark.parametrize("name", TIES)
def test_extremes_do_no_harm(name, epsilon, mirrored):
    """Counts to 1e9, means at the edge, variances over 20 orders, pull ratios to 1e9: a number, in both forms, never
    above Z, and no arm beats one that is no worse."""
    rng = np.random.default_rng(8)
    for i in range(60):
        family = f"gaussian(variance={10 ** rng.uniform(-10, 10):.3g})" if name == "gaussian" else name
        setup = setup_of(family, epsilon, mirrored)
        arms = setup.start()[0]
        n, means = 10 ** rng.uniform(0, 9, 2), [extreme_mean(rng, name) for _ in range(2)]
        if i % 2:  # nearly tied
            means[1] = min(means[0] * (1 + 10 ** rng.uniform(-12, 0)), family_of(family).mean_range[1])
        for arm, count, mean in zip(arms, n, means, strict=True):
            seen = mean if not mirrored else 1 - mean if name == "bernoulli" else -mean
            arm["pulls"] = arm["tested"] = int(count)
            arm["mean"] = arm["tested_mean"] = seen
        rules = Record(setup.rules)
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
