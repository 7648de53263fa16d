"""The families: divergences and interval ends against high precision, and what an instance refuses."""

import itertools
import math

import numpy as np
import pytest
from mpmath import inf, mp, mpf

from cabai import Instance, InvalidInput
from cabai.families import FAMILIES, Gaussian, Poisson, family_of, mirror_image, slots
from conftest import variance_of
from reference_bound import divergence

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
    ],
)
def test_what_makes_no_instance_is_refused(call, message):
    with pytest.raises(InvalidInput) as error:
        call()
    assert str(error.value).startswith(message)


def test_rewards_outside_the_family_are_refused():
    for name, reward, message in (
        ("bernoulli", 0.5, "0 or 1 for the bernoulli family, got 0.5."),
        ("poisson", 1.5, "a whole number, 0 or more, for the poisson family, got 1.5."),
        ("exponential", 0, "positive for the exponential family, got 0."),
        ("bounded", 1.2, "in [0, 1] for the bounded family, got 1.2. For another range: family='bounded(low=1, high"),
        ("gaussian", math.inf, "a finite number, got inf."),
        ("gaussian", None, "a number, got None."),
    ):
        with pytest.raises(InvalidInput) as error:
            family_of(name).check_reward(reward)
        assert str(error.value).startswith(f"reward must be {message}")
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
