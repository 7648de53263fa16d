"""A policy's memory, as stored: JSON of the fields that differ from their start values.

It is written with every ask and tell, and mostly unchanged: only what has changed since is written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = re.compile(r"[-+0-9.e, \[\]]*")  # what Python and JSON write alike; not nan or True
FEW = 16  # numbers: up to so many, writing all takes less time than finding what has changed


class Memory:
    """Writes the memory of one side of a study, again and again."""

    def __init__(self, arms: NDArray[Any], run: Any, arm_names: Sequence[str], run_names: Sequence[str]) -> None:
        """For these fields of an arm and of the run, and the records at the start."""
        self.columns = [(name, json.dumps(name), Column(arms[name])) for name in arm_names]
        places, first = {name: place for place, name in enumerate(run.dtype.names)}, run.item()
        self.run = [(json.dumps(name), places[name], plain(first[places[name]])) for name in run_names]

    def text(self, arms: NDArray[Any], run: Any) -> str:
        told = []
        for name, quoted, column in self.columns:
            text = column.text(arms[name])
            if text is not None:
                told.append(f"{quoted}: {text}")
        values = run.item()
        kept = [
            f"{quoted}: {written(value)}"
            for quoted, place, first in self.run
            if (value := plain(values[place])) != first
        ]
        return f'{{"arms": {{{", ".join(told)}}}, "run": {{{", ".join(kept)}}}}}'


class Column:
    """One field of every arm."""

    def __init__(self, start: NDArray[Any]) -> None:
        self.start = self.raw = start.tobytes()
        self.values, self.texts = start, list[str]()
        self.written: str | None = None

    def text(self, values: NDArray[Any]) -> str | None:
        """A list, or None if nothing differs from the start."""
        raw = values.tobytes()
        if raw != self.raw:
            if values.size <= FEW:
                self.raw, self.written = raw, None if raw == self.start else written(values.tolist())
                return self.written
            if self.texts:
                changed = (values != self.values).reshape(len(values), -1).any(axis=1).nonzero()[0]
                for a, text in zip(changed.tolist(), spelt(values[changed]), strict=True):
                    self.texts[a] = text
            else:
                self.texts = spelt(values)
            self.raw, self.values = raw, values.copy()
            self.written = None if raw == self.start else f"[{', '.join(self.texts)}]"
        return self.written


def written(value: Any) -> str:
    """A value as JSON: what `json.dumps` returns, in a fraction of the time for a few numbers."""
    text = repr(value)
    return text if NUMBERS.fullmatch(text) else json.dumps(value)


def spelt(values: NDArray[Any]) -> list[str]:
    """Each value as JSON; numbers in one go."""
    if values.ndim == 1 and len(values):
        return json.dumps(values.tolist())[1:-1].split(", ")
    return [json.dumps(value) for value in values.tolist()]


def plain(value: Any) -> Any:
    """A value of Python's own, also where a field holds several."""
    return value.tolist() if isinstance(value, np.ndarray) else value
