"""What a simulated pull draws from the truth, its reward and its cost; and how often an arm is pulled before the policy
is asked again.

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

from cabai.core.observe import observe
from cabai.families.slots import draw
from cabai.instance import Instance
from cabai.support.specialise import copied, required_slot, slot
from cabai.support.streams import GOLDEN, mix, unit

EXACT = 1000  # pulls up to which steps make no difference
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


# How the cost of one pull is drawn, around the arm's mean cost: one function per model.


@required_slot
def draw_cost(arm):
    """The cost of the arm's next pull."""


def next_uniform(arm):
    """The next random number in [0, 1) from the arm's stream for costs."""
    arm.cost_stream += GOLDEN
    return unit(mix(arm.cost_stream))


def fixed(arm):
    return arm.cost


def uniform(arm):
    return arm.cost * (0.5 + next_uniform(arm))


def two_point(arm):
    return arm.cost * (0.5 if next_uniform(arm) < 0.5 else 1.5)


def beta(arm):
    """The median of three uniforms is Beta(2, 2)."""
    u = next_uniform(arm)
    v = next_uniform(arm)
    w = next_uniform(arm)
    return arm.cost * (0.5 + max(min(u, v), min(max(u, v), w)))


def exponential(arm):
    return arm.cost * (0.1 - 0.9 * math.log(1.0 - next_uniform(arm)))


DRAWS = {"fixed": fixed, "uniform": uniform, "two-point": two_point, "beta": beta, "exponential": exponential}


def pull(arms, run, rules, a, truth):
    """Pull arm a, unless that would exceed the budget, which is returned: then the run ends with its leader."""
    cost = draw_cost(truth)
    if run.spent + cost > rules.budget * (1.0 + 1e-12):  # up to rounding
        return True
    observe(arms, run, rules, a, draw(truth), cost)
    return False


@slot
def pulls_of_a_choice(run):
    return 1


def more_as_it_grows(run):
    """One more for every EXACT pulls made, 0.1 %: most of the time is spent on choosing and testing."""
    return 1 + run.t // EXACT
