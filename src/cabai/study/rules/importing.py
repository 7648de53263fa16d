"""Observations that a new study has from elsewhere: a CSV or Parquet file, a DataFrame, or another study.

The tests that are proven here hold however the pulls were chosen, so they hold for pulls that were made elsewhere, as
long as nothing was left out, and no arm or setting chosen, because of what the data say: the user declares this
(`unseen`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cabai.datasets.sheets import number_in, open_sheet
from cabai.study.log.events import COUNTS, IMPORT, Event
from cabai.study.rules import counts
from cabai.study.settings import Settings
from cabai.support.validation import InvalidInput, shown
from cabai.thresholds import Calibrated, Symmetric

if TYPE_CHECKING:
    from cabai.study.stored import StoredStudy

DECLARE = (
    "set unseen=True (--unseen) if both are true: nobody looked at these data when choosing the arms and settings of "
    "this study, and they are everything that was observed of these arms, with nothing left out because of its value. "
    "Otherwise there is no guarantee: create the study without them."
)


def observations(source: Any, settings: Settings, *, unseen: Any) -> list[Event]:
    """The first events of a study that begins with these observations, in the order of asking."""
    if unseen is not True:
        raise InvalidInput(f"to import observations, {DECLARE}")
    check_use(settings)
    rows, origin = study_rows(source) if hasattr(source, "observations") else sheet_rows(source)
    found = [each for where, row in rows if (each := read(where, row, settings)) is not None]
    if not found:
        raise InvalidInput(f"there is nothing to import in {origin}: no observation that counts.")
    if sum(json.loads(each.words or "")[0][1] if each.kind == COUNTS else 1 for each in found) >= counts.MOST:
        raise InvalidInput(f"{origin} has too many pulls: there must be fewer than 2**53 in all.")
    return [each._replace(place=n, pull=n, worker=origin[:200]) for n, each in enumerate(found, 1)]


def check_use(settings: Settings) -> None:
    """Refuse where what was observed elsewhere would void the proof."""
    if settings.items is not None:
        raise InvalidInput("scores on the items of a dataset are reused with cabai.evaluate(..., reuse=...).")
    if isinstance(settings.threshold, Calibrated):
        raise InvalidInput(
            "a calibrated threshold is certified only for pulls that its policy chose: observations from elsewhere "
            "are refused."
        )
    if isinstance(settings.threshold, Symmetric):
        raise InvalidInput(
            "with an unknown variance, an arm's first rewards set the scale of the test, and nothing shows that rows "
            "from elsewhere are in the order of observing: give a variance, or use family bounded."
        )
    if not settings.threshold.is_proven_for(settings.family):
        raise InvalidInput(
            "observations can be imported only where the test is proven no matter how pulls were chosen, got "
            f"threshold {settings.threshold}: {settings.threshold.standing(settings.family)}."
        )


def study_rows(study: Any) -> tuple[Iterator[tuple[str, Mapping[str, Any]]], str]:
    """The observations of another study, in the order of asking."""
    if study.settings.items is not None:
        raise InvalidInput(
            f"study {study.name!r} has items: its scores are reused with cabai.evaluate(..., reuse=...)."
        )
    joined = study._renewed().joined
    if joined:
        raise InvalidInput(
            f"arm {joined[0]!r} joined study {study.name!r} later, perhaps because of what others had returned: its "
            "results are not unseen, and a new study with it as a first arm would pay nothing for that."
        )
    origin = f"study {study.name}"
    told = sorted(study.observations(), key=pull_number)
    return ((f"{origin}, pull {row['pull']}", row) for row in told), origin


def sheet_rows(source: Any) -> tuple[Iterator[tuple[str, Mapping[str, Any]]], str]:
    """The rows of a table; one that a study has exported is put in the order of asking."""
    sheet = open_sheet(source)
    origin = Path(source).name if isinstance(source, (str, Path)) else "a DataFrame"
    for name in ("arm", "reward"):
        if name not in sheet.headers:
            raise InvalidInput(f"{sheet.name} has no column {name!r}: it needs arm, reward and, unless known, cost.")
    rows = [
        (f"{sheet.name}, row {number}", dict(zip(sheet.headers, cells, strict=True)))
        for number, cells in zip(sheet.rows, zip(*sheet.columns, strict=True), strict=True)
    ]
    if "pull" in sheet.headers:
        rows.sort(key=lambda each: pull_number(each[1]))
    return iter(rows), origin


def pull_number(row: Mapping[str, Any]) -> int:
    number = str(row["pull"]).rpartition("-")[2]
    if not re.fullmatch("[0-9]{1,18}", number):
        raise InvalidInput(f"a pull's id ends in its number, as in 1f6c2a9b-1, got {shown(row['pull'])}.")
    return int(number)


def read(where: str, row: Mapping[str, Any], settings: Settings) -> Event | None:
    """One row, if it counts: not what was withdrawn, or told after the study had stopped."""
    name = str(row["arm"]).strip()
    if name not in settings.arms:
        raise InvalidInput(
            f"{where}: there is no arm {shown(name)} in this study. Leaving out an arm because of its results has a "
            "price: keep it as an arm and drop it, which pays that price."
        )
    arm, failed = settings.arms.index(name), reason(row.get("failed"))
    reward, cost = number(where, row, "reward"), number(where, row, "cost")
    pulls = number(where, row, "pulls")
    if failed is None and reward is None:
        raise InvalidInput(f"{where}: it has no reward, and no reason in a column 'failed'.")
    if failed is not None and reward is not None:
        raise InvalidInput(
            f"{where}: it has a reward, {reward:g}, and also a reason for failing, {shown(failed)}: leave one out."
        )
    if failed is None and number(where, row, "counted") == 0:
        return None
    if cost is None:
        if settings.costs is None and failed is None:
            raise InvalidInput(f"{where}: it has no cost, and the study has no known costs.")
        cost = 0.0 if settings.costs is None else settings.costs[arm]
    if cost < 0 or (cost == 0 and failed is None and settings.costs is None):
        raise InvalidInput(f"{where}: cost must be positive, got {cost:g}.")
    if pulls is not None and pulls != 1:
        return read_sum(where, name, pulls, reward, cost, settings)
    try:
        seen = None if failed else settings.family.check_reward(reward)
        return Event(0, IMPORT, 0.0, arm=arm, reward=seen, cost=cost, words=failed)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def read_sum(where: str, name: str, pulls: float, reward: float | None, cost: float, settings: Settings) -> Event:
    """A row that sums up several pulls."""
    if reward is None:
        raise InvalidInput(
            f"{where}: pulls that failed are told one by one, each in a row with pulls 1, got {pulls:g}."
        )
    for what, value in (("pulls", pulls), ("a sum of rewards", reward)):
        if value != math.floor(value) or abs(value) >= counts.MOST:
            raise InvalidInput(f"{where}: {what} must be a whole number below 2**53, got {value!r}.")
    try:
        [found] = counts.read(settings, {name: (int(pulls), int(reward), cost)})
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None
    return Event(0, COUNTS, 0.0, words=json.dumps([found]))


def check_begun(study: StoredStudy, first: Sequence[Event]) -> None:
    """Refuse an existing study, unless it began with these very observations: none can be added later."""
    begun = study.settings.elsewhere == len(first)
    if not begun or [each._replace(time=0.0) for each in study._log(len(first))] != first:
        raise InvalidInput(
            f"study {study.name!r} already exists and did not begin with these observations, and only a new study can: "
            "load it without import_from, or choose another name."
        )


def number(where: str, row: Mapping[str, Any], name: str) -> float | None:
    """A number in a row; None if there is none."""
    value = number_in(row.get(name))
    if value is None:
        raise InvalidInput(f"{where}: {name} must be a number, got {shown(row[name])}.")
    return None if math.isnan(value) else value


def reason(cell: Any) -> str | None:
    """Why a pull failed, from a cell; None if the cell says that it did not: empty, false, 0."""
    value = number_in(cell)
    if value is not None and (math.isnan(value) or value == 0):
        return None
    return "failed" if value == 1 else str(cell)
