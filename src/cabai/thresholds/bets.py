"""Linear bets on rewards in [0, 1]: like `contrast`, but they adapt to the variance of the rewards.

With a stake c > 0, (1 + c y)/(1 + c m) has a mean of at most 1 if the mean reward is at most m, for any distribution on
[0, 1]; so has (1 + c (1 - y))/(1 + c (1 - m)) if the mean reward is at least m. With u_i(m) the product of the first
over the rewards of b, for the stake c_i, v_j(m) that of the second over those of a, and weights W_ij with sum 1,

    E_{b,a} = min over m in [0, 1] of  E(m),    E(m) = sum over i, j of  W_ij u_i(m) v_j(m).

b beats a when E_{b,a} reaches (K - 1)/delta. With an epsilon, v_j is taken at m + epsilon. For rewards 0 and 1 the bets
are the tilts of `contrast`, c = e^l - 1. Rewards and m separate, so each arm keeps sums of log(1 + c_i y) and of
log(1 + c_i (1 - y)). Very small stakes, which only matter after many pulls, use log(1 + x) >= x - x²/2 instead.
"""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cabai.core.state import Fields, Record
from cabai.core.statistics import Statistics
from cabai.core.within import surplus
from cabai.families import Family
from cabai.support.specialise import apart, slot
from cabai.support.validation import InvalidInput
from cabai.thresholds import bets_choosing, shown, tilts
from cabai.thresholds.base import Threshold
from cabai.thresholds.bets_choosing import parts_shown
from cabai.thresholds.bets_worth import both_worth_at_most, first_guess, reserved_variance, start
from cabai.thresholds.contrast import FAINT, LARGE, LOG_RATIO, NEGLIGIBLE, least_log_e

KEPT, COUNT = 18, 36  # number of stakes with sums kept; number of all stakes
LARGEST = 10.0  # of log(1 + c); the smallest with sums kept is 0.0012, the smallest of all is 9e-8
# columns of the table: log(1 + c), c, the q and g of `tilts`, g_0 + ... + g_i, and the two other priors
TILT, STAKE, SHARE, GAIN, GAINED, FLAT, LEANING = range(7)
PARTS = 0.3, 0.3, 0.4
LEAST_PRICE = 0.9  # nats by which the best single bet almost always exceeds the mixture
USUAL = 1.5  # log(1 + c), for rewards 0 and 1
BINARY = 0.95  # as a share of mean (1 - mean), the variance of rewards 0 and 1
Sums = namedtuple("Sums", "n kept rewards squares")  # of n rewards y: of log(1 + c y) for each stake, of y and of y²
UNIT = 1.2e-16  # relative error of one rounding, and a little more


@cache
def table() -> NDArray[np.float64]:
    """One row per stake, largest first: W_ij = 0.3 q_i q_j (g_0 + ... + g_min(i,j)) + 0.3 f_i f_j + 0.4 l_i l_j."""
    logs = tilts.grid(LARGEST, COUNT)
    shares, gains = tilts.weights(logs, USUAL, 1.0)
    flat = (logs >= 0.02).astype(np.float64)
    leaning = np.where(logs >= 0.1, logs**0.25, 0.0)
    both = [math.sqrt(part) * each / each.sum() for part, each in zip(PARTS[1:], (flat, leaning), strict=True)]
    return np.column_stack([logs, np.expm1(logs), shares, PARTS[0] * gains, PARTS[0] * np.cumsum(gains), *both])


def keep(arm, rules, reward):
    rest = 1.0 - reward
    arm.squares += reward * reward
    up, down = arm.up, arm.down
    if reward == 1.0 or reward == 0.0:  # the same as below, but faster
        sums, logs = up if reward == 1.0 else down, rules.logs
        for i in range(KEPT):
            sums[i] += logs[i]
        return
    stakes = rules.stakes
    for i in range(KEPT):
        c = stakes[i][STAKE]
        up[i] += math.log(1.0 + c * reward)
        down[i] += math.log(1.0 + c * rest)


def weigh(arm, rules):
    n, mean = arm.pulls, arm.mean
    arm.tested = n
    arm.tested_mean = mean
    arm.variance = max(arm.squares / n - mean * mean, 0.0)
    arm.reserved = reserved_variance(n, mean, arm.variance)


def sums_up(arm):
    """What bets upwards need to know of an arm's rewards."""
    return Sums(float(arm.tested), arm.up, float(arm.rewards), float(arm.squares))


def sums_down(arm):
    """The same for bets downwards: with 1 - y in place of y."""
    n, rewards = float(arm.tested), float(arm.rewards)  # Python's numbers: without a compiler, NumPy's are slow
    return Sums(n, arm.down, n - rewards, n - 2.0 * rewards + float(arm.squares))


