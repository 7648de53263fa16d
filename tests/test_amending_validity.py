"""What docs/theory/amending.md claims, attacked: a user does what makes a wrong decision most likely.

Delta is 0.1 and all arms are tied, an arm being "worse" than those before it. Of n runs, at most so many may be wrong
that a rate of exactly what is claimed would exceed it once in a million times.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import cabai
from amending_attacks import Attack, by_adding, by_dropping, by_periods, drop_levels, join_levels
from cabai.study import levels
from studies import new

DELTA = 0.1
OFTEN = 20_000
RUNS = [5, pytest.param(OFTEN, marks=pytest.mark.slow)]


def most(runs: int, claimed: float) -> int:
    return int(binom.isf(1e-6, runs, claimed))


@pytest.mark.parametrize("runs", RUNS)
def test_a_budget_that_is_raised_whenever_the_worse_arm_leads(runs):
    """At best, the budget never ends before a wrong decision: that is a run without one."""
    tied = cabai.Instance("gaussian", [1e-9, 0.0], [1.0, 1.0])
    found = cabai.simulate(tied, "top-two", delta=DELTA, trajectories=runs, seed=1, max_pulls=2000)
    wrong = int(np.count_nonzero(found.decisions == 1))
    print(f"{wrong} of {runs}")
    assert wrong <= most(runs, DELTA)


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize(("reserve", "claimed"), [(None, 2 * DELTA), (0.2, DELTA)])
def test_arms_dropped_by_somebody_who_looks(runs, reserve, claimed):
    arms, drops, chance = 4, 2, np.random.default_rng(2)
    level = drop_levels(arms, DELTA, reserve, drops)
    study = new(arms=list("abcd"), policy="uniform", reserve=reserve, delta=DELTA)
    for dropped in range(drops + 1):  # those are the levels that a study has
        assert levels.level(study.settings, 0, DELTA) == pytest.approx(level[dropped], rel=1e-12)
        if dropped < drops:
            study.drop(study.arms[dropped])
    attack = Attack(by_dropping, "gaussian", "contrast", arms, often=runs == OFTEN)
    pulls = 500 if runs == OFTEN else 60
    wrong = sum(attack.run(chance.standard_normal(pulls), level, np.zeros((arms, arms))) for _ in range(runs))
    print(f"{wrong} of {runs}")
    assert wrong <= most(runs, claimed)


@pytest.mark.parametrize("runs", RUNS)
def test_arms_that_join_until_one_of_them_wins(runs):
    first, arms, reserve, chance = 2, 12, 0.2, np.random.default_rng(3)
    level = join_levels(first, arms, DELTA, reserve)
    study = new(arms=["a", "b"], policy="uniform", reserve=reserve, delta=DELTA)
    for k in range(arms - first):
        study.add_arm(f"new {k}")
    for a in range(arms):
        assert levels.level(study.settings, a, DELTA) == pytest.approx(level[arms][a], rel=1e-12)
    attack = Attack(by_adding, "gaussian", "contrast", arms, often=runs == OFTEN)
    pulls = 500 if runs == OFTEN else 80
    wrong = sum(attack.run(chance.standard_normal(pulls), level, first, pulls // 20) for _ in range(runs))
    print(f"{wrong} of {runs}")
    assert wrong <= most(runs, DELTA)


@pytest.mark.parametrize("runs", RUNS)
def test_sums_told_in_periods_of_any_length(runs):
    """Looks at sums are looks at the same process, less often."""
    attack = Attack(by_periods, "bernoulli", "contrast", 2, often=runs == OFTEN)
    chance = np.random.default_rng(4)
    wrong = 0
    for _ in range(runs):
        counts = chance.integers(1, 30, (40 if runs == OFTEN else 5, 2))
        wrong += attack.run(counts, chance.binomial(counts, 0.5).astype(float))
    print(f"{wrong} of {runs}")
    assert wrong <= most(runs, DELTA)
