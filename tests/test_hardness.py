"""What a policy pays in the limit: its formula against a run without noise, closed forms, and simulation."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cabai
import reference
from cabai import Instance, InvalidInput, bound
from combinations import covering
from conftest import variance_of

POLICIES = ["co", "ctas", "tas", "d-lucb", "uniform", "racing"]
INSTANCES = {
    "gaussian": Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01]),
    "gaussian, cheap best": Instance("gaussian", [1.5, 1, 0.5, 0.7], [0.01, 0.1, 1, 3], variance=2),
    "bernoulli": Instance("bernoulli", [0.3, 0.9, 0.6], [0.01, 1, 0.1]),
    "bernoulli, edge": Instance("bernoulli", [1, 0.8, 0], [1, 0.1, 0.5]),
    "two bernoulli arms": Instance("bernoulli", [0.7, 0.5], [1, 5]),
    "poisson": Instance("poisson", [1.5, 1, 0, 0.5], [1, 0.1, 0.2, 0.01]),
    "exponential": Instance("exponential", [1, 2, 3], [1, 2, 0.3]),
}


def noiseless_cost(instance: Instance, policy: str, level: float) -> float:
    """What the plain version of a policy pays if every reward is its mean and evidence has to exceed `level`. Shares
    are tracked by ratio, which keeps counts to one pull."""
    family, means, costs = instance.family, instance.means.tolist(), instance.costs.tolist()
    given, options = (family.name, variance_of(family), len(instance), level, 0.1, lambda a: (means[a], costs[a])), {}
    if policy in ("ctas", "tas"):
        w = reference.shares(family.name, means, costs if policy == "ctas" else [1.0] * len(means), variance_of(family))
        options = {"tracking": "ratio", "exploration": 0, "w": w}
    return sum(reference.run(policy, *given, options=options).C)


@pytest.mark.parametrize(("name", "policy"), covering(INSTANCES, POLICIES))
def test_a_run_without_noise_pays_the_hardness_for_each_nat(name, policy):
    """Between two levels, so that the first pulls cancel; a run is whole pulls, an arm's count off by a few at most."""
    instance = INSTANCES[name]
    low, high = (20, 70) if policy == "d-lucb" else (50, 200)
    slope = (noiseless_cost(instance, policy, high) - noiseless_cost(instance, policy, low)) / (high - low)
    # A pull of the most expensive arm is worth sqrt(c_max/c_a) of arm a to co, at a cost of sqrt(c_max c_a) <= c_max.
    tolerance = 2 * len(instance) * instance.costs.max() / (high - low)
    assert bound(instance).hardness_of(policy) == pytest.approx(slope, rel=0, abs=tolerance)


def test_co_is_optimal_for_two_gaussian_arms(paper_instance):
    for gap, costs in itertools.product([1e-6, 0.5, 40], [(1, 1), (1, 0.01), (0.2, 7)]):
        pair = bound(Instance("gaussian", [gap, 0], costs, variance=3))
        assert pair.hardness_of("co") == pytest.approx(pair.hardness, rel=1e-9)
    paper = bound(paper_instance)
    assert paper.hardness_of("co") / paper.hardness == pytest.approx(1.014, abs=5e-4)
    assert paper.hardness_of("ctas(exploration=0.5, tracking=ratio)") == paper.hardness
    assert paper.hardness_of(cabai.policies.CO()) == paper.hardness_of("co")
    level = bound(Instance("poisson", [3, 2, 1], [2, 2, 2]))
    assert level.hardness_of("racing") == pytest.approx(level.hardness_of("co"), rel=1e-12)
    assert level.hardness_of("tas") == pytest.approx(level.hardness, rel=1e-12)


def random_instance(draw):
    family = draw.choice(["gaussian", "bernoulli", "poisson", "exponential"])
    means = {"gaussian": draw.normal, "bernoulli": draw.random, "poisson": draw.random, "exponential": draw.random}
    arms = int(draw.integers(2, 12))
    return Instance(str(family), means[str(family)](size=arms), 10 ** draw.uniform(-3, 1, size=arms))


@pytest.mark.parametrize("policy", POLICIES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_no_policy_is_below_the_bound_and_scaling_the_costs_scales_its_hardness(policy, seed):
    draw = np.random.default_rng(seed)
    instance = random_instance(draw)
    solved = bound(instance)
    own = solved.hardness_of(policy)
    assert own >= solved.hardness * (1 - 1e-9)
    order = draw.permutation(len(instance))
    shuffled = Instance(instance.family, instance.means[order], 7 * instance.costs[order])
    assert bound(shuffled).hardness_of(policy) == pytest.approx(7 * own, rel=1e-9)


@cabai.policy
def co(arms, run, rules):
    """Another policy with a name that is taken."""
    return run.leader


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("ctass", "did you mean ctas"),
        (co, "no hardness is known for policy co; known: co, ctas, tas, d-lucb, uniform, racing"),
        ("ctas(exploration=0)", "unlucky start"),
        (3, "policy must be a name"),
    ],
)
def test_a_policy_whose_hardness_is_not_known_is_refused(policy, message, paper_instance):
    with pytest.raises(InvalidInput, match=message):
        bound(paper_instance).hardness_of(policy)