def capital(row, i, sums):
    """A lower bound on the sum of log(1 + c_i y), including rounding errors: a sum of n numbers has n of them."""
    n = sums.n
    if i < KEPT:
        return float(sums.kept[i]) * (1.0 - UNIT * (n + 8)) - 8.0 * UNIT * n * (1.0 + row[TILT])
    c = row[STAKE]
    return c * sums.rewards - 0.5 * c * c * sums.squares - 4.0 * UNIT * c * n * (n + 8)


def is_worth_testing(rules, t, b, a):
    """As far as it can be told without logarithms, also with an epsilon."""
    if not b.tested_mean > a.tested_mean - rules.epsilon:
        return False
    most = both_worth_at_most(b, a, rules.epsilon, first_guess(b, a, rules.epsilon))
    return most > rules.level + LEAST_PRICE


def is_shown(rules, t, b, a, epsilon):
    if not b.tested_mean > a.tested_mean - epsilon:
        return False
    return test(rules, b, a, epsilon, rules.level, rules.level) > rules.level


def excess(rules, t, b, a, epsilon):
    if not b.tested_mean > a.tested_mean - epsilon:
        return -rules.level
    return max(test(rules, b, a, epsilon, -np.inf, np.inf), 0.0) - rules.level


@apart
def test(rules, b, a, epsilon, no, yes):
    """A lower bound on log E_{b,a}, if it is positive: see `least_log_e`. Most pairs are rejected without logs."""
    m, width, most = fit(rules, b, a, epsilon, no)
    if not most > no:
        return -np.inf
    return least_log_e(rules, b, a, 0, 0.0, 1.0, m, 0.0, 0.0, width, epsilon, max(no, 0.0), yes)[0]


@slot
def fit(rules, b, a, epsilon, no):
    """About where E is least, how uncertain that is, and an estimate of the most that log E can be."""
    return fit_of(b, a, epsilon, no)


def fit_of(b, a, epsilon, no):
    """The same for any two samples."""
    m, up, down, width = start(b, a, epsilon, no + LEAST_PRICE)
    worth = b.tested * up + a.tested * down
    return m, width, worth - least_price(b, a, worth)


def least_price(b, a, worth):
    """An estimate of the least by which the best single bets exceed the mixture, in nats; see
    `contrast.is_worth_a_try`.

    For rewards that are nearly all 0 or 1 and a gap that is not wide, Laplace's method is accurate: in 500,000 such
    states the constant was at least 0.8, and 0.7 is used here.
    """
    rest_b, rest_a = b.tested_mean * (1.0 - b.tested_mean), a.tested_mean * (1.0 - a.tested_mean)
    if worth > 5.0 and b.variance > BINARY * rest_b and a.variance > BINARY * rest_a:
        m = (b.tested * b.tested_mean + a.tested * a.tested_mean) / (b.tested + a.tested)
        scale = 2.0 * worth * (1.0 / b.tested + 1.0 / a.tested) / (m * (1.0 - m) * USUAL * USUAL)
        if scale < 1.0:
            unusual = 0.5 * math.log(scale)
            return 0.7 + math.log(worth * (1.0 + unusual * unusual))
    return LEAST_PRICE


def faintest(rules, n_b, n_a, m):
    """The index of the smallest stake to use, as for `contrast`. Leaving out smaller ones only lowers E."""
    few, many = min(n_b, n_a), max(n_b, n_a)
    per_faint = 0.5 * many / (math.sqrt(few) * FAINT)
    return min(int(math.log(max(LARGEST * per_faint, 1.0)) / LOG_RATIO) + 1, COUNT - 1)


def pair_log_e(rules, last, b, a, k, to_b, to_a, m, epsilon):
    """log E(m) and its slope."""
    return log_e(rules, last, sums_up(b), 0.0, sums_up(b), -np.inf, sums_down(a), m, epsilon)


