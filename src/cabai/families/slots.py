"""The functions that every family provides to kernels."""

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
    """The smallest and the largest mean; infinite if there is none."""


@required_slot
def draw(arm):
    """The next reward of a simulated arm, from arm.mean, arm.spread and the numbers of `cabai.support.streams`."""


@required_slot
def draw_mean(rules, record, n, total):
    """For `thompson`: a mean from the posterior after n rewards with this sum; the prior is flat."""


@required_slot
def remainder(rules, n, total):
    """For `evalue`: the log of the mixture (Jeffreys' prior) over n rewards with this sum, minus that of their best
    fit, plus log(n)/2, in nats; without the constant that cancels if the first reward is set aside."""


@required_slot
def tilted(rules, tilt, rate, price, n, difference, m):
    """For `contrast`: the log of e^(l R) / (E[e^(l y)] if the mean reward is m)^n, for n rewards with mean m +
    difference and sum R, and its slope in m. `rate` and `price` come from `Family.tilt` for the tilt l."""


@slot
def straightened(rules, m, shift):
    """A coordinate in which `tilted` is convex: 0 at m, and increasing. Returns it and its slope at m + shift."""
    return shift, 1.0
