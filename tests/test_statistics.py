"""Rates and means, tested as statistics: a stated number of trajectories, a tolerance from the standard error."""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import pytest
from scipy.stats import binom

import cabai
from combinations import WITHOUT_BUDGET
from samplers import ATTACKS, BOUNDED, MEANS, PLAIN, SAMPLERS, SYMMETRIC, tied

ALL = ["co", "ctas", "tas", "d-lucb", "uniform", "racing", "top-two"]
ONCE_IN_A_MILLION = 1e-6
SLOW = pytest.mark.slow


def errors_of(instance, policy, threshold, trajectories, max_pulls, tests=1, **options) -> int:
    """At delta = 0.1: more errors than this happen once in a million runs of all these tests, at most."""
    runs = cabai.simulate(
        instance, policy, threshold=threshold, delta=0.1, trajectories=trajectories, max_pulls=max_pulls, **options
    )
    errors = int(runs.wrong.sum())
    print(f"{threshold}, {policy}: wrong {errors / trajectories:.5f}")
    assert errors <= binom.isf(ONCE_IN_A_MILLION / tests, trajectories, 0.1)
    return errors


@pytest.mark.parametrize(
    ("policy", "mean", "tolerance"),
    [("co", 317, 7), ("ctas", 310, 7), pytest.param("tas", 389, 9, marks=SLOW), ("racing", 388, 9)],
)
def test_mean_cost_on_the_papers_instance(paper_instance, policy, mean, tolerance):
    summary = cabai.simulate(paper_instance, policy, delta=1e-6, trajectories=2000, seed=1, threshold="paper").summary()
    assert abs(summary.mean_cost - mean) < tolerance


