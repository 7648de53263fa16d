"""A policy's memory, as stored: JSON of its fields.

It is written with every ask and tell. Of many arms only those fields are written that differ from their start values,
and only what has changed since is spelt again; of few arms everything, which takes less time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW = 16  # arms
AS_JSON = (("'", '"'), ("inf", "Infinity"), ("nan", "NaN"))  # where Python writes names and numbers differently


class Memory:
    """Writes the memory of one side of a study, again and again."""

    def __init__(self, arms: NDArray[Any], run: Any, arm_names: Sequence[str], run_names: Sequence[str]) -> None:
        """For these fields of an arm and of the run, and the records at the start."""
        names = " ".join([*arm_names, *run_names])
        self.is_short = (
            len(arms) <= FEW
            and not any(word in names for word, _ in AS_JSON)
            and not any(run.dtype[name].shape for name in run_names)
        )
        self.columns = [(name, json.dumps(name), Column(arms[name])) for name in arm_names]
        places, first = {name: place for place, name in enumerate(run.dtype.names)}, run.item()
        self.run = [(name, places[name], plain(first[places[name]])) for name in run_names]

    def text(self, arms: NDArray[Any], run: Any) -> str:
        values = run.item()
        if self.is_short:
            by_arm = ", ".join([f"{quoted}: {column.whole(arms[name])}" for name, quoted, column in self.columns])
            text = f'{{"arms": {{{by_arm}}}, "run": {({name: values[place] for name, place, _ in self.run})}}}'
            for python, same in AS_JSON:
                text = text.replace(python, same)
            return text
        told = []
        for name, quoted, column in self.columns:
            changed = column.text(arms[name])
            if changed is not None:
                told.append(f"{quoted}: {changed}")
        kept = {name: value for name, place, first in self.run if (value := plain(values[place])) != first}
        return f'{{"arms": {{{", ".join(told)}}}, "run": {json.dumps(kept)}}}'


class Column:
    """One field of every arm."""

    def __init__(self, start: NDArray[Any]) -> None:
        self.start = self.raw = start.tobytes()
        self.values, self.texts = start, list[str]()
        self.written: str | None = None

    def whole(self, values: NDArray[Any]) -> str:
        """A list, as Python writes it."""
        raw = values.tobytes()
        if raw != self.raw or self.written is None:
            self.raw, self.written = raw, repr(values.tolist())
        return self.written

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