@apart
def log_e(rules, last, b, log_b, c, log_c, a, m, epsilon):
    """log E(m) and its slope, of the sums of rewards of b and a. The value is slightly reduced, to allow for rounding
    errors in it and in the slope.

    Starting from the smallest stake, U and V are the running sums of q_i u_i and q_j v_j, as in `contrast.log_e`; the
    variables with F and L are the sums for the two product priors. For `champion`, u_i is e^log_b times that of b plus
    e^log_c times that of another sample c.
    """
    stakes, has_other, m = rules.stakes, log_c > -np.inf, float(m)
    below = max(1.0 - (m + epsilon), 0.0)
    by = down_by = 0.0
    for _ in range(2):
        total = U = V = F_u = F_v = L_u = L_v = 0.0
        d_up_total = d_down_total = d_U = d_V = d_F_u = d_F_v = d_L_u = d_L_v = 0.0
        high = high_down = -np.inf
        for r in range(last, -1, -1):
            row = stakes[r]
            stake = row[STAKE]
            price = math.log(1.0 + stake * m)
            up = log_b + capital(row, r, b) - b.n * price
            other = log_c + capital(row, r, c) - c.n * price if has_other else -np.inf
            most = max(up, other)
            down = capital(row, r, a) - a.n * math.log(1.0 + stake * below)
            if most < NEGLIGIBLE and down < NEGLIGIBLE:  # so are all larger stakes: logs are concave in c/(1 + c m)
                total += row[GAINED] * U * V
                d_up_total += row[GAINED] * d_U * V
                d_down_total += row[GAINED] * U * d_V
                break
            high, high_down = max(high, most), max(high_down, down)
            if NEGLIGIBLE < most - by < LARGE:
                u = math.exp(up - by)
                d_u = u * b.n * stake / (1.0 + stake * m)  # both slopes without signs
                if has_other:
                    more = math.exp(other - by)
                    u += more
                    d_u += more * c.n * stake / (1.0 + stake * m)
                U += row[SHARE] * u
                d_U += row[SHARE] * d_u
                F_u += row[FLAT] * u
                d_F_u += row[FLAT] * d_u
                L_u += row[LEANING] * u
                d_L_u += row[LEANING] * d_u
            if NEGLIGIBLE < down - down_by < LARGE:
                v = math.exp(down - down_by)
                d_v = v * a.n * stake / (1.0 + stake * below)
                V += row[SHARE] * v
                d_V += row[SHARE] * d_v
                F_v += row[FLAT] * v
                d_F_v += row[FLAT] * d_v
                L_v += row[LEANING] * v
                d_L_v += row[LEANING] * d_v
            total += row[GAIN] * U * V
            d_up_total += row[GAIN] * d_U * V
            d_down_total += row[GAIN] * U * d_V
        if max(high - by, high_down - down_by) < LARGE:
            break
        by, down_by = high, high_down
    total += F_u * F_v + L_u * L_v
    if not 0.0 < total < np.inf:
        return -np.inf, 0.0
    fall = (d_up_total + d_F_u * F_v + d_L_u * L_v) / total
    rise = (d_down_total + F_u * d_F_v + L_u * d_L_v) / total
    return math.log(total) + by + down_by - 1e-14 * (fall + rise), rise - fall


def interval(arm: Any, level: float) -> tuple[float, float]:
    """The means m of one arm that its bets do not refute: those where the mixtures of u_i(m), against "at most m", and
    of v_i(m), against "at least m", stay below exp(level). At all times with probability at least 1 - 2 exp(-level)."""
    rows, n = table()[:KEPT], float(arm.tested)
    prior = sum(rows[:, column] / (2 * rows[:, column].sum()) for column in (FLAT, LEANING))
    rows, prior = rows[prior > 0], prior[prior > 0]
    stakes = rows[:, STAKE]

    def end(of: Sums) -> float:
        """The smallest m from 0 on that bets upwards do not refute."""
        sums = np.array([capital(row, i, of) for i, row in enumerate(rows)]) + np.log(prior)
        low, high = 0.0, 1.0
        for _ in range(45):
            middle = (low + high) / 2
            logs = sums - n * np.log1p(stakes * middle)
            top = logs.max()
            is_refuted = top + math.log(np.exp(logs - top).sum()) >= level
            low, high = (middle, high) if is_refuted else (low, middle)
        return low

    return end(sums_up(arm)), 1.0 - end(sums_down(arm))


