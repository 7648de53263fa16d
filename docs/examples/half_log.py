"""A threshold of one's own: log(K/delta) + log(t)/2, without a proof."""

import math
from dataclasses import dataclass

import cabai


@dataclass(frozen=True)
class HalfLog(cabai.Threshold):
    """What a single Gaussian mixture would ask for, were it one test and not several."""

    extra: float = 0.0
    name = "half-log"

    def parameters(self, family, arms, delta):
        return {"level": math.log(arms / delta) + self.extra, "slope": 0.5}
