"""What the paper prints, and the instances it and we measure on."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

import numpy as np

from cabai.instance import Instance

DELTA = 1e-6
POLICIES = ("co", "ctas", "tas", "d-lucb")

# Table 1: shares of the pulls of arms with (mean, cost) = (1.5, 1), (1, 0.1), (0.5, 0.01).
TABLE_1 = {"tas": (0.46, 0.46, 0.08), "ctas": (0.23, 0.72, 0.05)}

# Table 2: seconds for 1000 trajectories.
TABLE_2 = {
    "gaussian": {"co": 85, "ctas": 1712, "tas": 2410, "d-lucb": 82},
    "bernoulli": {"co": 58, "ctas": 1995, "tas": 2780, "d-lucb": 60},
    "poisson": {"co": 96, "ctas": 3260, "tas": 4633, "d-lucb": 101},
}

# The paper's instances by family. Its captions attach the means 1.5, 1, 0.5 to Bernoulli, which is impossible.
NAMES = {"gaussian": "G3", "bernoulli": "B3", "poisson": "P3"}


@cache
def instance(name: str, cost_model: str = "fixed") -> Instance:
    """An instance of instances.json: a letter for the family, the number of arms; G3r has G3's costs reversed."""
    described = json.loads(files("cabai.paper").joinpath("instances.json").read_text())[name]
    return Instance(described["family"], described["means"], described["costs"], cost_model=cost_model)


MEANS = {"gaussian": (0.0, 1.0), "bernoulli": (0.1, 0.9), "poisson": (0.5, 2.5), "exponential": (0.5, 2.5)}


def random_instance(rng: np.random.Generator, family: str, arms: int, gap: float) -> Instance:
    """The best mean is at least `gap` above the others; costs are up to a hundredfold apart."""
    low, high = MEANS[family]
    others = rng.uniform(low, high - gap, arms - 1)
    means = rng.permutation([rng.uniform(others.max() + gap, high), *others])
    return Instance(family, means.round(4), (10 ** rng.uniform(-2, 0, arms)).round(4))
