"""How policies choose when the threshold is `bets`: by the worth of its bets and the variance of each arm's rewards.

With the bernoulli divergence, they would choose as if all rewards were 0 or 1. Below, an arm's variance includes a
reserve for what has not been observed, so that an arm whose rewards were all equal is pulled again.
"""

from __future__ import annotations

import math

import numpy as np

from cabai.core.choosing import find_challenger, find_highest
from cabai.families.gaussian import shares_by_gaps
from cabai.thresholds.bets_worth import start

TOTAL = 8.0  # nats: roughly what a decision needs
LEAST = 0.02  # least worth of a bet, in nats, so that an arm whose bets are worth nothing yet is pulled too


def end_of(rules, arm, level):
    """For top-two: the mean against which bets are worth log t. It is 1 - (1 - mean) t^(-1/N) if all rewards were
    equal, and that of a gaussian if they vary a lot."""
    part = level / arm.pulls
    return arm.mean + max(-(1.0 - arm.mean) * math.expm1(-part), math.sqrt(2.0 * arm.variance * part))


def margin_of(rules, l, a):  # noqa: E741
    """What bets on the leader l against arm a are worth."""
    part_l, part_a = parts(rules, l, a)
    return part_l + part_a


def parts(rules, b, a):
    """The worth of the best bets that b is above a minus epsilon: those on b, and those on a."""
    _, up, down, _ = start(b, a, rules.epsilon, -np.inf)
    return b.pulls * up, a.pulls * down


def parts_shown(rules, b, a, epsilon):
    """The same for any epsilon, each at least LEAST."""
    _, up, down, _ = start(b, a, epsilon, -np.inf)
    return max(b.pulls * up, LEAST), max(a.pulls * down, LEAST)


def coin(rules, leader, challenger):
    """h_l and h_c, times the leader's cost: the worth of the bets on each arm, divided by its cost."""
    part_l, part_c = parts(rules, leader, challenger)
    price = leader.cost / challenger.cost
    if part_l + part_c > 0.0:
        return max(part_l, LEAST), max(part_c, LEAST) * price
    return leader.reserved * challenger.pulls, challenger.reserved * leader.pulls * price


def effort(run, arms, a):
    """For co: the square of sqrt(cost) N / sd."""
    arm = arms[a]
    return arm.costs * arm.pulls / working_variance(run, arm, a)


def working_variance(run, arm, a):
    """The variance of a gaussian that would be as hard to tell from another arm as this one is with bets.

    A bet that a reward is above m is worth at most about gap/m, and below m at most about gap/(1 - m), however small
    the variance. If the bets of all pulls are worth TOTAL, this equals gap²/(2v) for v = TOTAL m²/(2N).
    """
    mean = arm.mean
    edge = mean if a == run.leader else 1.0 - mean
    return arm.reserved + 0.5 * TOTAL * edge * edge / arm.tested


def solve_shares(arms, run, rules):
    """For ctas: the shares of gaussian rewards with one variance per arm.

    In units of N/variance all arms have variance 1, and a unit costs cost times variance.
    """
    leader = working_variance(run, arms[run.leader], run.leader)
    run.z /= leader
    for a in range(len(arms)):
        arms[a].share = arms[a].cost  # until the end: a cost that is multiplied and divided differs in its last digit
        arms[a].cost *= working_variance(run, arms[a], a)
    z = shares_by_gaps(arms, run, 0.5, rules.tolerance)
    for a in range(len(arms)):
        arms[a].cost = arms[a].share
        if a != run.leader:
            arms[a].u *= leader / working_variance(run, arms[a], a)
    return z * leader


functions = find_highest, find_challenger, end_of, margin_of, coin, effort, solve_shares
