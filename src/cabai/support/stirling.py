"""The error of Stirling's formula for the logarithm of the gamma function, computed without cancellation."""

import math

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def stirling(x):
    """s(x) = lgamma(x) - ((x - 1/2) log x - x + log(2 pi)/2), for x >= 1."""
    if x < 12.0:
        return math.lgamma(x) - ((x - 0.5) * math.log(x) - x + HALF_LOG_2PI)
    y = 1.0 / (x * x)
    return (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y / 1188)))) / x


def stirling_half(x):
    """r(x) = lgamma(x + 1/2) - (x log x - x + log(2 pi)/2), for x >= 0."""
    if x <= 0.0:
        return -0.5 * math.log(2.0)
    if x < 12.0:
        return math.lgamma(x + 0.5) - (x * math.log(x) - x + HALF_LOG_2PI)
    y = 1.0 / (x * x)
    return -(1 / 24 - y * (7 / 2880 - y * (31 / 40320 - y * (127 / 215040 - y * 511 / 608256)))) / x
