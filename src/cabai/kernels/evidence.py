"""How an observation changes the state, and when one arm beats another.

    Z_{a,b} = N_a d(mean_a, m) + N_b d(mean_b, m),   m the pooled mean of the two arms,

counts for a over b only if mean_a > mean_b. b beats a when

    Z_{b,a} > level + slope log t + loglog log(offset + log t) + price_b + price_a.

The e-value test has this form too. Its log E = M(b) + M(a) - L0 is the evidence Z of the data that count, less what
each arm's mixture M loses against the best fit of its own data: the arm's price. The prices below are that loss with
the leading terms cancelled by hand, so that they stay accurate for millions of pulls and for large means:

    all but bernoulli   log(N)/2 + Z(first reward, the rest) + remainder(first) - remainder(all)
    bernoulli           log(N)/2 + log(pi/2)/2 + s(N) - r(R) - r(N - R)

with r(x) and s(x) what Stirling's formula leaves of lgamma(x + 1/2) and lgamma(x), and as remainder 0 for gaussian,
r(R) for poisson and s(N) for exponential.
"""

from __future__ import annotations

import math

import numpy as np

from cabai.kernels import only_for
from cabai.kernels.divergence import divergence, variance_at
from cabai.state import BERNOULLI, EXPONENTIAL, GAUSSIAN, MIRRORED_POISSON, POISSON

ROUNDING = 1.0 + 1e-9  # what a bound allows for the rounding of the number it bounds
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
HALF_LOG_HALF_PI = 0.5 * math.log(math.pi / 2)


def pair_evidence(family, variance, n_a, mean_a, n_b, mean_b):
    """Z of two samples from their sizes and means, without a sign."""
    gap = mean_a - mean_b
    n = n_a + n_b
    if family == GAUSSIAN:
        return (n_a * gap) * (n_b * gap) / (2.0 * variance * n)
    to_a, to_b = gap * (n_b / n), -gap * (n_a / n)  # mean_a - m and mean_b - m
    m = (n_a * mean_a + n_b * mean_b) / n
    complement = (n_a * (1.0 - mean_a) + n_b * (1.0 - mean_b)) / n
    return n_a * divergence(family, variance, mean_a, to_a, m, complement) + n_b * divergence(
        family, variance, mean_b, to_b, m, complement
    )


def evidence(rules, a, b):
    """Z_{a,b}: how strongly the data prefer arm record a to arm record b; 0 if they do not."""
    if not a.tested_mean > b.tested_mean:
        return 0.0
    return pair_evidence(rules.family, rules.variance, a.tested, a.tested_mean, b.tested, b.tested_mean)


def required(t, rules):
    """The part of the threshold that is the same for every pair of arms after t pulls."""
    if rules.loglog != 0.0:
        log_t = math.log(t)
        return rules.level + rules.slope * log_t + rules.loglog * math.log(rules.offset + log_t)
    if rules.slope != 0.0:
        return rules.level + rules.slope * math.log(t)
    return rules.level


def beats(rules, t, b, a):
    """Does arm record b beat arm record a after t pulls? What t adds to the level is never negative: most pairs are
    far from the level alone, and are spared the logarithms."""
    if rules.family != GAUSSIAN and not evidence_at_most(rules, b, a) > rules.level + b.price + a.price:
        return False
    z = evidence(rules, b, a) - b.price - a.price
    return z > rules.level and z > required(t, rules)


@only_for("bernoulli", "poisson", "exponential")
def evidence_at_most(rules, b, a):
    """A number that Z_{b,a} is not above, without logarithms; for means that are not far apart, hardly more than Z.

    d(p, q) is the integral of |x - p|/V(x) from one to the other, and 1/V is convex in every family: it lies below the
    line between its values at p and q. So d(p, q) <= (p - q)² (1/(6 V(p)) + 1/(3 V(q))).
    """
    gap = b.tested_mean - a.tested_mean
    if not gap > 0.0:
        return 0.0
    n_b, n_a = b.tested, a.tested
    n = n_b + n_a
    to_b, to_a = gap * n_a / n, gap * n_b / n  # mean - m, without signs
    m = b.tested_mean - to_b
    V_b = variance_at(rules.family, rules.variance, b.tested_mean, 1.0 - b.tested_mean)
    V_a = variance_at(rules.family, rules.variance, a.tested_mean, 1.0 - a.tested_mean)
    V_m = variance_at(rules.family, rules.variance, m, 1.0 - m)
    if not (V_b > 0.0 and V_a > 0.0 and V_m > 0.0):
        return np.inf
    part_b, part_a = n_b * to_b * to_b, n_a * to_a * to_a
    return ROUNDING * ((part_b + part_a) / (3.0 * V_m) + (part_b / V_b + part_a / V_a) / 6.0)


