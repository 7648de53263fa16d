"""What is known at any moment about the arms of a study with items (docs/theory/known.md)."""

from __future__ import annotations

import math

import numpy as np

from cabai.datasets.capital import ROUNDED_UP, first_bets
from cabai.datasets.capitals import largest, smallest_epsilon
from cabai.datasets.race import PAIRED
from cabai.study.items_play import ItemsPlay
from cabai.study.known import Known

MOST = 10**6  # scores in all pairs of arms that are compared for a status


def known_of(play: ItemsPlay, leader: int | None, *, decided: bool = False) -> Known:
    """The same as for a study without items. A paired race spends one delta on its decision, on the arms that may be
    the best, and on `within`. A champion race has no pairs: there `within` is a statement by itself, about all other
    arms."""
    race, arms = play.race, len(play.settings.arms)
    possible = ~race.board.out
    if decided and leader is not None and play.settings.epsilon == 0:
        possible = np.arange(arms) == leader
    return Known(possible, None if leader is None else within(play, leader, possible), separated(play))


def within(play: ItemsPlay, leader: int, possible: np.ndarray) -> float | None:
    """The smallest epsilon, rounded up, at which the leader beats all arms that may be the best."""
    race, arms, delta = play.race, len(play.settings.arms), play.settings.delta
    if race.name != PAIRED and possible.sum() > 1:
        possible = np.ones(arms, np.bool_)
    target, found = (arms - 1) / delta * ROUNDED_UP, 0.0
    for a in np.flatnonzero(possible).tolist():
        if a == leader or (is_finished(play, leader, a) and race.lead(leader, a) >= 0):
            continue
        own = smallest_epsilon(race.board, arms, delta, target, leader, a, found)
        if own is None:
            return None
        found = max(found, own)
    return found * (race.high - race.low)


def separated(play: ItemsPlay) -> np.ndarray:
    """[b, a]: b is better than a, shown by a capital of K (K - 1)/delta, or because all scores of both are known.

    If there are too many scores to compare all pairs for a status, only the latter counts.
    """
    race, arms, delta = play.race, len(play.settings.arms), play.settings.delta
    found = np.zeros((arms, arms), np.bool_)
    target = arms * (arms - 1) / delta * ROUNDED_UP
    bets = first_bets(race.items, math.log(target))
    small = arms * int(race.board.prefix.sum()) <= MOST
    for b in range(arms):
        for a in range(arms):
            if b != a and is_finished(play, b, a):
                found[b, a] = race.lead(b, a) > 0
            elif b != a and small:
                found[b, a] = largest(race.board, bets, b, a, 0.0) >= target
    return found


def is_finished(play: ItemsPlay, b: int, a: int) -> bool:
    """Whether all scores of both arms are known."""
    return bool(play.race.board.prefix[b] == play.race.items == play.race.board.prefix[a])
