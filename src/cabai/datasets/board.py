"""The state of a race of arms on shared items, and what follows from it: who leads, who is out, what comes next.

Plain functions of plain arrays, compiled where many races are run (`replaying`) and called as they are in a live study
(`race`). Items are numbered by their position in the race's random order. The state depends on which scores were told,
not on when: every number here is the same, to the last bit, in any order of arrival.

Two tests decide who beats whom, `pairs` and `champion`; each has the functions `compare` and `is_paused`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.support.specialise import required_slot, slot

NO_ARM = -1


class Board(NamedTuple):
    """The state of a race of K arms on n items."""

    shares: NDArray[np.float64]  # K x n: scores as shares of their range, larger is better; nan until told
    sums: NDArray[np.float64]  # K x (n + 1): of an arm's first j shares, each rounded once, up to its prefix
    carry: NDArray[np.float64]  # K: the rounding error of an arm's last sum
    prefix: NDArray[np.int64]  # K: how many items, from the first, an arm has finished without a gap
    beaten: NDArray[np.bool_]  # K: by any arm
    out: NDArray[np.bool_]  # K: not the best
    capital: NDArray[np.float64]  # tests x arms x arms x bets (see the test in use)
    best: NDArray[np.float64]  # tests x arms x arms: the largest capital so far, all bets together
    settled: NDArray[np.bool_]  # tests x arms x arms: no more bets are made
    squares: NDArray[np.float64]  # arms x arms: of differences; for the champion's choice of a rival
    column: NDArray[np.int64]  # 1: how many items the champion's test has seen
    bets: NDArray[np.float64]
    epsilons: NDArray[np.float64]  # of the tests: 0, which drops arms, and epsilon, which decides
    target: float  # the capital that counts as proof
    running: NDArray[np.float64]  # K: what arms cost to run; used by goal cheapest only, as is the next
    close: NDArray[np.bool_]  # K x K: whether one is at most epsilon worse than another, known once both have finished


@required_slot
def compare(board, arm, before):
    """Take into account what an arm has finished since its prefix was `before`."""


@required_slot
def is_paused(board, leader, a):
    """Whether arm a need not be evaluated while `leader` leads."""


def tell(board, arm, position, share):
    before = board.prefix[arm]
    board.shares[arm, position] = share
    extend(board, arm)
    if board.prefix[arm] > before:
        compare(board, arm, before)


def extend(board, arm):
    """Extend an arm's prefix over the scores told so far, and add them to its sum.

    Each sum is rounded once, and the rounding error is carried from item to item: so it does not matter how many scores
    are told at a time.
    """
    shares, sums, items = board.shares, board.sums, board.shares.shape[1]
    j, carry = board.prefix[arm], board.carry[arm]
    while j < items and not math.isnan(shares[arm, j]):
        total, share = sums[arm, j], shares[arm, j]
        more = total + share
        if total >= share:
            carry += (total - more) + share
        else:
            carry += (share - more) + total
        j += 1
        sums[arm, j] = more + carry
        carry -= sums[arm, j] - more
    board.prefix[arm], board.carry[arm] = j, carry


def mean(board, a):
    return board.sums[a, board.prefix[a]] / board.prefix[a]


@slot
def find_leader(board, costs):
    """Of the arms not out, the one with the best mean on its own prefix; the cheaper one if two tie; or NO_ARM."""
    found = NO_ARM
    for a in range(len(board.prefix)):
        if not board.out[a] and board.prefix[a] > 0 and (found == NO_ARM or is_better(board, costs, a, found)):
            found = a
    return found


def is_better(board, costs, a, b):
    mine, others = mean(board, a), mean(board, b)
    return mine > others or (mine == others and costs[a] < costs[b])


@slot
def is_active(board, leader, a):
    """Whether arm a needs more evaluations."""
    return not board.out[a] and (leader == NO_ARM or a == leader or not is_paused(board, leader, a))


def choose(board, costs, leader, reached):
    """The active arm with the fewest items asked, the cheaper one if two tie, where `reached[a]` is the next position
    of arm a; NO_ARM if everything has been asked of all of them."""
    chosen, items = NO_ARM, board.shares.shape[1]
    for a in range(len(board.prefix)):
        if reached[a] < items and is_active(board, leader, a):
            fewer = chosen == NO_ARM or reached[a] < reached[chosen]
            if fewer or (reached[a] == reached[chosen] and costs[a] < costs[chosen]):
                chosen = a
    return chosen


@slot
def is_decided(board, leader):
    """Whether only the leader is active, or all active arms have finished."""
    if leader == NO_ARM:
        return False
    alone, items = True, board.shares.shape[1]
    finished = True
    for a in range(len(board.prefix)):
        if is_active(board, leader, a):
            alone = alone and a == leader
            finished = finished and board.prefix[a] == items
    return alone or finished


def run_race(state, order, shares, costs, prices, rank, pulls, finish):
    """One race, in which each evaluation is told before the next is chosen; returns the winner and what was paid. If
    all that is left costs at most a share `finish` of that, it is evaluated too."""
    paid = 0.0
    while True:
        leader = find_leader(state, prices)
        if is_decided(state, leader):
            left = 0.0
            for a in range(len(prices)):
                left += prices[a] * (len(order) - state.prefix[a])
            if left > 0.0 and left <= finish * paid:
                paid += evaluate_all(state, order, shares, costs, pulls)
                leader = find_leader(state, prices)
            return winner(state, leader, rank), paid
        a = choose(state, prices, leader, state.prefix)
        position = state.prefix[a]
        item = order[position]
        tell(state, a, position, shares[a, item])
        paid += costs[a, item]
        pulls[a] += 1


def evaluate_all(state, order, shares, costs, pulls):
    """Evaluate what is left of everything; returns what that costs."""
    paid = 0.0
    for a in range(len(pulls)):
        for position in range(state.prefix[a], len(order)):
            item = order[position]
            tell(state, a, position, shares[a, item])
            paid += costs[a, item]
            pulls[a] += 1
    return paid


@slot
def winner(state, leader, rank):
    """The leader or, if it has finished everything, the best of all arms that have."""
    items = state.shares.shape[1]
    found = leader
    for a in range(len(rank)):
        if state.prefix[leader] == items and state.prefix[a] == items and rank[a] < rank[found]:
            found = a
    return found
