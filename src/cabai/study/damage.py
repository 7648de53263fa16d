"""Check what is read of a study: others than cabai can change a database, and damaged data must not be used. Each check
raises ValueError with a reason; `reading` makes an error message of it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cabai.study.errors import StorageError
from cabai.study.settings import Settings

if TYPE_CHECKING:
    from cabai.study.play import Play, Side


@contextmanager
def reading(name: str, storage: str) -> Iterator[None]:
    """Errors inside are reported as damage of the stored study."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        raise StorageError(
            f"the study {name!r} in {storage} is damaged: {reason}. Restore the storage from a copy, or delete the "
            "study."
        ) from error


def settings_of(text: str) -> Settings:
    """The stored settings, if a study can be created with them."""
    if not isinstance(json.loads(text), dict):
        raise ValueError("its settings are not a JSON object")
    settings = Settings.from_json(text)
    given = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    metadata, sources = given.pop("metadata"), given.pop("sources")
    checked = Settings.checked(**given | {"arms": {name: metadata.get(name) for name in settings.arms}})
    if dataclasses.replace(checked, sources=sources) != settings:
        raise ValueError("its settings are not as they were given")
    return settings


def check_row(row: Any, settings: Settings, reasons: Sequence[str]) -> None:
    """The study's own row."""
    require(is_count(row.asked) and is_count(row.told) and row.told <= row.asked, row, "asked", "told")
    require(is_count(row.through) and row.through <= row.asked, row, "through", "asked")
    require(is_count(row.unordered) and row.unordered <= row.told, row, "unordered", "told")
    require(is_count(row.amended) and is_count(row.beyond), row, "amended", "beyond")
    require(is_amount(row.spent) and is_amount(row.counted) and is_amount(row.created), row, "spent", "counted")
    if row.stopped is None:
        require(row.reason is None and row.decision is None, row, "stopped", "reason", "decision")
        return
    require(is_amount(row.stopped) and row.reason in reasons, row, "stopped", "reason")
    require(row.reason not in ("max_cost", "max_pulls") or getattr(settings, row.reason) is not None, row, "reason")
    led = row.decision is None and row.reason != "evidence"
    require(led or is_arm(row.decision, settings), row, "decision")
    require(is_count(row.told_at_stop) and row.told_at_stop <= row.told, row, "told_at_stop", "told")
    require(is_amount(row.spent_at_stop), row, "spent_at_stop")
    require(row.confidence is None or (is_amount(row.confidence) and row.confidence <= 1), row, "confidence")


def check_arms(arms: Sequence[Any], settings: Settings, told: int) -> None:
    """The sums of each arm."""
    names = [arm.name for arm in arms]
    if names != list(settings.arms):
        raise ValueError(f"its arms are {names[:20]}, not {list(settings.arms)[:20]}")
    low, high = settings.family.mean_range
    for arm in arms:
        if not looks_sound(arm, settings, low, high):
            check_arm(arm, settings, low, high)
    total = sum(arm.pulls + arm.failures + arm.discarded for arm in arms)
    if total != told:
        raise ValueError(f"its arms have {total} pulls, but {told} were told")


def looks_sound(arm: Any, settings: Settings, low: float, high: float) -> bool:
    """A quick check: True if `check_arm` would find nothing; False if only it can tell."""
    counts = (arm.pulls, arm.failures, arm.offers, arm.lapses, arm.discarded, arm.ordered_pulls)
    perhaps = (0.0 if value is None else value for value in (arm.largest_cost, arm.squares))
    amounts = (arm.costs, arm.spent, arm.ordered_costs, *perhaps)
    ordered = (arm.ordered_pulls, arm.ordered_rewards, arm.ordered_first, arm.ordered_costs)
    return (
        set(map(type, counts)) == {int}
        and set(map(type, amounts)) == {float}
        and type(arm.rewards) is type(arm.first) is float
        and ordered == (arm.pulls, arm.rewards, arm.first, arm.costs)
        and min(counts) >= 0
        and min(amounts) >= 0
        and math.isfinite(sum(amounts) + arm.rewards + arm.first)
        and (arm.pulls == 0 or arm.costs > 0 or settings.items is not None)
        and (arm.pulls == 0 or low <= settings.shown(arm.rewards / arm.pulls) <= high)
        and (arm.pulls == 0 or low <= settings.shown(arm.first) <= high)
    )


def check_arm(arm: Any, settings: Settings, low: float, high: float) -> None:
    """The sums of one arm."""
    require(is_count(arm.pulls) and is_count(arm.failures), arm, "name", "pulls", "failures")
    require(is_amount(arm.costs) and is_amount(arm.spent), arm, "name", "costs", "spent")
    require(arm.largest_cost is None or is_amount(arm.largest_cost), arm, "name", "largest_cost")
    require(is_count(arm.offers) and is_count(arm.lapses), arm, "name", "offers", "lapses")
    require(is_count(arm.discarded), arm, "name", "discarded")
    require(arm.squares is None or is_amount(arm.squares), arm, "name", "squares")
    require(is_count(arm.ordered_pulls) and arm.ordered_pulls <= arm.pulls, arm, "name", "ordered_pulls", "pulls")
    require(is_amount(arm.ordered_costs), arm, "name", "ordered_costs")
    sums = arm.pulls, arm.rewards, arm.first, arm.costs
    ordered = arm.ordered_pulls, arm.ordered_rewards, arm.ordered_first, arm.ordered_costs
    for prefix, values in [("", sums)] if ordered == sums else [("", sums), ("ordered_", ordered)]:
        pulls, rewards, first, costs = values
        columns = [prefix + name for name in ("pulls", "rewards", "first", "costs")]
        require(is_number(rewards) and is_number(first), arm, "name", *columns)
        if pulls:
            possible = all(low <= settings.shown(seen) <= high for seen in (rewards / pulls, first))
            require(possible and (costs > 0 or settings.items is not None), arm, "name", *columns)


