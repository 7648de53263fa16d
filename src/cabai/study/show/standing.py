"""The standing of each arm of a study, in a few words: in or out, and why."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cabai.study.show.known import Known


@dataclass(frozen=True)
class Pair:
    """The leader's evidence over one arm, and what is required, in nats."""

    evidence: float
    required: float

    @property
    def share(self) -> float | None:
        """The share of what is required; None if more data are needed to say."""
        if not (math.isfinite(self.required) and self.required > 0):
            return None
        return min(max(self.evidence / self.required, 0.0), 1.0)

    @property
    def is_enough(self) -> bool:
        return self.evidence > self.required

    def __str__(self) -> str:
        if not math.isfinite(self.evidence):
            return "known for certain"
        return f"evidence {self.evidence:.2f} of {self.required:.2f} nats"


@dataclass(frozen=True)
class Field:
    """The arms of a study, as far as it matters who is in and who is out."""

    names: Sequence[str]
    pulled: Sequence[bool]
    in_play: Sequence[bool]
    leader: int | None
    decision: int | None
    stopped: bool
    pairs: Sequence[Pair | None]  # of the leader over each arm
    rival: int | None  # the arm that the leader is furthest from beating
    known: Known | None
    epsilon: float
    dropped: Collection[str] = ()  # by hand
    tied: Collection[int] = ()  # arms of a race whose totals are known, and exactly the leader's
    by_pairs: bool = True  # else evidence is against "this arm is the best", not for a certain other arm

    def share(self, a: int) -> float | None:
        """The evidence of the leader over arm a, as a share of what is required of it."""
        pair = self.pairs[a]
        if pair is None or a == self.leader or self.names[a] in self.dropped:
            return None
        return 1.0 if not self.in_play[a] else pair.share

    def standing(self, a: int) -> str:
        if a == self.decision:
            return "best: decided"
        if self.names[a] in self.dropped:
            return "out: dropped by hand"
        if a in self.tied and self.leader is not None:
            return f"tied with {self.names[self.leader]}: the same total on all items"
        if not self.pulled[a]:
            return "in: not pulled yet"
        pair, leader = self.pairs[a], "" if self.leader is None else self.names[self.leader]
        if not self.in_play[a] and (pair is None or not pair.is_enough):
            return "out: it was beaten"
        if a == self.leader:
            return "leads"
        if pair is None:
            return "in"
        if pair.is_enough and self.epsilon and self.in_play[a]:
            return f"settled: {leader} is at most {self.epsilon:g} worse, {pair}"
        if pair.is_enough:
            return f"out: {leader} beats it, {pair}" if self.by_pairs else f"out: it is not the best, {pair}"
        over = f"{pair} for {leader} over it" if self.by_pairs else f"{pair} against it"
        if self.known is not None and not self.known.may_be_best[a]:
            return f"in, though shown not to be the best: {over}"
        return f"in: closest rival, {over}" if a == self.rival and not self.stopped else f"in: {over}"
