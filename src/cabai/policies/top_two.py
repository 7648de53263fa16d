"""Cost-aware top-two: a leader, the challenger hardest to tell from it, and a coin that balances what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cabai.core import choosing
from cabai.core.evidence import evidence, evidence_at_least
from cabai.core.state import Fields
from cabai.core.stopping import has_prices
from cabai.core.within import parts_within
from cabai.families.base import upper_end
from cabai.families.slots import divergence
from cabai.policies.base import Policy
from cabai.support.specialise import slot
from cabai.support.streams import uniform
from cabai.support.validation import true_or_false

UNKNOWN = -np.inf


def choose(arms, run, rules):
    l = find_highest(arms, run, rules)  # noqa: E741
    c = find_challenger(arms, run, rules, l)
    h_l, h_c = coin(rules, arms[l], arms[c])
    if rules.randomized:
        return l if uniform(run) * (h_l + h_c) < h_l else c
    return l if h_l * arms[c].pulls > h_c * arms[l].pulls else c


@slot
def find_highest(arms, run, rules):
    """The arm with the largest upper end {q : N_a d(mean_a, q) <= log t}.

    If only one arm's end is above the mark, no end has to be computed. Otherwise one end is computed, and for each
    other arm above the mark a divergence shows whether its end is higher.
    """
    level = math.log(run.t)
    above, highest, least = 0, 0, np.inf
    note_pulls(arms, run, rules, max(run.last, 0))  # mostly the only one
    for a in range(len(arms)):
        arm = arms[a]
        if arm.seen != arm.pulls:
            note_pulls(arms, run, rules, a)
        if arm.to_mark < level:
            above += 1
        if arm.to_mark < least:
            highest, least = a, arm.to_mark
    if above == 1:
        return highest
    end = upper_end(rules, arms[highest].mean, level / arms[highest].pulls)
    if above == 0:
        move_mark(arms, run, rules, end - (end - arms[highest].mean) / 16.0)
    a = next_above(arms, level, 0)
    while a < len(arms):
        arm = arms[a]
        if arm.mean == arms[highest].mean and (arm.pulls == arms[highest].pulls or arm.mean == end):
            higher = a < highest  # the same end (a mean at the edge is its own end), or the same arm
        else:
            higher = distance(arm, end, rules) < level
        if higher:
            highest, end = a, upper_end(rules, arm.mean, level / arm.pulls)
        a = next_above(arms, level, a + 1)
    if above * above > len(arms):
        move_mark(arms, run, rules, 0.5 * (end + max(run.mark, arms[highest].mean)))
    return highest


def note_pulls(arms, run, rules, a):
    """Compute again what depends on the arm's pulls, if there are new ones."""
    arm = arms[a]
    if arm.seen != arm.pulls:
        arm.seen = arm.pulls
        arm.to_mark = distance(arm, run.mark, rules)
        arm.known = UNKNOWN
        if a == run.known_for:
            run.known_for = -1


def next_above(arms, level, a):
    """The first arm from a on whose upper end is above the mark."""
    while a < len(arms) and not arms[a].to_mark < level:
        a += 1
    return a


def distance(arm, q, rules):
    """N d(mean, q), or 0 if q is not above the mean."""
    if not q > arm.mean:
        return 0.0
    return arm.pulls * divergence(rules, arm.mean, arm.mean - q, q, 1.0 - q)


def move_mark(arms, run, rules, mark):
    if mark != run.mark:
        run.mark = mark
        for a in range(len(arms)):
            arms[a].to_mark = distance(arms[a], mark, rules)


@slot
def find_challenger(arms, run, rules, l):  # noqa: E741
    """The arm that the leader l is furthest from beating: the smallest Z minus the arm's price."""
    leader = arms[l]
    if run.leader != l and not has_prices(rules):  # without prices the smallest Z is 0
        for a in range(len(arms)):
            if a != l and arms[a].mean >= leader.mean:
                return a
    if run.known_for != l:
        run.known_for = l
        for a in range(len(arms)):
            arms[a].known = UNKNOWN
    challenger = run.rival if run.rival >= 0 and run.rival != l else (l + 1) % len(arms)  # a first guess
    least = exact_evidence(rules, leader, arms[challenger]) - arms[challenger].price
    if run.last >= 0 and run.last != l:
        bound_evidence(rules, leader, arms[run.last])  # mostly the only one
    a = next_candidate(arms, rules, l, least, 0)
    while a < len(arms):
        margin = exact_evidence(rules, leader, arms[a]) - arms[a].price
        if margin < least or (margin == least and a < challenger):
            challenger, least = a, margin
        a = next_candidate(arms, rules, l, least, a + 1)
    return challenger


