"""log(2 t (K - 1) / delta), for rewards in [0, 1]."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cabai.families import Bernoulli, Family
from cabai.support.validation import InvalidInput
from cabai.thresholds.base import Threshold


@dataclass(frozen=True)
class KT(Threshold):
    """log(2 t (K - 1) / delta), for bernoulli and bounded rewards only (Garivier and Kaufmann 2016, Theorem 10).

    Its proof bounds the loss of a Krichevsky-Trofimov mixture by its worst case; `evalue` uses the loss itself and
    never stops later.

    >>> from cabai import Statistics
    >>> data = Statistics("bernoulli", pulls=[100, 100], rewards=[90, 60])
    >>> KT().beats(data, 0, 1, delta=0.05), round(KT().required(data, 0, 1, delta=0.05), 2)   # log(2 * 200 / 0.05)
    (True, 8.99)
    """

    name = "kt"
    proof = "Garivier and Kaufmann (2016), Theorem 10"
    proven_for = ("bernoulli", "bounded")

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        if not isinstance(family, Bernoulli):
            raise InvalidInput(f"threshold kt holds for bernoulli and bounded rewards only, got family {family}.")
        return {"level": math.log(2 * (arms - 1) / delta), "slope": 1.0}
