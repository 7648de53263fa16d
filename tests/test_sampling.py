"""Random rewards and costs: the right distributions, and streams that know nothing of each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import cabai
from cabai import Instance, Statistics
from cabai.core.compiling import compiled
from cabai.core.state import Record
from cabai.families import FAMILIES, Bounded, family_of
from cabai.families.slots import draw
from cabai.instance import COST_MODELS
from cabai.simulation import truth
from cabai.simulation.truth import DRAWS, TRUTH, draw_cost
from cabai.support.specialise import binding, specialised
from cabai.support.streams import TAIL
from cabai.support.validation import InvalidInput
from studies import new

open_streams = compiled(truth.open_streams)

CHANCE = 1e-6  # how often a statistical test here may fail by chance
SIGMAS = stats.norm.isf(CHANCE / 2)  # 4.9
MANY = 1_000_000


def next_rewards(arm, out):
    for i in range(len(out)):
        out[i] = draw(arm)


def next_costs(arm, out):
    for i in range(len(out)):
        out[i] = draw_cost(arm)


def some_rewards(arm, family, count):
    """The next rewards of an arm, in compiled code, as a simulation would draw them."""
    drawing, out = family_of(family).drawing([float(arm["mean"])]), np.empty(count)
    compiled(specialised(next_rewards, binding([("draw", drawing)])))(arm, out)
    return out


def some_costs(arm, model, count):
    out = np.empty(count)
    compiled(specialised(next_costs, binding([("draw_cost", DRAWS[model])])))(arm, out)
    return out


def draw_reward(arm, family):
    return compiled(family_of(family).drawing([float(arm["mean"])]))(arm)


@compiled
def fill_starts(arms, seed, first, coins, rewards, costs):
    """The starts of the streams of trajectories first, first + 1, ..., as SplitMix64 states."""
    trajectory = first
    for i in range(len(coins)):
        coins[i] = open_streams(arms, seed, trajectory)
        trajectory += np.uint64(1)
        for a in range(len(arms)):
            rewards[i, a] = arms[a].stream
            costs[i, a] = arms[a].cost_stream


def truth_of(family, means, costs=1.0, *, seed=0, trajectory=0):
    """The records of some arms, with their streams open."""
    arms = np.zeros(len(means), TRUTH)
    arms["mean"], arms["cost"] = means, costs
    arms["spread"] = [family_of(family).spread(mean) for mean in means]
    open_streams(arms, np.uint64(seed), np.uint64(trajectory))
    return arms


def rewards(family, mean, count=MANY, **where):
    return some_rewards(truth_of(family, [mean, mean], **where)[0], family, count)


def costs(model, mean, count=MANY):
    return some_costs(truth_of("gaussian", [0.0, 0.0], mean)[0], model, count)


def starts(trajectories, arms, *, seed=0, first=0):
    coins = np.empty(trajectories, np.uint64)
    of_rewards, of_costs = (np.empty((trajectories, arms), np.uint64) for _ in range(2))
    fill_starts(np.zeros(arms, TRUTH), np.uint64(seed), np.uint64(first), coins, of_rewards, of_costs)
    return coins, of_rewards, of_costs


GOLDEN, WORD = 0x9E3779B97F4A7C15, 2**64


def mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def stream(start, count):
    """The first outputs of the SplitMix64 streams that start there: one row a stream."""
    start = np.atleast_1d(np.asarray(start, np.uint64))
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    return mix(start[:, None] + steps[None, :])


def start_that_gives(bits):
    """The state from which a stream's next output is `bits`: SplitMix64's finaliser, turned back."""

    def unshift(y, shift):
        x = y
        for _ in range(64 // shift):
            x = y ^ (x >> shift)
        return x

    z = unshift(bits, 31) * pow(0x94D049BB133111EB, -1, WORD) % WORD
    z = unshift(z, 27) * pow(0xBF58476D1CE4E5B9, -1, WORD) % WORD
    return np.uint64((unshift(z, 30) - GOLDEN) % WORD)


def units(bits):
    return (bits >> np.uint64(11)) * 2.0**-53


def assert_follows(sample, law, least=20):
    """Mean and variance within SIGMAS standard errors, those of the law itself; the range; the whole curve
    (Kolmogorov-Smirnov); and a chi-square over equally likely bins, and over ever rarer ones towards both ends, until
    `least` are expected. Bins have a single value where values are whole."""
    mean, variance, kurtosis = (float(x) for x in law.stats("mvk"))
    n, (low, high) = len(sample), law.support()
    assert low - 1e-15 * abs(mean) <= sample.min() <= sample.max() <= high
    assert abs(sample.mean() - mean) <= SIGMAS * math.sqrt(variance / n)
    # The variance of (x - mean)² is variance² (kurtosis + 2).
    assert abs(np.mean((sample - mean) ** 2) - variance) <= SIGMAS * variance * math.sqrt((kurtosis + 2) / n)
    if isinstance(law.dist, stats.rv_continuous):
        assert stats.kstest(sample, law.cdf).pvalue > CHANCE
    else:
        assert (sample == np.floor(sample)).all()
    tail = least / n * 2.0 ** np.arange(math.log2(n / least / 1000))
    edges = np.unique([*law.ppf(tail), *law.ppf(np.arange(1, 1000) / 1000), *law.isf(tail)])
    edges = edges[n * np.minimum(law.cdf(edges), law.sf(edges)) >= 0.999 * least]
    expected = n * np.diff(law.cdf(edges), prepend=0, append=1)
    observed = np.bincount(np.searchsorted(edges, sample), minlength=len(expected))
    assert stats.chisquare(observed, expected).pvalue > CHANCE


#: Poisson counts are drawn by inversion below a mean of 10, by transformed rejection from there on.
REWARDS = {
    f"{family}-{mean}": (family, mean, law)
    for family, of_mean, means in (
        ("gaussian", stats.norm, [0.0]),
        ("gaussian(variance=0.04)", lambda m: stats.norm(m, 0.2), [-3.0]),
        ("gaussian(variance=100)", lambda m: stats.norm(m, 10), [1e6]),
        ("bernoulli", stats.bernoulli, [0.001, 0.3, 0.5, 0.9]),
        ("poisson", stats.poisson, [0.001, 1.5, 9.99, 10.0, 1e7]),
        ("exponential", lambda m: stats.expon(scale=m), [1e-3, 1.0, 1e6]),
        ("bounded", lambda m: stats.uniform(m - min(m, 1 - m), 2 * min(m, 1 - m)), [0.01, 0.5, 0.75]),
    )
    for mean, law in zip(means, map(of_mean, means), strict=True)
}


@pytest.mark.parametrize("law", REWARDS)
def test_rewards_follow_their_law(law):
    """A million draws, and four of poisson counts."""
    family, mean, law = REWARDS[law]
    sample = rewards(family, mean, count=MANY * (4 if family == "poisson" else 1))
    assert_follows(sample, law, least=1000 if mean == 1e7 else 20)
    assert family != "exponential" or sample.min() > 0
    assert family != "bounded" or len(np.unique(sample)) > 0.99 * MANY


def test_normal_tails_are_normal_beyond_the_ziggurats_last_layer():
    """60 million draws, of which about 15 500 lie beyond the last layer's edge, where a different rule draws."""
    near, edges = 3.4, np.linspace(3.4, 3.9, 51)
    count = 60 * MANY
    sample = [rewards("gaussian", 0.0, trajectory=i) for i in range(60)]
    sample = np.concatenate([x[np.abs(x) > near] for x in sample])
    beyond = np.abs(sample)[np.abs(sample) > TAIL]
    assert stats.binomtest(len(beyond), count, 2 * stats.norm.sf(TAIL)).pvalue > CHANCE
    assert stats.binomtest(int((sample > TAIL).sum()), len(beyond), 0.5).pvalue > CHANCE
    law = stats.truncnorm(TAIL, np.inf)
    assert stats.kstest(beyond, law.cdf).pvalue > CHANCE
    assert abs(beyond.mean() - law.mean()) <= SIGMAS * law.std() / math.sqrt(len(beyond))
    # around the edge, in bins far narrower than a layer
    counts, _ = np.histogram(np.abs(sample), edges)
    expected = np.diff(-stats.norm.sf(edges)) * 2 * count
    assert stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts)) > CHANCE