def next_candidate(arms, rules, l, least, a):  # noqa: E741
    """The first arm from a on whose margin may not be above `least`."""
    while a < len(arms):
        arm = arms[a]
        if a != l:
            bound_evidence(rules, arms[l], arm)
            if abs(arm.known) - arm.price <= least:
                break
        a += 1
    return a


def bound_evidence(rules, leader, arm):
    if arm.known == UNKNOWN:
        arm.known = -evidence_at_least(rules, leader, arm)


def exact_evidence(rules, leader, arm):
    """Z of the leader over the arm, computed if only a lower bound is known; 0 if the arm's mean is not lower."""
    if arm.known < 0.0:
        arm.known = evidence(rules, leader, arm)
    return arm.known


@slot
def coin(rules, leader, challenger):
    """h_l and h_c, both times the leader's cost, so that no unit of cost makes them overflow."""
    n_l, n_c = leader.pulls, challenger.pulls
    price = leader.cost / challenger.cost
    gap = leader.mean - challenger.mean
    if gap > 0.0:
        n = n_l + n_c
        m = (n_l * leader.mean + n_c * challenger.mean) / n
        rest = (n_l * (1.0 - leader.mean) + n_c * (1.0 - challenger.mean)) / n  # 1 - m
        d_l = divergence(rules, leader.mean, gap * (n_c / n), m, rest)
        d_c = divergence(rules, challenger.mean, -gap * (n_l / n), m, rest)
        if d_l > 0.0 and d_c > 0.0:  # else they underflow
            return n_l * d_l, n_c * d_c * price
    return 1.0 * n_c, n_l * price


def coin_within(rules, leader, challenger):
    """With an epsilon: h_l and h_c, with sum 1, from the two parts of the evidence that the leader is at most epsilon
    worse."""
    n_l, n_c = leader.pulls, challenger.pulls
    price = leader.cost / challenger.cost
    part_l, part_c = parts_within(rules, n_l, leader.mean, n_c, challenger.mean)
    if part_l > 0.0 and part_c > 0.0:
        h_l = part_l / (part_l + part_c * price)
    else:
        h_l = n_c / (n_c + n_l * price)
    return h_l, 1.0 - h_l


@dataclass(frozen=True)
class TopTwo(Policy):
    """Cost-aware top-two: pull the arm with the largest upper end, or the one hardest to tell from it, at random.

    The leader l has the largest upper end {q : N_a d(mean_a, q) <= log t}. The challenger c is the arm that it is
    furthest from beating: the one with the smallest evidence Z_{l,c} minus the arm's price, if the threshold has prices
    (`evalue` and `mixture`). With m their pooled mean, pull the leader with probability h_l/(h_l + h_c), where
    h_a = N_a d(mean_a, m)/cost_a. If the leader's mean is not above the challenger's, h_l = N_c/cost_l and
    h_c = N_l/cost_c, the limit for equal means. In the long run this divides the pulls as the lower bound does.
    `randomized=False` is deterministic: pull the leader iff d(mean_l, m)/cost_l > d(mean_c, m)/cost_c, which reaches
    the same division only for two arms.

    With an epsilon, the arm with the best mean leads unless another arm's upper end is higher by more than epsilon, and
    Z and its parts are those of "the leader is at most epsilon worse".

    With the threshold `bets`, the worth of its bets replaces Z and its parts (docs/theory/bets.md).

    >>> import cabai
    >>> ten = cabai.Instance("bernoulli", [0.9, *[0.5] * 9], [1, *[0.1] * 9])
    >>> for runs in cabai.compare(ten, ["top-two", "co", "ctas"], delta=0.01, trajectories=200).runs:
    ...     print(f"{runs.policy:8}{runs.summary().mean_cost:.0f}")
    top-two 75
    co      114
    ctas    80
    """

    randomized: bool = True
    name = "top-two"
    choose = staticmethod(choose)
    arm_memory: ClassVar[Fields] = {
        "seen": 0,  # the arm's pulls when the two fields below were computed
        "to_mark": 0.0,  # N_a d(mean_a, mark): the arm's upper end is above the mark iff this is below log t
        "known": 0.0,  # Z of `known_for` over the arm, or minus a lower bound on it if that was enough
    }
    run_memory: ClassVar[Fields] = {
        "mark": 0.0,  # slightly below the largest upper end
        "known_for": -1,  # the leader for which `known` was computed
    }
    within = choosing.find_highest, choosing.find_challenger, ("coin", coin_within)

    @property
    def draws(self) -> int:  # type: ignore[override]
        return int(self.randomized)

    def __post_init__(self) -> None:
        true_or_false(self.randomized, "randomized")

    def parameters(self, arms: int) -> dict[str, float]:
        return {"randomized": self.randomized}