@pytest.mark.parametrize(
    ("means", "published"),
    [
        pytest.param([0.5, 0.45, 0.43, 0.4], 4052, id="K=4", marks=SLOW),
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


class Tie(NamedTuple):
    threshold: str
    law: str
    sampler: str
    arms: int
    trajectories: int = 100_000
    pulls: int = 300  # for each arm, at most
    epsilon: float = 0.0


QUICK_TIES = [
    Tie("contrast", "gaussian", "co", 2, 5000, 500),
    Tie("contrast", "poisson 3000", "co", 2, 5000, 250),  # also where two ranges of means meet
    Tie("evalue", "gaussian", "uniform", 2, 2000, 1500), Tie("champion", "gaussian", "press", 3, 5000, 333),
    Tie("champion", "gaussian", "tip_rivals", 3, 5000, 333), Tie("champion", "gaussian", "stake_rivals", 4, 5000, 250),
    Tie("champion", "beta", "press", 3, 3000, 133), Tie("hedged", "gaussian", "stake", 2, 5000, 500),
    Tie("bets", "rare zeros", "spoil", 2, 2000, 200), Tie("symmetric", "t3", "hunt", 2, 3000, 200),
]  # fmt: skip
LAWS = ["rare zeros", *BOUNDED]
LARGE = [f"poisson {mean}" for mean in (4, 64, 3000, 1024**2)]
OF_CHAMPION = ["co", "top-two", "press", "lurk", "in_turn", "follow", "spoil", "hunt"]
OF_HEDGED = ["co", "top-two", "stake", "tip", "in_blocks", "follow", "spoil", "hunt"]
SOME = [(law, each) for i, law in enumerate(LAWS) for j, each in enumerate(SAMPLERS) if (i + j) % 3 == 0]
HALF = [(law, each) for i, law in enumerate(LAWS) for j, each in enumerate(OF_CHAMPION) if (i + j) % 2 == 0]
LONG_TIES = [
    *(Tie("contrast", *each) for each in product(MEANS, SAMPLERS, (2, 3, 10))),
    *(Tie("contrast", *each, 3) for each in product(LARGE, SAMPLERS)),
    *(Tie("contrast", *each, 3, 20_000, 333, epsilon=0.1) for each in product(MEANS, SAMPLERS)),
    *(Tie("evalue", *each, 2000, 10_000) for each in product([*MEANS, "any in [0, 1]"], PLAIN, (2, 10))),
    *(Tie("champion", *each) for each in product(MEANS, OF_CHAMPION, (3, 10))),
    *(Tie("champion", "gaussian", *each) for each in product(("tip_rivals", "stake_rivals"), (3, 4))),
    *(Tie("champion", *each, epsilon=0.1) for each in product(MEANS, ("co", "top-two"), (3, 10))),
    *(Tie("champion", *each, arms, pulls=150) for each in HALF for arms in (3, 10)),
    *(Tie("hedged", "gaussian", each, 2, pulls=500) for each in OF_HEDGED),
    *(Tie("bets", *each, arms, pulls=150) for each in SOME for arms in (2, 3, 10)),
    *(Tie("bets", *each, 3, 20_000, 333, 0.02) for each in SOME if each[0] not in ("rare zeros", "mostly 0")),
    *(Tie("symmetric", *each) for each in product(["unknown variance", *SYMMETRIC], SAMPLERS, (2, 3, 10))),
]  # fmt: skip


@pytest.mark.parametrize(
    "tie",
    [*QUICK_TIES, *(pytest.param(each, marks=SLOW) for each in LONG_TIES)],
    ids=lambda tie: " ".join(map(str, tie)),
)
def test_tied_arms_are_told_apart_as_rarely_as_promised(tie):
    """All arms tied, but for 1e-9 by which the last is better, or just not within epsilon of it."""
    stops_by_itself = tie.threshold in ("champion", "hedged") and tie.sampler in ATTACKS
    errors = errors_of(
        tied(tie.law, tie.arms, 1e-9 + tie.epsilon), (ATTACKS if stops_by_itself else SAMPLERS)[tie.sampler],
        tie.threshold, tie.trajectories, tie.pulls * tie.arms, epsilon=tie.epsilon, seed=6,
    )  # fmt: skip
    assert errors > 0 or tie.sampler != "co" or tie not in QUICK_TIES  # so that they were possible


# Near ties: few trajectories end within the limit, and of those that do, about half would be wrong if they were
# guesses.
HARD = {
    "bernoulli": cabai.Instance("bernoulli", [0.5, 0.499, 0.499], [0.1, 1, 0.3], cost_model="uniform"),
    "gaussian": cabai.Instance("gaussian", [0.01, 0, 0, 0], [1, 0.01, 0.1, 1]),
    "poisson": cabai.Instance("poisson", [0.31, 0.3], [1, 0.2], cost_model="exponential"),
}
# Wrong arms are just below best - epsilon, and some arms are just above.
HARD_WITHIN = {
    "gaussian": (cabai.Instance("gaussian", [0, -0.45, -0.525, -0.525, -0.525], [1, 0.3, 0.1, 0.1, 1]), 0.5),
    "bernoulli": (
        cabai.Instance("bernoulli", [0.7, 0.52, 0.49, 0.49, 0.49], [1, 0.3, 0.1, 0.1, 1], cost_model="uniform"), 0.2),
    "poisson": (cabai.Instance("poisson", [2, 1.55, 1.475, 1.475], [1, 0.3, 0.1, 0.1], cost_model="beta"), 0.5),
    "exponential": (cabai.Instance("exponential", [1, 0.64, 0.58, 0.58], [1, 0.3, 0.1, 0.1]), 0.4),
    "bounded": (cabai.Instance("bounded", [0.7, 0.52, 0.49, 0.49], [1, 0.3, 0.1, 0.1]), 0.2),
}  # fmt: skip
PROVEN = {
    "bernoulli": ["paper", "kt", "mixture", "evalue", "paper(alpha=1.3)"],
    "gaussian": ["mixture", "evalue", "paper(alpha=1.3)"],
    "poisson": ["mixture", "mixture(pairwise=false)", "evalue"],
    "exponential": ["evalue", "mixture(pairwise=false)"],
    "bounded": ["evalue", "kt"],
}
CELLS = [(family, threshold) for family, thresholds in PROVEN.items() for threshold in thresholds]
QUICK = [
    ("bernoulli", "paper", "co"), ("bernoulli", "kt", "top-two"), ("gaussian", "mixture", "co"),
    ("gaussian", "paper(alpha=1.3)", "top-two"), ("poisson", "mixture(pairwise=false)", "co"),
    ("poisson", "evalue", "top-two"),
]  # fmt: skip
QUICK_WITHIN = [("gaussian", "evalue", "top-two"), ("bernoulli", "mixture", "racing")]


def every(quick, cells, policies):
    """The quick ones, and all others in the slow run."""
    return [
        pytest.param(*each, marks=() if each in quick else SLOW)
        for each in ((*cell, policy) for cell in cells for policy in policies)
    ]


@pytest.mark.parametrize("max_pulls", [150, pytest.param(3000, marks=SLOW)])
@pytest.mark.parametrize(
    ("family", "threshold", "policy"), every(QUICK, [each for each in CELLS if each[0] in HARD], ALL)
)
def test_errors_stay_below_delta(family, threshold, policy, max_pulls):
    """Also in the long run."""
    assert cabai.thresholds.threshold_of(threshold).is_proven_for(family)
    max_pulls = 60 if max_pulls == 150 and policy == "d-lucb" else max_pulls
    errors_of(HARD[family], policy, threshold, 20_000, max_pulls)


@pytest.mark.parametrize(("family", "threshold", "policy"), every(QUICK_WITHIN, CELLS, WITHOUT_BUDGET))
def test_errors_beyond_epsilon_stay_below_delta(family, threshold, policy):
    """And, where an early false alarm is the only way to stop, in runs that are cut short."""
    (instance, epsilon), is_quick = HARD_WITHIN[family], (family, threshold, policy) in QUICK_WITHIN
    for trajectories, most in ((2000, 30_000),) if is_quick else ((20_000, 30_000), (20_000, 60)):
        errors_of(instance, policy, threshold, trajectories, most, tests=300, epsilon=epsilon, seed=11)
