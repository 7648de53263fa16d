"""The items of a dataset, from memory or from a file."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cabai.support.validation import InvalidInput, shown


@dataclass(frozen=True)
class Dataset:
    """Items, their ids, and a fingerprint that shows when they change, if one can be computed."""

    items: Sequence[Any]
    ids: tuple[str | int, ...] | None
    digest: str | None

    @property
    def count(self) -> int:
        return len(self.items)

    def number(self, id_: Any) -> int:
        """The position of the item with this id."""
        return int(id_) if self.ids is None else self._numbers[id_]

    @cached_property
    def _numbers(self) -> dict[str | int, int]:
        return {id_: number for number, id_ in enumerate(self.ids or ())}

    @classmethod
    def of(cls, items: Any) -> Dataset:
        if isinstance(items, (str, Path)):
            items = read_items(Path(items))
        if hasattr(items, "to_dict") and hasattr(items, "columns"):  # a frame: one item per row
            items = items.to_dict("records")
        elif hasattr(items, "tolist") and hasattr(items, "index"):  # a column of a frame
            items = items.tolist()
        is_sequence = isinstance(items, Sequence) or (hasattr(items, "__len__") and hasattr(items, "__getitem__"))
        if not is_sequence or isinstance(items, (bytes, bytearray, Mapping)):
            raise InvalidInput(f"items must be a sequence, or the path of a .jsonl or .csv file, got {shown(items)}.")
        if len(items) == 0:
            raise InvalidInput("there must be at least one item.")
        rows = [items[i] for i in range(len(items))]
        named = [row["id"] for row in rows if isinstance(row, Mapping) and "id" in row]
        if named and len(named) < len(rows):
            raise InvalidInput(f"{len(rows) - len(named)} of {len(rows)} items have no id: all must have one, or none.")
        return cls(rows, tuple(named) if named else None, fingerprint(rows, has_ids=bool(named)))


WHOLE, EACH = 32, 8  # hexadecimal digits of a fingerprint: of all items, then of each if they have ids


def fingerprint(rows: Sequence[Any], *, has_ids: bool) -> str | None:
    """The fingerprint of items that JSON can represent."""
    digest, each = hashlib.sha256(), list[str]()
    try:
        for row in rows:
            line = json.dumps(row, sort_keys=True).encode() + b"\n"
            digest.update(line)
            if has_ids:
                each.append(hashlib.sha256(line).hexdigest()[:EACH])
    except (TypeError, ValueError, RecursionError):
        return None
    return digest.hexdigest()[:WHOLE] + "".join(each)


def changed_items(before: Any, now: Any) -> list[str | int]:
    """The ids that two datasets share, but for different items, as far as that is known."""
    old, new = item_fingerprints(before), item_fingerprints(now)
    return [id_ for id_ in old if id_ in new and new[id_] != old[id_]]


def item_fingerprints(dataset: Any) -> dict[str | int, str]:
    if dataset.ids is None or dataset.digest is None:
        return {}
    each = [dataset.digest[at : at + EACH] for at in range(WHOLE, len(dataset.digest), EACH)]
    return dict(zip(dataset.ids, each, strict=False))  # of a study stored before there were any: none


def read_items(path: Path) -> list[Any]:
    """The items in a file: one JSON value per line, or one row per item of a CSV file with a header."""
    if path.suffix.lower() not in (".jsonl", ".ndjson", ".csv"):
        raise InvalidInput(f"items must be in a .jsonl or a .csv file, got {str(path)!r}.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"cannot read {path}: it is not UTF-8.") from None
    if path.suffix.lower() == ".csv":
        return read_csv(text, path)
    rows = []
    for place, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise InvalidInput(f"{path}, line {place} is not JSON: {error}.") from None
    return rows


def read_csv(text: str, path: Path) -> list[Any]:
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    for place, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise InvalidInput(f"{path}, row {place} does not have as many cells as the heading.")
    return rows
