"""Every policy makes the same pulls, one by one, as the plain-Python reference in reference.py."""

from __future__ import annotations

import numpy as np
import pytest

import cabai
from cabai.core.compiling import compiled
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.families import family_of
from cabai.policies import policy_of
from cabai.policies.top_two import find_challenger
from cabai.support.streams import normal, uniform
from cabai.thresholds import threshold_of
from combinations import covering
from conftest import drawer, opened, variance_of
from reference import run as reference_run

MEANS = {
    "gaussian": lambda rng, K: rng.normal(0, 0.7, K),
    "bernoulli": lambda rng, K: rng.choice([0.0, 1.0, *rng.uniform(0, 1, 3 * K)], K, replace=False),
    "poisson": lambda rng, K: rng.choice([0.0, *rng.uniform(0, 3, 2 * K), 15.0], K, replace=False),
    "exponential": lambda rng, K: rng.uniform(0.2, 2, K),
    "bounded": lambda rng, K: rng.uniform(0, 1, K),
}
POLICIES = [
    "co", "racing", "uniform", "d-lucb", "ctas", "ctas(tracking=ratio)", "ctas(exploration=0.3, slack=0.5)", "tas",
    "top-two", "top-two(randomized=false)",
]  # fmt: skip
# In this order the default run has one form of each: see `covering`.
FIELD = [
    "eb-tci", "eb-tci(coin=half, challenger=tc)", "thompson(challenger=resample, coin=ids)",
    "eb-tci(challenger=tc, epsilon=0.1)", "at2(challenger=tci)", "thompson", "fws", "at2", "lma", "tas(tracking=sums)",
    "dkm", "ctas(tracking=sums)", "ugape",
]  # fmt: skip
SPENDING = [
    "ocba", "sequential-halving(reuse=false)", "successive-rejects", "sequential-halving(reuse=equal)",
    "sequential-halving", "continuous-rejects(gap=next)", "continuous-rejects",
]  # fmt: skip
THRESHOLDS = ["paper", "stylized", "mixture", "mixture(pairwise=false)", "evalue", "paper(alpha=1.2, B=50)"]
MOST = 400  # pulls a trajectory is followed for


def random_instance(rng: np.random.Generator, family: str, cost_model: str) -> cabai.Instance:
    K = int(rng.integers(2, 6))
    variance = float(rng.choice([0.25, 1.0, 4.0])) if family == "gaussian" else None
    return cabai.Instance(
        family, MEANS[family](rng, K), 10 ** rng.uniform(-3, 0, K), cost_model=cost_model, variance=variance
    )


def parameters_of(text: str) -> dict:
    inside = text.partition("(")[2].rstrip(")")
    pairs = (pair.split("=") for pair in inside.split(",") if pair)
    read = {"false": False, "true": True}
    return {
        key.strip(): read[value] if value in read else value if value.isalpha() else float(value)
        for key, value in pairs
    }


def compare(
    instance: cabai.Instance, policy: str, threshold: str, delta: float, seed: int, budget: float | None = None
) -> bool:
    """Whether the whole trajectory, the second, could be compared; an assertion if it differs.

    Where the reference's best and second-best choice are closer than rounding and the solver's tolerance allow, both
    are right, and the comparison ends there.
    """
    runs = cabai.simulate(
        instance, policy, threshold=threshold, delta=delta, trajectories=2, seed=seed, budget=budget,
        max_pulls=MOST if budget is None else None, grid=range(1, MOST + 1),
    )  # fmt: skip
    K = len(instance)
    path = np.vstack([np.zeros((1, K), int), runs.path[1][: runs.steps[1]]])
    pulled = np.diff(path[K:], axis=0).argmax(axis=1).tolist()
    name, stream = policy.partition("(")[0], np.zeros(1, [("stream", "u8")])
    stream["stream"] = opened(instance, seed, 1)[1]
    expected = reference_run(
        name, instance.family.name, variance_of(instance.family), K, threshold.partition("(")[0], delta,
        drawer(instance, seed, 1), parameters_of(threshold), max_pulls=MOST, budget=budget or np.inf,
        uniform=lambda: compiled(uniform)(stream[0]), normal=lambda: compiled(normal)(stream[0]),
        options=parameters_of(policy),
    )  # fmt: skip
    close = [i for i, margin in enumerate(expected.margins) if margin < 1e-7]
    order = expected.order
    if close and pulled != order[K:]:
        end = close[0] - K
        assert pulled[:end] == order[K : close[0]]
        return False
    assert runs.decisions[1] == (-1 if expected.decision is None else expected.decision)
    if budget is not None:  # the plain version ends when one arm is left
        assert budget - max(instance.costs) <= runs.costs[1] <= budget * (1 + 1e-9)
        assert pulled[: len(order) - K] == order[K:]
        return True
    assert pulled == order[K:]
    np.testing.assert_allclose(runs.costs[1], sum(expected.C), rtol=1e-12)
    return True


