"""A test for rewards of unknown variance: any law that is symmetric about its mean, and another one for each arm.

With d = y - m and a tilt l > 0, exp(l d - l² d²/2) has a mean of at most 1 if y is symmetric about a mean of at most m;
so has exp(-l d - l² d²/2) if that mean is at least m. With u_i(m) the product of the first over the rewards of b, for
the tilt l_i, v_j(m) that of the second over those of a, and weights W_ij with sum 1,

    E_{b,a} = min over m_b <= m_a of  w 2^N_b [m_b < all rewards of b] + w 2^N_a [m_a > all rewards of a]
                                      + (1 - 2w) (sum over i, j of W_ij u_i(m_b) v_j(m_a)).

Among the tilts is 0, with u_0 = v_0 = 1. b beats a when E_{b,a} reaches (K - 1)/delta. With an epsilon, m_b <= m_a -
epsilon. The tilts are in units of an arm's own scale: the standard deviation of its first three rewards, or more
until two differ. In u and v these do not count.

log u_i is concave in m: its minimum from the lowest reward of b up to m is at one of the two ends. So E is at least the
minimum over a single m, between the lowest reward of b and the highest of a, with min(u_i(lowest), u_i(m)) in place of
u_i(m_b), and likewise for v_j. The proof is in docs/theory/symmetric.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cabai.core.choosing import find_challenger
from cabai.core.choosing import find_highest as find_highest_end
from cabai.core.state import Fields, Record
from cabai.core.statistics import Statistics
from cabai.core.within import surplus
from cabai.families import Family, UnknownVariance
from cabai.support.specialise import apart
from cabai.support.validation import InvalidInput
from cabai.thresholds import shown, tilts
from cabai.thresholds.base import Threshold
from cabai.thresholds.contrast import LARGE, LOG_RATIO, NEGLIGIBLE

ASIDE = 3  # the least number of rewards that set an arm's scale
COUNT, LARGEST = 64, 2.0 * tilts.RATIO**14  # from 3400 to 1e-11, in units of 1/scale: the scale may be far off
USUAL, WIDTH = 0.25, 0.7
SIGNS = 0.04  # the weight w of each sign test
ALONE = 0.05  # of the rest, the weight of the tilts of b alone, and of those of a alone: one variance may be tiny
LOG_SIGNS, LOG_REST = math.log(SIGNS), math.log(1.0 - 2.0 * SIGNS)
LOG_2 = math.log(2.0)
FAINT = 0.05
TILT, SHARE, GAIN, GAINED, SINGLE = range(5)  # columns of the table of tilts
LEAST_PRICE = 1.5  # nats by which the best tilts almost always exceed their mixture
CLOSE = 2e-3  # nats: how tight the bound is that a status shows
STEPS = 500
LEAST = 0.02  # nats, for a part that is worth nothing yet


@cache
def table() -> NDArray[np.float64]:
    """One row per tilt, largest first, with the q and g of `tilts`, and its weight where the other arm has no tilt."""
    own = tilts.grid(LARGEST, COUNT)
    shares, gains = tilts.weights(own, USUAL, WIDTH)
    gains *= 1.0 - 2.0 * ALONE
    return np.column_stack([own, shares, gains, np.cumsum(gains), ALONE * prior(own)])


def prior(own: NDArray[np.float64]) -> NDArray[np.float64]:
    found = tilts.prior(own, USUAL, WIDTH)
    return found / found.sum()


def keep(arm, rules, reward):
    """Until the scale is known, `center` and `squares` are of the rewards that set it; then of those that count."""
    away = reward - arm.first
    if arm.pulls == 1:
        arm.lowest = arm.highest = reward
    else:
        arm.lowest, arm.highest = min(arm.lowest, reward), max(arm.highest, reward)
    step = away - arm.center
    arm.center += step / (arm.pulls - arm.aside)
    arm.squares += step * (away - arm.center)
    if arm.aside == 0 and arm.pulls >= ASIDE and arm.squares > 0.0:
        arm.aside = arm.pulls
        arm.scale = math.sqrt(arm.squares / (arm.pulls - 1))
        arm.center = arm.squares = 0.0


def weigh(arm, rules):
    arm.tested = arm.pulls - arm.aside if arm.aside > 0 else 0
    arm.tested_mean = arm.first + arm.center
    arm.own_variance = 0.0
    if arm.aside > 0:
        known = arm.aside - 1
        arm.own_variance = (arm.squares + known * arm.scale * arm.scale) / max(arm.pulls - 2, known)


def is_shown(rules, t, b, a, epsilon):
    return may_be_shown(rules, b, a, epsilon) and log_e(rules, b, a, epsilon, rules.level, rules.level) > rules.level


def excess(rules, t, b, a, epsilon):
    """By how much log E is above the level; positive only where `is_shown`, which a cheaper test may deny."""
    found = max(log_e(rules, b, a, epsilon, 0.0, np.inf), 0.0) - rules.level
    return max(found, 1e-9) if is_shown(rules, t, b, a, epsilon) else min(found, 0.0)


def may_be_shown(rules, b, a, epsilon):
    """Whether log E may be above the level, as far as it can be told without logarithms."""
    if not LOG_SIGNS + LOG_2 * min(b.pulls, a.pulls) > rules.level:
        return False
    if are_apart(b, a, epsilon):
        return True
    gap = distance(b, a, epsilon)
    if not gap > 0.0:
        return False
    n_b, n_a = max(b.tested, 1), max(a.tested, 1)
    up, down = parts(n_b, b.squares / n_b, n_a, a.squares / n_a, gap)
    return up + down > rules.level + LEAST_PRICE


def are_apart(b, a, epsilon):
    """Whether every m is below all rewards of b, or m + epsilon above all rewards of a."""
    rounding = 4e-16 * (abs(b.lowest) + abs(a.highest) + abs(epsilon)) if epsilon != 0.0 else 0.0
    return b.lowest + epsilon > a.highest + rounding


def distance(b, a, epsilon):
    """mean_b - mean_a + epsilon of the rewards that count, accurate also where both means are large."""
    return (b.first - a.first) + (b.center - a.center) + epsilon


def parts(n_b, v_b, n_a, v_a, gap):
    """The most that u and v can be worth at the m that fits gaussian rewards with these variances best:
    n d²/(2 (v + d²)) each, in nats, for a mean d away from m."""
    per_b, per_a = v_b / n_b, v_a / n_a
    share = per_b / (per_b + per_a) if per_b + per_a > 0.0 else n_a / (n_b + n_a)
    to_b, to_a = gap * share, gap * (1.0 - share)
    return worth(n_b, v_b, to_b), worth(n_a, v_a, to_a)


def worth(n, variance, away):
    return 0.5 * n * away * away / (variance + away * away) if away != 0.0 else 0.0


@apart
def log_e(rules, b, a, epsilon, no, yes):
    """A lower bound on log E_{b,a}; usually tight. It is -inf as soon as log E is known not to be above `no`, and less
    tight as soon as log E is known to be above `yes`.

    Below, m is measured from mean_b. Over a short interval of m, each log of u_i v_j is concave, so not below the line
    through its values at both ends. The log of the sum over these lines is convex, so it is not below its tangents, and
    the point where those of the two ends meet is a lower bound for the interval.
    """
    signs = LOG_SIGNS + LOG_2 * min(b.pulls, a.pulls)
    if not signs > no or are_apart(b, a, epsilon):
        return signs if signs > no else -np.inf
    gap = float(distance(b, a, epsilon))
    low = float((b.lowest - b.first) - b.center)
    high = max(float((a.highest - a.first) - a.center) - gap, low)
    last = faintest(b, a, gap, low, high)
    n_b, n_a = max(b.tested, 1), max(a.tested, 1)
    per_b, per_a = float(b.squares) / n_b / n_b, float(a.squares) / n_a / n_a
    m = -gap * (per_b / (per_b + per_a) if per_b + per_a > 0.0 else 0.5)
    m = min(max(m, low), high)
    best, _ = sum_at(rules, last, b, a, gap, low, high, m, m)
    if not best > no:
        return -np.inf
    rounding = 1e-12 + 1e-15 * (b.pulls + a.pulls) * (1.0 + abs(best))
    bound, begin, width = signs, low, 0.25 * (high - low)
    for _ in range(STEPS):
        end = min(begin + width, high)
        left, rise = sum_at(rules, last, b, a, gap, low, high, begin, end)
        right, fall = sum_at(rules, last, b, a, gap, low, high, end, begin)
        best = min(best, left, right)
        if not best > no:
            return -np.inf
        least = -np.inf  # also where numbers are too large to be computed
        if rise >= 0.0:
            least = left - rounding
        elif fall >= 0.0:
            least = right - rounding
        elif rise + fall > -np.inf:
            least = left + rise * (right - left + fall) / (rise + fall) - rounding
        if least > yes or least > best - CLOSE or not begin + 0.5 * width > begin:
            bound = min(bound, least)
            if not end < high:
                return bound
            begin = end
            width *= 2.0
        else:
            width *= 0.5
    return -np.inf


def faintest(b, a, gap, low, high):
    """The index of the smallest tilt to use. Leaving out smaller ones only lowers E."""
    away = max(high - low, gap)
    least = np.inf
    if b.tested > 0:
        least = min(least, b.scale / (b.tested * away))
    if a.tested > 0:
        least = min(least, a.scale / (a.tested * away))
    return min(int(math.log(max(LARGEST / (FAINT * least), 1.0)) / LOG_RATIO) + 1, COUNT - 1)


@apart
def sum_at(rules, last, b, a, gap, low, high, m, other):
    """The log of (1 - 2w) sum of W_ij u_i v_j at m; and by how much it grows along the tangent there up to `other`, of
    the sum over lines through the logs of u_i v_j at m and at `other`.

    Starting from the smallest tilt, U and V are the running sums of q_i u_i and q_j v_j, as in `contrast.log_e`; the
    variables with `only` are the sums where the other arm has no tilt.
    """
    table, n_b, n_a, s_b, s_a = rules.tilts, float(b.tested), float(a.tested), float(b.scale), float(a.scale)
    x = x_other = x_low = squares_b = y = y_other = y_high = squares_a = 0.0
    if n_b > 0:
        x, x_other, x_low, squares_b = m / s_b, other / s_b, low / s_b, float(b.squares) / s_b / s_b
    if n_a > 0:
        y, y_other, y_high = (m + gap) / s_a, (other + gap) / s_a, (high + gap) / s_a
        squares_a = float(a.squares) / s_a / s_a
    by = down_by = 0.0
    for _ in range(2):
        total = U = V = d_total = d_U = d_V = 0.0
        only_u = only_v = d_only_u = d_only_v = 0.0
        most = most_down = -np.inf
        for r in range(last, -1, -1):
            row = table[r]
            tilt, share, gain, single = float(row[TILT]), float(row[SHARE]), float(row[GAIN]), float(row[SINGLE])
            least, least_down = log_at(tilt, n_b, squares_b, -x_low), log_at(tilt, n_a, squares_a, y_high)
            up, down = min(log_at(tilt, n_b, squares_b, -x), least), min(log_at(tilt, n_a, squares_a, y), least_down)
            if up < NEGLIGIBLE and down < NEGLIGIBLE:  # so are all larger tilts: logs are concave in the tilt
                total += row[GAINED] * U * V
                d_total += row[GAINED] * (d_U * V + U * d_V)
                break
            most, most_down = max(most, up), max(most_down, down)
            if max(up - by, down - down_by) < LARGE:
                u, v = math.exp(up - by), math.exp(down - down_by)
                d_u = u * (min(log_at(tilt, n_b, squares_b, -x_other), least) - up)
                d_v = v * (min(log_at(tilt, n_a, squares_a, y_other), least_down) - down)
                U += share * u
                V += share * v
                d_U += share * d_u
                d_V += share * d_v
                only_u += single * u
                only_v += single * v
                d_only_u += single * d_u
                d_only_v += single * d_v
                total += gain * U * V
                d_total += gain * (d_U * V + U * d_V)
        if max(most - by, most_down - down_by) < LARGE:
            break
        by, down_by = max(most, 0.0), max(most_down, 0.0)
    other_u, other_v = math.exp(-down_by), math.exp(-by)
    total += only_u * other_u + only_v * other_v
    d_total += d_only_u * other_u + d_only_v * other_v
    if not 0.0 < total < np.inf:
        return -np.inf, 0.0
    return LOG_REST + math.log(total) + by + down_by, d_total / total


def log_at(tilt, n, squares, away):
    """The log of u or v: `away` is how far the mean is from m in the direction of the tilt, in units of the scale."""
    return tilt * n * away - 0.5 * tilt * tilt * (squares + n * away * away)


# How top-two chooses: by the estimated variances of the arms, with pulls under way counted as pulled.


def fewest(level: float) -> int:
    """The least number of rewards of an arm for which `is_lacking` is false."""
    return math.floor((level - LOG_SIGNS) / LOG_2) + 1


def is_lacking(arm, rules):
    """Whether an arm has too few rewards for the sign test, whatever they are."""
    return not LOG_SIGNS + LOG_2 * arm.pulls > rules.level


def find_highest(arms, run, rules):
    """The arm with the highest upper end; but first arms with too few rewards for any decision: the variance of three
    rewards may be so far off that an arm is not pulled again."""
    fewest = 0
    for a in range(1, len(arms)):
        if arms[a].pulls < arms[fewest].pulls:
            fewest = a
    return fewest if is_lacking(arms[fewest], rules) else find_highest_end(arms, run, rules)


def end_of(rules, arm, level):
    """The largest q with N log(1 + (q - mean)²/V)/2 <= log t, for gaussian rewards."""
    return arm.mean + math.sqrt(arm.own_variance * math.expm1(min(2.0 * level / arm.pulls, LARGE)))


def margin_of(rules, l, a):  # noqa: E741
    """About how far the leader l is from beating arm a."""
    n_l, n_a, gap = l.pulls, a.pulls, l.mean - a.mean + rules.epsilon
    if not gap > 0.0:
        return 0.0
    up, down = parts(n_l, l.own_variance, n_a, a.own_variance, gap)
    return min(up + down, LOG_2 * min(n_l, n_a))


def coin(rules, leader, challenger):
    """h_l and h_c, times the leader's cost: N d²/V divided by the cost of each arm, as for gaussian rewards."""
    if is_lacking(leader, rules):
        return 1.0, 0.0
    v_l, v_c = leader.own_variance, challenger.own_variance
    if not max(v_l, v_c) > 0.0:
        v_l = v_c = 1.0
    n_l, n_c, price = leader.pulls, challenger.pulls, leader.cost / challenger.cost
    return v_l * n_c, v_c * n_l * price


