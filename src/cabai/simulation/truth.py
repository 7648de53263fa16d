"""What simulated rewards and costs are drawn from.

Every trajectory has, for each arm, one stream of random numbers for its rewards and one for its costs, and one stream
for the policy's own coins. Where each starts is a hash of (seed, trajectory, arm, purpose). So arm a's n-th reward is
the same whatever the policy, the cost model, the number of workers or the order in which trajectories run.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.families.slots import draw
from cabai.instance import Instance
from cabai.support.specialise import copied
from cabai.support.streams import GOLDEN, mix

TRUTH = np.dtype(
    [
        ("mean", "f8"),
        ("cost", "f8"),  # its mean
        ("spread", "f8"),  # what the family computes once per mean
        ("stream", "u8"),  # the state of the stream of rewards
        ("cost_stream", "u8"),  # and of the stream of costs
    ],
    align=True,
)


def truth_of(instance: Instance) -> NDArray[Any]:
    truth = np.zeros(len(instance), truth_kind(instance))
    truth["mean"], truth["cost"] = [instance.family.scaled(mean) for mean in instance.means.tolist()], instance.costs
    truth["spread"] = instance.spreads
    for a, sample in enumerate(instance.samples or ()):
        truth["sample"][a, : len(sample)] = [instance.family.scaled(reward) for reward in sample]
    return truth


def truth_kind(instance: Instance) -> np.dtype[np.void]:
    """With room for samples, if there are any; in powers of 4, so that the loop is not compiled for each number.

    That field comes first: Numba confuses a record with another one that has the same first fields.
    """
    if instance.samples is None:
        return TRUTH
    room = 4 ** math.ceil(math.log(max(map(len, instance.samples)), 4))
    return np.dtype([("sample", "f8", (room,)), *((name, TRUTH[name]) for name in TRUTH.names or ())], align=True)


def negated_draw(arm):
    """For a test of the smallest mean, where the mirrored family is another one."""
    return 0.0 - draw(arm)


@cache
def negated(draw: Any) -> Any:
    """A function that draws rewards, made to negate them."""
    return copied(negated_draw, {"draw": draw})


def open_streams(truth, seed, trajectory):
    """Start every arm's streams for a trajectory; return the start of the stream for the policy's coins."""
    start = mix(mix(seed + GOLDEN) + trajectory * GOLDEN)
    coins = mix(start + GOLDEN)
    start = coins
    for a in range(len(truth)):
        start += GOLDEN
        truth[a].stream = mix(start)
        start += GOLDEN
        truth[a].cost_stream = mix(start)
    return mix(coins)
