"""Long and wide tables: what each column is, and the scores or costs as arms x items.

A table is **long** if it has columns for the arm, the item and the score: one row per evaluation. Otherwise it is
**wide**: one row per item, and one column per arm. The names that columns may have are below; a column with the first
of them is preferred to its synonyms, and two synonyms without it are an error. Case does not matter, and spaces and
hyphens count as underscores.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.cells import is_absent, number_in, numbers_in
from cabai.datasets.sheets import Sheet
from cabai.support.validation import InvalidInput, shown

NAMES = {
    "arm": ("arm", "model", "model_name", "model_id", "system", "variant"),
    "item": ("item", "item_id", "question_id", "question", "sample_id", "example_id", "instance_id", "doc_id"),
    "score": ("score", "reward", "correct", "is_correct"),
    "cost": ("cost", "cost_usd", "price", "total_cost"),
}
ROW_NAMES = ("", "id", "index", "unnamed:_0")  # of a first column, in a wide table, that names the items
ADVICE = (
    "A long table has columns arm, item and score, and perhaps cost; a wide one has a row per item and a column per "
    "arm, and perhaps a column item."
)


@dataclass(frozen=True)
class Grid:
    """The values of a table by arm and item, nan where there is none. If `items` is None: one value per arm."""

    arms: list[str]
    items: list[str] | None
    values: NDArray[np.float64]  # arms x items
    costs: NDArray[np.float64] | None = None  # the same, if the table has them beside scores


def grid_of(sheet: Sheet, what: str, low: float = 0.0, high: float = sys.float_info.max) -> Grid:
    """The scores in a table, or the costs: `what` is score or cost."""
    arm, item, value = (column_for(sheet, role) for role in ("arm", "item", what))
    if arm is None or value is None:
        return wide_grid(sheet, item, what, low, high)
    if item is None and what == "cost":
        return price_list(sheet, arm, value)
    if item is None:
        raise InvalidInput(
            f"{sheet.name} has a column for the arm, {sheet.headers[arm]!r}, and one for the {what}, "
            f"{sheet.headers[value]!r}, but none for the item. {ADVICE}"
        )
    return long_grid(sheet, arm, item, value, what, low, high)


def column_for(sheet: Sheet, role: str) -> int | None:
    """The column of the arm, the item, the score or the cost, if there is one."""
    normal = [normalised(header) for header in sheet.headers]
    found = [c for c, name in enumerate(normal) if name == role]
    found = found or [c for c, name in enumerate(normal) if name in NAMES[role]]
    if len(found) > 1:
        raise InvalidInput(
            f"{sheet.name}: the columns {' and '.join(repr(sheet.headers[c]) for c in found)} could both be the "
            f"{role}: call one of them {role!r}, or leave the other out."
        )
    return found[0] if found else None


def normalised(header: str) -> str:
    return header.strip().lower().replace(" ", "_").replace("-", "_")


def long_grid(sheet: Sheet, arm: int, item: int, value: int, what: str, low: float, high: float) -> Grid:
    arms, rows = numbered(sheet, arm)
    items, columns = numbered(sheet, item)
    cell = rows * len(items) + columns
    if (np.bincount(cell) > 1).any():
        raise twice(sheet, arms, items, cell)

    def spread(c: int, what: str, low: float, high: float) -> NDArray[np.float64]:
        values = np.full(len(arms) * len(items), np.nan)
        values[cell] = numbers_in(sheet.columns[c], what, low, high, lambda row: sheet.place(row, c))
        return values.reshape(len(arms), len(items))

    cost = column_for(sheet, "cost") if what == "score" else None
    costs = None if cost is None else spread(cost, "cost", 0.0, sys.float_info.max)
    return Grid(arms, items, spread(value, what, low, high), costs)


def numbered(sheet: Sheet, c: int) -> tuple[list[str], NDArray[np.int64]]:
    """The different names in a column, in order of appearance, and the number of the name in each row."""
    known: dict[Any, int] = {}
    try:
        numbers = np.array([known.setdefault(cell, len(known)) for cell in sheet.columns[c]], np.int64)
    except TypeError:
        raise InvalidInput(f"{sheet.name}, column {sheet.headers[c]!r}: its cells are not names.") from None
    names = [named(cell) for cell in known]
    if "" in names:
        row = int(np.flatnonzero(numbers == names.index(""))[0])
        raise InvalidInput(f"{sheet.place(row, c)}: it is empty, but needs a name.")
    if len(set(names)) == len(names):
        return names, numbers
    order = {name: i for i, name in enumerate(dict.fromkeys(names))}  # 1 and "1", or "a" and "a "
    return list(order), np.array([order[name] for name in names], np.int64)[numbers]


def named(cell: Any) -> str:
    return "" if is_absent(cell) else str(cell).strip()


def twice(sheet: Sheet, arms: list[str], items: list[str], cell: NDArray[np.int64]) -> InvalidInput:
    _, first, counts = np.unique(cell, return_index=True, return_counts=True)
    row = int(first[counts > 1].min())
    again = int(np.flatnonzero(cell == cell[row])[1])
    arm, item = divmod(int(cell[row]), len(items))
    return InvalidInput(
        f"{sheet.name}, rows {sheet.rows[row]} and {sheet.rows[again]}: arm {shown(arms[arm])} appears twice on item "
        f"{shown(items[item])}. Each evaluation counts once: leave one out, or make them separate items."
    )


def wide_grid(sheet: Sheet, item: int | None, what: str, low: float, high: float) -> Grid:
    columns = list(range(len(sheet.headers)))
    is_unnamed = normalised(sheet.headers[0]) in ROW_NAMES
    if item is None and (sheet.first_names_rows or is_unnamed or (sheet.index is None and has_names(sheet, 0))):
        item = 0
    if item is not None:
        columns = [c for c in columns if c != item and not (c == 0 and is_unnamed)]
    for c in columns:
        if normalised(sheet.headers[c]) in ("arm", "score", "cost"):
            raise InvalidInput(f"{sheet.name}: is the column {sheet.headers[c]!r} an arm? {ADVICE}")
        if not sheet.headers[c] or sheet.headers.count(sheet.headers[c]) > 1:
            raise InvalidInput(f"{sheet.name}: column {c + 1} needs its own name, got {sheet.headers[c]!r}. {ADVICE}")
    if item is not None:
        items = names_of_rows(sheet, sheet.columns[item])
    elif sheet.index is not None:
        items = names_of_rows(sheet, sheet.index)
    else:
        items = [str(row) for row in range(len(sheet.rows))]
    values = np.empty((len(columns), len(items)))
    for a, c in enumerate(columns):
        try:
            values[a] = numbers_in(sheet.columns[c], what, low, high, lambda row, c=c: sheet.place(row, c))  # type: ignore[misc]
        except InvalidInput as error:
            raise InvalidInput(f"{error} {ADVICE}") from None
    return Grid([sheet.headers[c] for c in columns], items, values)


def has_names(sheet: Sheet, c: int) -> bool:
    """Whether a column holds something other than scores, and no value twice."""
    cells = sheet.columns[c]
    if isinstance(cells, np.ndarray) or all(number_in(cell) is not None for cell in cells):
        return False
    return len({named(cell) for cell in cells}) == len(cells)


def names_of_rows(sheet: Sheet, cells: Sequence[Any], what: str = "item") -> list[str]:
    names = [named(cell) for cell in cells]
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if not name:
            raise InvalidInput(f"{sheet.name}, row {sheet.rows[row]}: the {what} has no name.")
        if name in first:
            raise InvalidInput(
                f"{sheet.name}, rows {sheet.rows[first[name]]} and {sheet.rows[row]}: {what} {shown(name)} appears "
                f"twice. {ADVICE}"
            )
        first[name] = row
    return names


def price_list(sheet: Sheet, arm: int, cost: int) -> Grid:
    """One cost per arm."""
    arms = names_of_rows(sheet, sheet.columns[arm], "arm")
    high = sys.float_info.max
    values = numbers_in(sheet.columns[cost], "cost", 0.0, high, lambda row: sheet.place(row, cost))
    return Grid(arms, None, values.reshape(-1, 1))
