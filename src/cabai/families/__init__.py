"""Families of reward distributions, one file each: allowed means and rewards, the divergence, and how to draw.

| family | means | rewards | divergence d(p, q), in nats |
|---|---|---|---|
| gaussian(variance v) | all reals | all reals | (p-q)² / (2v) |
| bernoulli | [0, 1] | 0 or 1 | p log(p/q) + (1-p) log((1-p)/(1-q)) |
| poisson | [0, inf) | 0, 1, 2, ... | p log(p/q) + q - p |
| exponential | (0, inf) | (0, inf) | p/q - 1 - log(p/q) |
| bounded(low, high) | [low, high] | [low, high] | bernoulli's, scaled to [0, 1]: the smallest of any distribution |

`limits` are narrower: the means and rewards that double precision can sum and compare.
"""

from __future__ import annotations

import dataclasses

from cabai.families.base import Family
from cabai.families.bernoulli import Bernoulli
from cabai.families.bounded import Bounded
from cabai.families.exponential import Exponential
from cabai.families.gaussian import Gaussian, UnknownVariance
from cabai.families.mirrored import Mirrored, mirror_image
from cabai.families.poisson import Poisson
from cabai.support.registry import Registry
from cabai.support.validation import InvalidInput

__all__ = [
    "FAMILIES", "Bernoulli", "Bounded", "Exponential", "Family", "Gaussian", "Mirrored", "Poisson", "UnknownVariance",
    "family_of", "mirror_image",
]  # fmt: skip

#: cabai's families of rewards by name; `FAMILIES.names` lists them.
FAMILIES: Registry[Family] = Registry("family", Gaussian, Bernoulli, Poisson, Exponential, Bounded)


def family_of(given: str | Family, variance: float | str | None = None) -> Family:
    """Return the family with this name, or the given family itself; `variance` is for gaussian rewards.

    >>> print(family_of("gaussian(variance=2)"), family_of("poisson"))
    gaussian(variance=2) poisson
    """
    family = FAMILIES.get(given)
    if variance is None:
        return family
    if not isinstance(family, Gaussian):
        raise InvalidInput(f"variance belongs to the gaussian family only, got variance={variance!r} for {family}.")
    return dataclasses.replace(family, variance=variance)  # type: ignore[arg-type]
