"""Where a plan begins: a study's file, a pilot's table (whose own cost is not in the bill), or a stored study."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cabai.core.goal import BEST
from cabai.datasets.reading import read_logs, read_table
from cabai.datasets.sheets import Numbers, Sheet, column_for, numbered, open_sheet
from cabai.study.create import described
from cabai.study.settings import Settings
from cabai.support.validation import InvalidInput, shown

ADVICE = "A pilot's table has the columns arm, reward and perhaps cost, one row per pull."


class Pilot(NamedTuple):
    """By arm, its rewards and what its pulls cost; no costs where the table has none."""

    rewards: dict[str, Numbers]
    costs: dict[str, Numbers] | None


def pilot_in(sheet: Sheet) -> Pilot:
    arm, reward, cost = (column_for(sheet, role) for role in ("arm", "score", "cost"))
    if arm is None or reward is None:
        raise InvalidInput(f"{sheet.name} has no column {'arm' if arm is None else 'reward'}. {ADVICE}")
    names, rows = numbered(sheet, arm)

    def by_arm(column: int, what: str, least: float = 0.0) -> dict[str, Numbers]:
        found = sheet.numbers(column, what, least)
        return {name: found[(rows == a) & ~np.isnan(found)] for a, name in enumerate(names)}

    rewards = by_arm(reward, "reward", -sys.float_info.max)
    return Pilot(rewards, None if cost is None else by_arm(cost, "cost"))


def pilot_of(observations: Sequence[Mapping[str, Any]]) -> Pilot:
    """What a study was told: every pull that returned a reward."""
    rewards, costs = ({each["arm"]: list[float]() for each in observations} for _ in range(2))
    for each in observations:
        if each["reward"] is not None:
            rewards[each["arm"]].append(each["reward"])
            costs[each["arm"]].append(each["cost"])
    return Pilot(*({arm: np.array(told, float) for arm, told in by_arm.items()} for by_arm in (rewards, costs)))


def source_of(
    source: Any, pilot: Any, *, with_items: bool, scorer: str | None = None
) -> tuple[dict[str, Any], Any, bool]:
    """What a source says of a study's settings; the pilot, of rewards or, for a race, a table of scores; and whether a
    pull costs what it returns: the time it takes."""
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
        if "items" in given:
            given["items"] = len(given["items"].items)
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
    return given, data, pays_reward


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
    costs = {arm: float(each.mean()) for arm, each in (paid.costs or {}).items() if len(each)}
    scores, (low, high) = study.scores(), study.settings.family.mean_range
    known = set(costs) == set(scores) and sum(costs.values()) > 0
    return read_table(scores, costs=costs if known else None, low=low, high=high)


def rewards_or_scores(data: Any) -> Any:
    """A pilot of rewards, if that is what a table or a mapping of each arm to its rewards holds; a table of scores on
    items is left as it is."""
    if isinstance(data, Mapping):
        return Pilot({str(arm): rewards_of(arm, given) for arm, given in data.items()}, None)
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
    checked = described(**known | {"arms": list(arms), "items": items})
    return replace(Settings.checked(**checked), max_cost=None)
