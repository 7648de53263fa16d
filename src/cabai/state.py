"""All a policy may know, as plain data: one record an arm, one for the run, one for the rules of the game.

Compiled code and Python share these NumPy records. An array of ARM records and a RUN record are the whole state of a
trajectory or of a live study; RULES says which family, which threshold and which policy parameters apply and does
not change while a run lasts. `Record` and `Records` let plain Python read them as compiled code does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# The families, by the numbers that kernels branch on; `bounded` shares bernoulli's divergence.
GAUSSIAN, BERNOULLI, POISSON, EXPONENTIAL = 0, 1, 2, 3
# Where the smallest mean is wanted, kernels see every reward negated; these two families then look different.
MIRRORED_POISSON, MIRRORED_EXPONENTIAL = 4, 5
MIRROR = 2  # a family's number less MIRROR is that of the family it mirrors

ARM = np.dtype(
    [
        ("pulls", "i8"),  # N_a
        ("rewards", "f8"),  # R_a, the sum of rewards
        ("costs", "f8"),  # C_a, the sum of costs as the policy counts them (pulls, for a cost-blind one)
        ("first", "f8"),  # the first reward
        ("mean", "f8"),  # R_a / N_a
        ("cost", "f8"),  # C_a / N_a
        ("in_play", "i8"),  # 1, or 0 once an eliminating policy has dropped the arm
        # What the threshold needs of one arm, renewed when the arm is pulled:
        ("tested", "i8"),  # pulls that count as evidence: N_a, or N_a - 1 where the first reward is set aside
        ("tested_mean", "f8"),  # their mean
        ("price", "f8"),  # how much evidence this arm's part of a pair's threshold asks for
        # The policy's own memory:
        ("share", "f8"),  # the share of the cost, or of the pulls, the arm should have
        ("memo", "f8"),
        ("memo_1", "f8"),
        ("memo_2", "f8"),
        # Used while the shares are solved for, and not kept:
        ("bend", "f8"),
        ("twist", "f8"),
    ],
    align=True,
)

RUN = np.dtype(
    [
        ("t", "i8"),  # pulls so far
        ("spent", "f8"),  # J, the sum of C_a
        ("paid", "f8"),  # what the pulls really cost, which a cost-blind policy does not look at
        ("last", "i8"),  # the arm pulled last
        ("leader", "i8"),  # the arm in play with the best mean; the lowest index among equals
        ("second", "f8"),  # at least the mean of every other arm in play
        ("left", "i8"),  # how many arms are in play
        ("rival", "i8"),  # the arm that last kept the run from stopping
        ("uniform", "f8"),  # a random number in [0, 1) for this step, for policies that toss coins
        # The policy's own memory:
        ("note", "i8"),  # -1 at the start
        ("memo", "f8"),
    ],
    align=True,
)

RULES = np.dtype(
    [
        ("family", "i8"),
        ("variance", "f8"),
        # The threshold: b beats a when Z > level + slope log t + loglog log(offset + log t) + price_b + price_a.
        ("level", "f8"),
        ("slope", "f8"),
        ("loglog", "f8"),
        ("offset", "f8"),
        ("pair_loglog", "f8"),  # price_a = pair_loglog log(pair_offset + log N_a), where not 0
        ("pair_offset", "f8"),
        ("evalue", "i8"),  # 1: price_a is the e-value test's
        ("skip", "i8"),  # 1: the first reward is set aside
        ("epsilon", "f8"),  # an arm whose mean is within epsilon of the best is good enough
        # The policy:
        ("cost_blind", "i8"),
        ("exploration", "f8"),
        ("slack", "f8"),
        ("tracking", "i8"),
        ("randomized", "i8"),
        ("tolerance", "f8"),
    ],
    align=True,
)


class Record:
    """One record whose fields are read and written as attributes, as compiled code does: arm.pulls, run.t."""

    __slots__ = ("fields",)

    def __init__(self, fields: np.void) -> None:
        object.__setattr__(self, "fields", fields)

    def __getattr__(self, name: str) -> Any:
        return self.fields[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self.fields[name] = value


class Records:
    """An array of records, for kernels that are called as plain Python: arms[a].pulls."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, a: int) -> Record:
        return Record(self.array[a])


def record(kind: np.dtype[np.void]) -> np.void:
    """One record of a kind, all zeros, that can be written to by field."""
    return np.zeros(1, kind)[0]  # type: ignore[no-any-return]