@pytest.mark.parametrize(("policy", "family"), [*covering(POLICIES, MEANS), *covering(FIELD, MEANS, most=7)])
def test_same_pulls_as_the_reference(policy, family):
    """On random instances, also those of the literature as in their listings; one threshold and one model of costs per
    policy and family, since each is compiled."""
    of, thresholds = (FIELD, ["paper", "stylized", "evalue"]) if policy in FIELD else (POLICIES, THRESHOLDS)
    if policy in ("d-lucb", "ugape"):
        thresholds = [each for each in thresholds if each != "evalue"]
    rng = np.random.default_rng([of.index(policy), list(MEANS).index(family)])
    threshold, cost_model = str(rng.choice(thresholds)), str(rng.choice(["fixed", "uniform"]))
    whole = tried = 0
    for seed in range(2 if policy in FIELD or "tas" in policy else 6):
        instance = random_instance(rng, family, cost_model)
        if len(instance.best_arms) == 1:
            tried += 1
            whole += compare(instance, policy, threshold, float(rng.choice([0.3, 0.05, 1e-6])), seed)
    assert whole >= tried / 2


@pytest.mark.parametrize(("policy", "family"), covering(SPENDING, MEANS, most=4))
def test_policies_that_spend_a_budget_make_the_pulls_of_their_listings(policy, family):
    rng = np.random.default_rng([SPENDING.index(policy), list(MEANS).index(family)])
    whole = 0
    for seed in range(3):
        K = int(rng.integers(2, 9))
        costs = 10 ** rng.uniform(-0.5, 0, K)
        instance = cabai.Instance(family, rng.choice([0.2, 0.4, 0.5, 0.7], K), costs)
        whole += compare(instance, policy, "stylized", 0.1, seed, budget=costs.sum() * float(rng.uniform(5, 40)))
    assert whole >= 2


@pytest.mark.parametrize("policy", covering(["co", "ctas", "tas", "top-two", "d-lucb", "racing", "uniform"], most=2))
def test_same_pulls_as_the_reference_with_the_bernoulli_threshold(policy):
    """Until it decides."""
    instance = cabai.Instance("bernoulli", [0.95, 0.3, 0.1], [1, 0.3, 0.1], cost_model="uniform")
    assert compare(instance, policy, "kt", 0.3, seed=3)
    assert cabai.simulate(instance, policy, threshold="kt", delta=0.3, trajectories=1, seed=3).steps[0] < MOST


EDGES = {
    "gaussian": lambda rng: rng.normal(0, 0.7, 30),
    "bernoulli": lambda rng: np.array([1.0, 1.0, *rng.uniform(0.9, 1, 9), *rng.uniform(0, 0.9, 17), 0.0, 0.0]),
    "poisson": lambda rng: np.array([*rng.uniform(0, 3, 26), 0.0, 0.0, 1e-3, 30.0]),
    "exponential": lambda rng: 10 ** rng.uniform(-3, 3, 30),
    "bounded": lambda rng: np.array([1 - 1e-9, 1e-9, 1.0, *rng.uniform(0, 1, 27)]),
}


@pytest.mark.parametrize(("family", "policy"), covering(EDGES, ["top-two", "top-two(randomized=false)"], most=3))
def test_top_two_makes_the_same_pulls_with_many_arms_at_the_edges(family, policy):
    """30 arms, means at the edge of the family, costs over six orders of magnitude: upper ends and evidence tie."""
    rng = np.random.default_rng(list(EDGES).index(family))
    for seed in range(2):
        instance = cabai.Instance(family, rng.permutation(EDGES[family](rng)), 10 ** rng.uniform(-6, 0, 30))
        assert compare(instance, policy, "stylized", 0.05, seed)


def test_of_equally_close_rivals_top_two_takes_the_first():
    """Also if the one it took before is another, and the evidence of both is known to be the same."""
    setup = Setup(family_of("gaussian"), threshold_of("stylized"), policy_of("top-two"), arms=3, delta=0.05)
    arms, run = setup.start()
    arms["pulls"] = arms["tested"] = 4
    arms["mean"] = arms["tested_mean"] = [1.0, 0.0, 0.0]
    arms["known"], run["leader"], run["known_for"], run["rival"] = 2.0, 0, 0, 2
    with np.errstate(all="ignore"):
        assert setup.bound(find_challenger)(Records(arms), Record(run), Record(setup.rules), 0) == 1
