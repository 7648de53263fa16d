"""Parts of the top-two rules of the literature: who challenges the leader, and the coin between the two."""

from __future__ import annotations

import math

import numpy as np

from cabai.core.shares import halves
from cabai.policies.top_two import coin
from cabai.support.specialise import required_slot
from cabai.support.streams import uniform


def transport(rules, b, n_b, a, n_a):
    """Z_ba with these numbers of pulls, whole or not: n_b d(mean_b, x) + n_a d(mean_a, x); 0 if b is not better."""
    if not b.mean > a.mean:
        return 0.0
    d_b, d_a, _, _ = halves(b, a, n_b / n_a, rules)
    return n_b * d_b + n_a * d_a


@required_slot
def challenger(arms, run, rules, l):  # noqa: E741
    """The arm that challenges the leader l."""


def tc(arms, run, rules, l):  # noqa: E741
    """Transportation cost: argmin Z_la."""
    chosen, least = -1, np.inf
    for a in range(len(arms)):
        if a != l and arms[a].in_play:
            z = transport(rules, arms[l], arms[l].pulls, arms[a], arms[a].pulls)
            if chosen < 0 or z < least:
                chosen, least = a, z
    return chosen


def tci(arms, run, rules, l):  # noqa: E741
    """The same with an improvement that keeps arms from starving: argmin Z_la + log N_a."""
    chosen, least = -1, np.inf
    for a in range(len(arms)):
        if a != l and arms[a].in_play:
            z = transport(rules, arms[l], arms[l].pulls, arms[a], arms[a].pulls) + math.log(arms[a].pulls)
            if chosen < 0 or z < least:
                chosen, least = a, z
    return chosen


@required_slot
def weights(rules, leader, rival):
    """h_l and h_c: the leader is pulled with probability h_l / (h_l + h_c)."""


def ids(rules, leader, rival):
    """Information-directed: h_a = N_a d(mean_a, x) / cost_a."""
    return coin(rules, leader, rival)


def half(rules, leader, rival):
    """Half of the money for the leader: half of the pulls if costs are equal."""
    return rival.cost, leader.cost


def toss(arms, run, rules, l, c):  # noqa: E741
    h_l, h_c = weights(rules, arms[l], arms[c])
    return l if uniform(run) * (h_l + h_c) < h_l else c


CHALLENGERS = {"tc": tc, "tci": tci}
COINS = {"ids": ids, "half": half}
