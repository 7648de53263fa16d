"""The race for the cheapest arm that is good enough: the tests of `pairs`, with other claims, see
docs/theory/cheapest.md.

An arm is out once any arm is shown better than it by more than the margin, epsilon - slack. An arm is shown good once
it beats every other arm at epsilon, or both have finished everything and it is at most epsilon worse. The answer is the
cheapest arm to run that is shown good, once every cheaper arm is out.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from cabai.datasets.board import NO_ARM, mean
from cabai.datasets.pairs import compare, is_paused


def find_leader(board, costs):
    """The likely answer: the cheapest arm, not out, at most the middle between margin and epsilon below the best."""
    best = find_best(board)
    answer = best
    middle = 0.5 * (board.epsilons[1] - board.epsilons[0])
    for a in range(len(board.prefix)):
        is_likely = not board.out[a] and board.prefix[a] > 0 and mean(board, a) >= mean(board, best) - middle
        if is_likely and is_cheaper(board, a, answer):
            answer = a
    return answer


def find_best(board):
    """Of the arms not out, the one with the best mean on its own prefix; or NO_ARM."""
    found = NO_ARM
    for a in range(len(board.prefix)):
        if not board.out[a] and board.prefix[a] > 0 and (found == NO_ARM or mean(board, a) > mean(board, found)):
            found = a
    return found


def is_cheaper(board, a, b):
    """Whether arm a costs less to run; of two that cost the same, the first does."""
    return board.running[a] < board.running[b] or (board.running[a] == board.running[b] and a < b)


def is_cleared(board, b, a):
    """Whether b is at most epsilon worse than a: exactly, if both have finished everything; else if that is shown."""
    items = board.shares.shape[1]
    if board.prefix[a] == items and board.prefix[b] == items:
        return board.close[b, a]
    return board.best[1, b, a] >= board.target


def is_active(board, leader, a):
    """Whether arm a needs more evaluations, if `leader` is the likely answer."""
    if leader == NO_ARM:
        return True
    if a == leader:
        for b in range(len(board.prefix)):
            if b != leader and not is_cleared(board, leader, b):
                return True
    elif not is_cleared(board, leader, a) or is_open(board, leader, a):
        return True
    if a == find_best(board):  # it shows that others are too bad
        for b in range(len(board.prefix)):
            if is_open(board, leader, b):
                return True
    return False


def is_open(board, leader, a):
    """Whether a is cheaper than the likely answer, and neither shown to be too bad, which an arm can be without being
    out if all are, nor known to be worse than some arm by more than epsilon."""
    return a != leader and not board.beaten[a] and is_cheaper(board, a, leader) and not is_known_bad(board, a)


def is_known_bad(board, a):
    """Whether a and some arm have finished everything, and a is worse by more than epsilon."""
    items = board.shares.shape[1]
    found = False
    for b in range(len(board.prefix)):
        both = board.prefix[a] == items and board.prefix[b] == items
        found = found or (b != a and both and not board.close[a, b])
    return found


def find_answer(board):
    """The cheapest arm shown good, if every cheaper one is out, or NO_ARM; one that is out must have finished."""
    items, answer = board.shares.shape[1], NO_ARM
    for a in range(len(board.prefix)):
        can_be = not board.out[a] or board.prefix[a] == items
        if can_be and (answer == NO_ARM or is_cheaper(board, a, answer)) and is_answer(board, a):
            answer = a
    return answer


def is_answer(board, a):
    found = True
    for b in range(len(board.prefix)):
        found = found and (b == a or (is_cleared(board, a, b) and not is_open(board, a, b)))
    return found


def is_decided(board, leader):
    return find_answer(board) != NO_ARM


def winner(state, leader, rank):
    return find_answer(state)


def is_close(difference: float, items: int, epsilon: float) -> bool:
    """Whether an arm whose sum is larger by this is at most epsilon worse, exactly: epsilon is the decimal given."""
    return Fraction(difference) >= -items * Fraction(repr(float(epsilon)))


functions: Sequence[Any] = (compare, is_paused, find_leader, is_active, is_decided, winner)
