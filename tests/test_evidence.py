"""Evidence: its sign, its accuracy against exact arithmetic, and the statistics it is computed from."""

import math
import random
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from mpmath import mp, mpf

import reference
from cabai import InvalidInput, Statistics, evidence
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.families import family_of, mirror_image
from cabai.thresholds import threshold_of
from combinations import covering
from conftest import variance_of

FAMILIES = ["gaussian", "gaussian(variance=0.04)", "bernoulli", "bounded", "poisson", "exponential"]
WHOLE = ("bernoulli", "poisson")  # families whose sums of rewards are whole numbers


def exact_evidence(name, arms, variance=1.0):
    """Z of two arms, of their pulls and means, in 250 digits: L(b) + L(a) - L(both), L the largest log likelihood of
    some data."""
    with mp.workdps(250):
        sums = [(mpf(int(n)), int(n) * mpf(float(mean))) for n, mean in arms]
        sums.append(tuple(map(sum, zip(*sums, strict=True))))
        of_b, of_a, of_both = (reference.log_largest_likelihood(name, *each, mpf(float(variance))) for each in sums)
        return of_b + of_a - of_both


def assert_exact(family, pulls, rewards):
    """The evidence of means, each the nearest float of its quotient, has the sign of their difference, and agrees with
    exact arithmetic but for the rounding of its terms."""
    data = Statistics(family, pulls, rewards)
    found = float(evidence(data).pairwise[0, 1])
    exact = exact_evidence(data.family.name, zip(pulls, data.means, strict=True), variance_of(data.family))
    assert np.sign(found) == np.sign(data.means[0] - data.means[1])
    assert data.means.tolist() == [r / n for r, n in zip(rewards, pulls, strict=True)]
    allowed = 1e-15 if "gaussian" in family else 1e-11
    assert abs(mpf(abs(found)) - exact) <= allowed * exact + 1e-200, (family, pulls, rewards, found, float(exact))


def sum_of(family, n, mean):
    """A sum of n rewards that the family allows and whose mean is about `mean`."""
    name = family_of(family).name
    total = float(round(n * mean)) if name in WHOLE else n * mean
    return min(total, float(n)) if name in ("bernoulli", "bounded") else total


def random_mean(source, family):
    name = family_of(family).name
    if name in ("bernoulli", "bounded"):
        return source.choice([source.random(), 10 ** source.uniform(-9, -1), 1 - 10 ** source.uniform(-9, -1)])
    return source.gauss(0, 3) if name == "gaussian" else 10 ** source.uniform(-3, 3)


def random_data(source, family, arms):
    pulls = [round(10 ** source.uniform(0, 9)) for _ in range(arms)]
    means = [random_mean(source, family) for _ in range(arms)]
    for a in range(1, arms):
        if source.random() < 0.5:  # half of the arms are near the first
            means[a] = means[0] * (1 - 10 ** source.uniform(-8, -1))
    rewards = [sum_of(family, n, mean) for n, mean in zip(pulls, means, strict=True)]
    if family == "exponential":
        rewards = [max(r, 1e-9) for r in rewards]
    return pulls, rewards


