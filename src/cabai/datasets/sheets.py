"""Users' tables, in files or in memory, as named columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from cabai.support.validation import InvalidInput, optional

NO_NAME = "__index_level_0__"  # the name that pandas gives an unnamed index in a Parquet file


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


def open_sheet(source: Any) -> Sheet:
    """The table in a CSV or Parquet file, or a pandas DataFrame."""
    sheet = file_sheet(Path(source)) if isinstance(source, (str, Path)) else frame_sheet(source)
    if not sheet.headers or not len(sheet.rows):
        raise InvalidInput(f"{sheet.name} has no rows: a table needs a row of column names, and rows below it.")
    return sheet


def file_sheet(path: Path) -> Sheet:
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}.") from error
    return parquet_sheet(path) if start == b"PAR1" else csv_sheet(path)


def csv_sheet(path: Path) -> Sheet:
    """A table whose cells are separated by commas; by tabs or semicolons if its first line has no comma, and by tabs if
    its name ends in .tsv."""
    import csv

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline()
            file.seek(0)
            separators = "\t,;" if path.suffix == ".tsv" else ",\t;"
            separator = next((each for each in separators if each in line), ",")
            header, columns, numbers = columns_of(path, csv.reader(file, delimiter=separator))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"cannot read {path}: it is not a text file in UTF-8 ({error.reason}).") from error
    except (csv.Error, OSError) as error:
        raise InvalidInput(f"cannot read {path}: {error}.") from error
    return Sheet(str(path), [name.strip() for name in header], columns, numbers)


def columns_of(path: Path, reader: Iterator[list[str]]) -> tuple[list[str], list[list[str]], list[int]]:
    """The first row, the columns below it, and the number of each row as a spreadsheet counts; empty lines are skipped.

    Rows are read a few thousand at a time: a million lists would keep Python's memory management busy for seconds."""
    header: list[str] = []
    columns: list[list[str]] = []
    numbers: list[int] = []
    read = 0
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
    return header, columns, numbers


def parquet_sheet(path: Path) -> Sheet:
    pa, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    try:
        table = parquet.read_table(path)
        columns = {name: plain(column, pa) for name, column in zip(table.column_names, table.columns, strict=True)}
    except Exception as error:  # Arrow's own, and those of values that Python does not have
        raise InvalidInput(
            f"cannot read {path}: {next(iter(str(error).splitlines()), type(error).__name__)}"
        ) from error
    if len(columns) < table.num_columns:
        raise InvalidInput(f"{path}: its columns must have different names, got {', '.join(table.column_names)}.")
    index = columns.pop(NO_NAME, None)
    return Sheet(str(path), list(columns), list(columns.values()), range(table.num_rows), index)


def plain(column: Any, pa: Any) -> Sequence[Any]:
    """A column of Arrow as an array of numbers or a list."""
    is_number = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    found: Sequence[Any] = column.to_numpy() if is_number else column.to_pylist()
    return found


def frame_sheet(frame: Any) -> Sheet:
    """A DataFrame. An index that has names is columns; one without, other than 0, 1, 2 and so on, names the rows."""
    if not (hasattr(frame, "columns") and hasattr(frame, "reset_index")):
        raise InvalidInput(
            "a table must be a path, a pandas DataFrame, a mapping of arms to scores or a ScoreTable, got a value of "
            f"type {type(frame).__name__}."
        )
    rows, index, is_named = [*frame.index], None, any(name is not None for name in frame.index.names)
    levels = frame.index.nlevels
    if is_named:
        frame = frame.reset_index()
    elif rows != list(range(len(rows))):
        index = rows
    first_names_rows = is_named and levels == 1
    if frame.columns.nlevels > 1:
        raise InvalidInput(
            "a table's columns must have one name each: this DataFrame has several levels of column names."
        )
    columns = [cells_of(frame.iloc[:, c]) for c in range(frame.shape[1])]
    return Sheet("the DataFrame", [str(name) for name in frame.columns], columns, rows, index, first_names_rows)


def cells_of(column: Any) -> Sequence[Any]:
    values = column.to_numpy()
    found: Sequence[Any] = values if values.dtype.kind in "biuf" else column.tolist()
    return found
