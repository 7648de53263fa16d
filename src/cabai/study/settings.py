"""The settings of one study, checked. `cabai.settings` lists all settings; `rules.amending` says what may change."""

from __future__ import annotations

import dataclasses
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cabai.core.goal import BEST, CHEAPEST, Cheapest, checked_costs, checked_goal
from cabai.core.kernels import Kernels
from cabai.core.setup import Setup
from cabai.datasets.race import PAIRED
from cabai.families import Family, family_of, mirror_image
from cabai.instance import arm_names
from cabai.policies import DEFAULT, Policy, policy_of
from cabai.settings import FAIL, STOP, WORST, defaults_for, settings_for
from cabai.study import levels
from cabai.study.items import Items, with_tuples
from cabai.study.stand_ins import KINDS, StandIn, is_own, stored
from cabai.support.lazy import lazy
from cabai.support.own import source_digest
from cabai.support.registry import Named
from cabai.support.validation import InvalidInput, shown, whole
from cabai.thresholds import Calibrated, EValue, Threshold, threshold_of

RUN_MEMORY = ("last", "leader", "second", "left", "rival", "stream")  # of the run, besides the policy's own
AMENDABLE = tuple(name for name in settings_for("amend") if name != "by")  # epsilon only grows
RUN = " (run)"  # ends the `by` of amendments made by a run of a file, or by a call of `evaluate`
FREE = 0.01  # of the smallest positive cost: what a pull that costs nothing counts as, when choosing
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
    costs: tuple[float, ...] | None  # if known; else they are learned
    max_cost: float | None
    max_pulls: int | None
    lease: float
    on_lapse: str
    seed: int
    metadata: dict[str, Any]  # by arm
    sources: dict[str, str]  # fingerprints of the files that define the user's own code, by kind
    full_cost: float | None = None  # what evaluating a dataset would cost, at which a study without items warns
    items: Items | None = None  # of a dataset, on which arms are evaluated; then there is a race, and no policy
    goal: str = BEST
    slack: float | None = None  # of goal cheapest
    running_costs: tuple[float, ...] | None = None  # the same; None: those of pulls
    reserve: float | None = None  # the share of delta that is kept for arms which join later or are dropped by hand
    joined: tuple[str, ...] = ()  # those of the arms that joined later, the last of them
    dropped: tuple[str, ...] = ()  # those of the arms that were dropped by hand
    elsewhere: int = 0  # rows of the log, the first of them, that are from elsewhere

    @classmethod
    def checked(
        cls, *, items: Items | None = None, joined: Any = (), dropped: Any = (), elsewhere: Any = 0, **given: Any
    ) -> Settings:
        """The settings as given, or an error that says what is wrong with them; what is not given is as usual."""
        given = {name: default for name, default in defaults_for("study").items() if name in FIELDS} | given
        names, metadata = checked_arms(given["arms"])
        kind = findable(family_of(given["family"]))
        epsilon, goal = kind.check_epsilon(given["epsilon"]), given["goal"]
        cheapest = checked_goal(goal, epsilon, given["slack"], given["running_costs"], names)  # which has these two
        in_order = items is None and given["reserve"] is None and not elsewhere  # from the first pull to the last
        best_of = len(names) if goal == BEST and epsilon == 0 and in_order else 1
        if given["seed"] is None:  # with items random, so that nobody can know their order in advance
            given["seed"] = 0 if items is None else secrets.randbits(62)
        settings = cls(
            **{name: row.checked(given[name]) for name, row in ALONE.items()},
            **({} if cheapest is None else vars(cheapest)),
            arms=names,
            family=kind,
            policy=findable(policy_of(given["policy"], BEST if items is not None else goal)),
            threshold=findable(threshold_of(given["threshold"], kind, best_of)),
            epsilon=epsilon,
            costs=None if given["costs"] is None else checked_costs(given["costs"], names, "costs"),
            metadata=metadata,
            sources={},
            items=items,
            joined=tuple(joined),
            dropped=tuple(dropped),
            elsewhere=whole(elsewhere, "elsewhere", 0),
        )
        if settings.reserve is not None or settings.joined or settings.dropped:
            levels.check_use(settings)
        if items is not None:
            settings.check_items(items)
            return settings
        if settings.policy.stops_by_itself:
            policy = f"policy {settings.policy} stops by its own rule, which no threshold's proof covers"
            raise InvalidInput(f"{policy}: leave `stop` out. Only simulations accept it.")
        if settings.is_certified and settings.direction == "minimize" and not kind.is_symmetric:
            direction = f"the largest mean of {kind.name} rewards, got direction {settings.direction!r}"
            raise InvalidInput(f"the threshold is certified only for {direction}; a proven one works for both.")
        settings.setup()  # a threshold may refuse a family
        return dataclasses.replace(settings, sources=settings.sources_now())

    def check_items(self, items: Items) -> None:
        """Refuse settings that a study with items does not use."""
        given = {name: getattr(items, name) for name in ("race", "failed", "speculate", "finish")}
        if Items.checked(items, family=self.family, epsilon=self.epsilon, goal=self.goal, **given) != items:
            raise InvalidInput("its items are not as they were given.")
        if self.full_cost is not None:
            raise InvalidInput("a study with items computes what evaluating everything costs: leave full_cost out.")
        if items.failed == STOP and self.on_lapse == FAIL:
            raise InvalidInput("with failed='stop' nothing may fail: a pull that lapses must be offered again.")
        for name, usual in (("policy", policy_of(DEFAULT)), ("threshold", threshold_of(None, self.family))):
            if getattr(self, name) != usual:
                raise InvalidInput(f"a study with items is run as a race, which has its own {name}: leave {name} out.")

    @property
    def failed_score(self) -> float | None:
        """What a failed evaluation of an item counts as; None if it does not."""
        if self.items is None or self.items.failed == STOP:
            return None
        if self.items.failed == WORST:
            return float(self.family.mean_range[0 if self.direction == "maximize" else 1])
        return float(self.items.failed)

    @property
    def error(self) -> float:
        """The largest probability of a wrong decision, with that of the race which this one has joined."""
        earlier = 0.0 if self.items is None else self.items.earlier_error
        return self.delta * (2 if self.dropped and self.reserve is None else 1) + earlier

    @lazy
    def steering_costs(self) -> tuple[float, ...] | None:
        """Known costs as policies see them. A pull that costs nothing counts as a hundredth of the smallest other cost,
        so that it is made about ten times as often, and not forever; if all cost nothing, all count the same."""
        if self.costs is None or all(self.costs):
            return self.costs
        least = min((cost for cost in self.costs if cost), default=1 / FREE)
        return tuple(cost or FREE * least or least for cost in self.costs)

    def setup(self, delta: float | None = None, threshold: Threshold | None = None, arms: int | None = None) -> Setup:
        """The rules, records and functions; for another delta, threshold or number of arms, if they are given."""
        if delta is None:
            return self._setup  # type: ignore[no-any-return]
        return Setup(
            self.kernel_family, threshold or self.threshold, self.policy, arms=arms or len(self.arms), delta=delta,
            epsilon=self.epsilon, goal=self.cheapest, budget=self.budget,
        )  # fmt: skip

    @property
    def cheapest(self) -> Cheapest | None:
        """What the cheapest arm is, where that is the goal: its running costs are those declared, or known costs."""
        if self.goal != CHEAPEST:
            return None
        assert self.slack is not None
        return Cheapest(self.slack, self.costs if self.running_costs is None else self.running_costs)

    # What follows from the settings, computed once.
    budget = lazy(lambda self: self.max_cost if self.policy.spends_budget and self.max_cost is not None else math.inf)
    first_arms = lazy(lambda self: len(self.arms) - len(self.joined))
    # Whether the test of pairs of arms, which may have any epsilon, is the one that decides.
    decides_by_pairs = lazy(lambda self: self.items is None or self.items.race == PAIRED)
    # Whether simulation has certified the threshold, and for how many pulls.
    is_certified = lazy(lambda self: isinstance(self.threshold, Calibrated) and self.threshold.is_certified)
    certified_pulls = lazy(lambda self: self.threshold.max_pulls if isinstance(self.threshold, Calibrated) else None)
    # The user's own code; what of it has not been imported; whether all of it has been.
    own = lazy(lambda self: {kind: getattr(self, kind) for kind in KINDS if is_own(getattr(self, kind).address)})
    missing = lazy(lambda self: {kind: each for kind, each in self.own.items() if isinstance(each, StandIn)})
    is_present = lazy(lambda self: not self.missing)

    # The rules, records and functions of a run, which look for the largest mean.
    kernel_family = lazy(lambda self: mirror_image(self.family) if self.direction == "minimize" else self.family)
    _setup = lazy(lambda self: self.setup(self.delta))
    pairs = lazy(lambda self: self.setup(self.delta, self.threshold.of_pairs))  # for the test of pairs of arms
    start = lazy(lambda self: self._setup.start())  # the records before the first pull; to be copied
    kernels = lazy(lambda self: Kernels(self._setup))  # the functions, compiled if that is worth it
    # What is kept of an arm from one pull to the next, besides its sums, and of the run.
    arm_memory = lazy(lambda self: ["in_play", *self.policy.arm_memory, *self._setup.threshold.arm_fields])
    run_memory = lazy(lambda self: [*RUN_MEMORY, *self.policy.run_memory])
    # The same arms, each tested alone, by `evalue`; an error if a user's own family has no mixture.
    of_one_arm = lazy(lambda self: Setup(self.kernel_family, EValue(), arms=len(self.arms), delta=self.delta))
    _rules = lazy(lambda self: dict[tuple[int, int], Any]())

    def rules_for(self, leader: int, among: int) -> Any:
        """The rules by which an arm is compared with its rivals, with `among` arms in play."""
        if among == len(self.arms) and self.reserve is None and not self.dropped:
            return self._setup.rules
        if (leader, among) not in self._rules:
            rules = self._rules[leader, among] = self.setup(self.delta, self.threshold.of_pairs, among).rules
            rules["level"] = levels.level(self, leader, self.delta)
        return self._rules[leader, among]

    def seen(self, value: float) -> float:
        """A reward or mean as the kernels see it: they look for the largest."""
        scaled = self.family.scaled(value)
        return self.family.mirror(scaled) if self.direction == "minimize" else scaled

    def seen_sum(self, pulls: int, reward: float) -> float:
        """A sum of rewards as the kernels see them."""
        return self.seen(0.0) * pulls + (self.seen(1.0) - self.seen(0.0)) * reward

    def shown(self, value: float) -> float:
        """A mean that the kernels see, as users see it."""
        return self.family.unscaled(self.family.mirror(value) if self.direction == "minimize" else value)

    def amended(self, **values: Any) -> Settings:
        """The same with other values from the log. What was computed is kept if it does not depend on them."""
        found = dataclasses.replace(self, **with_tuples(values))
        matter = "arms", "costs", "dropped", "epsilon", "budget"
        if all(getattr(found, name) == getattr(self, name) for name in matter):
            vars(found).update({name: value for name, value in vars(self).copy().items() if name not in FIELDS})
        return found

    def to_json(self) -> str:
        """All values as JSON, but those that are usual and were not always there."""
        found = {field.name: (getattr(self, field.name), field.default) for field in dataclasses.fields(self)}
        values = {name: value for name, (value, usual) in found.items() if value != usual}
        values |= {kind: values[kind].address for kind in KINDS}
        if self.items is not None:
            values["items"] = self.items.to_json()
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The settings of a stored study; the user's own code is named, not imported."""
        given = json.loads(text)
        if not isinstance(given, dict):
            raise ValueError("its settings are not a JSON object")
        values = with_tuples(given) | {kind: stored(kind, given[kind]) for kind in KINDS}
        if values.get("items") is not None:
            values["items"] = Items.from_json(values["items"])
        return cls(**values)

    @classmethod
    def stored(cls, text: str) -> Settings:
        """The same, if a study can be created with them; others than cabai can change a database."""
        settings = cls.from_json(text)
        given = {name: getattr(settings, name) for name in FIELDS - {"metadata", "sources"}}
        checked = cls.checked(**given | {"arms": {name: settings.metadata.get(name) for name in settings.arms}})
        if dataclasses.replace(checked, sources=settings.sources) != settings:
            raise ValueError("its settings are not as they were given")
        return settings

    @property
    def can_test(self) -> bool:
        """Whether the family and the threshold have been imported."""
        return not {"family", "threshold"} & set(self.missing)

    def imported(self) -> Settings:
        """The same, with the user's own code imported."""
        return dataclasses.replace(
            self, **{kind: KINDS[kind][0].get(each.address) for kind, each in self.missing.items()}
        )

    def sources_now(self) -> dict[str, str]:
        return {kind: source_digest(value) for kind, value in self.own.items() if kind not in self.missing}

    def differences(self, other: Settings) -> dict[str, str]:
        """The settings in which two studies differ, each in words."""
        others = {"sources", "elsewhere"} if self.arms == other.arms else {"sources", "elsewhere", "metadata"}
        found = {}
        for name in [field.name for field in dataclasses.fields(self) if field.name not in others]:
            both = [getattr(each, name) for each in (self, other)]
            if name in KINDS:
                both = [each.address for each in both]
            if both[0] != both[1]:
                mine, given = (list(each) if isinstance(each, tuple) else each for each in both)
                found[name] = f"{name} is {mine}, not {given}"
        return found


FIELDS = frozenset(field.name for field in dataclasses.fields(Settings))
ALONE = {name: row for name, row in settings_for("study").items() if name in FIELDS and (row.check or row.choices)}


def checked_name(name: Any) -> str:
    """A study's name: any string that is not empty or too long, without control characters."""
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidInput(f"a study's name must be printable text, 1 to {LONGEST_NAME} characters, got {shown(name)}.")
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
    return names, checked_metadata(metadata)


def checked_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(json.dumps(dict(metadata), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the arms' metadata must be valid as JSON, got {shown(metadata)}: {error}.") from None
    if is_deeper(kept, DEEPEST):
        raise InvalidInput(f"the arms' metadata must not be nested more than {DEEPEST} levels deep.")
    return kept


def is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deeper(each, levels - 1) for each in inner)


def findable(given: Named) -> Any:
    """A family, policy or threshold that every process can find by its stored name."""
    if not isinstance(given, StandIn):
        found = KINDS[given.kind][0].get(given.address)
        if found != given and (not given.is_own or found.address != given.address):
            raise InvalidInput(f"a study's {given.kind} must be one that can be found again by its name, got {given}.")
    return given
