"""What a policy is: a rule that chooses the next arm and one that stops, and the parameters of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.compiled import CHOOSE, STOP, kernel
from cabai.compiled.evidence import leader_beats_every_rival
from cabai.families import Family
from cabai.named import Named
from cabai.thresholds import Threshold


@kernel(signature=STOP)
def stop_by_evidence(arms, run, rules):
    """Stop when the leader beats every rival; the decision is the leader."""
    return leader_beats_every_rival(arms, run, rules)


@dataclass(frozen=True)
class Policy(Named):
    """How to choose the next arm and when to stop. The decision is the leader, the arm in play with the best mean.

    `choose(arms, run, rules)` returns the arm to pull; `stop(arms, run, rules)` is asked after each pull, once every
    arm has been pulled, and says whether the run is over. Both are compiled functions of the plain records in
    `cabai.state`.
    """

    kind = "policy"
    choose: ClassVar[Any]
    stop: ClassVar[Any] = staticmethod(stop_by_evidence)
    cost_blind: ClassVar[bool] = False  # every cost is taken as 1; the real ones are still paid
    depends_on_delta: ClassVar[bool] = False  # if not, one trajectory answers for several deltas

    def numbers(self, arms: int) -> dict[str, float]:
        """The policy's own numbers among the rules; those left out are 0."""
        return {}

    def threshold(self, given: Threshold) -> Threshold:
        """The threshold as this policy can use it."""
        return given

    def rules(self, family: Family, threshold: Threshold, *, arms: int, delta: float) -> np.void:
        """Everything that does not change while a run lasts."""
        rules = self.threshold(threshold).rules(family, arms=arms, delta=delta)
        rules["cost_blind"] = self.cost_blind
        for name, value in self.numbers(arms).items():
            rules[name] = value
        return rules


def compile_policy(choose: Any, stop: Any, *, cost_blind: bool) -> Policy:
    """See `cabai.policy`. Not cached on disk: Numba would not notice a change in what the function calls."""
    choose, stop = (getattr(function, "py_func", function) for function in (choose, stop))
    name = choose.__name__.replace("_", "-")
    members = {
        "name": name,
        "__doc__": choose.__doc__,
        "choose": staticmethod(kernel(choose, signature=CHOOSE, cache=False)),
        "cost_blind": cost_blind,
    }
    if stop is not None:
        members |= {"stop": staticmethod(kernel(stop, signature=STOP, cache=False)), "depends_on_delta": True}
    own: Any = type(name, (Policy,), members)
    return dataclass(frozen=True)(own)()