COSTS = {"uniform": stats.uniform(0.5, 1), "beta": stats.beta(2, 2, 0.5, 1), "exponential": stats.expon(0.1, 0.9)}


@pytest.mark.parametrize("model", COSTS)
def test_random_costs_follow_their_law(model):
    assert COSTS[model].mean() == pytest.approx(1)
    assert_follows(costs(model, 250.0) / 250, COSTS[model])


def test_two_point_and_fixed_costs_follow_their_law():
    sample = costs("two-point", 4.0)
    assert set(np.unique(sample)) == {2.0, 6.0}
    assert stats.binomtest(int((sample == 6).sum()), len(sample), 0.5).pvalue > CHANCE
    assert (costs("fixed", 0.3, count=1000) == 0.3).all()


LOWEST, HIGHEST = 0, WORD - 1  # every bit 0, every bit 1: the uniform number is 0, or 1 - 2^-53


def next_reward(family, mean, bits):
    arms = truth_of(family, [mean, mean])
    arms["stream"] = start_that_gives(bits)
    return draw_reward(arms[0], family)


@pytest.mark.parametrize("bits", [LOWEST, HIGHEST])
def test_extreme_uniform_numbers_give_rewards_the_family_allows(bits):
    for family, mean in (("bernoulli", 0.0), ("bernoulli", 1.0), ("poisson", 0.0), ("bounded", 0.0), ("bounded", 1.0)):
        assert next_reward(family, mean, bits) == mean  # certain
    for mean in (1e-300, 0.3, 0.5, 0.9, 1.0):
        assert 0 <= next_reward("bounded", mean, bits) <= 1
    for mean in (1e-300, 1.0, 1e300):
        assert 0 < next_reward("exponential", mean, bits) < math.inf
    for mean in (0.0, 1e-9, 0.3, 5.0, 9.99):
        count = next_reward("poisson", mean, bits)
        assert stats.poisson.sf(count - 1, mean) >= 2.0**-54
        assert count == int(count)
    for mean in (10.0, 50.0, 1e6):
        assert abs(next_reward("poisson", mean, bits) - mean) < 20 * math.sqrt(mean)
    assert abs(next_reward("gaussian", 0.0, bits)) < 10


