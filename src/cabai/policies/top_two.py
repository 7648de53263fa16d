"""Cost-aware top-two: a leader, the challenger hardest to tell from it, and a coin that balances what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cabai.checks import InvalidInput
from cabai.kernels import only_for
from cabai.kernels.divergence import divergence, upper_end, variance_at
from cabai.kernels.evidence import evidence, evidence_within, parts_within
from cabai.policies.base import Policy
from cabai.state import GAUSSIAN

UNKNOWN = -np.inf


def choose(arms, run, rules):
    if rules.epsilon == 0.0:
        l = find_highest(arms, run, rules)  # noqa: E741
        c = find_challenger(arms, run, rules, l)
        h_l, h_c = coin(rules, arms[l], arms[c])
    else:
        l = int(find_highest_within(arms, run, rules))  # noqa: E741
        c = int(find_challenger_within(arms, rules, l))
        h_l = coin_within(rules, arms[l], arms[c])
        h_c = 1.0 - h_l
    leader, challenger = arms[l], arms[c]
    if rules.randomized:
        return l if run.uniform * (h_l + h_c) < h_l else c
    return l if h_l * challenger.pulls > h_c * leader.pulls else c


# What is remembered from one choice to the next:
#   run.memo   a mark q, a little below the largest upper end
#   arm.memo_2 N_a d(mean_a, q): the arm's upper end is above the mark iff this is below log t
#   run.note   the leader that the evidence below is of; -1 if none
#   arm.memo   Z of that leader over the arm, or minus a lower bound of it, where that was enough to know
#   arm.memo_1 the pulls of the arm after which these were computed


def find_highest(arms, run, rules):
    """The arm with the largest upper end {q : N_a d(mean_a, q) <= log t}.

    If the end of one arm only is above the mark, it need not be solved for. Else one is, and a divergence tells of each
    other arm above the mark whether its end is above that one.
    """
    level = math.log(run.t)
    above, highest, least = 0, 0, np.inf
    for a in range(len(arms)):
        arm = arms[a]
        if arm.memo_1 != arm.pulls:  # pulled since the last choice
            arm.memo_1 = arm.pulls
            arm.memo_2 = distance(arm, run.memo, rules)
            arm.memo = UNKNOWN
            if a == run.note:
                run.note = -1
        if arm.memo_2 < level:
            above += 1
        if arm.memo_2 < least:
            highest, least = a, arm.memo_2
    if above == 1:
        return highest
    end = upper_end(rules.family, rules.variance, arms[highest].mean, level / arms[highest].pulls)
    if above == 0:
        move_mark(arms, run, rules, end - (end - arms[highest].mean) / 16.0)
    for a in range(len(arms)):
        arm = arms[a]
        if arm.memo_2 < level:
            if arm.mean == arms[highest].mean and (arm.pulls == arms[highest].pulls or arm.mean == end):
                higher = a < highest  # the same end (a mean at the edge is its own), or the arm itself
            else:
                higher = distance(arm, end, rules) < level
            if higher:
                highest, end = a, upper_end(rules.family, rules.variance, arm.mean, level / arm.pulls)
    if above * above > len(arms):
        move_mark(arms, run, rules, 0.5 * (end + max(run.memo, arms[highest].mean)))
    return highest


def distance(arm, q, rules):
    """N d(mean, q), or 0 if q is not above the mean."""
    if not q > arm.mean:
        return 0.0
    return arm.pulls * divergence(rules.family, rules.variance, arm.mean, arm.mean - q, q, 1.0 - q)


def move_mark(arms, run, rules, mark):
    if mark != run.memo:
        run.memo = mark
        for a in range(len(arms)):
            arms[a].memo_2 = distance(arms[a], mark, rules)


def find_challenger(arms, run, rules, l):  # noqa: E741
    """The arm that the leader l is furthest from beating: of the least Z less the arm's price."""
    leader = arms[l]
    if run.leader != l and not rules.evalue and rules.pair_loglog == 0.0:  # without prices, some arm has the least: 0
        for a in range(len(arms)):
            if a != l and arms[a].mean >= leader.mean:
                return a
    if run.note != l:
        run.note = l
        for a in range(len(arms)):
            arms[a].memo = UNKNOWN
    challenger = run.rival if run.rival >= 0 and run.rival != l else (l + 1) % len(arms)  # a guess, to begin with
    least = exact_evidence(rules, leader, arms[challenger]) - arms[challenger].price
    for a in range(len(arms)):
        arm = arms[a]
        if a != l:
            if arm.memo == UNKNOWN:
                arm.memo = -evidence_at_least(rules, leader, arm)
            if abs(arm.memo) - arm.price <= least:
                margin = exact_evidence(rules, leader, arm) - arm.price
                if margin < least or (margin == least and a < challenger):
                    challenger, least = a, margin
    return challenger


def exact_evidence(rules, leader, arm):
    """Z of the leader over the arm, computed if only a lower bound is known; 0 if the arm's mean is not below."""
    if arm.memo < 0.0:
        arm.memo = evidence(rules, leader, arm)
    return arm.memo


