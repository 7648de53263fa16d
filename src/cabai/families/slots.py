"""The functions that every family has: what kernels ask of it."""

from __future__ import annotations

from cabai.support.specialise import required_slot, slot


@required_slot
def divergence(rules, p, difference, q, complement):
    """d(p, q) in nats, for difference = p - q and complement = 1 - q."""


@required_slot
def variance_at(rules, q, complement):
    """V(q), the variance of a reward with mean q: the derivative of d(p, q) in q is (q - p)/V(q)."""


@required_slot
def variance_slope(rules, q):
    """V'(q); needed by the bound, and by policies that follow it."""


@required_slot
def edges(rules):
    """The least and the largest mean; infinite where there is none."""


@required_slot
def draw(arm):
    """The next reward of an arm in a simulation, from arm.mean, arm.spread and the random numbers of
    `cabai.support.streams`."""


@required_slot
def remainder(rules, n, total):
    """What `evalue` needs: the mixture (Jeffreys' prior) over n rewards with that sum, in nats, less their best fit and
    plus log(n)/2, without the constant that a first reward set aside takes away."""


@required_slot
def tilted(rules, tilt, rate, price, n, difference, m):
    """What `contrast` needs: the log of e^(l R) / (mean of e^(l y) where the mean reward is m)^n, for n rewards of mean
    m + difference and sum R, and its slope in m. `rate` and `price` are what `Family.tilt` has of the tilt l."""


@slot
def straightened(rules, m, shift):
    """A coordinate in which `tilted` is convex, 0 at m and rising, and its slope; both at m + shift."""
    return shift, 1.0
