"""A family, a threshold and a policy combined: parameters, records and functions of a run.

Simulations and live studies use the same class, so what you simulate is what runs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import BEST, CHEAPEST, Cheapest
from cabai.core.observe import observe
from cabai.core.state import RULES, Layout, record
from cabai.core.stopping import leader_beats_every_rival, may_beat_every_rival, may_stop_at_any_time
from cabai.core.within import WITHIN
from cabai.families import Family
from cabai.support.lazy import lazy
from cabai.support.specialise import SLOTS, Binding, binding, check_known, function_for, needs
from cabai.support.validation import InvalidInput, probability, whole

MADE = ("binding", "test_binding", "choose", "stop", "may_stop")  # attributes with functions, created on first use
TOLERANCE = 1e-7  # relative tolerance of shares computed in a policy


class Setup:
    """The rules of a run for a number of arms, a delta and an epsilon. Without a policy, only the test."""

    def __init__(
        self, family: Family, threshold: Any, policy: Any = None, *, arms: int, delta: float, epsilon: float = 0.0,
        goal: Cheapest | None = None, budget: float = math.inf,
    ) -> None:  # fmt: skip
        self.family, self.policy, self.arms, self.goal = family, policy, whole(arms, "arms", 2), goal
        self.epsilon, threshold = family.check_epsilon(epsilon), threshold.for_family(family)
        if policy is not None:
            check_goal(goal, family, threshold, policy)
            if policy.spends_budget and budget == math.inf:
                raise InvalidInput(f"policy {policy} plans how to spend a budget: give one.")
            threshold.check_use(policy, self.epsilon, family)
            threshold = policy.threshold(threshold)
        self.threshold, self.delta = threshold, probability(delta)
        share = self.delta if goal is None else self.delta * goal.share(arms)
        values = dict(family.parameters) | threshold.parameters(family, arms, share)
        values |= {"epsilon": self.epsilon / family.unit, "budget": budget}
        if policy is not None:
            values |= {"cost_blind": policy.cost_blind, "tolerance": TOLERANCE, **policy.parameters(arms)}
        if goal is not None:
            margin = goal.margin(self.epsilon)
            values |= {"margin": margin / family.unit, "middle": 0.5 * (margin + self.epsilon) / family.unit}
        self.rules = record(self.layout.rules)
        unknown = set(values) - set(self.layout.rules.names or ())
        if unknown:
            raise InvalidInput(
                f"threshold {threshold} has a parameter {min(unknown)!r} that its functions do not know: name it in "
                f"its rule_fields, or use those of a curve: level, {', '.join(threshold.rule_fields)}."
            )
        for name, value in values.items():
            self.rules[name] = value
        self._check()

    @lazy
    def layout(self) -> Layout:
        own: tuple[Any, Any, Any] = ({}, {}, {})
        if self.policy is not None:
            own = (
                self.policy.arm_memory | self.policy.arm_scratch,
                self.policy.run_memory,
                self.policy.parameters(self.arms),
            )
        test = [
            (f"family {self.family}", self.family.parameters),
            (f"threshold {self.threshold}", self.threshold.rule_fields),
        ]
        fields: dict[str, Any] = {}
        for what, more in test:
            twice = (set(fields) | set(RULES)) & set(more)
            if twice:
                raise InvalidInput(f"the {what} has a parameter {min(twice)!r}, a name that is taken: choose another.")
            fields |= more
        return Layout.of((self.threshold.arm_fields | self.threshold.arm_scratch, fields), own)

    @lazy
    def test_binding(self) -> Binding:
        """The function for each slot of the family and the threshold."""
        bound = dict(self.family.binding) | dict(binding(self.threshold.functions))
        if self.epsilon != 0:
            bound |= dict(binding((*WITHIN, *self.threshold.within)))
        return frozenset(bound.items())

    @lazy
    def binding(self) -> Binding:
        bound = dict(self.test_binding)
        if self.policy is not None:
            bound |= dict(binding(self.policy.functions))
            if self.epsilon != 0:
                bound |= dict(binding(self.policy.within))
            bound |= dict(binding(self.threshold.choosing))
        return frozenset(bound.items())

    @lazy
    def shows_evidence(self) -> bool:
        """Whether the threshold can tell by how much one arm beats another, so that a status can show it."""
        functions = dict(binding(self.threshold.functions))
        return "surplus" in functions or "beats" not in functions

    def bound(self, function: Any) -> Any:
        """Bind a kernel to this family, threshold and policy. Returns a plain function."""
        return function_for(function, self.binding)

    @lazy
    def choose(self) -> Any:
        return self.bound(self.policy.choose)

    @lazy
    def stop(self) -> Any:
        return self.bound(leader_beats_every_rival if self.policy is None else self.policy.stop)

    @lazy
    def may_stop(self) -> Any:
        """A cheap test: where it fails, `stop` would return false and change nothing."""
        usual = self.policy is None or self.policy.stop is leader_beats_every_rival
        return self.bound(may_beat_every_rival) if usual else may_stop_at_any_time

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without functions, which the other process creates again."""
        return {name: value for name, value in vars(self).items() if name not in MADE}

    def start(self) -> tuple[NDArray[Any], np.void]:
        arm_memory, run_memory = ({}, {}) if self.policy is None else (self.policy.arm_memory, self.policy.run_memory)
        arms, run = self.layout.start(self.arms, self.threshold.arm_fields | arm_memory, run_memory)
        if self.goal is not None and self.goal.running_costs is not None:
            arms["running_cost"] = self.goal.running_costs
        return arms, run

    def _check(self) -> None:
        """Refuse functions that nothing calls, and a family that lacks functions that are called."""
        check_known(self.binding)
        for name, _ in () if self.policy is None else binding((*self.policy.functions, *self.policy.within)):
            if SLOTS[name].__module__.startswith(("cabai.core.", "cabai.families.")):
                raise InvalidInput(
                    f"policy {self.policy} has a function {name!r}, which only a family or a threshold may replace."
                )
        if "required" not in dict(self.binding):
            raise InvalidInput(
                f"threshold {self.threshold} has no function 'required': the least evidence after t pulls, which a "
                "status shows and d-lucb uses."
            )
        functions = (observe, self.stop) if self.policy is None else (observe, self.stop, self.choose)
        lacking = needs(functions, self.binding)
        if lacking and self.family.key == "symmetric":
            kind = "policy" if self.threshold.is_proven_for(self.family) else "threshold"
            raise InvalidInput(
                f"{kind} {getattr(self, kind)} needs the variance: name it, as in family='gaussian(variance=2)', or "
                f"leave out the {kind}: the default needs none."
            )
        if lacking:
            with_policy = "" if self.policy is None else f" and policy {self.policy}"
            raise InvalidInput(
                f"threshold {self.threshold}{with_policy} call a function {min(lacking)!r}, which the family "
                f"{self.family} does not have: give it one, or take another threshold or policy."
            )


def check_goal(goal: Cheapest | None, family: Family, threshold: Any, policy: Any) -> None:
    """Refuse a policy with another goal, and a threshold that cannot show by how much an arm is better."""
    wanted = BEST if goal is None else CHEAPEST
    if policy.goal != wanted:
        other = "leave out the policy, or choose one that does" if goal is not None else f"use goal={policy.goal!r}"
        raise InvalidInput(f"policy {policy} does not look for goal {wanted!r}: {other}.")
    if goal is None:
        return
    if not family.shows_margins:
        raise InvalidInput(
            f"goal 'cheapest' does not support the family {family}: to test whether one mean exceeds another by more "
            "than a difference, it would have to minimize a function that is not convex. If rewards lie in a known "
            "range, use the family bounded."
        )
    if "is_shown" not in dict(binding(threshold.within)):
        raise InvalidInput(
            "goal 'cheapest' needs a threshold that shows by how much an arm is better: contrast, or bets for bounded "
            f"and bernoulli rewards, got {threshold}."
        )
