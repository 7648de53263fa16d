"""Close enough is enough: the evidence with an epsilon, and the proof's claims. (Errors: test_statistics.py.)"""

from __future__ import annotations

import math
from itertools import product

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binom

import cabai
from cabai.core.evidence import evidence
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.within import evidence_within
from cabai.families import Bernoulli, Exponential, Gaussian, Poisson, mirror_image
from cabai.policies import policy_of
from cabai.thresholds import EValue
from combinations import WITHOUT_BUDGET, covering
from pairs import pair_of
from reference_bound import divergence

FAMILIES = {
    "gaussian": Gaussian(),
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "exponential": Exponential(),
    "mirrored poisson": mirror_image(Poisson()),
    "mirrored exponential": mirror_image(Exponential()),
}


def within(
    family: str, n_b: int, mean_b: float, n_a: int, mean_a: float, epsilon: float, variance: float = 1.0
) -> float:
    """What the kernel says of arm b and arm a, in plain Python."""
    kind = Gaussian(variance) if family == "gaussian" else FAMILIES[family]
    setup = Setup(kind, EValue(), arms=2, delta=0.1, epsilon=epsilon)
    with np.errstate(all="ignore"):
        arms = pair_of(setup, (n_b, n_a), (mean_b, mean_a))
        return float(setup.bound(evidence_within)(Record(setup.rules), *arms))


def exact_minimum(family, n_b, mean_b, n_a, mean_a, epsilon, variance=1.0):
    """The least of N_b d(mean_b, q) + N_a d(mean_a, q + epsilon): the best of a grid, then golden-section search there.

    The grid is over all q that the family allows between the lower and the upper of the two means (less epsilon), and
    is finer towards both ends: it would find a minimum anywhere, and knows nothing of derivatives.
    """
    with mp.workdps(40):
        n_b, mean_b, n_a, mean_a, epsilon, variance = map(mp.mpf, (n_b, mean_b, n_a, mean_a, epsilon, variance))
        if mean_b <= mean_a - epsilon:
            return mp.mpf(0)
        name, sign = family.removeprefix("mirrored "), -1 if family.startswith("mirrored") else 1
        low, high = mean_a - epsilon, mean_b
        if name != "gaussian":
            low, high = (max(low, mp.mpf(0)), high) if sign > 0 else (low, min(high, -epsilon))
        if family == "bernoulli":
            high = min(high, 1 - epsilon)

        def value(q):
            pairs = (n_b, mean_b, q), (n_a, mean_a, q + epsilon)
            if name == "exponential" and not all(sign * mean > 0 for _, _, mean in pairs):
                return mp.inf
            return sum(n * divergence(name, sign * mean, sign * at, variance) for n, mean, at in pairs)

        shares = [mp.mpf(10) ** -k for k in range(12, 1, -1)] + [mp.mpf(k) / 40 for k in range(1, 40)]
        shares = [mp.mpf(0), *shares, *[1 - mp.mpf(10) ** -k for k in range(2, 13)], mp.mpf(1)]
        points = sorted({low + share * (high - low) for share in shares})
        values = [value(q) for q in points]
        k = values.index(min(values))
        left, right = points[max(k - 1, 0)], points[min(k + 1, len(points) - 1)]
        golden = (mp.sqrt(5) - 1) / 2
        for _ in range(70):
            one, two = right - golden * (right - left), left + golden * (right - left)
            left, right = (left, two) if value(one) < value(two) else (one, right)
        return min(value((left + right) / 2), min(values))


def check_within(family, n_b, mean_b, n_a, mean_a, epsilon, variance=1.0) -> bool:
    """To 1e-9, and what the rounding of q and of q + epsilon to doubles does to the gap that is squared; or to 1e-12
    nats, where a threshold asks for at least one."""
    case = n_b, mean_b, n_a, mean_a, epsilon, variance
    expected, got = exact_minimum(family, *case), within(family, *case)
    if expected == 0:
        assert got == 0, case
        return False
    gap = mean_b - mean_a + epsilon
    relative = 1e-9 + 2e-15 * (abs(mean_a) + abs(mean_b) + epsilon) / gap
    assert abs(got - expected) < relative * expected + 1e-12, (case, got, float(expected))
    return True


