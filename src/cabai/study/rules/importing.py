"""Observations that a new study has from elsewhere: a CSV or Parquet file, a DataFrame, or another study.

The tests that are proven here hold however the pulls were chosen, so they hold for pulls that were made elsewhere, as
long as nothing was left out, and no arm or setting chosen, because of what the data say: the user declares this
(`unseen`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cabai.datasets.sheets import number_in, open_sheet
from cabai.study.given import checked_result
from cabai.study.log.events import COUNTS, IMPORT, Event
from cabai.study.rules import counts
from cabai.study.rules.telling import cost_of
from cabai.study.settings import Settings
from cabai.support.validation import InvalidInput, about, shown
from cabai.thresholds import Calibrated, Symmetric

if TYPE_CHECKING:
    from cabai.study.stored import StoredStudy

Rows = list[tuple[str, Mapping[str, Any]]]  # each with where it is


def observations(source: Any, settings: Settings, *, unseen: Any) -> list[Event]:
    """The first events of a study that begins with these observations, in the order of asking."""
    if unseen is not True:
        raise InvalidInput(
            "to import observations, set unseen=True (--unseen) if both are true: nobody looked at these data when "
            "choosing the arms and settings of this study, and nothing that was observed of these arms was left out "
            "because of its value. Otherwise there is no guarantee: create the study without them."
        )
    check_use(settings)
    rows, origin = study_rows(source) if hasattr(source, "observations") else sheet_rows(source)
    if rows and "pull" in rows[0][1]:  # exported by a study
        rows.sort(key=pull_number)
    found = []
    for where, row in rows:
        with about(where):
            found += read(row, settings)
    if not found:
        raise InvalidInput(f"there is nothing to import in {origin}: no observation that counts.")
    if sum(json.loads(each.words or "")[0][1] if each.kind == COUNTS else 1 for each in found) >= counts.MOST_SUMMED:
        raise InvalidInput(f"{origin} has too many pulls: there must be fewer than 2**53 in all.")
    return [each._replace(place=n, pull=n, worker=origin[:200]) for n, each in enumerate(found, 1)]


def check_use(settings: Settings) -> None:
    """Refuse where what was observed elsewhere would void the proof."""
    if settings.items is not None:
        raise InvalidInput("scores on the items of a dataset are reused with cabai.evaluate(..., reuse=...).")
    if isinstance(settings.threshold, Calibrated):
        raise InvalidInput("a calibrated threshold is certified only for pulls that its policy chose: import nothing.")
    if isinstance(settings.threshold, Symmetric):
        raise InvalidInput(
            "with an unknown variance, an arm's first rewards set the scale of the test, and rows from elsewhere may "
            "be in any order: give a variance, or use family bounded."
        )
    if not settings.threshold.is_proven_for(settings.family):
        got = f"threshold {settings.threshold}: {settings.threshold.standing(settings.family)}"
        raise InvalidInput(f"what is imported needs a test that is proven no matter how pulls were chosen, got {got}.")


def study_rows(study: Any) -> tuple[Rows, str]:
    """The observations of another study."""
    if study.settings.items is not None:
        raise InvalidInput(f"study {study.name!r} has items: reuse its scores with cabai.evaluate(..., reuse=...).")
    joined = study._read("settings")[0].joined
    if joined:
        raise InvalidInput(
            f"arm {joined[0]!r} joined study {study.name!r} later, perhaps because of what others had returned: its "
            "results are not unseen, and a new study would not pay for that."
        )
    origin = f"study {study.name}"
    return [(f"{origin}, pull {row['pull']}", row) for row in study.observations()], origin


def sheet_rows(source: Any) -> tuple[Rows, str]:
    """The rows of a table."""
    sheet = open_sheet(source)
    origin = Path(source).name if isinstance(source, (str, Path)) else "a DataFrame"
    for name in ("arm", "reward"):
        if name not in sheet.headers:
            raise InvalidInput(f"{sheet.name} has no column {name!r}: it needs arm, reward and, unless known, cost.")
    cells = zip(sheet.rows, zip(*sheet.columns, strict=True), strict=True)
    return [(f"{sheet.name}, row {at}", dict(zip(sheet.headers, row, strict=True))) for at, row in cells], origin


def pull_number(row: tuple[str, Mapping[str, Any]]) -> int:
    number = str(row[1]["pull"]).rpartition("-")[2]
    if not re.fullmatch("[0-9]{1,18}", number):
        raise InvalidInput(f"a pull's id ends in its number, as in 1f6c2a9b-1, got {shown(row[1]['pull'])}.")
    return int(number)


def read(row: Mapping[str, Any], settings: Settings) -> list[Event]:
    """One row, if it counts: not what was withdrawn, or told after the study had stopped."""
    name = str(row["arm"]).strip()
    if name not in settings.arms:
        raise InvalidInput(
            f"there is no arm {shown(name)} in this study. Leaving out an arm because of its results has a "
            "price: keep it as an arm and drop it, which pays that price."
        )
    failed = reason(row.get("failed"))
    reward, cost, pulls, counted = (number(row, each) for each in ("reward", "cost", "pulls", "counted"))
    if failed is None and counted == 0:
        return []
    if pulls is None or pulls == 1:
        arm, result = settings.arms.index(name), checked_result(settings, reward, cost, failed)
        paid = cost_of(settings, arm, result)
        return [Event(0, IMPORT, 0.0, arm=arm, reward=result.reward, cost=paid, words=result.failed)]
    if failed is not None or reward is None:
        raise InvalidInput(f"pulls that failed are told one by one, each in a row with pulls 1, got {pulls:g}.")
    whole = [int(each) if each.is_integer() else each for each in (pulls, reward)]
    return [Event(0, COUNTS, 0.0, words=json.dumps(counts.read(settings, {name: (*whole, cost)})))]


def check_begun(study: StoredStudy, first: Sequence[Event]) -> None:
    """Refuse an existing study, unless it began with these very observations: none can be added later."""
    begun = study.settings.elsewhere == len(first)
    if not begun or [each._replace(time=0.0) for each in study._log(len(first))] != first:
        why = f"study {study.name!r} already exists and did not begin with these observations, and only a new study can"
        raise InvalidInput(f"{why}: load it without import_from, or choose another name.")


def number(row: Mapping[str, Any], name: str) -> float | None:
    value = number_in(row.get(name))
    if value is None:
        raise InvalidInput(f"{name} must be a number, got {shown(row[name])}.")
    return None if math.isnan(value) else value


def reason(cell: Any) -> str | None:
    """Why a pull failed, from a cell; None if the cell says that it did not: empty, false, 0."""
    value = number_in(cell)
    if value is not None and (math.isnan(value) or value == 0):
        return None
    return "failed" if value == 1 else str(cell)