def is_settled(rules, t, b, a):
    """Is b shown to be better than a or, where epsilon is not 0, at most epsilon worse?"""
    if rules.epsilon != 0.0:
        return surplus_within(rules, t, b, a) > 0.0
    return beats(rules, t, b, a)


def leader_beats_every_rival(arms, run, rules):
    """The stopping rule: the leader beats every other arm, up to epsilon. The last that stood in the way is asked
    first."""
    leader = arms[run.leader]
    if run.rival >= 0 and run.rival != run.leader and not is_settled(rules, run.t, leader, arms[run.rival]):
        return False
    for a in range(len(arms)):
        if a != run.leader and not is_settled(rules, run.t, leader, arms[a]):
            run.rival = a
            return False
    return True


@only_for("epsilon")
def surplus_within(rules, t, b, a):
    """By how much the evidence that b is at most epsilon worse than a exceeds what is required."""
    return evidence_within(rules, b, a) - b.price - a.price - required(t, rules)


@only_for("epsilon")
def evidence_within(rules, b, a):
    """How strongly the data say that b is at most epsilon worse than a; 0 if they do not say so:

        min of N_b d(mean_b, q) + N_a d(mean_a, q + epsilon)   over q,

    the cost in likelihood of the best fit among "a is better than b by epsilon or more".
    """
    part_b, part_a = parts_within(rules, b.tested, b.tested_mean, a.tested, a.tested_mean)
    return part_b + part_a


@only_for("epsilon")
def parts_within(rules, n_b, mean_b, n_a, mean_a):
    """What each of two samples adds to that evidence."""
    if not mean_b > mean_a - rules.epsilon:
        return 0.0, 0.0
    q = meeting_point(rules, n_b, mean_b, n_a, mean_a)
    above = q + rules.epsilon
    d_b = divergence(rules.family, rules.variance, mean_b, mean_b - q, q, 1.0 - q)
    d_a = divergence(rules.family, rules.variance, mean_a, mean_a - above, above, 1.0 - above)
    return n_b * d_b, n_a * d_a


@only_for("epsilon")
def meeting_point(rules, n_b, mean_b, n_a, mean_a):
    """The q that minimises N_b d(mean_b, q) + N_a d(mean_a, q + epsilon), for mean_b > mean_a - epsilon.

    It lies between mean_a - epsilon and mean_b, where the derivative
    N_b (q - mean_b)/V(q) + N_a (q + epsilon - mean_a)/V(q + epsilon) vanishes. In every family log V is concave, so the
    ratio of its two terms falls with q: there is one such q. `slope` below is the derivative times both V: a cubic.
    """
    family, variance, epsilon = rules.family, rules.variance, rules.epsilon
    low, high = mean_a - epsilon, mean_b
    if family == GAUSSIAN:
        return (n_b * high + n_a * low) / (n_b + n_a)
    if family == BERNOULLI:
        high = min(high, 1.0 - epsilon)
    if family > EXPONENTIAL:
        high = min(high, -epsilon)
    else:
        low = max(low, 0.0)
    q = at_low = at_high = 0.0
    side = 0
    for i in range(200):  # the secant through both ends (Illinois), halving where it is slow
        if i % 3 == 2 or at_low == at_high:
            q = 0.5 * (low + high)
        else:
            q = (low * at_high - high * at_low) / (at_high - at_low)
        if not low < q < high:
            q = 0.5 * (low + high)
            if not low < q < high:
                break
        above = q + epsilon
        slope = n_b * (q - mean_b) * variance_at(family, variance, above, 1.0 - above) + n_a * (
            above - mean_a
        ) * variance_at(family, variance, q, 1.0 - q)
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