def test_the_tail_of_the_normal_is_finite_for_extreme_uniform_numbers():
    """Layer 0 with the largest uniform number leads into the tail."""
    bits = ((2**53 - 1) << 11) | (1 << 8)
    assert -9 < next_reward("gaussian", 0.0, bits) < -TAIL
    assert TAIL < next_reward("gaussian", 0.0, bits ^ (1 << 8)) < 9


def test_rewards_come_from_the_splitmix64_stream_of_their_arm():
    arms = truth_of("bounded", [0.5, 0.5, 0.5], seed=11, trajectory=5)
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert stream(1234567, 4)[0].tolist() == published  # in the reference implementation by Vigna
    _, of_rewards, of_costs = starts(1, 3, seed=11, first=5)
    assert np.array_equal(of_rewards[0], arms["stream"])
    assert np.array_equal(of_costs[0], arms["cost_stream"])
    for a in range(3):
        assert np.array_equal(some_rewards(arms[a], "bounded", 1000), units(stream(of_rewards[0, a], 1000)[0]))
        assert np.array_equal(some_costs(arms[a], "uniform", 1000), 0.5 + units(stream(of_costs[0, a], 1000)[0]))


def assert_fair_bits(words):
    """Each of the 64 bits is 1 half of the time, and so are all together."""
    n = len(words)
    ones = np.array([int(((words >> np.uint64(k)) & np.uint64(1)).sum()) for k in range(64)])
    chi = ((ones - n / 2) ** 2 / (n / 4)).sum()
    assert stats.chi2.sf(chi, 64) > CHANCE
    assert abs(ones.sum() - 32 * n) <= SIGMAS * math.sqrt(16 * n)


def assert_unrelated(words, others):
    """The bits in which two series differ are fair: no bit of one follows the same bit of the other. And so are the
    correlation of their uniform numbers, and the counts of their pairs in 16 x 16 cells (chi-square)."""
    assert_fair_bits(words ^ others)
    u, v, n = units(words), units(others), len(words)
    assert abs(12 * np.mean((u - 0.5) * (v - 0.5))) <= SIGMAS / math.sqrt(n)
    cells = np.bincount((u * 16).astype(int) * 16 + (v * 16).astype(int), minlength=256)
    assert stats.chisquare(cells).pvalue > CHANCE


