"""A policy's memory, as stored: JSON of its fields.

It is written with every ask and tell, and mostly unchanged: only what has changed since is spelt again. Of many arms
only those fields are stored that differ from their start values; of few arms all, which takes less time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW = 16  # arms
AS_JSON = (("inf", "Infinity"), ("nan", "NaN"))  # numbers that Python writes differently


def memory(arms: NDArray[Any], run: Any, arm_names: Sequence[str], run_names: Sequence[str]) -> Any:
    """A writer of these fields of an arm and of the run, given the records at the start. Its `text(arms, run)` writes
    them, again and again."""
    names = " ".join([*arm_names, *run_names])
    is_plain = not any(word in names for word, _ in AS_JSON) and not any(run.dtype[name].shape for name in run_names)
    kind = MemoryOfFew if len(arms) <= FEW and is_plain else Memory
    return kind(arms, run, arm_names, run_names)


class MemoryOfFew:
    """All fields, of few arms."""

    def __init__(self, arms: NDArray[Any], run: Any, arm_names: Sequence[str], run_names: Sequence[str]) -> None:
        self.columns = [(name, Short()) for name in arm_names]
        self.values = itemgetter(*map(run.dtype.names.index, run_names))
        by_arm, of_run = (", ".join(f'"{name}": %s' for name in names) for names in (arm_names, run_names))
        self.form = f'{{"arms": {{{by_arm}}}, "run": {{{of_run}}}}}'

    def text(self, arms: NDArray[Any], run: Any) -> str:
        by_arm = [column.text(arms[name]) for name, column in self.columns]
        text = self.form % (*by_arm, *self.values(run.item()))
        for python, same in AS_JSON:
            text = text.replace(python, same)
        return text


class Short:
    """One field of few arms, as Python writes a list."""

    raw, written = b"", ""

    def text(self, values: NDArray[Any]) -> str:
        raw = values.tobytes()
        if raw != self.raw:
            self.raw, self.written = raw, repr(values.tolist())
        return self.written


class Memory:
    """The fields that differ from their start values."""

    def __init__(self, arms: NDArray[Any], run: Any, arm_names: Sequence[str], run_names: Sequence[str]) -> None:
        self.columns = [(name, json.dumps(name), Column(arms[name])) for name in arm_names]
        places, first = {name: place for place, name in enumerate(run.dtype.names)}, run.item()
        self.run = [(name, places[name], plain(first[places[name]])) for name in run_names]

    def text(self, arms: NDArray[Any], run: Any) -> str:
        told = []
        for name, quoted, column in self.columns:
            text = column.text(arms[name])
            if text is not None:
                told.append(f"{quoted}: {text}")
        values = run.item()
        kept = {name: value for name, place, first in self.run if (value := plain(values[place])) != first}
        return f'{{"arms": {{{", ".join(told)}}}, "run": {json.dumps(kept)}}}'


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
            if self.texts:
                changed = (values != self.values).reshape(len(values), -1).any(axis=1).nonzero()[0]
                for a, text in zip(changed.tolist(), spelt(values[changed]), strict=True):
                    self.texts[a] = text
            else:
                self.texts = spelt(values)
            self.raw, self.values = raw, values.copy()
            self.written = None if raw == self.start else f"[{', '.join(self.texts)}]"
        return self.written


def spelt(values: NDArray[Any]) -> list[str]:
    """Each value as JSON; numbers in one go."""
    if values.ndim == 1 and len(values):
        return json.dumps(values.tolist())[1:-1].split(", ")
    return [json.dumps(value) for value in values.tolist()]


def plain(value: Any) -> Any:
    """A value of Python's own, also where a field holds several."""
    return value.tolist() if isinstance(value, np.ndarray) else value
