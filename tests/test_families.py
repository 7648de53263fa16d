"""The families: divergences and interval ends against high precision, and what an instance refuses."""

import math
from functools import partial

import numpy as np
import pytest
from mpmath import inf, mp, mpf

from cabai import Instance, InvalidInput
from cabai.families import FAMILIES, Bernoulli, Gaussian, Poisson, family_of
from cabai.thresholds import Paper
from conftest import variance_of
from reference_bound import divergence

NAMES = ["gaussian", "gaussian(variance=0.01)", "bernoulli", "bounded", "poisson", "exponential"]
near = partial(pytest.approx, abs=0)

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


@pytest.mark.parametrize("name", NAMES)
def test_divergence_is_zero_only_at_itself(name):
    family = family_of(name)
    for p, q in pairs(family):
        assert (family.divergence(p, q) == 0) == (p == q)


@pytest.mark.parametrize(
    ("name", "p", "q", "expected"),
    [
        ("bernoulli", 0, 0.25, -math.log(0.75)),
        ("bernoulli", 1, 0.25, -math.log(0.25)),
        ("bernoulli", 0.5, 0, math.inf),
        ("bernoulli", 0.5, 1, math.inf),
        ("bernoulli", 0, 1, math.inf),
        ("bernoulli", 1, 0, math.inf),
        ("bernoulli", 0, 0, 0),
        ("bernoulli", 1, 1, 0),
        ("bounded", 0.25, 0.5, 0.25 * math.log(0.5) + 0.75 * math.log(1.5)),
        ("poisson", 0, 3, 3),
        ("poisson", 3, 0, math.inf),
        ("poisson", 0, 0, 0),
        ("exponential", 2, 1, 1 - math.log(2)),
        ("gaussian(variance=4)", 1, 3, 0.5),
    ],
)
def test_divergence_has_its_textbook_value(name, p, q, expected):
    assert family_of(name).divergence(p, q) == near(expected, rel=1e-14)


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


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", NAMES)
def test_interval_ends_are_where_the_divergence_is_the_level(name, level):
    family = family_of(name)
    wrong = []
    with mp.workdps(400):
        for mean in filter(family.allows_mean, CENTRES):
            for end, outward in zip(family.interval(mean, level), (-1, 1), strict=True):
                if not brackets(family, mean, level, end, outward):
                    wrong.append((mean, "lower" if outward < 0 else "upper", end))
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_intervals_contain_the_mean_and_grow_with_the_level(name):
    family = family_of(name)
    for mean in filter(family.allows_mean, CENTRES):
        assert family.interval(mean, 0) == (mean, mean)
        ends = [family.interval(mean, level) for level in LEVELS]
        assert all(low <= mean <= high for low, high in ends)
        assert all(family.allows_mean(low) or low == 0 for low, _ in ends)
        assert all(family.allows_mean(high) or high == math.inf for _, high in ends)
        assert [low for low, _ in ends] == sorted((low for low, _ in ends), reverse=True)
        assert [high for _, high in ends] == sorted(high for _, high in ends)


@pytest.mark.parametrize("level", LEVELS)
def test_boundary_means_have_the_closed_form_interval(level):
    assert Bernoulli().interval(0, level) == near((0, -math.expm1(-level)), rel=1e-13)
    assert Bernoulli().interval(1, level) == near((math.exp(-level), 1), rel=1e-13)
    assert Poisson().interval(0, level) == near((0, level), rel=1e-13)


@pytest.mark.parametrize("level", [-1e-9, -1])
def test_an_interval_refuses_a_negative_level(level):
    with pytest.raises(InvalidInput, match=f"level must not be negative, got {level}"):
        Poisson().interval(1, level)


@pytest.mark.parametrize(
    ("name", "mean", "message"),
    [
        ("bernoulli", 1.1, r"means\[0\] must be in \[0, 1\] for the bernoulli family, got 1\.1\."),
        ("bernoulli", -1e-9, r"means\[0\] must be in \[0, 1\] for the bernoulli family, got -1e-09\."),
        ("bounded", 2, r"means\[0\] must be in \[0, 1\] for the bounded family, got 2\.0\."),
        ("poisson", -0.5, r"means\[0\] must be 0 or positive for the poisson family, got -0\.5\."),
        ("exponential", 0, r"means\[0\] must be positive for the exponential family, got 0\.0\."),
        ("exponential", -1, r"means\[0\] must be positive for the exponential family, got -1\.0\."),
    ],
)
def test_means_outside_the_family_are_refused(name, mean, message):
    with pytest.raises(InvalidInput, match=message):
        Instance(name, [mean, 0.5], [1, 1])


@pytest.mark.parametrize(
    ("name", "p", "q", "message"),
    [
        ("bernoulli", 1.1, 0.5, r"p must be in \[0, 1\] for the bernoulli family, got 1\.1\."),
        ("poisson", 1, -1, r"q must be 0 or positive for the poisson family, got -1\."),
        ("exponential", 1, 0, r"q must be positive for the exponential family, got 0\."),
        ("gaussian", math.nan, 0, r"p must be a finite number, got nan\."),
    ],
)
def test_divergence_refuses_means_outside_the_family(name, p, q, message):
    with pytest.raises(InvalidInput, match=message):
        family_of(name).divergence(p, q)


