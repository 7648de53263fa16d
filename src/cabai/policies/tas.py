"""Track-and-Stop (Garivier and Kaufmann 2016): CTAS with every cost taken as 1."""

from __future__ import annotations

from dataclasses import dataclass

from cabai.policies.ctas import CTAS


@dataclass(frozen=True)
class TAS(CTAS):
    """CTAS that ignores costs. It explores as in its own paper: while some arm has fewer than sqrt(t) - K/2 pulls."""

    slack: float = 0.5
    name = "tas"
    cost_blind = True
