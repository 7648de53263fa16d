"""Rates and means, tested as statistics: a stated number of trajectories, a tolerance from the standard error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

import cabai
import reference
from conftest import drawer

ALL = ["co", "ctas", "tas", "d-lucb", "uniform", "racing", "top-two"]
ONCE_IN_A_MILLION = 1e-6


@pytest.mark.parametrize(
    ("policy", "mean", "tolerance"), [("co", 317, 7), ("ctas", 310, 7), ("tas", 389, 9), ("racing", 388, 9)]
)
def test_mean_cost_on_the_papers_instance(paper_instance, policy, mean, tolerance):
    summary = cabai.simulate(paper_instance, policy, delta=1e-6, trajectories=2000, seed=1, threshold="paper").summary()
    assert abs(summary.mean_cost - mean) < tolerance


@pytest.mark.parametrize(
    ("means", "published"),
    [
        pytest.param([0.5, 0.45, 0.43, 0.4], 4052, id="K=4", marks=pytest.mark.slow),
        pytest.param([0.3, 0.21, 0.2, 0.19, 0.18], 1406, id="K=5"),
    ],
)
def test_track_and_stop_reproduces_the_published_number_of_draws(means, published):
    """Garivier and Kaufmann (2016), Table 1: 3000 runs at delta = 0.1; 3000 of ours, within 5 combined errors."""
    instance = cabai.Instance("bernoulli", means, [1.0] * len(means))
    runs = cabai.simulate(instance, "tas", threshold="stylized", delta=0.1, trajectories=3000, seed=1)
    combined = math.sqrt(2) * runs.steps.std() / math.sqrt(3000)
    assert abs(runs.steps.mean() - published) < 5 * combined
    assert runs.summary().errors / 3000 < 0.1


# Near ties: few trajectories end within the limit, and of those that do, about half would be wrong if they were
# guesses.
HARD = {
    "bernoulli": cabai.Instance("bernoulli", [0.5, 0.499, 0.499], [0.1, 1, 0.3], cost_model="uniform"),
    "gaussian": cabai.Instance("gaussian", [0.01, 0, 0, 0], [1, 0.01, 0.1, 1]),
    "poisson": cabai.Instance("poisson", [0.31, 0.3], [1, 0.2], cost_model="exponential"),
}
PROVEN = {
    "bernoulli": ["paper", "kt", "mixture", "evalue", "paper(alpha=1.3)"],
    "gaussian": ["mixture", "evalue", "paper(alpha=1.3)"],
    "poisson": ["mixture", "mixture(pairwise=false)", "evalue"],
}


def check_error_rate(family: str, threshold: str, policy: str, max_pulls: int) -> None:
    """At delta = 0.1, 20,000 trajectories, one-sided: more errors than this happen once in a million runs at most."""
    assert cabai.thresholds.threshold_of(threshold).is_proven_for(family)
    runs = cabai.simulate(
        HARD[family], policy, threshold=threshold, delta=0.1, trajectories=20_000, max_pulls=max_pulls
    )
    assert runs.summary().errors <= binom.isf(ONCE_IN_A_MILLION, 20_000, 0.1)


CELLS = [(family, threshold) for family, thresholds in PROVEN.items() for threshold in thresholds]


def is_quick(family: str, threshold: str, policy: str) -> bool:
    """The default run has each cell once, by turns with and without elimination."""
    return policy == ("co", "top-two")[CELLS.index((family, threshold)) % 2]


QUICK = [
    pytest.param(*cell, policy, marks=() if is_quick(*cell, policy) else pytest.mark.slow)
    for cell in CELLS
    for policy in ALL
]


@pytest.mark.parametrize(("family", "threshold", "policy"), QUICK)
def test_errors_stay_below_delta(family, threshold, policy):
    check_error_rate(family, threshold, policy, max_pulls=60 if policy == "d-lucb" else 150)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ALL)
@pytest.mark.parametrize(("family", "threshold"), CELLS)
def test_errors_stay_below_delta_in_the_long_run(family, threshold, policy):
    check_error_rate(family, threshold, policy, max_pulls=3000)


def test_stylized_with_elimination_breaks_its_promise():
    """With ten arms all but tied, racing drops the best arm in far more than a delta share of the runs."""
    from cabai.policies.co import CO, choose, stop

    def best_arm_is_out(arms, run, rules):
        stop(arms, run, rules)
        return arms[0].in_play == 0

    racing = cabai.policy(choose, stop=best_arm_is_out, cost_blind=True, run_memory=CO.run_memory)
    tied = cabai.Instance("gaussian", [1e-9] + [0.0] * 9, [1.0] * 10)
    runs = cabai.simulate(tied, racing, threshold="stylized", delta=0.1, trajectories=4000, max_pulls=5000)
    assert runs.summary().errors > binom.isf(ONCE_IN_A_MILLION, 4000, 0.1)


def test_the_unsigned_statistic_stops_wrongly_and_ours_does_not():
    """Read literally, the paper's Z(t) = max_a min_b Z_{a,b} lets the worst arm, far below the others, end the test."""
    instance = cabai.Instance("gaussian", [1.0, 0.98, -4.0], [1, 1, 1])
    delta, trajectories = 0.01, 200

    def unsigned_decision(trajectory: int) -> int:
        draw = drawer(instance, 0, trajectory)
        rewards = np.zeros(3)
        for n in range(1, 100):
            rewards += [draw(a)[0] for a in range(3)]
            z = [[abs(reference.evidence("gaussian", n, max(x, y), n, min(x, y))) for y in rewards] for x in rewards]
            if max(min(row[:a] + row[a + 1 :]) for a, row in enumerate(z)) > reference.beta_paper(3 * n, delta, 3):
                return int(rewards.argmax())
        return -1

    wrong = sum(unsigned_decision(i) in (1, 2) for i in range(trajectories))
    assert wrong > binom.isf(ONCE_IN_A_MILLION, trajectories, delta)
    ours = cabai.simulate(
        instance, "uniform", delta=delta, trajectories=trajectories, max_pulls=300, threshold="paper"
    ).summary()
    assert ours.errors == 0