def parts_shown(rules, b, a, epsilon):
    """For `cheapest`: what each arm adds to the evidence, or more if it has too few rewards for the sign test."""
    gap = max(b.mean - a.mean + epsilon, 0.0)
    up, down = parts(b.pulls, b.own_variance, a.pulls, a.own_variance, gap)
    return max(up, 1.0 if is_lacking(b, rules) else LEAST), max(down, 1.0 if is_lacking(a, rules) else LEAST)


def interval(arm: Any, level: float) -> tuple[float, float]:
    """The means m of one arm that are not refuted: those where w 2^N [m < all rewards] + (1 - w) (a mixture of the u_i)
    and likewise that of the v_i stay below exp(level). At all times with probability at least 1 - 2 exp(-level)."""
    n, tilt = int(arm.tested), table()[:, TILT]
    logs = np.log(prior(tilt)) + math.log(1.0 - SIGNS)
    if not LOG_SIGNS + LOG_2 * float(arm.pulls) >= level:
        return -math.inf, math.inf

    def end(edge: float) -> float:
        """How far from the mean the end is; `edge` is how far the last reward is on that side, in scales."""
        squares = float(arm.squares) / float(arm.scale) ** 2
        most = log_at(tilt, n, squares, edge)
        low, high = -edge, edge  # not refuted and, perhaps, refuted
        for _ in range(60):
            middle = (low + high) / 2
            worth = logs + np.minimum(log_at(tilt, n, squares, middle), most)
            is_refuted = worth.max() + math.log(np.exp(worth - worth.max()).sum()) >= level
            low, high = (low, middle) if is_refuted else (middle, high)
        return high * float(arm.scale)

    lowest, highest = float(arm.lowest), float(arm.highest)
    if n == 0:
        return lowest, highest
    mean = float(arm.center)
    first = float(arm.first)
    sides = (mean - (lowest - first)) / float(arm.scale), ((highest - first) - mean) / float(arm.scale)
    down, up = (end(edge) if edge > 0 else edge * float(arm.scale) for edge in sides)
    return first + (mean - down), first + (mean + up)


