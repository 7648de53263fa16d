"""What a policy is: a rule that chooses the next arm and one that stops, and the parameters of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.families import Family
from cabai.kernels.evidence import leader_beats_every_rival
from cabai.named import Named
from cabai.thresholds import Threshold

TOLERANCE = 1e-7  # of shares computed in a policy, relative


@dataclass(frozen=True)
class Policy(Named):
    """How to choose the next arm and when to stop. The decision is the leader, the arm in play with the best mean.

    `choose(arms, run, rules)` returns the arm to pull; `stop(arms, run, rules)` is asked after each pull, once every
    arm has been pulled, and says whether the run is over. Both are plain functions of the records in
    `cabai.state`; simulation compiles them.
    """

    kind = "policy"
    choose: ClassVar[Any]
    stop: ClassVar[Any] = staticmethod(leader_beats_every_rival)  # unless a policy has a rule of its own
    cost_blind: ClassVar[bool] = False  # every cost is taken as 1; the real ones are still paid
    depends_on_delta: ClassVar[bool] = False  # if not, one trajectory answers for several deltas
    keeps: ClassVar[tuple[str, ...]] = ()  # what `choose` must find in the run as it left it, not only to be quicker

    def numbers(self, arms: int) -> dict[str, float]:
        """The policy's own numbers among the rules; those left out are 0."""
        return {}

    def threshold(self, given: Threshold) -> Threshold:
        """The threshold as this policy can use it."""
        return given

    def rules(self, family: Family, threshold: Threshold, *, arms: int, delta: float, epsilon: float = 0.0) -> np.void:
        """Everything that does not change while a run lasts."""
        threshold.check_use(str(self), epsilon)
        rules = self.threshold(threshold).rules(family, arms=arms, delta=delta)
        rules["epsilon"] = family.check_epsilon(epsilon)
        rules["cost_blind"], rules["tolerance"] = self.cost_blind, TOLERANCE
        for name, value in self.numbers(arms).items():
            rules[name] = value
        return rules


def own_policy(choose: Any, stop: Any, *, cost_blind: bool) -> Policy:
    """See `cabai.policy`."""
    name = choose.__name__.replace("_", "-")
    members = {
        "name": name,
        "__doc__": choose.__doc__,
        "choose": staticmethod(choose),
        "cost_blind": cost_blind,
    }
    if stop is not None:
        members |= {"stop": staticmethod(stop), "depends_on_delta": True}
    own: Any = type(name, (Policy,), members)
    return dataclass(frozen=True)(own)()
