"""A gambler's capital against "b is not better than a": the test that both races are made of (docs/theory/race.md).

D = score of b - score of a, on one item, lies in [-1, 1]. If the mean of D over all n items is at most -epsilon, and
the first j of them sum to S, the mean of the rest is at most m = (-n epsilon - S)/(n - j): items come in random order,
each once. So a gambler who stakes a share x of a capital on the next D turns each unit into (1 - x) + x (1 + D)/(1 +
m), whose expectation is at most 1. Eight gamblers begin with an eighth each, and stake more as fewer items are left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.board import Board

BETS = 8
LARGEST = 0.9  # the largest that a stake grows to, unless it began larger
# Sums of shares are rounded once, by half a unit of the last place, and so is what is computed from them. To stay on
# the safe side, both the sum left for the remaining items and the capital required are increased by more than all these
# errors together.
ROUNDING = 2.0**-49  # for each item
ROUNDED_UP = 1 + 1e-6
CLOSE = 1e-3  # of epsilon: the precision of the search, from above


def first_bets(items: int, level: float) -> NDArray[np.float64]:
    """The first stakes: from one that just suffices, if all items are needed, to everything."""
    least = min(0.5, math.sqrt(2 * level / items))
    return np.array([least ** (1 - g / (BETS - 1)) for g in range(BETS)])


def empty_board(arms: int, items: int, epsilons: Sequence[float], wealth: float, level: float, owners: int) -> Board:
    """A board before the first evaluation, with a test for each epsilon, in which a capital of `wealth` is a proof (its
    log is `level`): one of each arm against each other, or with one owner, one against each arm."""
    shape = len(epsilons), owners, arms
    settled = np.eye(arms, dtype=np.bool_) if owners == arms else np.zeros((owners, arms), np.bool_)
    return Board(
        shares=np.full((arms, items), np.nan),
        sums=np.zeros((arms, items + 1)),
        carry=np.zeros(arms),
        prefix=np.zeros(arms, np.int64),
        beaten=np.zeros(arms, np.bool_),
        out=np.zeros(arms, np.bool_),
        capital=np.full((*shape, BETS), 1 / BETS),
        best=np.ones(shape),
        settled=np.tile(settled, (len(epsilons), 1, 1)),
        squares=np.zeros((arms, arms)),
        column=np.zeros(1, np.int64),
        bets=first_bets(items, level),
        epsilons=np.array(epsilons),
        target=wealth * ROUNDED_UP,
        running=np.zeros(arms),
        close=np.zeros((arms, arms), np.bool_),
    )


def stake(board, test, owner, b, a, j):
    """Stake on item j that b is better than a; returns the capital that this leaves."""
    items, capital, bets = board.shares.shape[1], board.capital, board.bets
    left = items - j
    m = (items * (ROUNDING - board.epsilons[test]) - (board.sums[b, j] - board.sums[a, j])) / left
    if not -1.0 < m < 1.0:  # at 1 or more, no outcome can refute it
        return 0.0
    grown = items / left * (1.0 + m)
    gain = (1.0 + (board.shares[b, j] - board.shares[a, j])) / (1.0 + m)
    total = 0.0
    for g in range(BETS):
        x = min(bets[g] * grown, max(bets[g], LARGEST))
        capital[test, owner, a, g] *= (1.0 - x) + x * gain
        total += capital[test, owner, a, g]
    board.best[test, owner, a] = max(board.best[test, owner, a], total)
    return total


def is_certain(board, test, b, a, j):
    """Whether the items up to number j already show that b is better than a, whatever the rest brings."""
    items = board.shares.shape[1]
    lead = board.sums[b, j + 1] - board.sums[a, j + 1]
    return items * (ROUNDING - board.epsilons[test]) - lead < 1.0 - (items - j)


def factors(
    bets: NDArray[np.float64], items: int, left: Any, possible: Any, lead: NDArray[np.float64],
    difference: NDArray[np.float64],
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:  # fmt: skip
    """Many stakes at a time, by the formulas of `stake`: whether there is one, and by what it multiplies each bet's
    capital. There are `left` items left, with a sum of at most `possible - lead`."""
    m = (possible - lead) / left
    plays = (m > -1.0) & (m < 1.0)
    room = np.where(plays, 1.0 + m, 1.0)
    gain = (1.0 + difference) / room
    x = np.minimum(bets * (items / left * room)[:, None], np.maximum(bets, LARGEST))
    return plays, np.where(plays[:, None], (1.0 - x) + x * gain[:, None], 1.0)


def largest_capital(board: Board, bets: NDArray[np.float64], b: int, a: int, epsilon: float) -> float:
    """The largest capital so far of b over a, from the scores alone: what a status shows in addition to what the race
    has computed. It is on the items that both have finished, for "a is better than b by at least epsilon"; inf where
    that is known to be false."""
    items, common = board.shares.shape[1], int(min(board.prefix[b], board.prefix[a]))
    if common == 0:
        return 1.0
    left = items - np.arange(common)
    lead = board.sums[b, : common + 1] - board.sums[a, : common + 1]
    possible = items * (ROUNDING - epsilon)
    if (possible - lead[1:] < 1.0 - left).any():
        return math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        plays, by = factors(bets, items, left, possible, lead[:-1], board.shares[b, :common] - board.shares[a, :common])
        total = np.cumprod(by, axis=0).sum(axis=1) / len(bets)
    return float(np.fmax.reduce(total, where=plays, initial=1.0))  # not a number where too large a one meets 0


def smallest_epsilon(
    board: Board, arms: int, delta: float, target: float, b: int, a: int, least: float = 0.0, close: float = CLOSE
) -> float | None:
    """The smallest epsilon from `least` on at which b beats a, rounded up so that b does beat a at the value returned.
    As a share of the range of scores; None if there is none below 1.

    The root of the capital's logarithm grows about as epsilon does: the search draws a line from end to end, and aims
    so close to where it meets the target that each end soon comes close."""
    bets = first_bets(board.shares.shape[1], math.log((arms - 1) / delta))
    low, high = least, 1.0
    below, above = (largest_capital(board, bets, b, a, epsilon) for epsilon in (low, high))
    if below >= target:
        return least
    if not above >= target:
        return None
    for step in itertools.count():
        if high - low <= close * high:
            break
        middle = (low + high) / 2
        if above < math.inf and step % 3:
            first, goal, last = (math.sqrt(math.log(each)) for each in (below, target, above))
            share = (goal - first) / (last - first)
            middle = low + share * (high - low) + math.copysign(0.4 * close * high, 0.5 - share)
        capital = largest_capital(board, bets, b, a, middle)
        if capital >= target:
            high, above = middle, capital
        else:
            low, below = middle, capital
    return high if high < 1.0 else None
