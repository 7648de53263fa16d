"""What a study exports, as bytes."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cabai.study import Study


def exported(study: Study, kind: str) -> bytes:
    """A study's observations as the content of a file."""
    if kind == "parquet":
        return bytes(study.to_frame().to_parquet(index=False))
    rows = study.observations()
    if kind == "json":
        return (json.dumps({"observations": rows}, allow_nan=False) + "\n").encode()
    cells = [study.columns, *([plain_text(row[name]) for name in study.columns] for row in rows)]
    return "".join(csv_line(row) for row in cells).encode()


def csv_line(cells: list[Any]) -> str:
    """One row of CSV. Python before 3.13 quotes a text with a carriage return only where rows end in one too."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def plain_text(value: Any) -> Any:
    """A value for a cell of CSV: spreadsheets take a text that begins so for a formula, and run it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else value
