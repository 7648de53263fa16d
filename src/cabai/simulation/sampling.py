"""Random rewards and costs, for compiled code.

Every trajectory has, for each arm, one stream of random numbers for its rewards and one for its costs, and one stream
for the policy's own coins. A stream is a SplitMix64 generator (Steele, Lea and Flood 2014) whose starting point is a
hash of (seed, trajectory, arm, purpose). So arm a's n-th reward is the same whatever the policy, the cost model, the
number of workers or the order in which trajectories run.
"""

from __future__ import annotations

import math

import numpy as np

from cabai.instance import Instance
from cabai.kernels import only_for
from cabai.kernels.divergence import psi
from cabai.kernels.evidence import HALF_LOG_2PI, stirling
from cabai.state import BERNOULLI, EXPONENTIAL, GAUSSIAN, POISSON

BOUNDED = 4  # as sampled: bernoulli's divergence, but rewards that are not 0 or 1

TRUTH = np.dtype(
    [
        ("mean", "f8"),
        ("cost", "f8"),  # its mean
        ("spread", "f8"),  # gaussian: the standard deviation; poisson: exp(-mean)
        ("rewards", "u8"),  # the state of the stream of rewards
        ("costs", "u8"),  # and of the stream of costs
    ],
    align=True,
)

# All arithmetic on streams is on 64 unsigned bits; mixed with a signed number it would become floating-point.
GOLDEN, FIRST, SECOND = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
ONE, BITS_8, BITS_11, BITS_27, BITS_30, BITS_31 = (np.uint64(x) for x in (1, 8, 11, 27, 30, 31))
LAYER = np.uint64(0xFF)
TO_UNIT = 1.0 / (1 << 53)
LARGE = 10.0  # a Poisson mean from which on inversion would take too many steps


def drawing_features(instance: Instance) -> list[str]:
    """What `compiled` must not leave out of this file for an instance."""
    features = []
    if instance.family.name == "poisson" and max(instance.means) >= LARGE:
        features.append("large-poisson")
    if instance.cost_model != "fixed":
        features.append("random-costs")
    return features


def mix(z):
    """SplitMix64's finaliser: every bit of the result depends on every bit of z."""
    z = (z ^ (z >> BITS_30)) * FIRST
    z = (z ^ (z >> BITS_27)) * SECOND
    return z ^ (z >> BITS_31)


def open_streams(truth, seed, trajectory):
    """Start every arm's streams for a trajectory; return the start of the stream for the policy's coins."""
    start = mix(mix(seed + GOLDEN) + trajectory * GOLDEN)
    coins = mix(start + GOLDEN)
    start = coins
    for a in range(len(truth)):
        start += GOLDEN
        truth[a].rewards = mix(start)
        start += GOLDEN
        truth[a].costs = mix(start)
    return mix(coins)


def unit(bits):
    """Uniform on [0, 1)."""
    return (bits >> BITS_11) * TO_UNIT


def draw_reward(arm, family):
    """The arm's next reward."""
    if family == GAUSSIAN:
        return arm.mean + arm.spread * normal(arm)
    if family == POISSON:
        return poisson(arm)
    arm.rewards += GOLDEN
    u = unit(mix(arm.rewards))
    if family == BERNOULLI:
        return 1.0 if u < arm.mean else 0.0
    if family == EXPONENTIAL:
        return -arm.mean * math.log(1.0 - u) if u > 0.0 else arm.mean * TO_UNIT
    # bounded: uniform on the widest interval around the mean that fits in [0, 1]
    return arm.mean + (2.0 * u - 1.0) * min(arm.mean, 1.0 - arm.mean)


def draw_cost(arm, model):
    """The cost of the arm's next pull; the models are numbered as in instance.COST_MODELS."""
    if model == 0:
        return arm.cost
    return random_cost(arm, model)


