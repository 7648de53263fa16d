"""Named suites of instances: those that papers have used, and random ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cabai.families import family_of
from cabai.instance import Instance
from cabai.support.validation import InvalidInput

LEAST_GAP = 0.15  # of the best mean: every other mean is smaller by at least this share
DRAWN = ["gaussian", "bernoulli", "poisson", "exponential"]  # the position in this list is part of the seed
BEST = {"gaussian": (1.0, 1.0), "bernoulli": (0.5, 0.95), "bounded": (0.5, 0.95), "poisson": (0.5, 3.0)}


class Case(NamedTuple):
    """An instance, how runs on it end, and the threshold that its paper takes."""

    suite: str
    name: str
    instance: Instance
    threshold: str
    delta: float | None
    budget: float | None = None


def random_instance(family: str, arms: int, seed: int, number: int, spread: float = 100.0) -> Instance:
    """Instance `number` of a family: costs that differ up to `spread` times, and means at least 15 % below the best.

    Costs are log-uniform in [1/spread, 1]; the best mean is 1 (gaussian and exponential) or uniform in [0.5, 0.95]
    (bernoulli) or [0.5, 3] (poisson); the others are smaller by a share of it that is uniform in [0.15, 1).

    >>> random_instance("bernoulli", 3, seed=0, number=0)
    Instance('bernoulli', ...)
    """
    kind = family_of(family)
    drawn = "bernoulli" if kind.key == "bounded" else kind.key
    if drawn not in DRAWN:
        raise InvalidInput(f"random instances are drawn only for {', '.join(DRAWN)} and bounded, got family {kind}.")
    random = np.random.Generator(np.random.PCG64([seed, arms, number, DRAWN.index(drawn)]))
    best = random.uniform(*BEST.get(kind.name, (1.0, 1.0)))
    means = best * (1 - random.uniform(LEAST_GAP, 1, arms))
    means[random.integers(arms)] = best
    means = np.array([kind.unscaled(mean) for mean in means.tolist()])
    return Instance(kind, means, np.exp(random.uniform(-math.log(spread), 0.0, arms)))


def kanarios24(seed: int) -> list[Case]:
    """Cost-aware best arm identification, section 6."""
    costs = [1, 0.1, 0.01]
    means = {"gaussian": [1.5, 1, 0.5], "bernoulli": [0.9, 0.6, 0.3], "poisson": [1.5, 1, 0.5]}
    return [Case("kanarios24", family, Instance(family, each, costs), "paper", 1e-6) for family, each in means.items()]


def gk16(seed: int) -> list[Case]:
    """Garivier and Kaufmann 2016, Table 1."""
    means = {"mu1": [0.5, 0.45, 0.43, 0.4], "mu2": [0.3, 0.21, 0.2, 0.19, 0.18]}
    return [
        Case("gk16", name, Instance("bernoulli", each, [1] * len(each)), "stylized", 0.1)
        for name, each in means.items()
    ]


def menard19(seed: int) -> list[Case]:
    """The gaussian instance on which LMA, DKM and FWS were compared, at two deltas."""
    instance = Instance("gaussian", [1, 0.85, 0.8, 0.7], [1] * 4)
    return [Case("menard19", f"gaussian at {delta:g}", instance, "stylized", delta) for delta in (0.1, 0.01)]


def cr23(seed: int) -> list[Case]:
    """Wang, Tzeng and Proutiere 2023: convex means, and two groups."""
    convex = {10: 2500.0, 20: 4000.0}
    cases = [
        Case("cr23", f"convex {K}", Instance("bernoulli", [0.3 / (k + 1) for k in range(1, K + 1)], [1] * K),
             "stylized", None, budget)
        for K, budget in convex.items()
    ]  # fmt: skip
    groups = Instance("bernoulli", [0.5, *[0.45] * 4, *[0.4] * 5], [1] * 10)
    return [*cases, Case("cr23", "two groups", groups, "stylized", None, 8000.0)]


def shrr24(seed: int) -> list[Case]:
    """Li and Cheung 2024, 256 arms: costs 0.1 for the better half and 0.9 for the rest (HL), or reversed (HH)."""
    means = {"one best": [0.9, *[0.8] * 255], "geometric": np.geomspace(0.9, 0.1, 256).tolist()}
    costs = {"HL": [0.1] * 128 + [0.9] * 128, "HH": [0.9] * 128 + [0.1] * 128}
    return [
        Case("shrr24", f"{name} {kind}", Instance("bernoulli", each, paid), "stylized", None, 1500.0)
        for name, each in means.items()
        for kind, paid in costs.items()
    ]


def random(seed: int) -> list[Case]:
    """Families x numbers of arms x how far costs differ: two instances each, with a proven threshold."""
    return [
        Case("random", f"{family}, {K} arms, costs 1 to {spread:g}, {number}",
             random_instance(family, K, seed, number, spread), "contrast", 0.05)
        for family in ("gaussian", "bernoulli", "poisson")
        for K in (3, 10, 50)
        for spread in (1.0, 100.0)
        for number in range(2)
    ]  # fmt: skip


#: The suites by name: functions of a seed that return cases.
SUITES: dict[str, Callable[[int], list[Case]]] = {
    each.__name__: each for each in (kanarios24, gk16, menard19, cr23, shrr24, random)
}
