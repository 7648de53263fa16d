"""Where a plan begins: a study's file, a pilot's table (whose own cost is not in the bill), or a stored study."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import BEST
from cabai.datasets.reading import read_logs, read_table
from cabai.datasets.sheets import Sheet, column_for, numbered, numbers_in, open_sheet
from cabai.study.create import described, settings_of
from cabai.study.settings import Settings
from cabai.support.validation import InvalidInput, shown

Numbers = NDArray[np.float64]
ADVICE = "A pilot's table has the columns arm, reward and perhaps cost, one row per pull."


@dataclass(frozen=True)
class Pilot:
    """The rewards of each arm, and what its pulls cost; no costs where the table has none."""

    arms: tuple[str, ...]
    rewards: tuple[Numbers, ...]
    costs: tuple[Numbers, ...] | None

    def of(self, arms: Sequence[str], *, with_costs: bool = True) -> Pilot:
        """The same for these arms, in this order."""
        for arm in arms:
            if arm not in self.arms:
                raise InvalidInput(f"the pilot has no reward for arm {shown(arm)}; it has {', '.join(self.arms)}.")
        order = [self.arms.index(arm) for arm in arms]
        costs = None if self.costs is None or not with_costs else tuple(self.costs[a] for a in order)
        return Pilot(tuple(arms), tuple(self.rewards[a] for a in order), costs)


def pilot_in(sheet: Sheet) -> Pilot:
    """The pilot in a table."""
    arm, reward, cost = (column_for(sheet, role) for role in ("arm", "score", "cost"))
    if arm is None or reward is None:
        raise InvalidInput(f"{sheet.name} has no column {'arm' if arm is None else 'reward'}. {ADVICE}")
    names, rows = numbered(sheet, arm)
    most = sys.float_info.max
    rewards = numbers_in(sheet.columns[reward], "reward", -most, most, lambda row: sheet.place(row, reward))
    known = ~np.isnan(rewards)
    costs = None
    if cost is not None:
        paid = numbers_in(sheet.columns[cost], "cost", 0.0, most, lambda row: sheet.place(row, cost))
        costs = tuple(paid[(rows == a) & ~np.isnan(paid)] for a in range(len(names)))
    return Pilot(tuple(names), tuple(rewards[known & (rows == a)] for a in range(len(names))), costs)


def pilot_of(observations: Sequence[Mapping[str, Any]]) -> Pilot:
    """What a study was told: every pull that returned a reward."""
    arms = tuple(dict.fromkeys(each["arm"] for each in observations))
    told = [each for each in observations if each["reward"] is not None]

    def values(name: str, arm: str) -> Numbers:
        return np.array([each[name] for each in told if each["arm"] == arm], float)

    return Pilot(arms, tuple(values("reward", arm) for arm in arms), tuple(values("cost", arm) for arm in arms))


@dataclass(frozen=True)
class Source:
    """What a source says of a study's settings, and the pilot: of rewards or, for a race, a table of scores."""

    given: dict[str, Any]
    pilot: Any = None
    pays_reward: bool = False  # whether a pull costs what it returns: the time it takes


def source_of(source: Any, pilot: Any, *, with_items: bool, scorer: str | None = None) -> Source:
    given: dict[str, Any] = {}
    data, pays_reward = pilot, False
    if isinstance(source, (str, Path)) and str(source).lower().endswith(".toml"):
        from cabai.study.run.recipe import read_recipe

        recipe = read_recipe(source)
        if str(recipe.folder) not in sys.path:  # for a user's own family, threshold or policy
            sys.path.insert(0, str(recipe.folder))
        given = dict(recipe.settings)
        check_goal(given.get("goal", BEST))
        pays_reward = recipe.measure.reward is not None and recipe.measure.cost == recipe.measure.reward
        if recipe.dataset is not None:
            given["items"] = len(recipe.dataset.items)
    elif hasattr(source, "settings") and hasattr(source, "observations"):
        settings: Settings = source.settings.imported()
        check_goal(settings.goal)
        names = ["arms", "family", "delta", "epsilon", "direction", "max_cost", "max_pulls"]
        names += ["policy", "threshold", "costs"] if settings.items is None else []
        given = {name: getattr(settings, name) for name in names}
        here = [a for a, arm in enumerate(settings.arms) if arm not in settings.dropped]
        given |= {name: [given[name][a] for a in here] for name in ("arms", "costs") if given.get(name)}
        if settings.items is not None:
            given |= {"items": settings.items.count, "race": settings.items.race}
        if data is None:
            data = scores_of(source) if settings.items is not None else pilot_of(source.observations())
    elif source is not None:
        if pilot is not None:
            raise InvalidInput("give one table as the pilot, got two.")
        data = source
    if isinstance(data, (str, Path)) or scorer is not None:
        logs = read_logs(data, scorer=scorer)
        data = data if logs is None else logs
    if data is not None and "items" not in given and not with_items:
        data = rewards_or_scores(data)
    return Source(given, data, pays_reward)


def check_goal(goal: Any) -> None:
    """Refuse goals that cannot be planned."""
    if goal != BEST:
        raise InvalidInput(
            f"a plan is for finding the best arm, got goal {shown(goal)}: simulate it, with cabai simulate --goal "
            f"{goal}, or on scores that you have, with cabai replay --goal {goal}."
        )


def scores_of(study: Any) -> Any:
    """What a study with items knows of scores, and the mean cost of an evaluation of each arm."""
    paid = pilot_of(study.observations())
    costs = {arm: float(each.mean()) for arm, each in zip(paid.arms, paid.costs or (), strict=True) if len(each)}
    scores, (low, high) = study.scores(), study.settings.family.mean_range
    known = set(costs) == set(scores) and sum(costs.values()) > 0
    return read_table(scores, costs=costs if known else None, low=low, high=high)


def rewards_or_scores(data: Any) -> Any:
    """A pilot of rewards, if that is what a table or a mapping of each arm to its rewards holds; a table of scores on
    items is left as it is."""
    if isinstance(data, Mapping):
        return Pilot(tuple(map(str, data)), tuple(rewards_of(*each) for each in data.items()), None)
    if not isinstance(data, (str, Path)) and not hasattr(data, "columns"):
        return data
    if isinstance(data, (str, Path)) and not Path(data).is_file():
        raise InvalidInput(f"cannot read {data}: the file does not exist.")
    sheet = open_sheet(data)
    columns = {role: column_for(sheet, role) for role in ("arm", "item", "score")}
    is_long = columns["arm"] is not None and columns["score"] is not None
    return pilot_in(sheet) if is_long and columns["item"] is None else data


def rewards_of(arm: Any, given: Any) -> Numbers:
    with suppress(TypeError, ValueError):
        found: Numbers = np.asarray(given, float)
        if found.ndim == 1:
            return found
    raise InvalidInput(f"the rewards of arm {shown(arm)} must be a list of numbers, got {shown(given)}.")


def study_settings(given: Mapping[str, Any], arms: Sequence[str], items: int | None = None) -> Settings:
    """The settings that `create_study` would make of these; a plan has its own budget."""
    known = {name: value for name, value in given.items() if value is not None}
    checked, of_items = described(**known | {"arms": list(arms), "items": items})
    return replace(settings_of(checked, of_items), max_cost=None)