@pytest.mark.parametrize(
    ("name", "reward", "message"),
    [
        ("bernoulli", 0.5, r"reward must be 0 or 1 for the bernoulli family, got 0\.5\."),
        ("bernoulli", -1, r"reward must be 0 or 1 for the bernoulli family, got -1\."),
        ("poisson", 1.5, r"reward must be a whole number, 0 or more, for the poisson family, got 1\.5\."),
        ("poisson", -1, r"reward must be a whole number, 0 or more, for the poisson family, got -1\."),
        ("exponential", 0, r"reward must be positive for the exponential family, got 0\."),
        ("bounded", 1.2, r"reward must be in \[0, 1\] for the bounded family, got 1\.2\."),
        ("bounded", -0.1, r"reward must be in \[0, 1\] for the bounded family, got -0\.1\."),
        ("gaussian", math.nan, r"reward must be a finite number, got nan\."),
        ("gaussian", math.inf, r"reward must be a finite number, got inf\."),
        ("poisson", math.inf, r"reward must be a finite number, got inf\."),
        ("gaussian", "1.5", r"reward must be a finite number, got '1\.5'\."),
        ("gaussian", None, r"reward must be a number, got None\."),
    ],
)
def test_illegal_rewards_are_refused(name, reward, message):
    with pytest.raises(InvalidInput, match=message):
        family_of(name).check_reward(reward)


@pytest.mark.parametrize(
    ("name", "rewards"),
    [
        ("gaussian", [-1e9, 0, 2.5]),
        ("bernoulli", [0, 1, True, np.float64(1)]),
        ("bounded", [0, 0.3, 1]),
        ("poisson", [0, 1, 2**53, np.int64(3)]),
        ("exponential", [1e-100, 1.0, 1e100]),
    ],
)
def test_legal_rewards_are_returned_as_floats(name, rewards):
    for reward in rewards:
        checked = family_of(name).check_reward(reward)
        assert type(checked) is float
        assert checked == reward


@pytest.mark.parametrize(
    ("means", "costs", "message"),
    [
        ([], [], r"means must not be empty\."),
        ([1, 0], [], r"costs must not be empty\."),
        ([1], [1], r"an instance needs at least 2 arms, got 1\."),
        ([1, 0, 2], [1, 1], r"means and costs must have the same length, got 3 means and 2 costs\."),
        ([1, math.nan], [1, 1], r"means\[1\] must be a finite number, got nan\."),
        ([1, -math.inf], [1, 1], r"means\[1\] must be a finite number, got -inf\."),
        ([1, 0], [math.inf, 1], r"costs\[0\] must be a finite number, got inf\."),
        ([1, 0], [math.nan, 1], r"costs\[0\] must be a finite number, got nan\."),
        ([1, 10**400], [1, 1], r"means\[1\] must be a number, got 1000"),
        (["1", 0], [1, 1], r"means\[0\] must be a finite number, got '1'\."),
        ([1, "many"], [1, 1], r"means\[1\] must be a number, got 'many'\."),
        ([1, None], [1, 1], r"means\[1\] must be a number, got None\."),
        ([1, 1j], [1, 1], r"means\[1\] must be a number, got 1j\."),
        ([[1, 0], [0, 1]], [1, 1], r"means\[0\] must be a number, got \[1, 0\]\."),
        ([1, 0], [[1], [1]], r"costs\[0\] must be a number, got \[1\]\."),
        (np.eye(2), [1, 1], r"means must be a flat list of numbers, got an array of shape \(2, 2\)\."),
        (np.array(1.0), [1, 1], r"means must be a flat list of numbers, got an array of shape \(\)\."),
        ("10", [1, 1], r"means must be a list of numbers, got '10'\."),
        (1.5, [1, 1], r"means must be a list of numbers, got 1\.5\."),
        (None, [1, 1], r"means must be a list of numbers, got None\."),
        ([1, 0], {1: 1, 2: 1}, r"costs must be a list of numbers, got \{1: 1, 2: 1\}\."),
        ([1, 0], [1, 0], r"costs\[1\] must be positive, got 0\.0\."),
        ([1, 0], [-0.5, 1], r"costs\[0\] must be positive, got -0\.5\."),
    ],
)
def test_bad_means_and_costs_are_refused(means, costs, message):
    with pytest.raises(InvalidInput, match=message):
        Instance("gaussian", means, costs)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("gausian", r"unknown family 'gausian'; did you mean gaussian\? known: gaussian, bernoulli, poisson, expo"),
        ("Bernouli", r"unknown family 'Bernouli'; did you mean bernoulli\?"),
        ("gausian(variance=2)", r"unknown family 'gausian\(variance=2\)'; did you mean gaussian\?"),
        ("zzz", r"unknown family 'zzz'; known: gaussian"),
        ("", r"unknown family ''; known: gaussian"),
        (None, r"family must be a name or a family, got None\."),
        (Paper, r"family must be a name or a family, got <class"),
        (int, r"family must be a name or a family, got <class"),
        ("bernoulli(variance=2)", r"family bernoulli cannot take 'variance=2'; its parameters: none\."),
        ("gaussian(sigma=2)", r"family gaussian cannot take 'sigma=2'; its parameters: variance\."),
        ("gaussian(2)", r"family gaussian cannot take '2'; its parameters: variance\."),
        ("gaussian(variance=1, variance=2)", r"family gaussian cannot take 'variance=2'; its parameters: variance\."),
        ("gaussian(variance=0)", r"variance must be positive, got 0\."),
        ("gaussian(variance=-1)", r"variance must be positive, got -1\."),
        ("gaussian(variance=inf)", r"variance must be a finite number, got inf\."),
        ("gaussian(variance=wide)", r"variance must be a number, got 'wide'\."),
    ],
)
def test_unknown_families_and_parameters_are_refused(family, message):
    with pytest.raises(InvalidInput, match=message):
        Instance(family, [1, 0], [1, 1])


