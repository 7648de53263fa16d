"""The level that an arm's evidence must reach, if arms may join later or be dropped by hand.

An arm i beats j when E_{i,j} reaches 1/(delta w_i v_D). With K arms at first, a reserve r, and D arms dropped by hand,

    w_i = (1 - r)/K for the K first arms,   r/(2k 2^k) for the k-th that joined,   v_0 = 1 - r,   v_D = r/2^D.

All v_D add up to 1, and so do all w_i if that of the k-th to join is taken 2k times, the number of its tests.
Without a reserve no arm can join: w_i = 1/(K - 1), v_D = 1/2^D, which add up to 2 where arms are dropped.
docs/theory/amending.md has the proof. A race has levels of its own (`OpenRace`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cabai.core.goal import BEST
from cabai.core.stopping import leader_beats_every_rival
from cabai.datasets.race import PAIRED
from cabai.support.validation import InvalidInput
from cabai.thresholds import Bets, Champion, Contrast, EValue, Hedged, Symmetric

if TYPE_CHECKING:
    from cabai.study.settings import Settings


def level(settings: Settings, arm: int, delta: float) -> float:
    """log(1/(delta w_i v_D))."""
    drops, reserve = len(settings.dropped), settings.reserve
    if reserve is None:
        return math.log(settings.first_arms - 1) + drops * math.log(2) - math.log(delta)
    later = math.log(1 / (1 - reserve)) if drops == 0 else drops * math.log(2) - math.log(reserve)
    return log_parts(settings, arm) + later - math.log(delta)


def log_parts(settings: Settings, arm: int) -> float:
    """log(1/w_i), with a reserve; without one, for equal parts, one per arm."""
    if settings.reserve is None:
        return math.log(len(settings.arms))
    if arm < settings.first_arms:
        return math.log(settings.first_arms / (1 - settings.reserve))
    k = arm - settings.first_arms + 1
    return math.log(2 * k) + k * math.log(2) - math.log(settings.reserve)


def check_use(settings: Settings) -> None:
    """Refuse a reserve, and arms that join or are dropped, where there is no proof."""
    refused, items = "arms can join a study, or be dropped by hand,", settings.items
    if settings.goal != BEST:
        raise InvalidInput(f"{refused} only if its goal is the best arm, got goal {settings.goal!r}.")
    if items is not None and (items.race != PAIRED or items.earlier):
        race = "one that has joined another" if items.earlier else repr(items.race)
        raise InvalidInput(f"arms can join only a paired race, got {race}.")
    if items is not None and settings.dropped:
        raise InvalidInput("arms can be dropped by hand only if a study has no items: a race drops arms by itself.")
    if items is None and ("policy" in settings.own or settings.policy.stop is not leader_beats_every_rival):
        raise InvalidInput(f"{refused} only with policy top-two, ctas, tas or uniform, got {settings.policy}.")
    if items is None and type(settings.threshold) not in (Contrast, Champion, Hedged, EValue, Bets, Symmetric):
        raise InvalidInput(f"{refused} only with threshold contrast, evalue or bets, got {settings.threshold}.")
    if len(set(settings.dropped)) != len(settings.dropped) or not set(settings.dropped) <= set(settings.arms):
        raise InvalidInput("its dropped arms are not among its arms.")
    if len(settings.arms) - len(settings.dropped) < 2:
        raise InvalidInput("at least two arms must be left.")
    first = settings.first_arms
    if settings.joined and (settings.reserve is None or first < 2 or settings.joined != settings.arms[first:]):
        raise InvalidInput("its arms that joined later are not the last of its arms.")
