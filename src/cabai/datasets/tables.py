"""Tables of known scores: arms x items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cabai.support.validation import InvalidInput, shown


@dataclass(frozen=True)
class ScoreTable:
    """The score, and perhaps the cost, of every arm on every item; NaN where a score is missing.

    >>> import cabai
    >>> table = cabai.datasets.read_table({"small": [0, 1, 0], "large": [1, 1, None]})
    >>> table.scores
    array([[ 0.,  1.,  0.],
           [ 1.,  1., nan]])
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
        """How many evaluations have no score.

        >>> import cabai
        >>> cabai.datasets.read_table({"small": [0, 1, 0], "large": [1, 1, None]}).missing
        1
        """
        return int(np.isnan(self.scores).sum())

    def whole(self) -> ScoreTable:
        """The same table, with only the items that every arm has a score on.

        >>> import cabai
        >>> cabai.datasets.read_table({"small": [0, 1, 0], "large": [1, 1, None]}).whole().items
        ('0', '1')
        """
        kept = np.flatnonzero(~np.isnan(self.scores).any(axis=0))
        costs = None if self.costs is None else self.costs[:, kept]
        return ScoreTable(self.arms, tuple(self.items[i] for i in kept), self.scores[:, kept], costs, self.billed)
