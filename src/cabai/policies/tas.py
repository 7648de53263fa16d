"""Track-and-Stop (Garivier and Kaufmann 2016): CTAS with every cost taken as 1."""

from __future__ import annotations

from dataclasses import dataclass

from cabai.policies.ctas import CTAS


@dataclass(frozen=True)
class TAS(CTAS):
    """CTAS that ignores costs; as in its own paper, it explores while some arm has fewer than sqrt(t) - K/2 pulls.

    >>> import cabai
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.5], costs=[1, 0.1])
    >>> cabai.simulate(instance, "tas", trajectories=100).summary().errors
    0
    """

    slack: float = 0.5
    name = "tas"
    cost_blind = True
