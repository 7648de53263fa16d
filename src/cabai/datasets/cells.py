"""The cells of a user's table: numbers, or missing values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.support.validation import InvalidInput, shown

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "<na>"))
TRUTH = {"true": 1.0, "false": 0.0}


def is_absent(cell: Any) -> bool:
    """Whether a cell is missing: None, nan, or what pandas uses for them."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell)


def number_in(cell: Any) -> float | None:
    """A cell as a number: true is 1 and false is 0, also as text; nan if the cell says that there is no value, and None
    if it is not a number.

    >>> [number_in(cell) for cell in ("0.5", True, "False", " n/a ", "eight", "inf")]
    [0.5, 1.0, 0.0, nan, None, None]
    """
    if is_absent(cell):
        return math.nan
    if isinstance(cell, str):
        text = cell.strip().lower()
        if text in MISSING:
            return math.nan
        if text in TRUTH:
            return TRUTH[text]
        if "_" in text:  # Python's own way to write 1_000
            return None
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isinf(value) else value


def numbers_in(
    cells: Sequence[Any], what: str, low: float, high: float, place: Callable[[int], str]
) -> NDArray[np.float64]:
    """Cells as numbers from `low` to `high`, nan where there is none. An error says where the cell is (`place`)."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        values: NDArray[np.float64] = cells.astype(np.float64)
    else:
        values = np.array(as_floats(cells, what, place), np.float64)
    outside = np.flatnonzero((values < low) | (values > high))
    if len(outside):
        at = int(outside[0])
        raise InvalidInput(f"{place(at)}: {out_of_range(what, float(values[at]), low, high)}")
    return values


def as_floats(cells: Sequence[Any], what: str, place: Callable[[int], str]) -> list[float]:
    known: dict[Any, float] = {}  # many cells are equal: each value is parsed once
    found = []
    for at, cell in enumerate(cells):
        try:
            value = known.get(cell)
        except TypeError:  # such as a list
            value, cell = None, repr(cell)
        if value is None:
            value = number_in(cell)
            if value is None:
                raise InvalidInput(f"{place(at)}: a {what} must be a number, true, false or empty, got {shown(cell)}.")
            known[cell] = value
        found.append(value)
    return found


def out_of_range(what: str, value: float, low: float, high: float) -> str:
    """The error for a score or a cost outside its range."""
    if what == "cost":
        return f"a cost must be 0 or more, and finite, got {value:g}."
    return (
        f"a score must lie from {low:g} to {high:g}, got {value:g}. If scores have another range, give low= and high= "
        "(--low and --high)."
    )
