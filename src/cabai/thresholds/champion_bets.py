"""`champion` for rewards in [0, 1]: one e-value per arm, made of the linear bets of `bets` instead of tilts.

What counts for an arm a is decided as in `champion`, with the variances of the arms' own rewards. Of the counted
rewards y, a keeps the sums of log(1 + c_i y), so that

    F_a = min over m of  sum over i, j of  W_ij (p u_i(m) + q u'_i(m)) v_j(m)

as there, with the u, v and W of `bets`. The proof is in docs/theory/champion.md.
"""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.core.state import Fields
from cabai.thresholds.bets import (
    KEPT,
    LEAST_PRICE,
    STAKE,
    Bets,
    Sums,
    excess,
    fit_of,
    is_shown,
    log_e,
    sums_down,
    sums_up,
)
from cabai.thresholds.bets_worth import both_worth_at_most, first_guess, reserved_variance
from cabai.thresholds.rivals import OneTestPerArm, credit, sizes

Sample = namedtuple("Sample", "tested tested_mean variance reserved")  # the fields of an arm that estimates use


def credit_bets(arms, run, rules, b, pulls, reward):
    """As in `champion`; the logs of a reward are the same for all arms that it counts for."""
    logs, stakes, of_one = arms[b].logs, rules.stakes, rules.logs
    for i in range(KEPT):
        if reward == 1.0 or reward == 0.0:  # the same as below, but faster
            logs[i] = reward * of_one[i]
        else:
            logs[i] = math.log(1.0 + stakes[i][STAKE] * reward)
    credit(arms, run, rules, b, pulls, reward)


def keep(arm, rules, reward):
    """As for `bets`, with the logs that `credit_bets` has computed."""
    arm.squares += reward * reward
    up, down = arm.up, arm.down
    if reward == 1.0 or reward == 0.0:
        sums, logs = up if reward == 1.0 else down, rules.logs
        for i in range(KEPT):
            sums[i] += logs[i]
        return
    logs, stakes, rest = arm.logs, rules.stakes, 1.0 - reward
    for i in range(KEPT):
        up[i] += logs[i]
        down[i] += math.log(1.0 + stakes[i][STAKE] * rest)


def count_for(rules, arm, b, pulls, reward):
    arm.rivals += pulls
    arm.rival_rewards += reward
    arm.rival_squares += reward * reward
    sums, logs = arm.rival_up, b.logs
    for i in range(KEPT):
        sums[i] += logs[i]


def gap_variance(rules, b, x):
    return b.reserved / b.pulls + x.reserved / x.pulls


def counted(a):
    """The counted rewards, as a sample."""
    n = float(a.rivals)
    mean = float(a.rival_rewards) / n
    variance = max(float(a.rival_squares) / n - mean * mean, 0.0)
    return Sample(n, mean, variance, reserved_variance(n, mean, variance))


def is_worth_testing(rules, t, b, a):
    """As for `bets`, of the rewards of b or of the counted ones."""
    if not b.tested_mean > a.tested_mean - rules.epsilon:
        return False
    most = both_worth_at_most(b, a, rules.epsilon, first_guess(b, a, rules.epsilon)) + rules.log_leader
    if most > rules.level + LEAST_PRICE:
        return True
    if a.rivals == 0:
        return False
    sample = counted(a)
    most = both_worth_at_most(sample, a, 0.0, first_guess(sample, a, 0.0)) + rules.log_counted
    return most > rules.level + LEAST_PRICE


def fit(rules, b, a, epsilon, no):
    """As for `bets`, of the larger part of the sum; with an epsilon, of its second part."""
    m, width, most = fit_of(b, a, epsilon, no - rules.log_leader)
    most += rules.log_leader
    if epsilon == 0.0 and a.rivals > 0 and rules.log_counted > -np.inf:
        sample = counted(a)
        if sample.tested_mean > a.tested_mean:
            own_m, own_width, own = fit_of(sample, a, 0.0, no - rules.log_counted)
            if own + rules.log_counted > most:
                return own_m, own_width, own + rules.log_counted
    return m, width, most


def pair_log_e(rules, last, b, a, k, to_b, to_a, m, epsilon):
    """The log of the sum at m, and its slope; with an epsilon, of its second part alone."""
    log_counted = rules.log_counted if epsilon == 0.0 and a.rivals > 0 else -np.inf
    counts = Sums(float(a.rivals), a.rival_up, float(a.rival_rewards), float(a.rival_squares))
    return log_e(rules, last, sums_up(b), rules.log_leader, counts, log_counted, sums_down(a), m, epsilon)


def is_settled_within(rules, t, b, a):
    return is_shown(rules, t, b, a, 0.0) or is_shown(rules, t, b, a, rules.epsilon)


def surplus_within(rules, t, b, a):
    return max(excess(rules, t, b, a, 0.0), excess(rules, t, b, a, rules.epsilon))


@dataclass(frozen=True)
class ChampionBets(OneTestPerArm, Bets):
    """`champion` for the family bounded, made of the linear bets of `bets`.

    >>> from cabai.families import Bounded
    >>> from cabai.thresholds import Champion
    >>> Champion().for_family(Bounded())
    ChampionBets()
    """

    proof = "Ville's inequality for a mixture of linear bets, on the best rival of each arm"
    pair_test = "bets"
    functions = (
        *Bets.functions, ("credit", credit_bets), keep, count_for, gap_variance, is_worth_testing, sizes, fit,
        pair_log_e,
    )  # fmt: skip
    within = (*Bets.within, ("is_settled", is_settled_within), ("surplus", surplus_within))
    rule_fields: ClassVar[Fields] = {**Bets.rule_fields, "log_counted": 0.0, "log_leader": 0.0}
    arm_fields: ClassVar[Fields] = {
        **Bets.arm_fields,
        "rivals": 0,  # the counted pulls of its rivals
        "rival_rewards": 0.0,  # the sum of their rewards y
        "rival_squares": 0.0,  # the sum of y²
        "rival_up": np.zeros(KEPT),  # sums of log(1 + c y), for each stake c
    }
    arm_scratch: ClassVar[Fields] = {
        **Bets.arm_scratch,
        "logs": np.zeros(KEPT),  # of its last reward
    }

    def pull_equally(self, b: Any, a: Any, arms: int) -> float:
        super().pull_equally(b, a, arms)
        a.rival_squares, a.rival_up[:] = b.squares, b.up
        return math.log(arms - 1)  # measured: 0.9 to 1.2 times simulated costs with 3 and 10 arms