@pytest.mark.parametrize(
    ("variance", "message"),
    [
        (0, r"variance must be positive, got 0\."),
        (-2.0, r"variance must be positive, got -2\.0\."),
        (math.nan, r"variance must be a finite number, got nan\."),
        (math.inf, r"variance must be a finite number, got inf\."),
        ("2", r"variance must be a finite number, got '2'\."),
        ([1], r"variance must be a number, got \[1\]\."),
    ],
)
def test_a_bad_variance_is_refused(variance, message):
    with pytest.raises(InvalidInput, match=message):
        Gaussian(variance=variance)
    with pytest.raises(InvalidInput, match=message):
        Instance("gaussian", [1, 0], [1, 1], variance=variance)


@pytest.mark.parametrize("name", ["bernoulli", "bounded", "poisson", "exponential"])
def test_a_variance_is_refused_outside_the_gaussian_family(name):
    message = f"variance belongs to the gaussian family only, got variance=2 for {name}\\."
    with pytest.raises(InvalidInput, match=message):
        Instance(name, [1, 0.5], [1, 1], variance=2)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], r"names must be 2 non-empty strings, one per arm, got \['a'\]\."),
        (["a", "b", "c"], r"names must be 2 non-empty strings, one per arm, got "),
        ("ab", r"names must be 2 non-empty strings, one per arm, got 'ab'\."),
        (["a", ""], r"names must be 2 non-empty strings, one per arm, got \['a', ''\]\."),
        ([1, 2], r"names must be 2 non-empty strings, one per arm, got \[1, 2\]\."),
        (["a", None], r"names must be 2 non-empty strings, one per arm, got \['a', None\]\."),
        (["a", "a"], r"names must differ from each other, got \['a', 'a'\]\."),
        (5, r"names must be 2 non-empty strings, one per arm, got 5\."),
    ],
)
def test_bad_names_are_refused(names, message):
    with pytest.raises(InvalidInput, match=message):
        Instance("gaussian", [1, 0], [1, 1], names=names)


@pytest.mark.parametrize("cost_model", ["fix", None, ["fixed"]])
def test_an_unknown_cost_model_is_refused(cost_model):
    message = r"unknown cost model .*; known: fixed, uniform, two-point, beta, exponential\."
    with pytest.raises(InvalidInput, match=message):
        Instance("gaussian", [1, 0], [1, 1], cost_model=cost_model)


@pytest.mark.parametrize("text", [*FAMILIES.names, "gaussian(variance=0.25)", "gaussian(variance=0.123456789012)"])
def test_a_family_is_written_as_it_is_read(text):
    assert str(family_of(text)) == text
    assert family_of(str(family_of(text))) == family_of(text)


def test_a_class_stands_for_the_family_without_parameters():
    assert family_of(Gaussian) == Gaussian()
    assert Instance(Poisson, [1, 0], [1, 1]) == Instance("poisson", [1, 0], [1, 1])


def test_the_ways_to_set_a_variance_agree():
    ways = [family_of("gaussian(variance=4)"), family_of("gaussian", 4), family_of(Gaussian(variance=9), 4.0)]
    assert set(ways) == {Gaussian(variance=4)}
    assert Instance("gaussian", [1, 0], [1, 1], variance=4) == Instance("Gaussian( variance = 4 )", [1, 0], [1, 1])


def test_an_instance_takes_lists_tuples_ranges_and_arrays_and_keeps_its_own_copy():
    means = np.array([1.0, 0.0])
    instance = Instance("gaussian", means, (1, 2))
    means[0] = 5
    assert instance == Instance("gaussian", [1, 0], range(1, 3))
    with pytest.raises(ValueError, match="read-only"):
        instance.means[0] = 3
