"""Races under an adversary who sees everything, and in all orders of a few items: to be compiled."""

from __future__ import annotations

import math

from cabai.datasets.board import NO_ARM, find_leader, is_decided, tell, winner


def race_with_adversary(state, order, shares, prices, rank, good, best, strategy):
    """All results, in an order that an adversary chooses who knows the table, the order of the items and the best arm,
    and who stops when the answer is wrong; returns whether it ever is."""
    arms, items = shares.shape
    for _ in range(arms * items):
        a = next_reveal(state, order, shares, best, strategy)
        tell(state, a, state.prefix[a], shares[a, order[state.prefix[a]]])
        leader = find_leader(state, prices)
        if is_decided(state, leader) and not good[winner(state, leader, rank)]:
            return True
    return False


def next_reveal(state, order, shares, best, strategy):
    """0: all arms in step. 1: the best arm last of all. 2: the best arm first. 3: good news of rivals and bad news of
    the best arm first."""
    found, most = NO_ARM, 0.0
    arms, items = shares.shape
    for a in range(arms):
        j = state.prefix[a]
        if j < items:
            if strategy == 0:
                urgency = 1.0 * (items - j)
            elif strategy == 1:
                urgency = 1.0 if a == best else 1.0 + items - j
            elif strategy == 2:
                urgency = 1.0 + items if a == best else 1.0 * (items - j)
            else:
                share = shares[a, order[j]]
                urgency = 1.0 + (1.0 - share if a == best else share) + (items - j) / (2.0 * items)
            if urgency > most:
                found, most = a, urgency
    return found


def all_orders(state, fresh, columns, found):
    """Whether arm 0 is beaten, and whether arm 1 is shown better by the first and by the last of the tests of pairs,
    after some items of each sequence of columns: number c of them has the digits of c, in the number system of as many
    digits as there are columns."""
    arms, kinds = columns.shape
    last, of_pairs = len(state.epsilons) - 1, state.best.shape[1] > 1
    for code in range(len(found)):
        renew(state, fresh)
        rest = code
        for j in range(state.shares.shape[1]):
            for a in range(arms):
                tell(state, a, j, columns[a, rest % kinds])
            rest //= kinds
        found[code, 0] = state.beaten[0]
        found[code, 1] = of_pairs and state.best[0, 1, 0] >= state.target
        found[code, 2] = of_pairs and state.best[last, 1, 0] >= state.target


def renew(state, fresh):
    """A race that has been run as it was at the beginning."""
    arms, items = state.shares.shape
    state.column[0] = 0
    for a in range(arms):
        state.carry[a], state.prefix[a], state.beaten[a], state.out[a] = 0.0, 0, False, False
        for j in range(items):
            state.shares[a, j] = math.nan
    tests, owners, against, bets = state.capital.shape
    for t in range(tests):
        for b in range(owners):
            for a in range(against):
                state.best[t, b, a], state.settled[t, b, a] = fresh.best[t, b, a], fresh.settled[t, b, a]
                for g in range(bets):
                    state.capital[t, b, a, g] = fresh.capital[t, b, a, g]
    for b in range(state.squares.shape[0]):
        for a in range(state.squares.shape[1]):
            state.squares[b, a] = 0.0
