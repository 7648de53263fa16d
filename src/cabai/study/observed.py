"""Everything that was told of a study, for people and programs: one dictionary per pull."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cabai.study.ledger import Ledger
from cabai.study.settings import Settings

FIRST, LATER = ["pull", "arm"], ["reward", "cost", "failed", "asked", "told", "worker", "offers", "counted", "late"]
OF_AN_ITEM = [*FIRST, "item", *LATER]
OBSERVATION = [*FIRST, *LATER, "pulls", "period", "origin"]


def columns(settings: Settings) -> list[str]:
    """The names of the fields of each observation."""
    return OBSERVATION if settings.items is None else OF_AN_ITEM


def observations(log: Iterable[Any], row: Any, ledger: Ledger) -> Iterator[dict[str, Any]]:
    """What is known of each row of the log. In a study with items, the first that was told of an item counts."""
    seen: set[tuple[int, int]] = set()
    for each in log:
        yield observation(each, row, ledger, again=(each.arm, each.item) in seen)
        if ledger.settings.items is not None:
            seen.add((each.arm, each.item))


def observation(told: Any, row: Any, ledger: Ledger, *, again: bool) -> dict[str, Any]:
    """One of them; `row` is the study's own, and `again` says whether its item was told of this arm before."""
    settings = ledger.settings
    late = row.told_at_stop is not None and told.place > row.told_at_stop
    in_order = told.withdrawn is None and (told.number <= row.through or told.place <= row.unordered)
    items = settings.items
    if items is not None:
        in_order = not again
    return {
        "pull": ledger.pull_id(told.number),
        "arm": settings.arms[told.arm],
        **({} if items is None else {"item": items.id(told.item)}),
        "reward": told.reward,
        "cost": told.cost,
        "failed": told.failed,
        "asked": told.asked,
        "told": told.told,
        "worker": told.worker,
        "offers": told.offers,
        "counted": told.reward is not None and in_order and not late,
        "late": late,
        **({"pulls": told.pulls, "period": told.period, "origin": told.origin} if items is None else {}),
    }
