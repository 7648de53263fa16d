"""log((1 + log t) / delta): used in experiments in the literature, without a proof."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cabai.families import Family
from cabai.thresholds.base import Threshold


@dataclass(frozen=True)
class Stylized(Threshold):
    """log((1 + log t) / delta): used in experiments in the literature, without a proof.

    With policies that eliminate arms (co, racing) its error exceeds delta: 10 % to 13 % errors at K = 3 and delta = 0.1
    if all arms are nearly tied.

    >>> Stylized().standing("gaussian")
    'not proven for this family'
    """

    name = "stylized"
    proof = "none"

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        return {"level": -math.log(delta), "loglog": 1.0, "offset": 1.0}
