"""The largest capital so far of one arm over another in a race, at any epsilon and from the scores alone: what a status
shows in addition to what the race itself has computed. Many items at a time; the formulas are those of `capital`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.board import Board
from cabai.datasets.capital import LARGEST, ROUNDING, first_bets

CLOSE = 1e-3  # of epsilon: the precision of the search, from above


def largest(board: Board, bets: NDArray[np.float64], b: int, a: int, epsilon: float) -> float:
    """On the items that both arms have finished, for "a is better than b by at least epsilon"; inf where that is known
    to be false."""
    items, common = board.shares.shape[1], int(min(board.prefix[b], board.prefix[a]))
    if common == 0:
        return 1.0
    left = items - np.arange(common)
    lead = board.sums[b, : common + 1] - board.sums[a, : common + 1]
    possible = items * (ROUNDING - epsilon)
    if (possible - lead[1:] < 1.0 - left).any():
        return math.inf
    m = (possible - lead[:-1]) / left
    plays = (m > -1.0) & (m < 1.0)
    room = np.where(plays, 1.0 + m, 1.0)
    gain = (1.0 + (board.shares[b, :common] - board.shares[a, :common])) / room
    x = np.minimum(bets * (items / left * room)[:, None], np.maximum(bets, LARGEST))
    with np.errstate(over="ignore", invalid="ignore"):
        factors = np.where(plays[:, None], (1.0 - x) + x * gain[:, None], 1.0)
        total = (np.cumprod(factors, axis=0) / len(bets)).sum(axis=1)
    return float(max(1.0, np.nanmax(np.where(plays, total, 0.0))))


def smallest_epsilon(
    board: Board, arms: int, delta: float, target: float, b: int, a: int, least: float = 0.0
) -> float | None:
    """The smallest epsilon from `least` on at which b beats a, rounded up so that b does beat a at the value returned.
    As a share of the range of scores; None if there is none below 1."""
    bets = first_bets(board.shares.shape[1], math.log((arms - 1) / delta))
    if largest(board, bets, b, a, least) >= target:
        return least
    low, high = least, 1.0
    if not largest(board, bets, b, a, high) >= target:
        return None
    while high - low > CLOSE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if largest(board, bets, b, a, middle) >= target else (middle, high)
    return high if high < 1.0 else None
