"""What simulated rewards and costs are drawn from.

Every trajectory has, for each arm, one stream of random numbers for its rewards and one for its costs, and one stream
for the policy's own coins. Where each starts is a hash of (seed, trajectory, arm, purpose). So arm a's n-th reward is
the same whatever the policy, the cost model, the number of workers or the order in which trajectories run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.instance import Instance
from cabai.support.streams import GOLDEN, mix

TRUTH = np.dtype(
    [
        ("mean", "f8"),
        ("cost", "f8"),  # its mean
        ("spread", "f8"),  # what the family computes once from the mean
        ("stream", "u8"),  # the state of the stream of rewards
        ("cost_stream", "u8"),  # and of the stream of costs
    ],
    align=True,
)


def truth_of(instance: Instance) -> NDArray[Any]:
    truth = np.zeros(len(instance), TRUTH)
    truth["mean"], truth["cost"] = instance.means, instance.costs
    truth["spread"] = [instance.family.spread(mean) for mean in instance.means.tolist()]
    return truth


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