def hard_data(family):
    """Near ties of arms whose pulls are powers of two, so that the means are exact and so is what the evidence should
    be, for gaussians also far from 0; sums at the edges of the family; means of different sizes."""
    for pulls, gap in product([(2**30, 2**30), (2**30, 2**31), (2**32, 2**30)], [2**-10, 2**-20, 2**-30]):
        for mean in (0.25, 0.5, 0.75, 1 - 2.0**-8, *([1e3, 1e6, -1e6] if "gaussian" in family else [])):
            yield pulls, [pulls[0] * (mean + gap), pulls[1] * mean]
    if family in ("bernoulli", "bounded", "poisson"):
        for n, other in product([1, 2, 7, 1000, 10**6, 10**9], [1, 3, 10**4, 10**9]):
            sums = product((0, n), {0, 1, other // 2, other - 1, other})
            if family == "poisson":
                sums = product([0], {0, 1, 5, other, 1000 * other})
            yield from (([n, other], rewards) for rewards in sums)
    if family in ("exponential", "poisson", "bounded"):
        for ratio, pulls in product((1e-3, 1e-6, 1e-9, 1e-12, 1e-30), ((1, 1), (1, 10**6), (10**6, 1), (10**9, 10**9))):
            small, large = (1, round(1 / ratio)) if family == "poisson" else (1e-3 * ratio, 1e-3)
            yield pulls, [pulls[0] * large, pulls[1] * small]


@pytest.mark.parametrize("family", FAMILIES)
def test_evidence_is_exact_on_random_data_of_one_to_a_billion_pulls(family):
    source = random.Random(f"exact {family}")
    for data in (*(random_data(source, family, 2) for _ in range(400)), *hard_data(family)):
        assert_exact(family, *data)


@pytest.mark.parametrize("family", FAMILIES)
def test_evidence_has_the_sign_of_the_difference_of_means_and_the_leader_s_least_is_the_overall_one(family):
    """A tie for the best is no evidence, and the lowest index leads."""
    source = random.Random(f"sign {family}")
    for _ in range(100):
        data = Statistics(family, *random_data(source, family, 5))
        found = evidence(data)
        assert np.array_equal(found.pairwise, -found.pairwise.T)
        assert np.array_equal(np.sign(found.pairwise), np.sign(data.means[:, None] - data.means[None, :]))
        assert found.leader == data.leader == int(np.argmax(data.means))
        assert found.overall == min(found.pairwise[found.leader, b] for b in range(5) if b != found.leader) >= 0
    for means, leader in (([2, 2, 1], 0), ([1, 2, 2], 1), ([2, 1, 2], 0), ([2, 2, 2], 0)):
        found = evidence(Statistics(family, [8, 16, 1024], [8 / 4 * means[0], 16 / 4 * means[1], 1024 / 4 * means[2]]))
        assert (found.leader, found.overall) == (leader, 0)


def draw(source, family):
    """A reward from few values, so that ties are common."""
    if family == "bernoulli":
        return source.randint(0, 1)
    if family == "poisson":
        return source.randint(0, 3)
    return source.choice([0.25, 0.5, 1.0])


@pytest.mark.parametrize(("family", "threshold"), covering(FAMILIES, ["paper", "mixture", "evalue"]))
def test_observing_pull_by_pull_keeps_the_state_that_statistics_has_from_the_sums(family, threshold):
    source = random.Random(f"observe {family} {threshold}")
    kind, rule = family_of(family), threshold_of(threshold)
    setup = Setup(kind, rule, arms=3, delta=0.3)
    pull, rules = setup.bound(observe), Record(setup.rules)
    for _ in range(3):
        arms, run = setup.start()
        samples = [[], [], []]
        for t in range(60):
            a = t if t < 3 else source.randrange(3)
            samples[a].append(draw(source, family))
            pull(Records(arms), Record(run), rules, a, samples[a][-1], 2.0)
            if t < 2:
                continue
            data = Statistics.of(kind, samples)
            assert (run["t"], run["last"], run["spent"]) == (t + 1, a, 2.0 * (t + 1))
            expected, run_expected = data.state(setup)
            assert (run["t"], run["leader"]) == (run_expected["t"], run_expected["leader"]) == (t + 1, data.leader)
            for field in ("pulls", "rewards", "first", "mean", "tested", "price"):
                assert np.array_equal(arms[field], expected[field]), field
            known = arms["tested"] > 0
            assert np.array_equal(arms["tested_mean"][known], expected["tested_mean"][known])
            assert setup.stop(Records(arms), Record(run), rules) == rule.stops(data, delta=0.3)


def test_an_arm_out_of_play_is_not_the_leader_again():
    setup = Setup(family_of("gaussian"), threshold_of("paper"), arms=2, delta=0.1)
    arms, run = setup.start()
    for a, reward in enumerate((1.0, 0.0, 100.0)):
        arms["in_play"][1] = a < 2
        setup.bound(observe)(Records(arms), Record(run), Record(setup.rules), min(a, 1), reward, 1.0)
    assert run["leader"] == 0


def test_statistics_of_samples_are_their_numbers_sums_and_first_rewards_and_only_copies_are_handed_out():
    data = Statistics.of("poisson", [[3, 0, 4], [1, 1]])
    for _ in range(2):
        assert data.pulls.tolist() == [3, 2]
        assert data.rewards.tolist() == [7, 2]
        assert data.first.tolist() == [3, 1]
        assert data.means.tolist() == [7 / 3, 1]
        for values in (data.pulls, data.rewards, data.first, data.means):
            values[:] = 99
    assert data.leader == 0
    assert Statistics("gaussian", [1, 1], [1, 0], variance=4).family == family_of("gaussian(variance=4)")
    arms, run = data.state(Setup(data.family, threshold_of("evalue"), arms=2, delta=0.1))
    assert arms["first"].tolist() == [3, 1]
    assert run["t"] == 5


ONE_EACH = "pulls, rewards, first and squares must have the same length, one entry per arm."


def statistics(family="gaussian", pulls=(3, 3), rewards=(3, 3), **options):
    return lambda: Statistics(family, pulls, rewards, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (statistics(pulls=[0, 3]), "pulls[0] must be a whole number of at least 1, got 0."),
        (statistics(pulls=[3, math.inf]), "pulls[1] must be a finite number, got inf."),
        (statistics(pulls="33"), "pulls must be a list of numbers, got '33'."),
        (statistics(pulls=[3], rewards=[3]), "evidence needs at least 2 arms, got 1."),
        (statistics(rewards=[3]), ONE_EACH),
        (statistics(rewards=[3, math.nan]), "rewards[1] must be a finite number, got nan."),
        (statistics("bernoulli", rewards=[2, 0.5]), "rewards[1] must be a whole number for bernoulli, got 0.5."),
        (statistics("bounded", [3, 4], [2, 4.5]), "rewards[1] / pulls[1] must be in [0, 1] for the bounded family, go"),
        (statistics("poisson", [4, 4], [-1, 1]), "rewards[0] / pulls[0] must be 0 or positive for the poisson family"),
        (statistics("bernoulli", first=[1, 0.5]), "first[1] must be 0 or 1 for the bernoulli family, got 0.5."),
        (statistics("poisson", variance=2), "variance belongs to the gaussian family only, got variance=2 for pois"),
        # first rewards that contradict the sums
        (statistics("bounded", [10, 10], [9, 0.5], first=[1, 0.6]), "first[1]"),
        (statistics("gaussian", [1, 10], [3, 1], first=[2, 1]), "first[0]"),
        (lambda: Statistics.of("bounded", [[1], [0, 1.5]]), "samples[1][1] must be in [0, 1] for the bounded family"),
        (lambda: Statistics.of("gaussian", [[], [2]]), "samples[0] must not be empty."),
    ],
)
def test_statistics_refuses(call, message):
    with pytest.raises(InvalidInput) as error:
        call()
    assert str(error.value).startswith(message)


def test_the_evalue_threshold_asks_for_first_rewards_where_it_needs_them():
    rule, pair = threshold_of("evalue"), {"b": 0, "a": 1}
    for family in ("gaussian", "poisson", "exponential"):
        for ask in (partial(rule.required, **pair), partial(rule.beats, **pair), rule.stops):
            with pytest.raises(InvalidInput) as error:
                ask(Statistics(family, [3, 3], [6, 3]), delta=0.1)
            assert str(error.value) == f"this threshold needs each arm's first reward for {family}; give first=[...]."
    for family in ("bernoulli", "bounded"):
        without, given = (Statistics(family, [30, 30], [25, 10], first=first) for first in (None, [1, 0]))
        assert rule.required(without, 0, 1, delta=0.1) == rule.required(given, 0, 1, delta=0.1)
        assert rule.stops(without, delta=0.1)


@pytest.mark.parametrize(
    "family", ["gaussian", "bernoulli", "poisson", "exponential", "mirrored poisson", "mirrored exponential"]
)
def test_the_bounds_without_logarithms_hold_in_exact_arithmetic(family):
    """Also for means that differ in the last digit, next to an edge, or by many orders of magnitude. The upper one is
    close where means are, and 0 where the data prefer the other arm."""
    from cabai.core.evidence import evidence_at_least, evidence_at_most

    source, name = random.Random(f"bounds {family}"), family.removeprefix("mirrored ")
    kind = family_of(name) if name == family else mirror_image(family_of(name))
    rounding = 1 + mpf(1e-14) if family == "gaussian" else 1  # there, the lower bound is Z itself
    close = []
    for _ in range(400):
        high = random_extreme_mean(source, name)
        near = source.choice([high * (1 - 10 ** source.uniform(-15, -1)), high - (1 - high) * source.random() / 2])
        low = source.choice([float(np.nextafter(high, -np.inf)), near, random_extreme_mean(source, name)])
        low, high = sorted((low, high))
        if low == high or (name != "gaussian" and low <= 0.0):
            continue
        pulls = [round(10 ** source.uniform(0, 12)) for _ in range(2)]
        means = (high, low) if name == family else (-low, -high)
        b, a = (SimpleNamespace(tested=n, tested_mean=mean) for n, mean in zip(pulls, means, strict=True))
        plain = (high, low) if name == family else (low, high)
        z, most = exact_evidence(name, zip(pulls, plain, strict=True)), kind.call(evidence_at_most, b, a)
        with mp.workdps(250):
            assert kind.call(evidence_at_least, b, a) <= z * rounding
        assert most >= z
        if high - low < 0.05 * min(low, 1 - high if name == "bernoulli" else high) and name != "gaussian":
            close.append(most / z)
        assert kind.call(evidence_at_most, a, b) == 0.0 or name == "gaussian"
    assert max(close, default=1) < 1.01
    assert len(close) > 60 or name == "gaussian"
    with np.errstate(all="raise"):  # at the edge of the family nothing is divided by 0
        b.tested_mean, a.tested_mean = {"bernoulli": (1.0, 0.0), "poisson": (1.0, 0.0)}.get(family, (0.0, -1.0))
        assert kind.call(evidence_at_most, b, a) == np.inf or name in ("exponential", "gaussian")


def random_extreme_mean(source, family):
    if family == "gaussian":
        return source.gauss(0, 1) * 10 ** source.uniform(-3, 9)
    if family == "bernoulli":
        return source.choice([source.random(), 10 ** source.uniform(-40, -1), 1 - 10 ** source.uniform(-15, -1)])
    return 10 ** source.uniform(-40, 40)