def random_case(rng, family):
    counts = [int(n) for n in 10 ** rng.uniform(0, 7, 2)]
    epsilon = float(10 ** rng.uniform(-9, math.log10(0.9)))
    if family == "gaussian":
        means = rng.normal(0, 10 ** rng.uniform(-2, 2), 2)
    elif family == "bernoulli":
        means = [rng.choice([rng.uniform(), round(rng.uniform() * n) / n, 1 / n, 1 - 1 / n]) for n in counts]
    else:
        means = [10 ** rng.uniform(-3, 3) * rng.choice([1, 1 + epsilon]) for _ in counts]
        if family.startswith("mirrored"):
            means = [-mean for mean in means]
    if rng.uniform() < 0.5:  # nearly tied, as at the end of a study
        means[1] = means[0] * (1 + rng.choice([0, 1e-6, -1e-6, 1e-3]))
        if family == "bernoulli":
            means[1] = min(means[1], 1.0)
    return counts[0], float(means[0]), counts[1], float(means[1]), epsilon


@pytest.mark.parametrize("family", FAMILIES)
def test_evidence_within_epsilon_is_the_least_of_all(family):
    rng = np.random.default_rng(list(FAMILIES).index(family))
    positive = 0
    for _ in range(40):
        case = random_case(rng, family)
        positive += check_within(family, *case, float(rng.choice([0.01, 1, 30])) if family == "gaussian" else 1.0)
    assert positive >= 15
    pulls, edges = ((1, 10**7), (10**7, 3)), EDGES.get(family, [])
    for mean_b, mean_a, epsilon, (n_b, n_a) in product(edges, edges, (1e-9, 0.9), pulls):
        check_within(family, n_b, mean_b, n_a, mean_a, epsilon)


EDGES = {
    "bernoulli": [0.0, 1.0, 0.5, 1e-7, 1 - 1e-7],
    "poisson": [0.0, 1e-7, 1.0, 1e4],
    "exponential": [1e-7, 1.0, 1e4],
    "mirrored poisson": [0.0, -1e-7, -1.0, -1e4],
    "mirrored exponential": [-1e-7, -1.0, -1e4],
}


def state_of(means, pulls, policy, *, epsilon, level):
    """Arms with these means, as a policy sees them, under a threshold that asks for `level` nats."""
    setup = Setup(Gaussian(), EValue(), policy_of(policy), arms=len(means), delta=0.1, epsilon=epsilon)
    arms, run = setup.start()
    arms, run = Records(arms), Record(run)
    arms["mean"] = arms["tested_mean"] = means
    arms["pulls"] = arms["tested"] = pulls
    arms["rewards"] = np.array(means) * pulls
    arms["costs"] = arms["cost"] = 1.0
    run.t, run.leader = int(np.sum(pulls)), int(np.argmax(means))
    setup.rules["level"] = level
    return setup, arms, run, Record(setup.rules)


@pytest.mark.parametrize("policy", ["co", "racing"])
def test_an_arm_is_dropped_on_evidence_without_epsilon_only(policy):
    """Two arms 0.1 apart, 200 pulls each: 0.5 nats that one is better, 12.5 that it is better up to an epsilon of 0.4;
    a third arm is in the way of stopping. With 5 nats asked for, nothing may be dropped."""
    means = [1.0, 0.9, 0.7]
    setup, arms, run, rules = state_of(means, [200, 200, 2], policy, epsilon=0.4, level=5.0)
    z = within("gaussian", 200, 1.0, 200, 0.9, 0.4)
    assert z == pytest.approx(200 * 200 / 400 * 0.5**2 / 2)
    assert z > 5 > float(setup.bound(evidence)(rules, arms[0], arms[1]))
    assert not setup.stop(arms, run, rules)
    assert arms["in_play"].tolist() == [1, 1, 1]
    setup, arms, run, rules = state_of(means, [3000, 3000, 2], policy, epsilon=0.4, level=5.0)
    assert not setup.stop(arms, run, rules)
    assert arms["in_play"].tolist() == [1, 0, 1]
    setup, arms, run, rules = state_of(means, [200, 200, 200], policy, epsilon=0.4, level=5.0)
    assert setup.stop(arms, run, rules)
    assert arms["in_play"].tolist()[:2] == [1, 1]


@pytest.mark.parametrize("policy", ["co", "racing"])
def test_a_new_leader_drops_every_arm_that_it_beats(policy):
    """Arm 1 leads since the last reward of arm 0, and has 24 nats against arm 2, which arm 0 did not have."""
    setup, arms, run, rules = state_of([0.8, 1.0, 0.0], [2, 1000, 50], policy, epsilon=0.0, level=5.0)
    run.dropped_for = run.last = 0
    assert not setup.stop(arms, run, rules)
    assert arms["in_play"].tolist() == [1, 1, 0]


LADDERS = {
    "gaussian": (cabai.Instance("gaussian", [-0.8 * 0.3 * k for k in range(8)], [1.0] * 8), 0.3),
    "bernoulli": (cabai.Instance("bernoulli", [0.9 - 0.8 * 0.15 * k for k in range(7)], [1.0] * 7), 0.15),
}


