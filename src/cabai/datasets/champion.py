"""The champion race: one test for each arm, of "this arm is the best", whatever the number of arms; for epsilon 0.

On each item, a gambler against arm a picks the rival that looks best on the earlier items, and bets that it is better
than a, as in `pairs`. If a is the best of all, every such bet is fair or worse, whatever the rival: so the capital ever
reaches 1/delta with probability at most delta, with no union bound over arms to pay for. An item is used once all
remaining arms have finished it; arms that it drops are not on the next (docs/theory/race.md).
"""

from __future__ import annotations

import math

import numpy as np

from cabai.datasets.board import NO_ARM
from cabai.datasets.capital import is_certain, stake

CAUTION = 10.0  # added to a sum of squares, so that a lead of one item does not choose the rival


def compare(board, arm, before):
    """Use every item, in order, that all remaining arms have finished."""
    while is_finished(board, board.column[0]):
        look(board, board.column[0])
        board.column[0] += 1


def is_finished(board, j):
    if j == board.shares.shape[1]:
        return False
    finished = True
    for a in range(len(board.out)):
        finished = finished and (board.out[a] or board.prefix[a] > j)
    return finished


def look(board, j):
    """Bet against each remaining arm on item j, and drop those that are shown not to be the best; never the leader."""
    arms, sums = len(board.out), board.sums
    ahead = NO_ARM
    for a in range(arms):
        if not board.out[a]:
            rival = strongest_rival(board, a, j)
            if rival != NO_ARM:
                stake(board, 0, 0, rival, a, j)
            if ahead == NO_ARM or sums[a, j + 1] > sums[ahead, j + 1]:
                ahead = a
    for a in range(arms):
        if not board.out[a]:
            for b in range(arms):
                if not board.out[b]:
                    d = board.shares[b, j] - board.shares[a, j]
                    board.squares[b, a] += d * d
    for a in range(arms):
        if not board.out[a] and a != ahead:
            if is_certain(board, 0, ahead, a, j):
                board.best[0, 0, a] = np.inf
            board.beaten[a] = board.best[0, 0, a] >= board.target
    for a in range(arms):
        board.out[a] = board.beaten[a]


def strongest_rival(board, a, j):
    """The remaining arm whose lead over a before item j is largest relative to its spread; NO_ARM if none leads."""
    found, most = NO_ARM, 0.0
    for b in range(len(board.out)):
        if not board.out[b] and b != a:
            lead = (board.sums[b, j] - board.sums[a, j]) / math.sqrt(board.squares[b, a] + CAUTION)
            if lead > most:
                found, most = b, lead
    return found


def is_paused(board, leader, a):
    """Never: each item is evaluated with all remaining arms."""
    return False
