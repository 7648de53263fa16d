"""A policy's memory, as stored: JSON of its fields.

It is written with every ask and tell, and mostly unchanged: only what has changed since is spelt again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW = 16  # numbers: up to so many, spelling all takes less time than finding what has changed
AS_JSON = (("inf", "Infinity"), ("nan", "NaN"))  # numbers that Python spells differently


class Memory:
    """Writes the memory of one side of a study, again and again."""

    def __init__(self, arms: NDArray[Any], run: Any, arm_names: Sequence[str], run_names: Sequence[str]) -> None:
        """For these fields of an arm and of the run, and the records at the start."""
        self.columns = [(name, (Short if arms[name].size <= FEW else Column)(arms[name])) for name in arm_names]
        self.values = itemgetter(*map(run.dtype.names.index, run_names))
        self.names = run_names
        self.form = ", ".join(f'"{name}": %s' for name in run_names)
        words = " ".join(run_names)
        self.is_plain = not any(word in words for word, _ in AS_JSON) and not any(run.dtype[n].shape for n in run_names)

    def text(self, arms: NDArray[Any], run: Any) -> str:
        told = []
        for name, column in self.columns:
            text = column.text(arms[name])
            if text is not None:
                told.append(f'"{name}": {text}')
        values = self.values(run.item())
        if self.is_plain:
            kept = in_json(self.form % values)
        else:
            kept = json.dumps(dict(zip(self.names, map(plain, values), strict=True)))[1:-1]
        return f'{{"arms": {{{", ".join(told)}}}, "run": {{{kept}}}}}'


class Short:
    """One field of every arm: a few numbers."""

    def __init__(self, start: NDArray[Any]) -> None:
        self.raw, self.written = start.tobytes(), in_json(repr(start.tolist()))

    def text(self, values: NDArray[Any]) -> str:
        raw = values.tobytes()
        if raw != self.raw:
            written = in_json(repr(values.tolist()))
            self.written, self.raw = written, raw  # at once: Ctrl-C may come
        return self.written


class Column:
    """One field of every arm: many numbers."""

    def __init__(self, start: NDArray[Any]) -> None:
        self.start = self.raw = start.tobytes()
        self.values, self.texts = start, list[str]()
        self.written: str | None = None

    def text(self, values: NDArray[Any]) -> str | None:
        """A list, or None if nothing differs from the start."""
        raw = values.tobytes()
        if raw != self.raw:
            if self.texts:
                texts = list(self.texts)
                changed = (values != self.values).reshape(len(values), -1).any(axis=1).nonzero()[0]
                for a, text in zip(changed.tolist(), spelt(values[changed]), strict=True):
                    texts[a] = text
            else:
                texts = spelt(values)
            kept, written = values.copy(), None if raw == self.start else f"[{', '.join(texts)}]"
            self.values, self.texts, self.written, self.raw = kept, texts, written, raw  # at once: Ctrl-C may come
        return self.written


def spelt(values: NDArray[Any]) -> list[str]:
    """Each value as JSON; numbers in one go."""
    if values.ndim == 1 and len(values):
        return in_json(repr(values.tolist()))[1:-1].split(", ")
    return [in_json(repr(value)) for value in values.tolist()]


def in_json(text: str) -> str:
    """Numbers, as Python spells them, in JSON: in a fraction of the time that `json.dumps` takes."""
    for python, same in AS_JSON:
        text = text.replace(python, same)
    return text


def plain(value: Any) -> Any:
    """A value of Python's own, also where a field holds several."""
    return value.tolist() if isinstance(value, np.ndarray) else value