def evidence_at_least(rules, leader, arm):
    """A lower bound of Z of the leader over the arm that needs no logarithm and is mostly close.

    d(p, q) is the integral of |x - p|/V(x) from one to the other. 1/V is convex in every family, so by Jensen's
    inequality d(p, q) >= (p - q)²/(2 V(x)), x two thirds of the way from p to q.
    """
    gap = leader.tested_mean - arm.tested_mean
    if not gap > 0.0:
        return 0.0
    n_l, n_a = leader.tested, arm.tested
    n = n_l + n_a
    m = (n_l * leader.tested_mean + n_a * arm.tested_mean) / n
    x_l, x_a = (leader.tested_mean + 2.0 * m) / 3.0, (arm.tested_mean + 2.0 * m) / 3.0
    V_l = variance_at(rules.family, rules.variance, x_l, 1.0 - x_l)
    V_a = variance_at(rules.family, rules.variance, x_a, 1.0 - x_a)
    to_l, to_a = gap * n_a / n, gap * n_l / n  # mean - m, without signs
    return 0.5 * (n_l * to_l * to_l / V_l + n_a * to_a * to_a / V_a)


def coin(rules, leader, challenger):
    """h_l and h_c, both times the leader's cost, so that no unit of cost takes them out of the range of numbers."""
    n_l, n_c = leader.pulls, challenger.pulls
    price = leader.cost / challenger.cost
    gap = leader.mean - challenger.mean
    if gap > 0.0 and rules.family != GAUSSIAN:  # for gaussian, the limit for equal means holds for all
        n = n_l + n_c
        m = (n_l * leader.mean + n_c * challenger.mean) / n
        rest = (n_l * (1.0 - leader.mean) + n_c * (1.0 - challenger.mean)) / n  # 1 - m
        d_l = divergence(rules.family, rules.variance, leader.mean, gap * (n_c / n), m, rest)
        d_c = divergence(rules.family, rules.variance, challenger.mean, -gap * (n_l / n), m, rest)
        if d_l > 0.0 and d_c > 0.0:  # else they are too small for a number
            return n_l * d_l, n_c * d_c * price
    return 1.0 * n_c, n_l * price


@only_for("epsilon")
def find_highest_within(arms, run, rules):
    """The arm with the best mean, unless the upper end of another is higher than its own by more than epsilon."""
    level = math.log(run.t)
    highest, end = -1, -np.inf
    for a in range(len(arms)):
        own = upper_end(rules.family, rules.variance, arms[a].mean, level / arms[a].pulls)
        if a != run.leader:
            own -= rules.epsilon
        if own > end:
            highest, end = a, own
    return highest


@only_for("epsilon")
def find_challenger_within(arms, rules, l):  # noqa: E741
    """The arm of which the data say least that the leader l is at most epsilon worse than it."""
    challenger, least = -1, np.inf
    for a in range(len(arms)):
        if a != l:
            margin = evidence_within(rules, arms[l], arms[a]) - arms[a].price
            if challenger < 0 or margin < least:
                challenger, least = a, margin
    return challenger


@only_for("epsilon")
def coin_within(rules, leader, challenger):
    """h_l/(h_l + h_c), from the parts of the evidence that the leader is at most epsilon worse."""
    n_l, n_c = leader.pulls, challenger.pulls
    price = leader.cost / challenger.cost
    part_l, part_c = parts_within(rules, n_l, leader.mean, n_c, challenger.mean)
    if part_l > 0.0 and part_c > 0.0:
        return part_l / (part_l + part_c * price)
    return n_c / (n_c + n_l * price)


@dataclass(frozen=True)
class TopTwo(Policy):
    """Cost-aware top-two: pull the arm with the largest upper end or the one hardest to tell from it, by a coin.

    The leader l has the largest upper end {q : N_a d(mean_a, q) <= log t}. The challenger c is the arm that it is
    furthest from beating: the least evidence Z_{l,c}, less the arm's price where the threshold has one (`evalue` and
    `mixture`). With m their pooled mean, pull the leader with probability h_l/(h_l + h_c), h_a = N_a d(mean_a,
    m)/cost_a; where its mean is not above the challenger's, h_l = N_c/cost_l and h_c = N_l/cost_c, the limit for equal
    means. In the long run that divides the pulls as the lower bound does. `randomized=False` tosses no coin: pull the
    leader iff d(mean_l, m)/cost_l > d(mean_c, m)/cost_c, which does so for two arms only.

    With an epsilon, the arm with the best mean leads unless another's upper end is higher by more than epsilon, and Z
    and its parts are those of "the leader is at most epsilon worse".

    >>> import cabai
    >>> ten = cabai.Instance("bernoulli", [0.9, *[0.5] * 9], [1, *[0.1] * 9])
    >>> for runs in cabai.compare(ten, ["top-two", "co", "ctas"], delta=0.01, trajectories=200).runs:
    ...     print(f"{runs.policy:8}{runs.summary().mean_cost:.0f}")
    top-two 129
    co      198
    ctas    130
    """

    randomized: bool = True
    name = "top-two"
    choose = staticmethod(choose)

    def __post_init__(self) -> None:
        if not isinstance(self.randomized, bool):
            raise InvalidInput(f"randomized must be true or false, got {self.randomized!r}.")

    def numbers(self, arms: int) -> dict[str, float]:
        return {"randomized": self.randomized}