@pytest.mark.parametrize(("family", "policy"), covering(LADDERS, ["co", "racing"]))
def test_a_chain_of_eliminations_does_not_drift_down_a_ladder(family, policy):
    """Every arm is within epsilon of the next, but only two are within epsilon of the best; 2000 trajectories each."""
    instance, epsilon = LADDERS[family]
    runs = cabai.simulate(
        instance, policy, threshold="evalue", delta=0.1, epsilon=epsilon, trajectories=2000, seed=11, max_pulls=30_000
    )
    assert runs.summary().errors <= binom.isf(1e-6 / 4, 2000, 0.1)
    assert runs.finished.all()
    assert set(runs.decisions[~runs.wrong]) <= {0, 1}


TIED = {
    "gaussian": (cabai.Instance("gaussian", [1, 1, 1], [1, 0.1, 0.5]), 0.4),
    "bernoulli": (cabai.Instance("bernoulli", [0.6, 0.6, 0.6], [1, 0.1, 0.5]), 0.25),
    "all ones": (cabai.Instance("bernoulli", [1, 1], [1, 0.1]), 0.25),
    "all zeros": (cabai.Instance("poisson", [0, 0], [1, 0.1]), 0.5),
}


@pytest.mark.parametrize(("name", "policy"), covering(TIED, sorted(WITHOUT_BUDGET, key="d-lucb".__ne__), most=4))
def test_tied_arms_end_a_run(name, policy):
    instance, epsilon = TIED[name]
    runs = cabai.simulate(
        instance, policy, threshold="evalue", delta=0.1, epsilon=epsilon, trajectories=50, max_pulls=20_000
    )
    assert runs.finished.all()
    assert not runs.wrong.any()


def test_wrong_counts_what_is_beyond_epsilon():
    instance = cabai.Instance("gaussian", [1.0, 0.7, 0.69, 0.0], [1, 1, 1, 1])
    runs = cabai.simulate(instance, "uniform", threshold="evalue", delta=0.1, epsilon=0.3, trajectories=4)
    by_hand = {name: getattr(runs, name) for name in runs.__dataclass_fields__}
    by_hand |= {"decisions": np.array([0, 1, 2, 3, -1]), "costs": np.ones(5), "steps": np.ones(5, int)}
    by_hand |= {"pulls": np.ones((5, 4), int)}
    # 1 - 0.3 is not 0.7 in binary
    assert cabai.results.Runs(**by_hand).wrong.tolist() == [False, False, True, True, False]
    assert cabai.results.Runs(**by_hand | {"epsilon": 0.0}).wrong.tolist() == [False, True, True, True, False]
    assert cabai.results.Runs(**by_hand | {"epsilon": 0.31}).wrong.tolist() == [False, False, False, True, False]
    assert cabai.results.Runs(**by_hand).summary().errors == 2
    assert cabai.results.Runs(**by_hand).summary().lower_bound is None
    assert cabai.results.Runs(**by_hand).to_frame()["correct"].tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("family", "epsilon"),
    [("gaussian", -1e-12), ("poisson", math.nan), ("gaussian", None), ("bernoulli", 1), ("bounded", 1.5)],
)
def test_an_epsilon_that_makes_no_sense_is_refused(family, epsilon):
    instance = cabai.Instance(family, [0.5, 0.4], [1, 1])
    allowed = r"epsilon must be in \[0, 1\)" if family.startswith("b") else "epsilon must be"
    with pytest.raises(cabai.InvalidInput, match=allowed):
        cabai.simulate(instance, "co", epsilon=epsilon, trajectories=1, threshold="paper")


def test_shares_with_an_epsilon_are_those_of_lowered_gaussian_rivals():
    """And the means are what they were."""
    from cabai.core.shares import allocate

    means, costs, epsilon = [1.0, 0.9, 0.2], [1.0, 0.3, 0.1], 0.4
    setup, arms, run, rules = state_of(means, [7, 9, 4], "ctas", epsilon=epsilon, level=1.0)
    arms["cost"], rules.tolerance = costs, 1e-16
    hardness = setup.bound(allocate)(arms, run, rules)
    expected = cabai.bound(cabai.Instance("gaussian", [1.0, 0.5, -0.2], costs))
    np.testing.assert_allclose(arms["share"], expected.cost_shares, rtol=1e-6)
    assert hardness == pytest.approx(expected.hardness, rel=1e-6)
    np.testing.assert_allclose(arms["mean"], means, rtol=1e-15)
