"""Parts of the top-two rules of the literature: who challenges the leader, and the coin between the two."""

import math

import numpy as np

from cabai.core.shares import halves
from cabai.policies.top_two import coin
from cabai.support.specialise import required_slot, slot
from cabai.support.streams import uniform


def transport(rules, b, n_b, a, n_a):
    """Z_ba with these numbers of pulls, whole or not: n_b d(mean_b, x) + n_a d(mean_a, x); 0 if b is not better."""
    if not b.mean > a.mean:
        return 0.0
    d_b, d_a, _, _ = halves(b, a, n_b / n_a, rules)
    return n_b * d_b + n_a * d_a


@slot
def challenger(arms, run, rules, l):  # noqa: E741
    """The arm that challenges the leader l."""
    return closest(arms, rules, l)


def closest(arms, rules, l):  # noqa: E741
    """The arm in play that is hardest to tell from l."""
    chosen, least = -1, np.inf
    for a in range(len(arms)):
        if a != l and arms[a].in_play:
            apart = separation(rules, arms[l], arms[a])
            if chosen < 0 or apart < least:
                chosen, least = a, apart
    return chosen


@slot
def separation(rules, l, a):  # noqa: E741
    """How far arm a is from challenging the leader l. Transportation cost: Z_la."""
    return transport(rules, l, l.pulls, a, a.pulls)


def improved(rules, l, a):  # noqa: E741
    """The same with an improvement that keeps arms from starving: Z_la + log N_a."""
    return transport(rules, l, l.pulls, a, a.pulls) + math.log(a.pulls)


def of_weights(rules, l, a):  # noqa: E741
    """Z_la where pulls follow weights, which are shares of the money."""
    return transport(rules, l, l.weight / l.cost, a, a.weight / a.cost)


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


SEPARATIONS = {"tc": None, "tci": improved}
COINS = {"ids": ids, "half": half}
