"""Tables of scores for the tests: arms on items, some of which are harder than others."""

from __future__ import annotations

import numpy as np


def table(arms: int = 3, items: int = 200, seed: int = 0, kind: str = "binary") -> np.ndarray:
    """Scores in [0, 1]; arm 1 is the best, by far."""
    random = np.random.default_rng(seed)
    skill = np.full(arms, 0.4) + 0.05 * np.arange(arms)
    skill[1] = 0.8
    luck = 0.5 * random.random(items) + 0.5 * random.random((arms, items))
    return (luck < skill[:, None]).astype(float) if kind == "binary" else np.clip(skill[:, None] - luck / 3, 0, 1)
