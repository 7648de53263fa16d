"""The families: divergences and interval ends against high precision, what an instance refuses, and mirror images."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from mpmath import inf, mp, mpf

import cabai
from cabai import Instance, InvalidInput
from cabai.core.evidence import evidence
from cabai.core.observe import weigh
from cabai.core.setup import Setup
from cabai.core.shares import solve
from cabai.core.state import Record
from cabai.families import FAMILIES, Gaussian, Poisson, family_of, mirror_image, slots
from cabai.families.base import lower_end, upper_end
from cabai.thresholds import threshold_of
from conftest import drawer, variance_of
from reference_bound import divergence, reference
from studies import new

NAMES = ["gaussian", "gaussian(variance=0.01)", "bernoulli", "bounded", "poisson", "exponential"]

# q on the boundary, near it and inside; p is q times 1 + r, or has 1 - p that multiple of 1 - q.
CENTRES = [0.0, 1e-12, 1e-6, 1e-3, 0.03, 0.1, 0.3, 0.5, 0.7, 0.97, 0.999, 1 - 1e-6, 1 - 1e-12, 1.0, 1.5, 10.0, 1e3, 1e6]
RATIOS = [sign * digits * 10.0**k for k in range(-15, 4) for digits in (1, 2.9, 3.1, 7) for sign in (1, -1)]
LEVELS = [1e-12, 1e-9, 1e-6, 1e-3, 0.1, 1, 3, 10, 30, 100, 300, 700]


def pairs(family):
    for q in CENTRES:
        for p in [*CENTRES, *(q * (1 + r) for r in RATIOS), *(1 - (1 - q) * (1 + r) for r in RATIOS)]:
            if family.allows_mean(p) and family.allows_mean(q):
                yield p, q


@pytest.mark.parametrize("name", NAMES)
def test_divergence_is_accurate_to_1e_12(name):
    family = family_of(name)
    wrong = []
    with mp.workdps(60):
        for p, q in pairs(family):
            exact, found = divergence(family.name, mpf(p), mpf(q), variance_of(family)), family.divergence(p, q)
            if exact in (0, inf):
                agrees = found == exact
            else:
                agrees = abs(mpf(found) / exact - 1) <= 1e-12
            if not agrees:
                wrong.append((p, q, found, float(exact)))
    assert wrong == []


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "bounded", "poisson", "exponential"])
@pytest.mark.parametrize("kind", [family_of, lambda name: mirror_image(family_of(name))], ids=["plain", "mirrored"])
def test_the_slope_of_the_variance_is_its_derivative(name, kind):
    """The solver of the optimal shares steps by it: a wrong one costs steps, and changes no result."""
    family, h = kind(name), 2.0**-20
    for q in (0.125, 0.25, 0.75):
        mean = -q if kind is not family_of else q
        above, below = (family.call(slots.variance_at, x, 1 - x) for x in (mean + h, mean - h))
        assert family.call(slots.variance_slope, mean) == pytest.approx((above - below) / (2 * h), abs=1e-9)


def brackets(family, mean, level, end, outward):
    """Is the divergence at most the level short of the end and at least the level past it, by 1e-14 of the end?"""
    largest = mpf(2) ** 1024
    mean, end = mpf(mean), min(mpf(end), largest)
    scale = abs(end) + (abs(mean) if family.name == "gaussian" else 0)  # a gaussian's end may cancel the mean
    margin = scale * mpf(10) ** -14 + mpf(2) ** -1073  # the last is the smallest double
    short, past = end - outward * margin, end + outward * margin
    low, high = {"gaussian": (-inf, inf), "bernoulli": (0, 1), "bounded": (0, 1)}.get(family.name, (0, largest))

    def at(q):
        return divergence(family.name, mean, q, variance_of(family))

    return (outward * (short - mean) <= 0 or at(short) <= level * (1 + 1e-13)) and (
        not low < past < high or at(past) >= level * (1 - 1e-13)
    )


@pytest.mark.parametrize("name", NAMES)
def test_interval_ends_are_where_the_divergence_is_the_level(name):
    family = family_of(name)
    wrong = []
    with mp.workdps(400):
        for mean, level in itertools.product(filter(family.allows_mean, CENTRES), LEVELS):
            for end, outward in zip(family.interval(mean, level), (-1, 1), strict=True):
                if not brackets(family, mean, level, end, outward):
                    wrong.append((mean, level, "lower" if outward < 0 else "upper", end))
    assert wrong == []


def instance(family="gaussian", means=(1, 0), costs=(1, 1), **options):
    return lambda: Instance(family, means, costs, **options)


def reward(family, value):
    return lambda: family_of(family).check_reward(value)


WIDER = "For another range: family='bounded(low=1, high"
COSTS = "known: fixed, uniform, two-point, beta, exponential."


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Poisson().interval(1, -1e-9), "level must not be negative, got -1e-09"),
        (lambda: family_of("exponential").divergence(1, 0), "q must be positive for the exponential family, got 0."),
        (lambda: family_of("gaussian").divergence(math.nan, 0), "p must be a finite number, got nan."),
        (instance("bernoulli", [1.1, 0.5]), "means[0] must be in [0, 1] for the bernoulli family, got 1.1."),
        (instance("poisson", [-0.5, 1]), "means[0] must be 0 or positive for the poisson family, got -0.5."),
        (instance("exponential", [0, 1]), "means[0] must be positive for the exponential family, got 0.0."),
        (instance(means=[1], costs=[1]), "an instance needs at least 2 arms, got 1."),
        (instance(means=[1, 0, 2]), "means and costs must have the same length, got 3 means and 2 costs."),
        (instance(means=[1, 10**400]), "means[1] must be a number, got 1000"),
        (instance(means=np.eye(2)), "means must be a flat list of numbers, got an array of shape (2, 2)."),
        (instance(means="10"), "means must be a list of numbers, got '10'."),
        (instance(costs={1: 1, 2: 1}), "costs must be a list of numbers, got {1: 1, 2: 1}."),
        (instance(costs=[1, 0]), "costs[1] must be positive, got 0.0."),
        (instance("Bernouli"), "unknown family 'Bernouli'; did you mean bernoulli? known: gaussian, bernoulli, poiss"),
        (instance("gausian(variance=2)"), "unknown family 'gausian(variance=2)'; did you mean gaussian?"),
        (instance(int), "family must be a name or a family, got <class"),
        (instance("bernoulli(variance=2)"), "family bernoulli cannot take 'variance=2'; its parameters: none."),
        (instance("gaussian(variance=wide)"), "variance must be a number, got 'wide'."),
        (lambda: Gaussian(variance="2"), "variance must be a finite number, got '2'."),
        (instance("poisson", variance=2), "variance belongs to the gaussian family only, got variance=2 for poisson."),
        (instance(names=["a", "b", "c"]), "names must be 2 non-empty strings, one per arm, got ['a', 'b', 'c']."),
        (instance(names="ab"), "names must be 2 non-empty strings, one per arm, got 'ab'."),
        (instance(names=["a", "a"]), "names must differ from each other, got ['a', 'a']."),
        (instance(cost_model="fix"), f"unknown cost model 'fix'; {COSTS}"),
        (reward("bernoulli", 0.5), "reward must be 0 or 1 for the bernoulli family, got 0.5."),
        (reward("poisson", 1.5), "reward must be a whole number, 0 or more, for the poisson family, got 1.5."),
        (reward("exponential", 0), "reward must be positive for the exponential family, got 0."),
        (reward("bounded", 1.2), f"reward must be in [0, 1] for the bounded family, got 1.2. {WIDER}"),
        (reward("gaussian", math.inf), "reward must be a finite number, got inf."),
        (reward("gaussian", None), "reward must be a number, got None."),
    ],
)
def test_what_makes_no_instance_is_refused(call, message):
    with pytest.raises(InvalidInput) as error:
        call()
    assert str(error.value).startswith(message)


def test_rewards_of_a_family_are_numbers():
    checked = [family_of("poisson").check_reward(each) for each in (0, 2**53, np.int64(3), True)]
    assert (checked, {type(each) for each in checked}) == ([0, 2**53, 3, 1], {float})


def test_the_ways_to_name_a_family_and_to_give_means_agree():
    for text in (*FAMILIES.names, "gaussian(variance=0.25)", "gaussian(variance=0.123456789012)"):
        assert str(family_of(text)) == text
        assert family_of(str(family_of(text))) == family_of(text)
    assert family_of(Gaussian) == Gaussian()
    assert Instance(Poisson, [1, 0], [1, 1]) == Instance("poisson", [1, 0], [1, 1])
    ways = [family_of("gaussian(variance=4)"), family_of("gaussian", 4), family_of(Gaussian(variance=9), 4.0)]
    assert set(ways) == {Gaussian(variance=4)}
    assert Instance("gaussian", [1, 0], [1, 1], variance=4) == Instance("Gaussian( variance = 4 )", [1, 0], [1, 1])
    means = np.array([1.0, 0.0])
    instance = Instance("gaussian", means, (1, 2))
    means[0] = 5
    assert instance == Instance("gaussian", [1, 0], range(1, 3))
    with pytest.raises(ValueError, match="read-only"):
        instance.means[0] = 3


# --- Looking for the smallest mean: rewards are mirrored, and all else is as it was


INSTANCES = {
    "gaussian": (cabai.Instance("gaussian", [1.5, 0.5, 0.4], [1, 0.1, 0.3], cost_model="uniform"), lambda x: -x),
    "bernoulli": (cabai.Instance("bernoulli", [0.9, 0.5, 0.2], [1, 0.1, 0.3], cost_model="uniform"), lambda x: 1 - x),
    "bounded": (cabai.Instance("bounded", [0.8, 0.5, 0.3], [1, 0.1, 0.3], cost_model="uniform"), lambda x: 1 - x),
}


@pytest.mark.parametrize("policy", ["co", "ctas", "d-lucb"])
@pytest.mark.parametrize("family", INSTANCES)
def test_minimising_is_maximising_the_mirrored_rewards(family, policy):
    instance, mirror = INSTANCES[family]
    epsilon = 0.05 if policy == "ctas" else 0.0
    small, large = (
        new(family=family, policy=policy, epsilon=epsilon, max_pulls=80, delta=0.1, direction=direction)
        for direction in ("minimize", "maximize")
    )
    draw = drawer(instance, 4, 0)
    while not small.stopped:
        one, two = small.ask(), large.ask()
        assert one.arm == two.arm
        reward, cost = draw("abc".index(one.arm))
        small.tell(one, reward, cost)
        large.tell(two, mirror(reward), cost)
    one, two = small.status(), large.status()
    assert one.stopped == two.stopped
    assert (one.decision, one.reason, one.leader, one.rival) == (two.decision, two.reason, two.leader, two.rival)
    for name in ("evidence", "required", "confidence", "progress", "spent"):
        expected = getattr(two, name)
        assert getattr(one, name) == (None if expected is None else pytest.approx(expected, rel=1e-12)), name
    for x, y in zip(one.arms, two.arms, strict=True):
        assert (x.mean, x.low, x.high) == pytest.approx((mirror(y.mean), mirror(y.high), mirror(y.low)), abs=1e-12)
        assert x.mean == pytest.approx(np.mean([o["reward"] for o in small.observations() if o["arm"] == x.name]))
    assert one.leader == min(one.arms, key=lambda arm: arm.mean).name


def test_small_rewards_win_where_they_are_wanted():
    """In plain words: waiting times of 1, 2 and 3 seconds; the shortest is found, and costs are still paid."""
    instance = cabai.Instance("exponential", [3, 1, 2], [1, 1, 1])
    study, draw = new(family="exponential", delta=0.1, direction="minimize"), drawer(instance, 0, 0)
    study.run(lambda arm: draw("abc".index(arm)))
    assert study.decision == "b"
    assert "b has the smallest mean" in study.status().sentence


@pytest.mark.parametrize("name", ["poisson", "exponential"])
def test_divergence_variance_and_ends_are_the_familys_with_signs_flipped(name):
    base = family_of(name)
    assert mirror_image(Gaussian(variance=2)) == Gaussian(variance=2)  # its own mirror
    mirrored, rng = mirror_image(base), np.random.default_rng([2, 3][name == "exponential"])
    zero = [0.0] if name == "poisson" else []
    values = [*zero, *10 ** rng.uniform(-6, 6, 12), 1.0, 1.0 + 1e-9]
    for p, q in itertools.product(values, values):
        plain = float(base.call(slots.divergence, p, p - q, q, 1 - q))
        assert float(mirrored.call(slots.divergence, -p, q - p, -q, 1 + q)) == plain
        assert mirrored.call(slots.variance_at, -q, 1 + q) == base.call(slots.variance_at, q, 1 - q)
        assert mirrored.call(slots.variance_slope, -q) == -base.call(slots.variance_slope, q)
    for p, level in itertools.product(values, [0.0, 1e-9, 0.01, 1.0, 30.0]):
        assert mirrored.call(upper_end, -p, level) == -base.call(lower_end, p, level)
        assert mirrored.call(lower_end, -p, level) == -base.call(upper_end, p, level)
    assert base.call(slots.edges) == (0, math.inf)
    assert mirrored.call(slots.edges) == (-math.inf, 0)
    assert all(mirrored.allows_mean(-value) for value in values)
    assert not mirrored.allows_mean(1.0)


@pytest.mark.parametrize("name", ["poisson", "exponential"])
@pytest.mark.parametrize("threshold", ["evalue", "paper", "mixture"])
def test_prices_and_evidence_are_the_familys_with_the_arms_swapped(name, threshold):
    """For the smallest mean, b over a counts what a over b counts for the largest."""
    rng = np.random.default_rng(1)
    base, rule = family_of(name), threshold_of(threshold)
    plain, flipped = (Setup(family, rule, arms=3, delta=0.1) for family in (base, mirror_image(base)))
    assert plain.rules == flipped.rules
    preferred = 0
    for _ in range(100):
        pair = []
        for _ in range(2):
            n, mean = int(rng.integers(1, 200)), 10 ** rng.uniform(-2, 1.5)
            rewards = rng.poisson(mean, n).astype(float) if name == "poisson" else rng.exponential(mean, n)
            both = []
            for sign, setup in ((1, plain), (-1, flipped)):
                arm = Record(setup.start()[0][0])
                arm.pulls, arm.rewards, arm.first = n, sign * rewards.sum(), sign * rewards[0]
                arm.mean = arm.rewards / n
                setup.bound(weigh)(arm, Record(setup.rules))
                both.append(arm)
            assert both[0].price == both[1].price
            assert both[0].tested == both[1].tested
            pair.append(both)
        (b, mirrored_b), (a, mirrored_a) = pair
        z = plain.bound(evidence)(Record(plain.rules), a, b)
        assert flipped.bound(evidence)(Record(flipped.rules), mirrored_b, mirrored_a) == z
        preferred += z > 0
    assert 25 < preferred < 75


def test_shares_for_the_smallest_mean_solve_the_lower_bound():
    rng = np.random.default_rng(5)
    for family, means in (
        ("poisson", [1.0, 1.5, 4.0]),
        ("poisson", [2.0, 0.0, 0.3]),
        ("poisson", [8.0, 5.0, 7.0, 30.0]),
        ("exponential", [0.3, 0.2, 5.0, 0.5]),
    ):
        costs = (10 ** rng.uniform(-1.5, 0, len(means))).tolist()
        best = int(np.argmin(means))
        hardness, shares = solve(mirror_image(family_of(family)), -np.array(means), np.array(costs), best)
        expected, cost_shares, _ = reference(family, means, costs, smallest=True)
        assert hardness == pytest.approx(float(expected), rel=1e-9)
        assert shares / shares.sum() == pytest.approx(list(map(float, cost_shares)), rel=1e-9)
