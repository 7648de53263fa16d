"""The history of a study: a few hundred points, however long it is."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cabai.study.play import finite_or_none

if TYPE_CHECKING:
    from cabai.study.items_play import ItemsPlay
    from cabai.study.play import Play

RATIO = 1.03  # factor from one point to the next: 470 points in a million results
PAUSE = 20.0  # between two points of a busy process, in units of the time that one takes


@dataclass(frozen=True)
class Point:
    """A study at one moment of its past."""

    told: int  # results so far
    time: float  # seconds since 1970
    spent: float
    arms: int  # still in play
    leader: str | None
    rival: str | None  # the arm that the leader was furthest from beating
    evidence: float | None  # of the leader over that rival, in nats
    required: float | None  # of it, to stop


def is_due(before: int, after: int) -> bool:
    """Whether to store a point when the number of results grows from one value to the other.

    >>> [told for told in range(1, 101) if is_due(told - 1, told)][-8:]
    [80, 82, 85, 87, 90, 93, 95, 98]
    >>> is_due(1000, 1001), is_due(1000, 1100)
    (False, True)
    """
    return after > before and step(after) > step(before)


def step(told: int) -> int:
    return math.floor(math.log(told) / math.log(RATIO)) if told else -1


class Recorder:
    """Stores points, without keeping a process busy with it."""

    def __init__(self) -> None:
        self.free = -math.inf  # from when on there is time for the next

    def point(self, play: Play | ItemsPlay, before: int, after: int, *, is_last: bool) -> dict[str, Any] | None:
        """The point to store now that there are more results, if any."""
        if after == before or not (is_last or is_due(before, after)):
            return None
        started = time.perf_counter()
        if started < self.free and not is_last:
            return None
        found = point_of(play)
        self.free = started + (1.0 + PAUSE) * (time.perf_counter() - started)
        return found


def point_of(play: Play | ItemsPlay) -> dict[str, Any]:
    """The point of one moment. If the evidence cannot be computed, the rest is stored: something that is only shown
    must not keep a result from being stored."""
    found: dict[str, Any] = {"spent": play.bill, "arms": int(play.in_play.sum()), "leader": None, "rival": None}
    found |= {"evidence": None, "required": None}
    try:
        found["leader"], closest = play.leader, play.closest()
    except Exception:
        return found
    if closest is not None:
        evidence, required = (finite_or_none(value) for value in closest[1:])
        found |= {"rival": closest[0], "evidence": evidence, "required": required}
    return found


def points_of(rows: Sequence[Any], arms: Sequence[str]) -> list[Point]:
    """Points as they are stored, with the arms' names."""
    found = []
    for row in rows:
        leader, rival = (None if a is None else arms[a] for a in (row.leader, row.rival))
        found.append(Point(row.told, row.time, row.spent, row.arms, leader, rival, row.evidence, row.required))
    return found
