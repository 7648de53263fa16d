"""The paired race: every arm against every other, on the items that both have finished (docs/theory/race.md).

If "b is not better than a" is true, the capital against it ever reaches (K - 1)/delta with probability at most delta/(K
- 1). Once it has, b beats a.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.board import Board
from cabai.datasets.capital import BETS, ROUNDING, empty_board, factors, is_certain, stake

GIVEN_UP = 2.0**-200  # a capital too small to recover


def board_of(arms: int, items: int, delta: float, epsilons: Sequence[float], wrong: float) -> Board:
    """A board for tests with these epsilons, where this many claims may be false; the first epsilon drops arms."""
    return empty_board(arms, items, epsilons, wrong / delta, math.log(wrong / delta), owners=arms)


def compare(board, arm, before):
    """Bet on every item that an arm and another have both finished since the arm's prefix was `before`."""
    for j in range(before, board.prefix[arm]):
        for other in range(len(board.prefix)):
            if board.prefix[other] > j:
                for test in range(len(board.epsilons)):
                    bet(board, test, arm, other, j)
                    bet(board, test, other, arm, j)
    throw_out(board)


def bet(board, test, b, a, j):
    """Bet on item j that b is better than a, unless that is settled."""
    if board.settled[test, b, a]:
        return
    total = stake(board, test, b, b, a, j)
    if is_certain(board, test, b, a, j):
        total = board.best[test, b, a] = np.inf
    board.settled[test, b, a] = total >= board.target or total < GIVEN_UP
    if test == 0 and total >= board.target:
        board.beaten[a] = True


def throw_out(board):
    """An arm is out once any arm beats it. If all would be out, one of the tests is wrong, and none is dropped."""
    left = 0
    for a in range(len(board.out)):
        left += not board.beaten[a]
    for a in range(len(board.out)):
        board.out[a] = board.beaten[a] and left > 0


def is_paused(board, leader, a):
    return board.best[len(board.epsilons) - 1, leader, a] >= board.target


# The same to the last bit, many pairs at a time: faster where not compiled.


def compare_at_once(board: Board, grown: list[int], before: NDArray[np.int64]) -> None:
    """What `compare` does for each of the arms that have `grown`; the prefixes were `before`."""
    for j in range(min(before[grown].tolist()), max(board.prefix[grown].tolist())):
        arms = np.flatnonzero(board.prefix > j)
        is_new = before[arms] <= j
        new, old = arms[is_new], arms[~is_new]
        b = np.concatenate([new.repeat(len(arms)), *[old] * len(new)])  # and b = a, which is settled
        bet_at_once(board, b, np.concatenate([*[arms] * len(new), new.repeat(len(old))]), j)
    throw_out(board)


def bet_at_once(board: Board, winners: NDArray[np.int64], losers: NDArray[np.int64], j: int) -> None:
    """The same as `bet` for each of these pairs."""
    items = board.shares.shape[1]
    left = items - j
    for test, epsilon in enumerate(board.epsilons):
        open_ = ~board.settled[test, winners, losers]
        b, a = winners[open_], losers[open_]
        if not len(b):
            continue
        possible = items * (ROUNDING - epsilon)
        lead, difference = board.sums[b, j] - board.sums[a, j], board.shares[b, j] - board.shares[a, j]
        plays, by = factors(board.bets, items, left, possible, lead, difference)
        capital = board.capital[test, b, a] * by
        total = np.zeros(len(b))
        for g in range(BETS):
            total += capital[:, g]
        total[~plays] = 0.0
        certain = possible - (board.sums[b, j + 1] - board.sums[a, j + 1]) < 1.0 - left
        total[certain] = np.inf
        board.capital[test, b, a] = capital
        board.best[test, b, a] = np.maximum(board.best[test, b, a], total)
        board.settled[test, b, a] = (total >= board.target) | (total < GIVEN_UP)
        if test == 0:
            board.beaten[a[total >= board.target]] = True