LENGTH = 1_000_000
NEIGHBOURS = {
    "the next arm": lambda c, r, k, later: (r[0, 0], r[0, 1]),
    "the arm's costs": lambda c, r, k, later: (r[0, 0], k[0, 0]),
    "the costs of the arm before": lambda c, r, k, later: (r[0, 1], k[0, 0]),
    "the next trajectory": lambda c, r, k, later: (r[0, 0], r[1, 0]),
    "a trajectory far off": lambda c, r, k, later: (r[0, 0], r[2**12, 0]),
    "the next seed": lambda c, r, k, later: (r[0, 0], later[0, 0]),
    "the policy's coins": lambda c, r, k, later: (r[0, 0], c[0]),
}


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_the_rewards_of_an_arm_are_independent_of(neighbour):
    """1 000 000 numbers of each of the two streams, also when one is a step or two ahead."""
    later = starts(2, 50, seed=12346)[1]
    mine, other = (stream(s, LENGTH)[0] for s in NEIGHBOURS[neighbour](*starts(2**12 + 1, 50, seed=12345), later))
    for lag in (0, 1, 2):
        assert_unrelated(mine[: LENGTH - lag], other[lag:])


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_first_numbers_of_many_trajectories_are_independent(which):
    """Across 500 000 trajectories, as the trajectories of one simulation see them."""
    coins, of_rewards, of_costs = starts(MANY // 2, 2, seed=7)
    words = stream((coins, of_rewards[:, 0], of_costs[:, 1])[which], 2)
    for series in words.T:
        assert_fair_bits(series)
        assert stats.kstest(units(series), "uniform").pvalue > CHANCE
        for lag in (1, 2, 100):
            assert_unrelated(series[:-lag], series[lag:])
    assert_unrelated(*words.T)


INSTANCES = {
    "gaussian": [1.5, 1.3, 1.2], "bernoulli": [0.6, 0.5, 0.4], "poisson": [12.0, 9.0, 8.0],
    "exponential": [1.0, 0.9, 0.8], "bounded": [0.6, 0.5, 0.4],
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES.names)
def test_rewards_depend_neither_on_the_number_of_arms_nor_on_the_costs_drawn_in_between(family):
    means, models = INSTANCES[family], list(COST_MODELS)
    few, many = truth_of(family, means[:2], seed=3, trajectory=9), truth_of(family, means * 20, seed=3, trajectory=9)
    for a in range(2):
        plain = [draw_reward(few[a], family) for _ in range(200)]
        between = []
        for i in range(200):
            compiled(DRAWS[models[i % len(models)]])(many[a])
            compiled(DRAWS["beta"])(many[a + 1])
            between.append(draw_reward(many[a], family))
            draw_reward(many[a + 2], family)
        assert plain == between


# --- The laws that bounded rewards are drawn from, and the range that they lie in


SAMPLES = [[0.1, 0.4, 0.7], [0.5, 0.2], [0.9] * 70]


def instances():
    for law, sd in [
        ("uniform", None), ("uniform", 0.05), ("two-point", None), ("two-point", 0.2), ("beta", 0.05), ("beta", 0.4),
        ("beta", [0.02, 0.3]),
    ]:  # fmt: skip
        yield Instance("bounded", [0.3, 0.55], [1, 1], law=law, sd=sd)
    yield Instance("bounded(low=-2, high=4)", [1, 3], [1, 1], law="beta", sd=0.5)
    yield Instance.of_samples("bounded", SAMPLES, [1, 1, 1])


@pytest.mark.parametrize("instance", list(instances()), ids=str)
def test_what_is_drawn_has_the_mean_and_the_spread_asked_for(instance):
    """As in plain Python; and 20 000 draws of each arm: a mean is off by 5 standard errors once in a million."""
    count = 20_000
    arms = truth.truth_of(instance)
    open_streams(arms, np.uint64(1), np.uint64(2))
    draw, plain = compiled(instance.drawing), arms.copy()
    for a in range(len(instance)):
        with np.errstate(over="ignore"):
            expected = [instance.drawing(Record(plain[a])) for _ in range(500)]
        assert [draw(arms[a]) for _ in range(500)] == pytest.approx(expected, rel=1e-12)
        drawn = np.array([instance.family.unscaled(draw(arms[a])) for _ in range(count)])
        low, high = instance.family.mean_range
        assert low <= drawn.min() <= drawn.max() <= high
        if instance.samples is not None:
            assert set(drawn) == set(instance.samples[a])
            sd = float(np.std(instance.samples[a]))
        else:
            sd = float(instance.sd[a])
        assert drawn.mean() == pytest.approx(instance.means[a], abs=5.1 * sd / count**0.5 + 1e-12)
        fourth = ((drawn - drawn.mean()) ** 4).mean()
        error = np.sqrt(max(fourth - drawn.var() ** 2, 0) / count)
        assert drawn.var() == pytest.approx(sd * sd, abs=6 * error + 1e-12 + 2 * sd * sd / count)


def test_a_study_shows_a_range_in_the_units_of_its_rewards():
    usual = {"arms": ["a", "b"], "family": "bounded(low=10, high=20)", "costs": [1, 1]}
    for direction, best in (("maximize", "a"), ("minimize", "b")):
        status = new(**usual, epsilon=0.5, direction=direction).run(lambda arm: 18 if arm == "a" else 13)
        assert status.decision == best
        assert [arm.mean for arm in status.arms] == pytest.approx([18, 13])
        assert all(10 <= arm.low <= arm.mean <= arm.high <= 20 for arm in status.arms)
        assert status.family == "bounded(low=10, high=20)"
    study = new(**usual)
    with pytest.raises(InvalidInput, match=r"reward must be in \[10, 20\] for the bounded family, got 21"):
        study.tell(study.ask(), reward=21)


def bounded(**options):
    return lambda: Instance(**{"family": "bounded", "means": [0.3, 0.55], "costs": [1, 1]} | options)


def test_a_range_changes_the_units_only():
    family = Bounded(low=-1, high=3)
    assert str(family) == "bounded(low=-1, high=3)"
    assert str(Bounded()) == "bounded"
    assert family.interval(1, 0.1) == pytest.approx([4 * end - 1 for end in Bounded().interval(0.5, 0.1)])
    assert family.divergence(1, 2) == Bounded().divergence(0.5, 0.75)
    wide, plain = Statistics(family, [10, 10], [20, 0]), Statistics("bounded", [10, 10], [7.5, 2.5])
    assert cabai.evidence(wide).overall == pytest.approx(cabai.evidence(plain).overall)
    assert cabai.thresholds.EValue().required(wide, 0, 1, delta=0.1) == pytest.approx(
        cabai.thresholds.EValue().required(plain, 0, 1, delta=0.1)
    )


@pytest.mark.parametrize(("call", "match"), [
    (bounded(law="gamma"), "unknown law 'gamma'; known: uniform, two-point, beta"),
    (bounded(sd=0.1), "unknown law None"),
    (bounded(law="uniform", sd=0.4), r"sd\[0\] must be from 0 to 0.173"),
    (bounded(law="beta", sd=0), "needs a positive one"),
    (bounded(law="beta", sd=[0.1, 0.1, 0.1]), "one for each of 2 arms, got 3"),
    (bounded(law="beta", family="bernoulli"), "law and sd are only for bounded rewards"),
    (lambda: Instance.of_samples("bounded", [[0.5], [1.5]], [1, 1]), r"samples\[1\]\[0\] must be in \[0, 1\]"),
    (lambda: Instance.of_samples("gaussian", [[0.5], [1.5]], [1, 1]), "samples are only for bounded rewards"),
    (lambda: Bounded(low=-1, high=3).check_epsilon(4), r"epsilon must be in \[0, 4\)"),
    (bounded(family="bounded(low=-1, high=3)", means=[3.5, 1]), r"means\[0\] must be in \[-1, 3\]"),
    *((lambda each=each: Bounded(*each), r"low|high") for each in ((1, 1), (2, 1), (math.nan, 1), (1e9, 1e9 + 1e-6))),
])  # fmt: skip
def test_what_a_law_samples_and_a_range_refuse(call, match):
    with pytest.raises(InvalidInput, match=match):
        call()


def test_other_samples_are_another_instance():
    one, other = (Instance.of_samples("bounded", [[0.5, x], [0.5]], [1, 1]) for x in (0.1, 0.2))
    assert one != other