def check_play(play: Play) -> None:
    """What the policy remembers."""
    check_side(play.told)
    if not play.has_waiting:
        return
    check_side(play.ordered)
    if (play.told.arms["in_play"] != play.ordered.arms["in_play"]).any():
        raise ValueError("its arms in play do not agree with the results that count")


def check_side(side: Side) -> None:
    pulls, in_play, run = side.arms["pulls"].tolist(), side.arms["in_play"].tolist(), side.run
    last, leader, rival, t = (int(run[name]) for name in ("last", "leader", "rival", "t"))
    if (
        not all(-1 <= index < len(pulls) for index in (last, leader, rival))
        or not set(in_play) <= {0, 1}
        or run["left"] != sum(in_play)
        or t != sum(pulls)
        or any(map(min, pulls, in_play)) != (leader >= 0)
        or (leader >= 0 and not (pulls[leader] > 0 and in_play[leader] == 1))
    ):
        raise ValueError("what its policy remembers does not fit its arms")


def looks_under_way(pull: Any, settings: Settings) -> bool:
    """A quick check: True if `check_pulls` would find nothing; False if only it can tell."""
    counts, times = (pull.arm, pull.offers, pull.lapses), (pull.expires, pull.asked)
    return (
        set(map(type, counts)) == {int}
        and set(map(type, times)) == {float}
        and pull.item is settings.items is None
        and min(counts) >= 0
        and pull.arm < len(settings.arms)
        and math.isfinite(sum(times))
    )


def check_pulls(pulls: Iterable[Any], settings: Settings) -> None:
    """Pulls that are under way."""
    for pull in pulls:
        require(is_arm(pull.arm, settings) and is_count(pull.offers), pull, "number", "arm", "offers")
        require(is_number(pull.expires) and is_number(pull.asked), pull, "number", "expires", "asked")
        require(is_count(pull.lapses), pull, "number", "lapses")
        require((pull.item is None) == (settings.items is None), pull, "number", "item")
        require(pull.item is None or is_item(pull.item, settings), pull, "number", "item")


def check_log(log: Iterable[Any], settings: Settings) -> None:
    """What was told."""
    for each in log:
        require(is_arm(each.arm, settings) and is_count(each.place), each, "number", "arm", "place")
        require(each.reward is None or is_number(each.reward), each, "number", "reward")
        require(is_amount(each.cost), each, "number", "cost")
        require(is_number(each.asked) and is_number(each.told), each, "number", "asked", "told")
        require((each.failed is None) != (each.reward is None), each, "number", "reward", "failed")


def check_scores(log: Iterable[Any], settings: Settings) -> None:
    """What was told in a study with items."""
    for each in log:
        require(is_arm(each.arm, settings) and is_count(each.place), each, "number", "arm", "place")
        require(is_item(each.item, settings), each, "number", "item")
        known = each.failed is None and is_number(each.reward) and settings.family.allows_reward(each.reward)
        require(known or (each.reward is None and each.failed is not None), each, "number", "reward", "failed")
        require(is_number(each.told) and is_count(each.offers), each, "number", "told", "offers")


def check_amendments(amendments: Sequence[Any], amended: int) -> None:
    """What was changed of the settings."""
    if [each.number for each in amendments] != list(range(1, amended + 1)):
        raise ValueError(f"it was amended {amended} times, and its log has {len(amendments)} amendments")
    for each in amendments:
        require(is_number(each.made) and isinstance(json.loads(each.changes), dict), each, "number", "made", "changes")


def check_points(points: Iterable[Any], settings: Settings) -> None:
    """Points of the history."""
    for each in points:
        require(is_count(each.told) and is_count(each.arms), each, "told", "arms")
        require(is_number(each.time) and is_amount(each.spent), each, "told", "time", "spent")
        named = all(a is None or is_arm(a, settings) for a in (each.leader, each.rival))
        require(named, each, "told", "leader", "rival")
        shown = all(value is None or is_number(value) for value in (each.evidence, each.required))
        require(shown, each, "told", "evidence", "required")


def tests_of(text: str, settings: Settings) -> dict[str, Any]:
    """How each arm is tried."""
    tests = json.loads(text)
    first = set(settings.arms[: settings.first_arms])  # an arm that has joined may not have been tried yet
    if not first <= set(tests) <= set(settings.arms) or not all(isinstance(test, dict) for test in tests.values()):
        raise ValueError("how its arms are tried does not fit its arms")
    return tests  # type: ignore[no-any-return]


def require(condition: bool, row: Any, *columns: str) -> None:
    """Raise an error with the columns of a row that make no sense."""
    if not condition:
        raise ValueError("it has " + ", ".join(f"{column} = {getattr(row, column)!r}" for column in columns))


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def is_amount(value: Any) -> bool:
    return is_number(value) and value >= 0


def is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def is_item(value: Any, settings: Settings) -> bool:
    return settings.items is not None and is_count(value) and value < settings.items.count


def is_arm(value: Any, settings: Settings) -> bool:
    return is_count(value) and value < len(settings.arms)
