"""People who change a study's arms so that a wrong decision is as likely as they can make it.

All arms are tied, which is the hardest case: an arm counts as worse than those before it, and if it is decided for
though one of those is in, they have won. Plain functions of records, to be compiled."""

from __future__ import annotations

import math

import numpy as np

from cabai.core.compiling import compiled
from cabai.core.observe import observe, weigh
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import surplus
from cabai.families import family_of
from cabai.policies import policy_of
from cabai.thresholds import threshold_of


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


def by_periods(arms, run, rules, counts, sums):
    """Whether a worse arm wins when the test is looked at after periods only: counts[p][a] pulls with that sum."""
    for p in range(len(counts)):
        for a in range(len(arms)):
            if counts[p][a] > 0:
                arms[a].pulls += counts[p][a]
                arms[a].rewards += sums[p][a]
                arms[a].mean = arms[a].rewards / arms[a].pulls
                run.t += counts[p][a]
                weigh(arms[a], rules)
        for i in range(1, len(arms)):
            wins = True
            for j in range(len(arms)):
                if wins and j != i:
                    wins = surplus(rules, run.t, arms[i], arms[j]) > 0.0
            if wins:
                return True
    return False


class Attack:
    """An attack on a test of so many arms; `run(rewards, ...)` makes it once. Compiled, if it is to be made often."""

    def __init__(self, attack, family: str, threshold: str, arms: int, *, often: bool) -> None:
        kind = family_of(family)
        self.setup = Setup(kind, threshold_of(threshold, kind), policy_of("uniform"), arms=arms, delta=0.1)
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