@dataclass(frozen=True)
class Symmetric(Threshold):
    """b beats a when an e-value against "mu_b <= mu_a" reaches (K - 1)/delta, whatever the variances of the rewards.

    It is proven for every law that is symmetric about its mean, such as a gaussian, and each arm may have another one.
    The test is made like `contrast`, with stakes in units of the arm's own scale, which its first three rewards set; a
    bet that wins a lot also pays for the square of the reward, so no variance has to be known. See
    docs/theory/symmetric.md.

    >>> from cabai import Statistics
    >>> rewards = [3.1, 2.8, 3.3, 3.0, 2.9, 3.2, 3.1, 2.7, 3.0], [1.9, 2.2, 2.0, 1.8, 2.1, 2.3, 1.9, 2.0, 2.2]
    >>> Symmetric().beats(Statistics.of("gaussian(variance=unknown)", rewards), 0, 1, delta=0.05)
    True
    """

    name = "symmetric"
    proof = "Ville's inequality for a mixture of self-normalised tilts"
    proven_for = ("symmetric",)
    functions = (
        shown.required, shown.has_prices, keep, weigh, shown.beats, shown.is_worth_testing, surplus, is_shown, excess,
        may_be_shown,
    )  # fmt: skip
    within = shown.is_settled, is_shown, excess, parts_shown
    choosing = find_highest, find_challenger, end_of, margin_of, coin
    rule_fields: ClassVar[Fields] = {"tilts": np.zeros((COUNT, 5))}
    arm_fields: ClassVar[Fields] = {
        "aside": 0,  # the number of first rewards that have set the scale; 0 while it is not known
        "scale": 0.0,  # their standard deviation
        "center": 0.0,  # the mean of the later ones minus the first reward
        "squares": 0.0,  # the sum of their squares about their mean
        "lowest": 0.0,  # of all rewards
        "highest": 0.0,
    }
    arm_scratch: ClassVar[Fields] = {"own_variance": 0.0}  # an estimate, for policies; 0 while rewards are equal

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, Any]:
        if not isinstance(family, UnknownVariance):
            raise InvalidInput(
                f"threshold symmetric is for rewards of unknown variance, gaussian(variance=unknown), got {family}: "
                "leave out the threshold."
            )
        return {"level": math.log((arms - 1) / delta), "tilts": table()}

    def recall(self, arms: NDArray[Any], statistics: Statistics) -> None:
        if statistics.samples is None:
            raise InvalidInput(
                "threshold symmetric needs the rewards themselves, in their order: give them to Statistics.of."
            )
        for arm, rewards in zip(arms, statistics.samples, strict=True):
            record = Record(arm)
            for pulls, reward in enumerate(rewards, 1):
                record.pulls = pulls
                keep(record, None, reward)
