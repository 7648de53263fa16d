"""AT2 and IAT2, anchored top-two (Bandyopadhyay, Juneja, Agrawal 2024): no coin, the optimality condition decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cabai.core.shares import halves
from cabai.policies.pairs import SEPARATIONS, challenger
from cabai.policies.tracking import Tracking


def track(arms, run, rules):
    """Pull the leader while g = sum over a of (c_a/c_b) d(mean_b, x_ab)/d(mean_a, x_ab) - 1 is positive."""
    leader, g = arms[run.leader], -1.0
    for a in range(len(arms)):
        if a != run.leader:
            g += arms[a].cost / leader.cost * anchor(rules, leader, arms[a])
    return run.leader if g > 0.0 else challenger(arms, run, rules, run.leader)


def anchor(rules, b, a):
    """d(mean_b, x)/d(mean_a, x), x the pooled mean; its limit (N_a/N_b)² for equal means."""
    if b.mean > a.mean:
        d_b, d_a, _, _ = halves(b, a, b.pulls / a.pulls, rules)
        if d_b > 0.0 and d_a > 0.0:  # else they underflow
            return d_b / d_a
    return (a.pulls / b.pulls) ** 2


@dataclass(frozen=True)
class AT2(Tracking):
    """AT2: pull the leader or its closest rival, whichever restores the lower bound's balance of costs.

    Deterministic. While some arm has fewer than exploration sqrt(t) - slack K pulls, pull the arm with the fewest.
    `challenger=tci` is IAT2.
    """

    slack: float = 0.5
    challenger: str = "tc"
    name = "at2"

    choices: ClassVar[Any] = {"challenger": ("separation", SEPARATIONS)}

    @property
    def functions(self) -> tuple[Any, ...]:
        return track, *super().functions
