"""Users' tables, in files or in memory: named columns of cells, and the scores or costs in them as arms x items.

A table is **long** if it has columns for the arm, the item and the score: one row per evaluation. Otherwise it is
**wide**: one row per item, and one column per arm. The names that columns may have are below; a column with the first
of them is preferred to its synonyms, and two synonyms without it are an error. Case does not matter, and spaces and
hyphens count as underscores.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.support.files import reading
from cabai.support.validation import InvalidInput, optional, shown

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
NO_NAME = "__index_level_0__"  # the name that pandas gives an unnamed index in a Parquet file
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "<na>"))
TRUTH = {"true": 1.0, "false": 0.0}


Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Sheet:
    """Columns of equal length, and how errors refer to their rows."""

    name: str
    headers: list[str]
    columns: Sequence[Sequence[Any]]
    rows: Sequence[Any]
    index: Sequence[Any] | None = None  # row names that are not a column
    first_names_rows: bool = False  # whether the first column is known to hold names of the rows

    def place(self, row: int, column: int) -> str:
        return f"{self.name}, row {self.rows[row]}, column {self.headers[column]!r}"

    def numbers(self, column: int, what: str, low: float = 0.0, high: float = sys.float_info.max) -> Numbers:
        return numbers_in(self.columns[column], what, low, high, lambda row: self.place(row, column))

    def grid(self, columns: Sequence[int], what: str, low: float, high: float) -> Numbers:
        return np.array([self.numbers(c, what, low, high) for c in columns])


class MappingSheet(Sheet):
    """A mapping from arms, the columns, to their values, by items or one each."""

    def place(self, row: int, column: int) -> str:
        on = "" if self.index is None else f" on item {shown(self.index[row])}"
        return f"arm {shown(self.headers[column])}{on}"


def open_sheet(source: Any) -> Sheet:
    sheet = file_sheet(Path(source)) if isinstance(source, (str, Path)) else frame_sheet(source)
    if not sheet.headers or not len(sheet.rows):
        raise InvalidInput(f"{sheet.name} has no rows: a table needs a row of column names, and rows below it.")
    return sheet


def file_sheet(path: Path) -> Sheet:
    """Cells are separated by commas; without one in the first line by tabs or semicolons; in .tsv by tabs first."""
    with reading(path), path.open("rb") as file:
        start = file.read(4)
    if start == b"PAR1":
        return parquet_sheet(path)
    if path.suffix.lower() == ".parquet":
        raise InvalidInput(f"{path} is not a Parquet file, although it is named like one.")
    header, columns, rows = csv_columns(path, "\t,;" if path.suffix == ".tsv" else ",\t;")
    return Sheet(str(path), [name.strip() for name in header], columns, rows)


def csv_columns(path: Path, separators: str, newline: str | None = "") -> tuple[list[str], list[list[str]], list[int]]:
    """The first row, the columns below it, and the number of each row as a spreadsheet counts; empty lines are skipped.
    With `newline` None, a line in a cell ends the same way whatever system wrote the file.

    Rows are read a few thousand at a time: a million lists would keep Python's memory management busy for seconds."""
    import csv

    header: list[str] = []
    columns: list[list[str]] = []
    numbers: list[int] = []
    read = 0
    try:
        with reading(path), path.open(encoding="utf-8-sig", newline=newline) as file:
            line = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=next((each for each in separators if each in line), ","))
            while some := list(islice(reader, 5000)):
                counted = [read + i for i, row in enumerate(some, 1) if row]
                rows, read = [row for row in some if row], read + len(some)
                if rows and not header:
                    header, rows, counted = rows[0], rows[1:], counted[1:]
                    columns = [[] for _ in header]
                for number, row in zip(counted, rows, strict=True):
                    if len(row) != len(header):
                        raise InvalidInput(
                            f"{path}, row {number}: it has {len(row)} cells, but the first row has {len(header)}."
                        )
                for c, column in enumerate(columns):
                    column += [row[c] for row in rows]
                numbers += counted
    except csv.Error as error:
        raise InvalidInput(f"cannot read {path}: {error}.") from error
    return header, columns, numbers