def begin(arms, run):
    """The state before the first pull."""
    for a in range(len(arms)):
        arm = arms[a]
        arm.pulls = 0
        arm.rewards = 0.0
        arm.costs = 0.0
        arm.in_play = 1
        arm.price = 0.0
        arm.share = 0.0
        arm.memo = 0.0
        arm.memo_1 = 0.0
        arm.memo_2 = 0.0
    run.t = 0
    run.spent = 0.0
    run.paid = 0.0
    run.last = -1
    run.leader = -1
    run.second = -np.inf
    run.left = len(arms)
    run.rival = -1
    run.uniform = 0.0
    run.note = -1
    run.memo = 0.0


def observe(arms, run, rules, a, reward, cost):
    """Pull number t + 1 was of arm a, returned `reward` and was paid `cost`."""
    arm = arms[a]
    charged = 1.0 if rules.cost_blind else cost
    if arm.pulls == 0:
        arm.first = reward
    arm.pulls += 1
    arm.rewards += reward
    arm.costs += charged
    arm.mean = arm.rewards / arm.pulls
    arm.cost = arm.costs / arm.pulls
    run.t += 1
    run.spent += charged
    run.paid += cost
    run.last = a
    weigh(arm, rules)
    if arm.in_play:
        find_leader(arms, run, a)


def find_leader(arms, run, changed):
    """Keep run.leader, the arm in play with the best mean, after the mean of arm `changed` moved.

    run.second is at least every other mean in play, so that only a leader that falls that far calls for a look at all.
    """
    mean = arms[changed].mean
    if changed != run.leader:
        best = arms[run.leader].mean if run.leader >= 0 else -np.inf
        if mean > best or (mean == best and changed < run.leader):
            run.leader = changed
            run.second = max(run.second, best)
        else:
            run.second = max(run.second, mean)
    elif not mean > run.second:
        leader = -1
        for a in range(len(arms)):
            arm = arms[a]
            if arm.in_play and arm.pulls > 0 and (leader < 0 or arm.mean > arms[leader].mean):
                leader = a
        run.leader = leader
        run.second = -np.inf
        for a in range(len(arms)):
            arm = arms[a]
            if a != leader and arm.in_play and arm.pulls > 0:
                run.second = max(run.second, arm.mean)


def weigh(arm, rules):
    """What the threshold needs of an arm whose data have changed."""
    arm.tested = arm.pulls
    arm.tested_mean = arm.mean
    if rules.evalue:
        if rules.skip:
            arm.tested = arm.pulls - 1
            if arm.tested == 0:  # nothing to compare yet
                arm.tested_mean = np.nan
                arm.price = np.inf
                return
            arm.tested_mean = (arm.rewards - arm.first) / arm.tested
        arm.price = evalue_price(arm, rules)
    elif rules.pair_loglog != 0.0:
        arm.price = rules.pair_loglog * math.log(rules.pair_offset + math.log(arm.pulls))


@only_for("evalue")
def evalue_price(arm, rules):
    """What the mixture over an arm's data loses against their best fit, in nats."""
    half_log = 0.5 * math.log(arm.pulls)
    if rules.family == BERNOULLI:
        failures = max(arm.pulls - arm.rewards, 0.0)
        lost = HALF_LOG_HALF_PI + stirling(arm.pulls) - stirling_half(arm.rewards) - stirling_half(failures)
        return half_log + lost
    surprise = pair_evidence(rules.family, rules.variance, 1, arm.first, arm.tested, arm.tested_mean)
    if rules.family == POISSON:
        return half_log + surprise + stirling_half(arm.first) - stirling_half(arm.rewards)
    if rules.family == MIRRORED_POISSON:
        return half_log + surprise + stirling_half(-arm.first) - stirling_half(-arm.rewards)
    if rules.family >= EXPONENTIAL:  # or mirrored
        return half_log + surprise + (1.0 - HALF_LOG_2PI) - stirling(arm.pulls)
    return half_log + surprise


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
