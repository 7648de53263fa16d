"""Which trajectories a task runs: as many as take about the time that the engine prefers, judged by earlier tasks."""

from __future__ import annotations

import math

PILOT = 4  # trajectories of a task while it is not known how long they take
GROWTH = 16  # a task is at most so many times larger than those measured: a few short trajectories may mislead


class Chunks:
    """Trajectories 0 ... n - 1, cut as they are handed out. How they are cut changes no result."""

    def __init__(self, trajectories: int, aim: float, shortest: float, most: int, pilot: int = PILOT) -> None:
        self.left, self.next_first = trajectories, 0
        self.aim, self.shortest, self.most, self.pilot = aim, shortest, most, pilot  # seconds, and trajectories
        self.measured, self.seconds, self.largest = 0, 0.0, 0

    def next(self, cores: int) -> tuple[int, int]:
        """The first trajectory of the next chunk, and its size: 0 when none is left."""
        first, count = self.next_first, min(self.size(cores), self.left)
        self.next_first, self.left = first + count, self.left - count
        return first, count

    def size(self, cores: int) -> int:
        """What takes `aim` seconds; less towards the end, so that all cores end together, but not below `shortest`."""
        if not self.measured:  # a few that may be long are shared by all cores
            return max(1, min(self.pilot, math.ceil(self.left / (4 * cores))))
        per_second = self.measured / max(self.seconds, 1e-9)
        even = max(self.left / (2 * cores), self.shortest * per_second)
        return max(1, min(math.ceil(min(self.aim * per_second, even)), GROWTH * self.largest, self.most))

    def took(self, count: int, seconds: float) -> None:
        """Record that so many trajectories took so long."""
        self.measured, self.seconds, self.largest = (
            self.measured + count,
            self.seconds + seconds,
            max(self.largest, count),
        )
