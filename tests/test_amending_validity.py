"""What docs/theory/amending.md claims, attacked: a user does what makes a wrong decision most likely.

Delta is 0.1 and all arms are tied, an arm being "worse" than those before it. Of n runs, at most so many may be wrong
that a rate of exactly what is claimed would exceed it once in a million times.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from cabai.core.compiling import compiled
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import surplus
from cabai.families import family_of
from cabai.policies import policy_of
from cabai.study import levels
from cabai.thresholds import threshold_of
from studies import new

DELTA = 0.1
OFTEN = 20_000
RUNS = [5, pytest.param(OFTEN, marks=pytest.mark.slow)]


def most(runs: int, claimed: float) -> int:
    return int(binom.isf(1e-6, runs, claimed))


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
    attack = Attack(by_dropping, arms, often=runs == OFTEN)
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
    attack = Attack(by_adding, arms, often=runs == OFTEN)
    pulls = 500 if runs == OFTEN else 80
    wrong = sum(attack.run(chance.standard_normal(pulls), level, first, pulls // 20) for _ in range(runs))
    print(f"{wrong} of {runs}")
    assert wrong <= most(runs, DELTA)


# People who change a study's arms so that a wrong decision is as likely as they can make it: plain functions of records


def by_dropping(arms, run, rules, rewards, levels, log_e):
    """Whether somebody who drops arms, whichever and whenever it helps, makes a worse arm the decision.

    levels[D] is the level once D arms were dropped. Arm i wins if it beats every arm but D, dropped, and one that it
    beats is better. Pulls go to whichever worse arm looks best against a better one, and to that one. log_e is a matrix
    of zeros to work with."""
    K = len(arms)
    worse, better = 1, 0
    for t in range(len(rewards)):
        a = t % K if t < 3 * K or t % 4 == 0 else worse if arms[worse].pulls <= arms[better].pulls else better
        observe(arms, run, rules, a, rewards[t], 1.0)
        if t < K:
            continue
        for other in range(K):
            if other != a:
                log_e[a, other] = surplus(rules, run.t, arms[a], arms[other]) + rules.level
                log_e[other, a] = surplus(rules, run.t, arms[other], arms[a]) + rules.level
        most = -1.0
        for i in range(1, K):
            for drops in range(len(levels)):
                not_beaten, wrong = 0, False
                for j in range(K):
                    if j != i:
                        if log_e[i, j] > levels[drops]:
                            wrong = wrong or j < i
                        else:
                            not_beaten += 1
                if wrong and not_beaten <= drops:
                    return True
            for j in range(i):
                if log_e[i, j] > most:
                    most, worse, better = log_e[i, j], i, j
    return False


def by_adding(arms, run, rules, rewards, levels, first, every):
    """Whether somebody who lets another arm join after every so many pulls of the last makes one of them the decision,
    each worse than the first arm. levels[n][i] is the level of arm i when there are n arms. Pulls go to the newest arm
    and to the best in turn, and now and then to others, which must be beaten too."""
    present = first
    t = 0
    for i in range(first):
        observe(arms, run, rules, i, rewards[t], 1.0)
        t += 1
    while t < len(rewards):
        newest = present - 1
        a = newest if t % 2 == 0 else 0
        if t % 8 == 7:  # the others must be beaten too
            a = 0
            for i in range(present):
                if arms[i].pulls < arms[a].pulls:
                    a = i
        observe(arms, run, rules, a, rewards[t], 1.0)
        t += 1
        rules.level = levels[present][newest]
        wins = arms[newest].mean > arms[0].mean
        for j in range(present):
            if wins and j != newest:
                wins = surplus(rules, run.t, arms[newest], arms[j]) > 0.0
        if wins and newest > 0:
            return True
        if arms[newest].pulls >= every and present < len(arms):
            if t < len(rewards):
                observe(arms, run, rules, present, rewards[t], 1.0)
                t += 1
            present += 1
    return False


class Attack:
    """An attack on contrast's test of that many gaussian arms; `run(rewards, ...)` makes it once. Compiled, if it is to
    be made often."""

    def __init__(self, attack, arms: int, *, often: bool) -> None:
        kind = family_of("gaussian")
        self.setup = Setup(kind, threshold_of("contrast", kind), policy_of("uniform"), arms=arms, delta=0.1)
        plain = self.setup.bound(attack)
        self.attack = compiled(plain) if often else called_plainly(plain)

    def run(self, rewards, *more) -> bool:
        arms, run = self.setup.start()
        with np.errstate(all="ignore"):
            return bool(self.attack(arms, run, self.setup.rules.copy(), rewards, *more))


def called_plainly(function):
    return lambda arms, run, rules, *more: function(Records(arms), Record(run), Record(rules), *more)


def drop_levels(K: int, delta: float, reserve: float | None, most: int) -> np.ndarray:
    """The levels of docs/theory/amending.md, for 0 to `most` arms dropped."""
    if reserve is None:
        return np.array([math.log((K - 1) * 2**drops / delta) for drops in range(most + 1)])
    parts = [1 - reserve, *(reserve / 2**drops for drops in range(1, most + 1))]
    return np.array([math.log(K / (1 - reserve) / part / delta) for part in parts])


def join_levels(first: int, K: int, delta: float, reserve: float) -> np.ndarray:
    """By the number of arms, and by arm."""
    own = [first / (1 - reserve)] * first + [2 * k * 2**k / reserve for k in range(1, K - first + 1)]
    return np.array([[math.log(part / (1 - reserve) / delta) for part in own]] * (K + 1))