@only_for("random-costs")
def random_cost(arm, model):
    arm.costs += GOLDEN
    u = unit(mix(arm.costs))
    if model == 1:
        return arm.cost * (0.5 + u)
    if model == 2:
        return arm.cost * (0.5 if u < 0.5 else 1.5)
    if model == 3:  # the median of three uniforms is Beta(2, 2)
        arm.costs += GOLDEN
        v = unit(mix(arm.costs))
        arm.costs += GOLDEN
        w = unit(mix(arm.costs))
        return arm.cost * (0.5 + max(min(u, v), min(max(u, v), w)))
    return arm.cost * (0.1 - 0.9 * math.log(1.0 - u))


# The ziggurat (Marsaglia and Tsang 2000): 256 layers of equal area under exp(-x²/2). EDGE[i] is the right edge of
# layer i, HEIGHT[i] the density there; layer 0 holds the tail beyond EDGE[1].
LAYERS = 256
TAIL = 3.6541528853610088


def ziggurat_tables():
    height = lambda x: math.exp(-0.5 * x * x)  # noqa: E731
    area = TAIL * height(TAIL) + math.sqrt(math.pi / 2) * math.erfc(TAIL / math.sqrt(2))
    edges = [area / height(TAIL), TAIL]
    while len(edges) < LAYERS:
        edges.append(math.sqrt(-2.0 * math.log(area / edges[-1] + height(edges[-1]))))
    edges.append(0.0)
    return np.array(edges), np.array([height(x) for x in edges])


EDGE, HEIGHT = ziggurat_tables()


@only_for("gaussian")
def normal(arm):
    """A standard normal number from the arm's stream of rewards."""
    while True:
        arm.rewards += GOLDEN
        bits = mix(arm.rewards)
        layer = np.int64(bits & LAYER)
        sign = 1.0 - 2.0 * ((bits >> BITS_8) & ONE)
        x = unit(bits) * EDGE[layer]
        if x < EDGE[layer + 1]:
            return sign * x
        arm.rewards += GOLDEN
        u = unit(mix(arm.rewards))
        if layer == 0:  # the tail, after Marsaglia: once chosen, it is drawn from until accepted
            while True:
                arm.rewards += GOLDEN
                v = unit(mix(arm.rewards))
                x = -math.log(1.0 - u) / TAIL
                if -2.0 * math.log(1.0 - v) > x * x:
                    return sign * (TAIL + x)
                arm.rewards += GOLDEN
                u = unit(mix(arm.rewards))
        elif HEIGHT[layer] + u * (HEIGHT[layer + 1] - HEIGHT[layer]) < math.exp(-0.5 * x * x):
            return sign * x


@only_for("poisson")
def poisson(arm):
    """A Poisson count from the arm's stream of rewards: by inversion for a small mean."""
    if arm.mean >= LARGE:
        return large_poisson(arm)
    arm.rewards += GOLDEN
    u = unit(mix(arm.rewards))
    count, probability = 0.0, arm.spread
    while u >= probability and count < 200.0:
        u -= probability
        count += 1.0
        probability *= arm.mean / count
    return count


@only_for("large-poisson")
def large_poisson(arm):
    """A Poisson count for a mean of at least LARGE, by Hörmann's PTRS (1993)."""
    mean = arm.mean
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        arm.rewards += GOLDEN
        u = unit(mix(arm.rewards)) - 0.5
        arm.rewards += GOLDEN
        v = 1.0 - unit(mix(arm.rewards))
        us = 0.5 - abs(u)
        count = math.floor((2.0 * a / us + b) * u + mean + 0.43)
        if us >= 0.07 and v <= v_r:
            return count
        if count < 0.0 or (us < 0.013 and v > us):
            continue
        if math.log(v) + math.log(inverse_alpha) - math.log(a / (us * us) + b) <= (log_poisson(count, mean)):
            return count


@only_for("large-poisson")
def log_poisson(count, mean):
    """The log of the probability of a Poisson count, as a divergence: its textbook form cancels where both are large.

    count log(mean) - mean - log(count!) = -d(count, mean) - log(2 pi count)/2 - s(count),  s what Stirling leaves.
    """
    if count == 0.0:
        return -mean
    return -mean * psi((count - mean) / mean) - 0.5 * math.log(count) - HALF_LOG_2PI - stirling(count)
