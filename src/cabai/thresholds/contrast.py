"""The contrast test: like `evalue`, but it pays for the contrast of two arms instead of for both arms.

For a tilt l, L_l(y; m) = e^(l y) / (mean of e^(l y) if the mean reward is m). With upward tilts l_i on the rewards
of b, downward tilts -l_j on those of a, and weights W_ij with sum 1,

    E_{b,a} = min over m of  E(m),    E(m) = sum over i, j of  W_ij u_i(m) v_j(m),

where u_i(m) is the product of L_{l_i}(y; m) over the rewards y of b, and v_j(m) that of L_{-l_j}(y; m) over those of a.
b beats a when E_{b,a} reaches (K - 1)/delta. With an epsilon, v_j is taken at m + epsilon. The proof is in
docs/theory/contrast.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.core.evidence import evidence, evidence_at_most
from cabai.core.state import Fields
from cabai.core.within import meeting_point_at, parts_at
from cabai.families import Family
from cabai.families.slots import edges, straightened, tilted, variance_at
from cabai.support.specialise import apart, slot
from cabai.thresholds import shown, tilts
from cabai.thresholds.base import ALL_FAMILIES, Threshold
from cabai.thresholds.shown import may_be_shown as may_be_shown_slot
from cabai.thresholds.tilts import (
    COUNT,
    GAIN,
    GAINED,
    HIGH,
    LARGEST,
    LOG_LEAST,
    LOW,
    PRICE_DOWN,
    PRICE_UP,
    RANGES,
    RATE_DOWN,
    RATE_UP,
    RATIO,
    SHARE,
    TILT,
    USUAL,
)

LOG_RATIO = math.log(RATIO)
SMALL = 16  # index of the tilt 0.001: small, but not so small that rounding loses its square
LEAST_PRICE = 1.5  # Z - log E is almost never less, see `is_worth_a_try`
NEGLIGIBLE = -40.0  # for a log
LARGE = 300.0  # for a log: the product of two such numbers does not overflow
FAINT = 0.02  # as a share of the tilt that fits one standard deviation: smaller tilts contribute nothing


def beats(rules, t, b, a):
    return may_beat(rules, b, a) and log_of_pair(rules, b, a, rules.level, rules.level) > rules.level


def is_worth_testing(rules, t, b, a):
    return may_beat(rules, b, a)


@slot
def may_beat(rules, b, a):
    """Whether `beats` may be true. log E <= Z, so most pairs are rejected by a bound on Z, without logarithms."""
    if not evidence_at_most(rules, b, a) > rules.level + LEAST_PRICE:
        return False
    return is_worth_a_try(rules, rules.level, evidence(rules, b, a), b.tested, b.tested_mean, a.tested, a.tested_mean)


def surplus(rules, t, b, a):
    if not b.tested_mean > a.tested_mean:
        return -rules.level
    return max(log_of_pair(rules, b, a, 0.0, np.inf), 0.0) - rules.level


def is_worth_a_try(rules, level, z, n_b, mean_b, n_a, mean_a):
    """Whether log E may be above the level, estimated from Z; if not, b has to wait for another pull.

    Laplace's method estimates Z - log E as about log Z plus the log of how unusual the tilts are that fit the data; s
    is the sum of these two tilts. In 23 of 1.3 million random states the difference was smaller than the one used here,
    by at most 0.06 nats.
    """
    if not z > level + LEAST_PRICE:
        return False
    n = n_b + n_a
    m = (n_b * mean_b + n_a * mean_a) / n
    s = math.sqrt(2.0 * z * n / (tilt_variance(rules, m) * n_b * n_a))  # as if V were constant
    usual = rules.ranges[range_of(rules, m)][USUAL]
    unusual = math.log(min(s, 4.0) / usual) / rules.tilt_width
    least = max(0.3 - 0.7 * max(unusual, 0.0), -0.6) - 0.04 * max(z - 12.0, 0.0)
    return z > level + least + math.log(z * rules.tilt_width * (1.0 + unusual * unusual))


def tilt_variance(rules, m):
    """V in units of the tilt: for a small tilt l, the log for a reward equal to its mean m is -V l²/2."""
    row = rules.tilts[SMALL]
    log, _ = tilted(rules, row[TILT], row[RATE_UP], row[PRICE_UP], 1.0, 0.0, m)
    return max(-2.0 * log, 1e-300) / (row[TILT] * row[TILT])


@slot
def log_of_pair(rules, b, a, no, yes):
    """log E_{b,a} without an epsilon, starting from the pooled mean; `champion` has another sum and start."""
    gap = b.tested_mean - a.tested_mean
    n = b.tested + a.tested
    m = (b.tested * b.tested_mean + a.tested * a.tested_mean) / n
    return least_of_all_ranges(rules, b, a, m, gap * (a.tested / n), gap, 0.0, no, yes)


def is_shown(rules, t, b, a, epsilon):
    if not may_be_shown_slot(rules, b, a, epsilon):
        return False
    return log_e_within(rules, b, a, epsilon, rules.level, rules.level) > rules.level


def may_be_shown(rules, b, a, epsilon):
    """The same for any epsilon as `may_beat`; `hedged` replaces it."""
    part_b, part_a = parts_at(rules, b.tested, b.tested_mean, a.tested, a.tested_mean, epsilon)
    return is_worth_a_try(rules, rules.level, part_b + part_a, b.tested, b.tested_mean, a.tested, a.tested_mean)


def excess(rules, t, b, a, epsilon):
    if not b.tested_mean > a.tested_mean - epsilon:
        return -rules.level
    return max(log_e_within(rules, b, a, epsilon, 0.0, np.inf), 0.0) - rules.level


def log_e_within(rules, b, a, epsilon, no, yes):
    """log E_{b,a} with an epsilon, starting from the best fit."""
    m = meeting_point_at(rules, b.tested, b.tested_mean, a.tested, a.tested_mean, epsilon)
    gap = b.tested_mean - a.tested_mean + epsilon
    return least_of_all_ranges(rules, b, a, m, b.tested_mean - m, gap, epsilon, no, yes)


def first_step(rules, b, a, m):
    """Roughly the standard deviation of the pooled mean: how far from m the minimum of E may be."""
    return math.sqrt(variance_at(rules, m, 1.0 - m) / (b.tested + a.tested))


def range_of(rules, m):
    """The index of the range of means that contains m."""
    k = 0
    while k + 1 < rules.range_count and m >= rules.ranges[k][HIGH]:
        k += 1
    return k


def least_of_all_ranges(rules, b, a, m, to_b, gap, epsilon, no, yes):
    """`least_log_e` over all means: over the range of m, and over ranges on either side that may have a smaller value.

    All weights of another range are at least e^LOG_LEAST times those of this one, and so is E. If E of this range rises
    beyond its end, and e^LOG_LEAST times its value there is not below the minimum found, no range on that side has a
    smaller value.
    """
    k = range_of(rules, m)
    row, step = rules.ranges[k], first_step(rules, b, a, m)
    least, left, right = least_log_e(rules, b, a, k, row[LOW], row[HIGH], m, to_b, gap, step, epsilon, no, yes)
    if rules.range_count == 1:
        return least
    for side in (-1, 1):
        i = k
        at_end = left if side < 0 else right
        while 0 <= i + side < rules.range_count and least > no and not at_end + rules.ranges[i][LOG_LEAST] > least:
            end = rules.ranges[i][LOW] if side < 0 else rules.ranges[i][HIGH]
            i += side
            row, step, to_end = rules.ranges[i], first_step(rules, b, a, end), b.tested_mean - end
            own, left, right = least_log_e(
                rules, b, a, i, row[LOW], row[HIGH], end, to_end, gap, step, epsilon, no, yes
            )
            at_end = left if side < 0 else right
            least = min(least, own)
    return least


@apart
def least_log_e(rules, b, a, k, low, high, m, to_b, gap, step, epsilon, no, yes):
    """A lower bound on log E_{b,a} over the means from low to high, with the weights of range k; usually tight. It is
    -inf as soon as log E is known not to be above `no`, and less tight as soon as log E is known to be above `yes`.
    Also returns lower bounds on log E at and below low, and at and above high (-inf: unknown).

    m is where to start, step is the first step, to_b = mean_b - m and gap = mean_b - mean_a + epsilon. log E(m) is
    convex in m, or in the coordinate `straightened`. So it is nowhere below its tangents: the point where two tangents
    from either side of the minimum meet is a lower bound, and so is a tangent's value at the edge of the family.
    """
    n_b, n_a = sizes(b, a)
    last = faintest(rules, n_b, n_a, m)
    least, most = edges(rules)  # limits for m + epsilon too
    shift_low, shift_high = max(low, least - epsilon) - m, min(high, most - epsilon) - m  # a bracket, from m
    # Coordinate, log E and its slope at both ends of the bracket, once known.
    x_low = f_low = s_low = x_high = f_high = s_high = 0.0
    has_low = has_high = was_high = False
    shift, best = 0.0, np.inf
    rounding = 1e-12 + 1e-15 * (n_b + n_a)
    for _ in range(100):
        value, slope = pair_log_e(rules, last, b, a, k, to_b - shift, to_b - gap - shift, m + shift, epsilon)
        if not value > no or not abs(slope) < np.inf:
            return -np.inf, -np.inf, -np.inf
        if slope == 0.0:
            return value - rounding - 1e-14 * abs(value), -np.inf, -np.inf
        x, stretch = straightened(rules, m, shift)
        slope /= stretch
        best = min(best, value)
        changes_side, was_high = was_high != (slope > 0.0), slope > 0.0
        if slope < 0.0:
            has_low, shift_low, x_low, f_low, s_low = True, shift, x, value, slope
        else:
            has_high, shift_high, x_high, f_high, s_high = True, shift, x, value, slope
        if has_low and has_high:
            meeting = (f_low - f_high + s_high * (x_high - x_low)) / (s_high - s_low)
            bound = f_low + s_low * meeting
            if changes_side:  # where a parabola is least; else where the tangents meet, which is half way for one
                part = -s_low / (s_high - s_low)
            else:
                part = meeting / (x_high - x_low)
            part = min(max(part, 0.01), 0.99)
            shift = shift_low + part * (shift_high - shift_low)
        elif has_low:
            end, _ = straightened(rules, m, shift_high)
            bound = f_low + s_low * (end - x_low)
            shift = shift_low + step if shift_low + step < shift_high else 0.5 * (shift_low + shift_high)
        else:
            end, _ = straightened(rules, m, shift_low)
            bound = f_high + s_high * (end - x_high)
            shift = shift_high - step if shift_high - step > shift_low else 0.5 * (shift_low + shift_high)
        step *= 3.0
        bound -= rounding + 1e-14 * abs(best)
        if bound > yes or best - bound <= 1e-9 * (1.0 + abs(best)) or not shift_low < shift < shift_high:
            break
    left = right = -np.inf
    if has_low:
        end, _ = straightened(rules, m, low - m)
        left = f_low + s_low * (end - x_low) - rounding - 1e-14 * abs(f_low)
    if has_high:
        end, _ = straightened(rules, m, high - m)
        right = f_high + s_high * (end - x_high) - rounding - 1e-14 * abs(f_high)
    return bound, left, right


@slot
def sizes(b, a):
    """The numbers of rewards with upward and with downward tilts."""
    return b.tested, a.tested


@slot
def faintest(rules, n_b, n_a, m):
    """The index of the smallest tilt to use. Leaving out smaller ones only lowers E.

    The two tilts that fit the data are proportional to the other arm's pulls: about 1/sqrt(N V) for the arm with fewer
    pulls, and smaller for the other arm, by the ratio of their pulls.
    """
    few, many = min(n_b, n_a), max(n_b, n_a)
    per_faint = math.sqrt(tilt_variance(rules, m) / few) * many / FAINT
    return min(int(math.log(max(LARGEST * per_faint, 1.0)) / LOG_RATIO) + 1, COUNT - 1)


@slot
def pair_log_e(rules, last, b, a, k, to_b, to_a, m, epsilon):
    """log E(m) and its slope, from the records of two arms; `bets`, `champion` and `hedged` replace it."""
    return log_e(rules, last, k, b.tested, to_b, a.tested, to_a, m, epsilon, 1.0, 0, 0.0, 0.0)


@apart
def log_e(rules, last, k, n_b, to_b, n_a, to_a, m, epsilon, part_b, n_c, to_c, part_c):
    """log E(m) and its slope with the weights of range k, for to_b = mean_b - m and to_a = mean_a - (m + epsilon).

    Starting from the smallest tilt, U and V are the running sums of q_i u_i and q_j v_j: E = sum over r of g_r U_r V_r.
    `by` and `down_by` are subtracted from logs that are too large. For `champion`, u_i is part_b times that of b plus
    part_c times that of another sample c.
    """
    rows, gains = rules.tilts, rules.gains[k]
    n_b, to_b, n_a, to_a = float(n_b), float(to_b), float(n_a), float(to_a)  # without a compiler, NumPy's are slow
    n_c, to_c, m = float(n_c), float(to_c), float(m)
    by = down_by = 0.0
    for _ in range(2):
        total = U = V = d_total = d_U = d_V = 0.0
        high = high_down = -np.inf
        for r in range(last, -1, -1):
            row = rows[r]
            tilt, rate, price, share = float(row[TILT]), float(row[RATE_UP]), float(row[PRICE_UP]), float(row[SHARE])
            rate_down, price_down = float(row[RATE_DOWN]), float(row[PRICE_DOWN])
            up, d_up = tilted(rules, tilt, rate, price, n_b, to_b, m)
            down, d_down = tilted(rules, -tilt, rate_down, price_down, n_a, to_a, m + epsilon)
            other, d_other = -np.inf, 0.0
            if n_c > 0:
                other, d_other = tilted(rules, tilt, rate, price, n_c, to_c, m)
            most = max(up, other)
            if most < NEGLIGIBLE and down < NEGLIGIBLE:  # so are all larger tilts: logs are concave in the tilt
                total += gains[r][GAINED] * U * V
                d_total += gains[r][GAINED] * (d_U * V + U * d_V)
                break
            high, high_down = max(high, most), max(high_down, down)
            if max(most - by, down - down_by) < LARGE:
                u, v = share * part_b * math.exp(up - by), share * math.exp(down - down_by)
                U += u
                V += v
                d_U += u * d_up
                d_V += v * d_down
                if n_c > 0:
                    u = share * part_c * math.exp(other - by)
                    U += u
                    d_U += u * d_other
                total += gains[r][GAIN] * U * V
                d_total += gains[r][GAIN] * (d_U * V + U * d_V)
        if max(high - by, high_down - down_by) < LARGE:
            break
        by, down_by = high, high_down
    if not 0.0 < total < np.inf:
        return -np.inf, 0.0
    return math.log(total) + by + down_by, d_total / total


@dataclass(frozen=True)
class Contrast(Threshold):
    """b beats a when an e-value against "mu_b <= mu_a", made of their contrast, reaches (K - 1)/delta.

    It is proven for all families, and cheaper than `evalue`: the price for not knowing the means grows like log log N,
    not like log(N)/2 per arm. The test bets that each reward of b is above a mean m and each reward of a below it, with
    many stakes at once. The e-value is the smallest total worth of the bets, over all m. See docs/theory/contrast.md.

    >>> from cabai import Statistics
    >>> data = Statistics("gaussian", pulls=[40, 40], rewards=[60, 20])
    >>> Contrast().beats(data, 0, 1, delta=0.01), Contrast().beats(data, 0, 1, delta=0.0001)
    (True, False)
    """

    name = "contrast"
    proof = "Ville's inequality for a mixture of tilts"
    proven_for: ClassVar[tuple[str, ...]] = ALL_FAMILIES
    functions: ClassVar[tuple[Any, ...]] = (
        shown.required, shown.has_prices, beats, is_worth_testing, surplus, may_be_shown,
    )  # fmt: skip
    within: ClassVar[tuple[Any, ...]] = shown.is_settled, shown.is_worth_testing, is_shown, excess
    rule_fields: ClassVar[Fields] = {
        "tilts": np.zeros((COUNT, 6)),
        "tilt_width": 0.0,
        "range_count": 0,
        "ranges": np.zeros((RANGES, 4)),
        "gains": np.zeros((RANGES, COUNT, 2)),
    }

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, Any]:
        ranges, gains = tilts.ranges(family)
        return {
            "level": math.log((arms - 1) / delta),
            "tilts": tilts.table(family),
            "tilt_width": family.usual_tilts[1],
            "range_count": len(family.tilt_ranges),
            "ranges": ranges,
            "gains": gains,
        }