def scaled_sums(
    family: Family, pulls: NDArray[np.int64], rewards: NDArray[np.float64], squares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The sums of y and y², where y is a reward scaled to [0, 1], and the possible rounding error.

    y = (reward - low)/width, so y² has the sum (S2 - 2 low S1 + N low²)/width².
    """
    low, width = family.unscaled(0.0), family.unit
    sums = (rewards - low * pulls) / width
    second = (squares - 2.0 * low * rewards + low * low * pulls) / width**2
    largest = squares + 2.0 * np.abs(low * rewards) + low * low * pulls
    rounding = UNIT * (pulls + 8) * (largest / width**2 + (np.abs(rewards) + abs(low) * pulls) / width + pulls)
    for a, (n, first, own, off) in enumerate(zip(pulls, sums, second, rounding, strict=True)):
        if not first * first / n - 4.0 * off <= own <= first + 4.0 * off:
            raise InvalidInput(
                f"squares[{a}] = {squares[a]:g} cannot be the sum of the squares of {n} rewards whose sum is "
                f"{rewards[a]:g}."
            )
    return sums, second + rounding, rounding


def least_sums(stakes: NDArray[np.float64], first: Any, second: Any) -> NDArray[np.float64]:
    """A lower bound on the sum of log(1 + c y), for each stake c, from the sums of y and y² alone.

    g(y) = log(1 + c y) has g(0) = 0 and a positive third derivative. Among all rewards in [0, 1] whose first and second
    powers have the sums S1 and S2, the sum of g is smallest if every reward is 0 or x = S2/S1, with S1/x of them equal
    to x. (Let q be the parabola with q(0) = 0 that touches g in x. Then g - q = g'''(z) y (y - x)²/6 >= 0, and S1 and
    S2 determine the sum of q.) So the sum of g is at least S1 g(x)/x. This falls as x grows, and rises with S1 for a
    given S2. To allow for rounding, S1 is taken too small and S2 too large.
    """
    if not first > 0.0:
        return np.zeros(len(stakes))
    x = max(second / first, 1e-300)
    found: NDArray[np.float64] = first / x * np.log1p(stakes * x)
    return found


@dataclass(frozen=True)
class Bets(Threshold):
    """b beats a when an e-value against "mu_b <= mu_a", made of linear bets, reaches (K - 1)/delta.

    It is proven for every distribution of rewards in a known range, and cheap if their variance is small. The test is
    made like `contrast`, but a bet is linear in the reward: it is fair at the true mean for any distribution, and if
    rewards hardly vary, the best stake is large. See docs/theory/bets.md.

    >>> from cabai import Statistics
    >>> data = Statistics("bounded", pulls=[200, 200], rewards=[124, 116], squares=[77.06, 67.46])   # sd 0.03
    >>> Bets().beats(data, 0, 1, delta=0.05)
    True
    """

    name = "bets"
    proof = "Ville's inequality for a mixture of linear bets"
    proven_for = ("bernoulli", "bounded")
    functions: ClassVar[tuple[Any, ...]] = (
        shown.required, shown.has_prices, keep, weigh, shown.beats, is_worth_testing, surplus, is_shown, excess,
        faintest, pair_log_e,
    )  # fmt: skip
    within: ClassVar[tuple[Any, ...]] = shown.is_settled, is_shown, excess, parts_shown
    choosing = bets_choosing.functions
    rule_fields: ClassVar[Fields] = {"stakes": np.zeros((COUNT, 7)), "logs": np.zeros(KEPT)}
    arm_fields: ClassVar[Fields] = {
        "up": np.zeros(KEPT),  # sums of log(1 + c y) over an arm's rewards y, for each stake c
        "down": np.zeros(KEPT),  # sums of log(1 + c (1 - y))
        "squares": 0.0,  # the sum of y²
    }
    arm_scratch: ClassVar[Fields] = {
        "variance": 0.0,  # the variance of the rewards
        "reserved": 0.0,  # the variance with a reserve for what has not been observed
    }

    def recall(self, arms: NDArray[Any], statistics: Statistics) -> None:
        """Use the rewards themselves or, for a lower bound, the sums of rewards and of their squares."""
        family, stakes = statistics.family, table()[:KEPT, STAKE]
        if statistics.samples is not None:
            rules = SimpleNamespace(stakes=table(), logs=table()[:KEPT, TILT])
            for arm, rewards in zip(arms, statistics.samples, strict=True):
                for reward in rewards:
                    keep(Record(arm), rules, family.scaled(reward))
            return
        squares = statistics.rewards if family.whole_rewards else statistics.squares  # 0 and 1 are their own squares
        if squares is None:
            raise InvalidInput(
                "threshold bets needs more than the sums of rewards: also give the sums of their squares, "
                "squares=[...], or give the rewards themselves to Statistics.of."
            )
        first, second, off = scaled_sums(family, statistics.pulls, statistics.rewards, squares)
        arms["squares"] = second
        for arm, n, own, most, less in zip(arms, statistics.pulls, first, second, off, strict=True):
            arm["up"] = least_sums(stakes, own - less, most)
            arm["down"] = least_sums(stakes, n - own - less, n - 2.0 * own + most + 2.0 * less)

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, Any]:
        if family.key not in self.proven_for:
            raise InvalidInput(
                f"threshold bets needs rewards in a known range (family bounded or bernoulli), got {family}; "
                "leave out the threshold, or use evalue."
            )
        return {"level": math.log((arms - 1) / delta), "stakes": table(), "logs": table()[:KEPT, TILT]}
