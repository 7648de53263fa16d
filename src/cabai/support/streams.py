"""Streams of random numbers, for compiled code and for plain Python.

A stream is a SplitMix64 generator (Steele, Lea and Flood 2014): 64 bits of state in the field `stream` of a record,
which every draw advances. `uniform` and `normal` draw from the stream of the given record: an arm for its rewards, or
the run for a randomized policy.
"""

import math

import numpy as np

# All arithmetic on streams uses unsigned 64-bit numbers; mixed with a signed number it would become floating-point.
GOLDEN, FIRST, SECOND = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
ONE, BITS_8, BITS_11, BITS_27, BITS_30, BITS_31 = (np.uint64(x) for x in (1, 8, 11, 27, 30, 31))
LAYER = np.uint64(0xFF)
TO_UNIT = 1.0 / (1 << 53)


def mix(z):
    """The finaliser of SplitMix64: every bit of the result depends on every bit of z."""
    z = (z ^ (z >> BITS_30)) * FIRST
    z = (z ^ (z >> BITS_27)) * SECOND
    return z ^ (z >> BITS_31)


def unit(bits):
    """Convert 64 random bits to a number in [0, 1)."""
    return (bits >> BITS_11) * TO_UNIT


def uniform(record):
    """In a policy, the next random number in [0, 1): call it with `run`.

    >>> import cabai
    >>> @cabai.policy
    ... def any_arm(arms, run, rules):
    ...     return int(cabai.uniform(run) * len(arms))
    """
    record.stream += GOLDEN
    return unit(mix(record.stream))


# The ziggurat (Marsaglia and Tsang 2000): 256 layers of equal area under exp(-x²/2). EDGE[i] is the right edge of
# layer i, HEIGHT[i] the density there; layer 0 holds the tail above EDGE[1].
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


def normal(record):
    """In a policy, the next standard normal random number: call it with `run`.

    >>> import cabai
    >>> @cabai.policy
    ... def noisy_leader(arms, run, rules):
    ...     return run.leader if cabai.normal(run) < 1.0 else run.t % len(arms)
    """
    while True:
        record.stream += GOLDEN
        bits = mix(record.stream)
        layer = np.int64(bits & LAYER)
        sign = 1.0 - 2.0 * ((bits >> BITS_8) & ONE)
        x = unit(bits) * EDGE[layer]
        if x < EDGE[layer + 1]:
            return sign * x
        u = uniform(record)
        if layer == 0:  # the tail, by Marsaglia's method: draw until one is accepted
            while True:
                v = uniform(record)
                x = -math.log(1.0 - u) / TAIL
                if -2.0 * math.log(1.0 - v) > x * x:
                    return sign * (TAIL + x)
                u = uniform(record)
        elif HEIGHT[layer] + u * (HEIGHT[layer + 1] - HEIGHT[layer]) < math.exp(-0.5 * x * x):
            return sign * x


def gamma(record, shape):
    """The next gamma random number with this shape, at least 1, and scale 1 (Marsaglia and Tsang 2000)."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(record)
        v = 1.0 + c * x
        if v > 0.0:
            v *= v * v
            if math.log(1.0 - uniform(record)) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v
