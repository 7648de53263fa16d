"""A dataset: its items, the order in which they are evaluated, and tables of known scores on them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.sheets import csv_columns
from cabai.support.files import reading
from cabai.support.streams import GOLDEN, mix
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

    def each_fingerprint(dataset: Any) -> dict[str | int, str]:
        digests = [dataset.digest[at : at + EACH] for at in range(WHOLE, len(dataset.digest or ""), EACH)]
        return dict(zip(dataset.ids or (), digests, strict=False))  # of a study stored before there were any: none

    old, new = each_fingerprint(before), each_fingerprint(now)
    return [id_ for id_ in old if id_ in new and new[id_] != old[id_]]


def read_items(path: Path) -> list[Any]:
    """The items in a file: one JSON value per line, or one row per item of a CSV file with a header."""
    if path.suffix.lower() not in (".jsonl", ".ndjson", ".csv"):
        raise InvalidInput(f"items must be in a .jsonl or a .csv file, got {str(path)!r}.")
    if path.suffix.lower() == ".csv":
        header, columns, _ = csv_columns(path, ",", None)
        return [dict(zip(header, row, strict=True)) for row in zip(*columns, strict=True)]
    with reading(path):
        text = path.read_text(encoding="utf-8-sig")
    rows = []
    for place, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise InvalidInput(f"{path}, line {place} is not JSON: {error}.") from None
    return rows


def permutation(items: int, seed: int, repeat: int = 0) -> NDArray[np.int64]:
    """A random order of items for a seed: the same on every machine and in every version, since a stored study must
    find its order again. Each `repeat` has another one.

    Items are sorted by random numbers of 64 bits, no two of which are equal.

    >>> permutation(5, seed=1).tolist()
    [4, 1, 0, 2, 3]
    """
    with np.errstate(over="ignore"):
        start = mix(mix(np.uint64(seed) + GOLDEN) + np.uint64(repeat) * GOLDEN)
        keys = mix(start + np.arange(1, items + 1, dtype=np.uint64) * GOLDEN)
    order: NDArray[np.int64] = np.argsort(keys, kind="stable")
    return order


@dataclass(frozen=True)
class ScoreTable:
    """The score, and perhaps the cost, of every arm on every item; NaN where a score is missing.

    >>> import cabai
    >>> table = cabai.datasets.read_table({"small": [0, 1, 0], "large": [1, 1, None]})
    >>> table.scores
    array([[ 0.,  1.,  0.],
           [ 1.,  1., nan]])
    >>> table.missing, table.whole().items
    (1, ('0', '1'))
    """

    arms: tuple[str, ...]
    items: tuple[str, ...]
    scores: NDArray[np.float64]  # arms x items
    costs: NDArray[np.float64] | None = None  # of each evaluation; None: all cost the same
    billed: str | None = None  # how the costs were found, if nobody told them

    def __post_init__(self) -> None:
        shape = (len(self.arms), len(self.items))
        for name in ("arms", "items"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                double = next(value for value in values if values.count(value) > 1)
                raise InvalidInput(f"a table's {name} must be unique: {shown(double)} appears twice.")
        if shape[0] < 2 or shape[1] < 1:
            raise InvalidInput(f"a score table needs at least 2 arms and 1 item, got {shape[0]} and {shape[1]}.")
        if self.scores.shape != shape or (self.costs is not None and self.costs.shape != shape):
            raise InvalidInput(f"{shape[0]} arms on {shape[1]} items need as many scores, got {self.scores.shape}.")

    @property
    def missing(self) -> int:
        """How many evaluations have no score."""
        return int(np.isnan(self.scores).sum())

    def whole(self) -> ScoreTable:
        """The same table, with only the items that every arm has a score on."""
        return part_of(self, range(len(self.arms)), np.flatnonzero(~np.isnan(self.scores).any(axis=0)))


def part_of(table: ScoreTable, rows: Sequence[int], columns: Sequence[int] | NDArray[np.int64]) -> ScoreTable:
    at = np.ix_(np.asarray(rows), np.asarray(columns))
    arms, items = tuple(table.arms[a] for a in rows), tuple(table.items[i] for i in columns)
    costs = None if table.costs is None else table.costs[at]
    return replace(table, arms=arms, items=items, scores=table.scores[at], costs=costs)


def paid_for(table: ScoreTable) -> NDArray[np.float64]:
    """What each evaluation costs: 1 where nobody has said."""
    return np.ones(table.scores.shape) if table.costs is None else table.costs


def lead(scores: NDArray[np.float64], a: int, b: int, minimize: bool) -> float:
    """By how much the total score of arm a exceeds that of b; 0 only if they are equal."""
    difference = math.fsum([*scores[a].tolist(), *(-scores[b]).tolist()])
    return -difference if minimize else difference
