"""The base class of policies: a rule to choose the next arm, a rule to stop, their parameters and their memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cabai.core.goal import BEST
from cabai.core.state import Fields
from cabai.core.stopping import leader_beats_every_rival
from cabai.support.registry import Named
from cabai.support.validation import InvalidInput
from cabai.thresholds import Threshold


@dataclass(frozen=True)
class Policy(Named):
    """How to choose the next arm, and when to stop.

    The decision is the leader: the arm in play with the best mean. `choose(arms, run, rules)` returns the arm to pull;
    `stop(arms, run, rules)` is called after each pull, once every arm has been pulled, and says whether the run is
    over. Both are plain functions of the records in `cabai.core.state`. `cabai.policy` makes one of a function.

    >>> import cabai
    >>> print(cabai.policies.policy_of("ctas(exploration=0.5)"))
    ctas(exploration=0.5)
    """

    kind = "policy"
    goal: ClassVar[str] = BEST  # the goal it supports
    choose: ClassVar[Any]
    stop: ClassVar[Any] = staticmethod(leader_beats_every_rival)  # the default rule
    cost_blind: ClassVar[bool] = False  # whether it takes every cost as 1; the real costs are still paid
    depends_on_delta: ClassVar[bool] = False  # if not, one trajectory is enough for several deltas
    tests_pairs: ClassVar[bool] = True  # whether it stops by the test of pairs of arms, if by any
    # Whether it plans how to spend a budget: a run ends with the leader when the budget does, and drops prove nothing.
    spends_budget: ClassVar[bool] = False
    arm_memory: ClassVar[Fields] = {}  # fields of each arm, kept from one pull to the next
    run_memory: ClassVar[Fields] = {}  # fields of the run
    arm_scratch: ClassVar[Fields] = {}  # fields of each arm that need not be kept
    keeps: ClassVar[tuple[str, ...]] = ()  # run fields that a study must restore exactly: they are not just caches
    draws: ClassVar[int | None] = None  # random numbers of each choice, if that is all that has to be kept of one
    keeps_of_arms: ClassVar[tuple[str, ...]] = ()  # fields of each arm that are not just caches: never forgotten
    choices: ClassVar[Mapping[str, tuple[str, Mapping[Any, Any]]]] = {}  # by parameter: a slot, and its functions
    within: ClassVar[tuple[Any, ...]] = ()  # as `functions`, if epsilon is not 0

    def __post_init__(self) -> None:
        for name, (_, known) in self.choices.items():
            if getattr(self, name) not in known:
                allowed = ", ".join(map(str, known))
                raise InvalidInput(f"{name} must be one of {allowed}, got {getattr(self, name)!r}.")

    @property
    def functions(self) -> tuple[Any, ...]:
        """Functions that replace the slots of these names."""
        chosen = ((slot, known[getattr(self, name)]) for name, (slot, known) in self.choices.items())
        return tuple((slot, function) for slot, function in chosen if function is not None)

    @property
    def stops_by_itself(self) -> bool:
        """Whether it stops by a rule of your own, so that no threshold's proof covers its decisions.

        >>> import cabai
        >>> cabai.policies.policy_of("co").stops_by_itself
        False
        """
        return self.is_own and not self.stop.__module__.startswith("cabai.")

    def parameters(self, arms: int) -> dict[str, float]:
        """The policy's own parameters in `rules`.

        >>> from cabai.policies import CTAS
        >>> CTAS(exploration=0.5).parameters(3)
        {'exploration': 0.5, 'slack': 0.0}
        """
        return {}

    def threshold(self, given: Threshold) -> Threshold:
        """The threshold as this policy can use it."""
        return given
