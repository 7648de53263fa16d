"""Racing: Chernoff-Overlap with every cost taken as 1, so pulls are divided equally among the arms in play."""

from __future__ import annotations

from dataclasses import dataclass

from cabai.policies.co import CO


@dataclass(frozen=True)
class Racing(CO):
    """CO that ignores costs: pull each arm in play in turn, drop the arms that the leader beats."""

    name = "racing"
    cost_blind = True
