"""The goal of a run: the best arm, or the cheapest arm to run among those that are good enough. See
docs/theory/cheapest.md.

An arm is *good* if it is at most epsilon worse than the best. The answer is a good arm, and every arm that is cheaper
to run is worse than the best by more than epsilon - slack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.support.validation import InvalidInput, not_negative, number, shown

BEST, CHEAPEST = GOALS = ("best", "cheapest")
LEAST_SLACK = 1e-9  # as a share of epsilon: with less, rounding would keep a run from ever stopping


@dataclass(frozen=True)
class Cheapest:
    """The goal "cheapest arm that is good enough". `running_costs` says what the arms cost to run; None means the cost
    of their pulls, as observed."""

    slack: float
    running_costs: tuple[float, ...] | None = None

    @classmethod
    def checked(cls, epsilon: float, slack: Any, running_costs: Any, names: Sequence[str]) -> Cheapest:
        """Check the values and raise an error that says what is wrong. The default slack is half of epsilon."""
        if not epsilon > 0:
            raise InvalidInput(
                f"goal 'cheapest' needs an epsilon: how much worse than the best is good enough, got {epsilon!r}."
            )
        value = epsilon / 2 if slack is None else number(slack, "slack")
        if not LEAST_SLACK * epsilon <= value <= epsilon:
            raise InvalidInput(
                f"slack must be positive and at most epsilon = {epsilon:g}, got {slack!r}: cheaper arms are shown to "
                "be worse than the best by more than epsilon - slack."
            )
        return cls(value, None if running_costs is None else checked_costs(running_costs, names, "running_costs"))

    def margin(self, epsilon: float) -> float:
        """The margin by which every cheaper arm is worse than the best."""
        return max(epsilon - self.slack, 0.0)

    def pairs(self, arms: int) -> int:
        """The number of pairwise tests that can go wrong; delta is divided by it.

        2K - 3 if the running costs are known in advance, else K (K - 1).

        >>> Cheapest(0.1, (1.0, 2.0)).pairs(2), Cheapest(0.1).pairs(2), Cheapest(0.1).pairs(5)
        (1, 2, 20)
        """
        return arms * (arms - 1) if self.running_costs is None else 2 * arms - 3

    def share(self, arms: int) -> float:
        """The factor on delta for a threshold that divides its delta by K - 1."""
        return (arms - 1) / self.pairs(arms)


def checked_goal(goal: Any, epsilon: float, slack: Any, running_costs: Any, names: Sequence[str]) -> Cheapest | None:
    """Check the goal and its settings. Returns None for the goal "best"."""
    if not isinstance(goal, str) or goal not in GOALS:
        raise InvalidInput(f"goal must be one of {', '.join(GOALS)}, got {shown(goal)}.")
    if goal == CHEAPEST:
        return Cheapest.checked(epsilon, slack, running_costs, names)
    for name, value in (("slack", slack), ("running_costs", running_costs)):
        if value is not None:
            raise InvalidInput(f"{name} is for goal 'cheapest', got {shown(value)} with goal {goal!r}.")
    return None


def checked_costs(given: Any, names: Sequence[str], what: str) -> tuple[float, ...]:
    """Costs of the arms, given as a list or a dictionary by name, in the order of the arms. A cost may be 0."""
    if isinstance(given, Mapping):
        given = in_order(given, names, what)
    if isinstance(given, (str, bytes)) or not isinstance(given, (Sequence, np.ndarray)) or len(given) != len(names):
        raise InvalidInput(f"{what} must be {len(names)} numbers, one per arm, got {shown(given)}.")
    return tuple(not_negative(cost, f"{what}[{i}]") for i, cost in enumerate(given))


def in_order(given: Mapping[str, Any], names: Sequence[str], what: str) -> list[Any]:
    if set(given) != set(names):
        raise InvalidInput(f"{what} must name every arm once ({', '.join(names)}), got {shown(dict(given))}.")
    return [given[name] for name in names]


def by_cost(running_costs: Sequence[float]) -> list[int]:
    """The arms by running cost, cheapest first; equal costs keep their order.

    >>> by_cost([2.0, 1.0, 2.0])
    [1, 0, 2]
    """
    return sorted(range(len(running_costs)), key=lambda a: (running_costs[a], a))


def right_answers(
    means: NDArray[np.float64], running_costs: Sequence[float], epsilon: float, slack: float
) -> NDArray[np.int64]:
    """Good arms for which every cheaper arm is worse than the best by more than epsilon - slack."""
    best, rounding = float(means.max()), 1e-12 * max(1.0, float(np.abs(means).max()))
    found = []
    for a in by_cost(running_costs):
        if means[a] >= best - epsilon - rounding:
            found.append(a)
        if means[a] >= best - (epsilon - slack) - rounding:  # every more expensive arm is a wrong answer
            break
    return np.array(sorted(found), np.int64)
