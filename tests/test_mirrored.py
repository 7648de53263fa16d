"""Looking for the smallest mean: rewards are mirrored, and all else is as it was."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import cabai
from cabai.core.evidence import evidence
from cabai.core.observe import weigh
from cabai.core.setup import Setup
from cabai.core.shares import solve
from cabai.core.state import Record
from cabai.families import Gaussian, family_of, mirror_image
from cabai.families.base import lower_end, upper_end
from cabai.families.slots import divergence, edges, variance_at, variance_slope
from cabai.thresholds import threshold_of
from conftest import drawer
from reference_bound import reference
from studies import new

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
        plain = float(base.call(divergence, p, p - q, q, 1 - q))
        assert float(mirrored.call(divergence, -p, q - p, -q, 1 + q)) == plain
        assert mirrored.call(variance_at, -q, 1 + q) == base.call(variance_at, q, 1 - q)
        assert mirrored.call(variance_slope, -q) == -base.call(variance_slope, q)
    for p, level in itertools.product(values, [0.0, 1e-9, 0.01, 1.0, 30.0]):
        assert mirrored.call(upper_end, -p, level) == -base.call(lower_end, p, level)
        assert mirrored.call(lower_end, -p, level) == -base.call(upper_end, p, level)
    assert base.call(edges) == (0, math.inf)
    assert mirrored.call(edges) == (-math.inf, 0)
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
