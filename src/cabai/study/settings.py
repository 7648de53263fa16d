"""What a study is about: given once, to `create_study`, and never changed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabai.checks import InvalidInput, positive, probability, shown, whole
from cabai.families import Family, family_of
from cabai.instance import arm_names
from cabai.policies import Policy, policy_of
from cabai.thresholds import Calibrated, Threshold, threshold_of

DIRECTIONS = ("maximize", "minimize")
LONGEST_NAME = 200
DEEPEST = 100  # levels of metadata: Python cannot read JSON that is nested much deeper


@dataclass(frozen=True)
class Settings:
    """The settings of a study, checked."""

    arms: tuple[str, ...]
    family: Family
    delta: float
    policy: Policy
    threshold: Threshold
    epsilon: float
    direction: str
    costs: tuple[float, ...] | None  # where they are known; else they are learned
    max_cost: float | None
    max_pulls: int | None
    lease: float
    seed: int
    metadata: dict[str, Any]  # by arm

    @classmethod
    def checked(
        cls, *, arms: Any, family: Any, delta: Any, policy: Any, threshold: Any, epsilon: Any, direction: Any,
        costs: Any, max_cost: Any, max_pulls: Any, lease: Any, seed: Any,
    ) -> Settings:  # fmt: skip
        """The settings as given, or an error that says what is wrong with them."""
        names, metadata = checked_arms(arms)
        kind = family_of(family)
        if direction not in DIRECTIONS:
            raise InvalidInput(f"direction must be one of {', '.join(DIRECTIONS)}, got {shown(direction)}.")
        settings = cls(
            arms=names,
            family=kind,
            delta=probability(delta),
            policy=by_name(policy_of(policy), policy_of),
            threshold=by_name(threshold_of(threshold), threshold_of),
            epsilon=kind.check_epsilon(epsilon),
            direction=direction,
            costs=None if costs is None else checked_costs(costs, names),
            max_cost=None if max_cost is None else positive(max_cost, "max_cost"),
            max_pulls=None if max_pulls is None else whole(max_pulls, "max_pulls", 1),
            lease=positive(lease, "lease"),
            seed=whole(seed, "seed", 0),
            metadata=metadata,
        )
        settings.rules()  # a threshold may refuse a family
        if isinstance(settings.threshold, Calibrated) and settings.threshold.is_certified and not settings.is_certified:
            raise InvalidInput(
                f"the threshold is certified for the largest mean of {kind.name} rewards, got direction {direction!r}; "
                "a proven threshold, such as evalue, holds for both."
            )
        return settings

    @property
    def certified_pulls(self) -> int | None:
        """After how many pulls the certificate of the threshold ends, if it has one."""
        return self.threshold.max_pulls if isinstance(self.threshold, Calibrated) else None

    @property
    def is_certified(self) -> bool:
        """Whether simulation has certified the threshold for this study: they look for the largest mean."""
        looks_the_same = self.direction == "maximize" or self.family.mirror_code == self.family.code
        return isinstance(self.threshold, Calibrated) and self.threshold.is_certified and looks_the_same

    def rules(self) -> np.void:
        """The rules of the game, for the kernels."""
        rules = self.policy.rules(
            self.family, self.threshold, arms=len(self.arms), delta=self.delta, epsilon=self.epsilon
        )
        if self.direction == "minimize":
            rules["family"] = self.family.mirror_code
        return rules

    def seen(self, value: float) -> float:
        """A reward or mean as the kernels see it, and back: they look for the largest."""
        return self.family.mirror(value) if self.direction == "minimize" else value

    def to_json(self) -> str:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("family", "policy", "threshold"):
            values[name] = str(values[name])
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> Settings:
        values = json.loads(text)
        values["arms"] = tuple(values["arms"])
        values["costs"] = None if values["costs"] is None else tuple(values["costs"])
        values |= {
            "family": family_of(values["family"]),
            "policy": policy_of(values["policy"]),
            "threshold": threshold_of(values["threshold"]),
        }
        return cls(**values)

    def differences(self, other: Settings) -> list[str]:
        """The settings in which two studies differ, in words."""
        names = [field.name for field in dataclasses.fields(self)]
        if self.arms != other.arms:
            names.remove("metadata")
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return [f"{name} is {_words(mine)}, not {_words(given)}" for name, mine, given in pairs if mine != given]


def _words(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def checked_name(name: Any) -> str:
    """A study's name: any text that is not empty, too long or made of control characters."""
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidInput(
            f"a study's name must be printable text of 1 to {LONGEST_NAME} characters, got {shown(name)}."
        )
    return name


def checked_arms(arms: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The arms' names, from a list of names or a dictionary from names to metadata, and the metadata."""
    if isinstance(arms, (str, bytes)) or not isinstance(arms, (Sequence, Mapping)):
        raise InvalidInput(f"arms must be a list of names, or a dictionary of names and metadata, got {shown(arms)}.")
    if len(arms) < 2:
        raise InvalidInput(f"a study needs at least 2 arms, got {shown(list(arms))}.")
    names = arm_names(list(arms), len(arms))
    for name in names:
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise InvalidInput(f"an arm's name must be printable text of at most {LONGEST_NAME} characters: {name!r}.")
    metadata = {name: arms[name] for name in names if arms[name] is not None} if isinstance(arms, Mapping) else {}
    try:
        kept = json.loads(json.dumps(metadata, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the arms' metadata must be what JSON can hold, got {shown(metadata)}: {error}.") from None
    if is_deeper(kept, DEEPEST):
        raise InvalidInput(f"the arms' metadata must not be nested more than {DEEPEST} levels deep.")
    return names, kept


def is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects of JSON lie within each other more than so many levels deep."""
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deeper(each, levels - 1) for each in inner)


def checked_costs(costs: Any, names: Sequence[str]) -> tuple[float, ...]:
    """Known mean costs, in the order of the arms, from a list or a dictionary by name."""
    if isinstance(costs, Mapping):
        if set(costs) != set(names):
            raise InvalidInput(f"costs must name every arm once ({', '.join(names)}), got {shown(costs)}.")
        costs = [costs[name] for name in names]
    if isinstance(costs, (str, bytes)) or not isinstance(costs, (Sequence, np.ndarray)) or len(costs) != len(names):
        raise InvalidInput(f"costs must be {len(names)} positive numbers, one an arm, got {shown(costs)}.")
    return tuple(positive(cost, f"costs[{i}]") for i, cost in enumerate(costs))


def by_name(given: Any, find: Any) -> Any:
    """A policy or threshold that can be found again by what is written of it: a study is stored, and so is its name."""
    try:
        found = find(str(given))
    except InvalidInput:
        found = None
    if found != given:
        raise InvalidInput(f"a study's {given.kind} must be one that cabai knows by name, got {given}.")
    return given