def parquet_sheet(path: Path) -> Sheet:
    types, parquet = optional("pyarrow").types, optional("pyarrow.parquet")

    def cells(column: Any) -> Sequence[Any]:
        is_number = types.is_floating(column.type) or types.is_integer(column.type)
        return column.to_numpy() if is_number else column.to_pylist()  # type: ignore[no-any-return]

    try:
        table = parquet.read_table(path)
        columns = {name: cells(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    except Exception as error:  # Arrow's own, and those of values that Python does not have
        raise InvalidInput(
            f"cannot read {path}: {next(iter(str(error).splitlines()), type(error).__name__)}"
        ) from error
    if len(columns) < table.num_columns:
        raise InvalidInput(f"{path}: its columns must have different names, got {', '.join(table.column_names)}.")
    index = columns.pop(NO_NAME, None)
    return Sheet(str(path), list(columns), list(columns.values()), range(table.num_rows), index)


def frame_sheet(frame: Any) -> Sheet:
    """A DataFrame. An index that has names is columns; one without, other than 0, 1, 2 and so on, names the rows."""
    if not (hasattr(frame, "columns") and hasattr(frame, "reset_index")):
        raise InvalidInput(
            "a table must be a path, a pandas DataFrame, a mapping of arms to scores or a ScoreTable, got a value of "
            f"type {type(frame).__name__}."
        )
    if frame.columns.nlevels > 1:
        raise InvalidInput(
            "a table's columns must have one name each: this DataFrame has several levels of column names."
        )
    rows, levels, is_named = [*frame.index], frame.index.nlevels, any(name is not None for name in frame.index.names)
    index = None if is_named or rows == list(range(len(rows))) else rows
    frame = frame.reset_index() if is_named else frame
    numbers = [frame.iloc[:, c].to_numpy() for c in range(frame.shape[1])]
    columns = [each if each.dtype.kind in "biuf" else frame.iloc[:, c].tolist() for c, each in enumerate(numbers)]
    return Sheet("the DataFrame", [str(name) for name in frame.columns], columns, rows, index, is_named and levels == 1)


@dataclass(frozen=True)
class Values:
    """The values of a table by arm and item, nan where there is none. If `items` is None: one value per arm."""

    arms: Sequence[str]
    items: Sequence[str] | None
    values: Numbers  # arms x items
    costs: Numbers | None = None  # the same, if the table has them too


def values_of(source: Any, what: str, low: float = 0.0, high: float = sys.float_info.max) -> Values:
    """The scores in a table, or the costs: `what` is score or cost."""
    if isinstance(source, Mapping) or is_series(source):
        by_arm = mapping_sheet(source, what)
        return Values(by_arm.headers, by_arm.index, by_arm.grid(range(len(by_arm.headers)), what, low, high))
    sheet = open_sheet(source)
    arm, item, value = (column_for(sheet, role) for role in ("arm", "item", what))
    if arm is None or value is None:
        return wide_values(sheet, item, what, low, high)
    if item is None and what == "cost":
        return Values(names_of_rows(sheet, sheet.columns[arm], "arm"), None, sheet.numbers(value, "cost")[:, None])
    if item is None:
        raise InvalidInput(
            f"{sheet.name} has a column for the arm, {sheet.headers[arm]!r}, and one for the {what}, "
            f"{sheet.headers[value]!r}, but none for the item. {ADVICE}"
        )
    return long_values(sheet, arm, item, value, what, low, high)


def mapping_sheet(source: Any, what: str) -> MappingSheet:
    """From a list for each arm, all of the same length, or from values by item; costs may also be one for each arm."""
    given = [(str(arm), values, cells_of(values)) for arm, values in source.items()]
    arms, columns = [arm for arm, _, _ in given], [cells for _, _, cells in given]
    if what == "cost" and all(cells is None for cells in columns):
        return MappingSheet("", arms, [[value] for _, value, _ in given], range(1))
    for arm, values, cells in given:
        if cells is None:
            raise InvalidInput(
                f"the {what}s of arm {shown(arm)} must be a list, or a mapping of items to {what}s, got "
                f"{shown(values)}."
            )
        if len(cells) < len(values):
            raise InvalidInput(f"arm {shown(arm)} has several {what}s on one item.")
    if len({isinstance(cells, dict) for cells in columns}) > 1:
        raise InvalidInput(f"give the {what}s of all arms as lists, or of all as mappings of items to {what}s.")
    if any(isinstance(cells, dict) for cells in columns):
        items = list(dict.fromkeys(item for cells in columns for item in cells))
        return MappingSheet("", arms, [[cells.get(item) for item in items] for cells in columns], items, items)
    lengths = [len(cells) for cells in columns] or [0]
    most, least = (lengths.index(end(lengths)) for end in (max, min))
    if lengths[most] > lengths[least]:
        raise InvalidInput(
            f"arm {shown(arms[most])} has {lengths[most]} {what}s and arm {shown(arms[least])} has {lengths[least]}: "
            f"give mappings of items to {what}s, or None where there is no {what}."
        )
    items = [str(i) for i in range(lengths[most])]
    return MappingSheet("", arms, columns, items, items)


def cells_of(values: Any) -> Any:
    """A dictionary by item, or a list; None if it is neither."""
    if isinstance(values, Mapping) or is_series(values):
        return {str(item): value for item, value in values.items()}
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values.tolist()
    return values if isinstance(values, Sequence) and not isinstance(values, (str, bytes)) else None


def is_series(value: Any) -> bool:
    return hasattr(value, "index") and hasattr(value, "items") and not hasattr(value, "columns")


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


def long_values(sheet: Sheet, arm: int, item: int, value: int, what: str, low: float, high: float) -> Values:
    (arms, rows), (items, columns) = (numbered(sheet, sheet.columns[c], sheet.headers[c]) for c in (arm, item))
    cell = rows * len(items) + columns
    if two := first_double(cell):
        first, again = (sheet.rows[row] for row in two)
        on = f"arm {shown(arms[rows[two[0]]])} appears twice on item {shown(items[columns[two[0]]])}"
        raise InvalidInput(
            f"{sheet.name}, rows {first} and {again}: {on}. Each evaluation counts once: leave one out, or make them "
            "separate items."
        )

    def spread(found: Numbers) -> Numbers:
        values = np.full((len(arms), len(items)), np.nan)
        values.flat[cell] = found
        return values

    cost = column_for(sheet, "cost") if what == "score" else None
    costs = None if cost is None else spread(sheet.numbers(cost, "cost"))
    return Values(arms, items, spread(sheet.numbers(value, what, low, high)), costs)


def numbered(sheet: Sheet, cells: Sequence[Any], what: str) -> tuple[list[str], NDArray[np.int64]]:
    """The different names in these cells, in order of appearance, and the number of the name in each row."""
    known: dict[Any, int] = {}
    if len(set(map(type, cells))) > 1:  # True and 1 are equal, but not the same name
        cells = [cell if is_missing(cell) else str(cell) for cell in cells]
    try:
        numbers = np.array([known.setdefault(cell, len(known)) for cell in cells], np.int64)
    except TypeError:
        raise InvalidInput(f"{sheet.name}: what is in the column of {what} is not a name.") from None
    names = ["" if is_missing(cell) else str(cell).strip() for cell in known]
    if "" in names:
        row = int(np.flatnonzero(numbers == names.index(""))[0])
        raise InvalidInput(f"{sheet.name}, row {sheet.rows[row]}: the {what} has no name.")
    order = {name: i for i, name in enumerate(dict.fromkeys(names))}  # 1 and "1", or "a" and "a ", are the same
    return list(order), np.array([order[name] for name in names], np.int64)[numbers]


def first_double(numbers: NDArray[np.int64]) -> tuple[int, int] | None:
    """The first row with a number that occurs again, and where it does."""
    if not (np.bincount(numbers) > 1).any():
        return None
    _, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    row = int(first[counts > 1].min())
    return row, int(np.flatnonzero(numbers == numbers[row])[1])


def wide_values(sheet: Sheet, item: int | None, what: str, low: float, high: float) -> Values:
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
    try:
        values = sheet.grid(columns, what, low, high)
    except InvalidInput as error:
        raise InvalidInput(f"{error} {ADVICE}") from None
    return Values([sheet.headers[c] for c in columns], items, values)


def has_names(sheet: Sheet, c: int) -> bool:
    """Whether a column holds something other than scores, and no value twice."""
    cells = sheet.columns[c]
    if isinstance(cells, np.ndarray) or all(number_in(cell) is not None for cell in cells):
        return False
    return len({str(cell).strip() for cell in cells}) == len(cells)


def names_of_rows(sheet: Sheet, cells: Sequence[Any], what: str = "item") -> list[str]:
    names, numbers = numbered(sheet, cells, what)
    if two := first_double(numbers):
        first, again = (sheet.rows[row] for row in two)
        raise InvalidInput(
            f"{sheet.name}, rows {first} and {again}: {what} {shown(names[numbers[two[0]]])} appears twice. {ADVICE}"
        )
    return names


def is_missing(cell: Any) -> bool:
    """Whether a cell is missing: None, nan, or what pandas uses for them."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell)


def number_in(cell: Any) -> float | None:
    """A cell as a number: true is 1 and false is 0, also as text; nan if the cell says that there is no value, and None
    if it is not a number.

    >>> [number_in(cell) for cell in ("0.5", True, "False", " n/a ", "eight", "inf")]
    [0.5, 1.0, 0.0, nan, None, None]
    """
    if is_missing(cell):
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


def numbers_in(cells: Sequence[Any], what: str, low: float, high: float, place: Callable[[int], str]) -> Numbers:
    """Cells as numbers from `low` to `high`, nan where there is none. An error says where the cell is (`place`)."""
    values: Numbers
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        values = cells.astype(np.float64)
    else:
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
                    raise InvalidInput(
                        f"{place(at)}: a {what} must be a number, true, false or empty, got {shown(cell)}."
                    )
                known[cell] = value
            found.append(value)
        values = np.array(found, np.float64)
    outside = np.flatnonzero((values < low) | (values > high))
    if len(outside):
        at = int(outside[0])
        raise InvalidInput(f"{place(at)}: {out_of_range(what, float(values[at]), low, high)}")
    return values


def out_of_range(what: str, value: float, low: float, high: float) -> str:
    if what == "cost":
        return f"a cost must be 0 or more, and finite, got {value:g}."
    return (
        f"a score must lie from {low:g} to {high:g}, got {value:g}. If scores have another range, give low= and high= "
        "(--low and --high)."
    )
