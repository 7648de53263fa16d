"""Evidence with an epsilon: how strongly the data say that b is at most epsilon worse than a.

    Z = min over q of  N_b d(mean_b, q) + N_a d(mean_a, q + epsilon),

the loss in log likelihood of the best fit with "a is better than b by epsilon or more". Functions with an `epsilon`
argument also accept a negative one: then it is the evidence that b is better than a by more than -epsilon.
"""

from cabai.core.stopping import required
from cabai.core.stopping import surplus as surplus_slot
from cabai.families.slots import divergence, edges, variance_at
from cabai.support.specialise import slot


def is_settled(rules, t, b, a):
    """Whether b is shown to be better than a, or at most epsilon worse."""
    return surplus_slot(rules, t, b, a) > 0.0


def surplus(rules, t, b, a):
    """By how many nats the evidence that b is at most epsilon worse than a exceeds what is required."""
    return excess(rules, t, b, a, rules.epsilon)


@slot
def is_shown(rules, t, b, a, epsilon):
    """Whether b is shown to be at most epsilon worse than a; if that is negative, better by more than -epsilon."""
    return excess(rules, t, b, a, epsilon) > 0.0


@slot
def excess(rules, t, b, a, epsilon):
    """By how many nats the evidence for `is_shown` exceeds what is required."""
    part_b, part_a = parts_at(rules, b.tested, b.tested_mean, a.tested, a.tested_mean, epsilon)
    return part_b + part_a - b.price - a.price - required(t, rules)


@slot
def parts_shown(rules, b, a, epsilon):
    """What each of the two arms adds to that evidence. For policies: pulls under way count as pulled."""
    return parts_at(rules, b.pulls, b.mean, a.pulls, a.mean, epsilon)


def evidence_within(rules, b, a):
    part_b, part_a = parts_within(rules, b.tested, b.tested_mean, a.tested, a.tested_mean)
    return part_b + part_a


def parts_within(rules, n_b, mean_b, n_a, mean_a):
    """What each of two samples adds to that evidence."""
    return parts_at(rules, n_b, mean_b, n_a, mean_a, rules.epsilon)


def parts_at(rules, n_b, mean_b, n_a, mean_a, epsilon):
    if not mean_b > mean_a - epsilon:
        return 0.0, 0.0
    q = meeting_point_at(rules, n_b, mean_b, n_a, mean_a, epsilon)
    above = q + epsilon
    d_b = divergence(rules, mean_b, mean_b - q, q, 1.0 - q)
    d_a = divergence(rules, mean_a, mean_a - above, above, 1.0 - above)
    return n_b * d_b, n_a * d_a


@slot
def meeting_point_at(rules, n_b, mean_b, n_a, mean_a, epsilon):
    """The q that minimises N_b d(mean_b, q) + N_a d(mean_a, q + epsilon), for mean_b > mean_a - epsilon.

    It lies between mean_a - epsilon and mean_b, where the derivative
    N_b (q - mean_b)/V(q) + N_a (q + epsilon - mean_a)/V(q + epsilon) vanishes. In every family here log V is concave,
    so the ratio of its two terms falls with q if epsilon is positive, and there is one such q. (If it is negative, the
    sum is convex in gaussian, bernoulli and poisson.) `slope` below is the derivative times both V.
    """
    least, most = edges(rules)
    low, high = max(mean_a - epsilon, least), min(mean_b, most - epsilon)
    q = at_low = at_high = 0.0
    side = 0
    for i in range(200):  # the secant method (Illinois), with bisection when it is slow
        if i % 3 == 2 or at_low == at_high:
            q = 0.5 * (low + high)
        else:
            q = (low * at_high - high * at_low) / (at_high - at_low)
        if not low < q < high:
            q = 0.5 * (low + high)
            if not low < q < high:
                break
        above = q + epsilon
        slope = n_b * (q - mean_b) * variance_at(rules, above, 1.0 - above) + n_a * (above - mean_a) * variance_at(
            rules, q, 1.0 - q
        )
        if slope == 0.0:
            break
        if slope < 0.0:
            low, at_low = q, slope
            at_high *= 0.5 if side < 0 else 1.0
            side = -1
        else:
            high, at_high = q, slope
            at_low *= 0.5 if side > 0 else 1.0
            side = 1
        if high - low <= 1e-15 * abs(q):
            break
    return q


@slot
def lowered(rules, mean):
    """A mean minus epsilon, but not below the smallest mean of the family."""
    low, _ = edges(rules)
    return max(mean - rules.epsilon, low)


def lower_rivals(arms, run, rules):
    """With an epsilon, lower every rival's mean by epsilon before computing shares.

    The shares are then optimal for gaussian rewards. For other families they are close, and only guide the sampling.
    """
    for a in range(len(arms)):
        if a != run.leader:
            arms[a].mean = lowered(rules, arms[a].mean)


def restore_rivals(arms, run):
    for a in range(len(arms)):
        if a != run.leader:
            arms[a].mean = arms[a].rewards / arms[a].pulls


WITHIN = is_settled, surplus, lower_rivals, restore_rivals  # these replace the slots of the same names
