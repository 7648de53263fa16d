"""Two gaussian arms: like `contrast`, but most bets are hedged, so that they hardly depend on the common mean m.

A pull has a stake v, known before it: v >= 0 for a reward of b, v <= 0 for one of a. With weights w_s of scales s,

    H(m) = sum over s of  w_s exp(s sum v (y - m) - s² (sum v²)/2),    y and m in standard deviations.

Every arm x keeps one sequence of stakes: v >= 0 for its own rewards, v <= 0 for those of the other arm y, and a sum
C >= 0. With N_x, N_y the pulls including this one, I = N_x N_y/(N_x + N_y) and c = C/(4 + I),

    v = (N_y + 1)/(N_x + N_y + 1) (5/4 - c)  if of x,    v = -min(C, (N_x + 1)/(N_x + N_y + 1) (3/4 + c))  if of y.

The sequence of b bets for b; that of a, with all signs reversed, bets for b too. b beats a when 1/delta is reached by

    E_{b,a} = min over m of  0.2 E(m) of `contrast` + 0.4 H_b(m) + 0.4 H_a(m) reversed.

With an epsilon, the rewards of a are compared with m + epsilon. The proof is in docs/theory/hedged.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.core.evidence import pair_evidence
from cabai.core.state import Fields
from cabai.core.within import meeting_point_at
from cabai.families import Family
from cabai.support.validation import InvalidInput
from cabai.thresholds.base import InOrder
from cabai.thresholds.contrast import LARGE, LEAST_PRICE, NEGLIGIBLE, Contrast, is_worth_a_try, log_e
from cabai.thresholds.tilts import PRICE, RATE, SCALES, WEIGHT, scales

CONTRAST = 0.2  # the share of `contrast`, an insurance against pulls in an unusual order
LEAN = 0.25  # how much more is staked for an arm than against the other one, while C is small
STIFFNESS = 4.0  # the smaller, the closer C is kept to 0
# The sums of a sequence: v over rewards of x, -v over those of y, v y over both, and v² over both.
FOR, AGAINST, STAKED, SQUARES = range(4)


def credit(arms, run, rules, x, pulls, reward):
    """Stake this reward of arm x in the sequences of both arms. Sums of gaussian rewards are not told: `pulls` is 1."""
    if rules.log_contrast == 0.0:
        return
    own, other = arms[x], arms[1 - x]
    stake(own.stakes, other.stakes, float(own.pulls) + 1.0, float(other.pulls), reward)


def stake(own, other, n_x, n_y, reward):
    """Stake a reward of x in the sequence of x, `own`, and in that of y. Of n_x and n_y pulls this is one."""
    lead, left = float(own[FOR]) - float(own[AGAINST]), max(float(other[FOR]) - float(other[AGAINST]), 0.0)
    fit, stiffness = (n_y + 1.0) / (n_x + n_y + 1.0), STIFFNESS + n_x * n_y / (n_x + n_y)
    v = max(fit * (1.0 + LEAN - lead / stiffness), 0.0)
    own[FOR] += v
    own[STAKED] += v * reward
    own[SQUARES] += v * v
    v = min(left, fit * (1.0 - LEAN + left / stiffness))
    other[AGAINST] += v
    other[STAKED] -= v * reward
    other[SQUARES] += v * v


def worth(stakes, m, other):
    """The sum of v (y - m) in the sequence of an arm; rewards of the other arm are compared with `other`."""
    return float(stakes[STAKED]) - float(stakes[FOR]) * m + float(stakes[AGAINST]) * other


def log_h(rules, value, squares):
    """log H of a sequence with this worth and sum of v², and its slope in the worth."""
    rows, value, squares, by = rules.scales, float(value), float(squares), 0.0
    for _ in range(2):
        most, total, slope = -np.inf, 0.0, 0.0
        for i in range(SCALES - 1, -1, -1):
            row = rows[i]
            rate = float(row[RATE])
            log = rate * value - float(row[PRICE]) * squares
            if log < NEGLIGIBLE:  # so is that of all larger scales
                break
            most = max(most, log)
            if log - by < LARGE:
                e = float(row[WEIGHT]) * math.exp(log - by)
                total += e
                slope += e * rate
        if most - by < LARGE:
            break
        by = most
    return by + math.log(total), slope / total


def pair_log_e(rules, last, b, a, k, to_b, to_a, m, epsilon):
    """The log of the sum at m, and its slope."""
    log, slope = log_e(rules, last, k, b.tested, to_b, a.tested, to_a, m, epsilon, 1.0, 0, 0.0, 0.0)
    if rules.log_contrast == 0.0:
        return log, slope
    return with_stakes(rules, log + rules.log_contrast, slope, b.stakes, a.stakes, m, epsilon)


def with_stakes(rules, log, slope, stakes_b, stakes_a, m, epsilon):
    """The log of a sum at m, and its slope, after H_b and H_a are added to it."""
    up, d_up = log_h(rules, worth(stakes_b, m, m + epsilon), stakes_b[SQUARES])
    down, d_down = log_h(rules, -worth(stakes_a, m + epsilon, m), stakes_a[SQUARES])
    most = max(log, up, down)
    e, e_up, e_down = math.exp(log - most), math.exp(up - most), math.exp(down - most)
    d_up, d_down = d_up * (stakes_b[AGAINST] - stakes_b[FOR]), d_down * (stakes_a[FOR] - stakes_a[AGAINST])
    return most + math.log(e + e_up + e_down), (e * slope + e_up * d_up + e_down * d_down) / (e + e_up + e_down)


def may_be_shown(rules, b, a, epsilon):
    if not b.tested_mean > a.tested_mean - epsilon:
        return False
    m = meeting_point_at(rules, b.tested, b.tested_mean, a.tested, a.tested_mean, epsilon)
    if are_worth_a_try(rules, LEAST_PRICE, b.stakes, a.stakes, m, epsilon):
        return True
    z = pair_evidence(rules, b.tested, b.tested_mean, a.tested, a.tested_mean - epsilon)
    least = rules.level - rules.log_contrast
    return is_worth_a_try(rules, least, z, b.tested, b.tested_mean, a.tested, a.tested_mean)


def are_worth_a_try(rules, price, stakes_b, stakes_a, m, epsilon):
    """Whether stakes alone may be worth enough at m: log H is less than (sum v (y - m))²/(2 sum v²), by this price."""
    least = 2.0 * rules.variance * (rules.level + price)
    up, down = max(worth(stakes_b, m, m + epsilon), 0.0), max(-worth(stakes_a, m + epsilon, m), 0.0)
    return up * up > least * float(stakes_b[SQUARES]) or down * down > least * float(stakes_a[SQUARES])


def may_beat(rules, b, a):
    return may_be_shown(rules, b, a, 0.0)


def staked_equally(x: Any, y: Any) -> tuple[float, float, float, float]:
    """The sequence of x if x and y had been pulled in turn."""
    c = LEAN * 2 / 3  # then C = c n/2 grows as fast as the stakes say: by (LEAN - c) with every pull of both
    up, down = (1 + LEAN - c) / 2, (1 - LEAN + c) / 2
    own, other = x.pulls * up, y.pulls * down
    return own, other, own * x.mean - other * y.mean, own * up + other * down


@dataclass(frozen=True)
class Hedged(InOrder, Contrast):
    """`contrast` for two gaussian arms of known variance, with stakes that follow the pulls; it costs less.

    The test bets that rewards of b are above a mean m and rewards of a below it. Stakes on the two arms are kept in
    balance, so that m, which nobody knows, hardly matters. With more arms it is `contrast`. See docs/theory/hedged.md.

    >>> import cabai
    >>> two = cabai.Instance("gaussian", [0.5, 0], [1, 1])
    >>> runs = [cabai.simulate(two, threshold=each, trajectories=1000) for each in ("contrast", "hedged")]
    >>> [round(each.summary().mean_cost) for each in runs]
    [159, 140]
    """

    name = "hedged"
    proof = "Ville's inequality for a mixture of tilts that follow the pulls"
    proven_for = ("gaussian",)
    functions = (*Contrast.functions, credit, may_beat, may_be_shown, pair_log_e)
    rule_fields: ClassVar[Fields] = {**Contrast.rule_fields, "log_contrast": 0.0, "scales": np.zeros((SCALES, 3))}
    arm_fields: ClassVar[Fields] = {"stakes": np.zeros(4)}  # the sums of its sequence

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, Any]:
        if family.key not in self.proven_for:
            raise InvalidInput(f"threshold hedged needs gaussian rewards of known variance, got {family}: omit it.")
        share = CONTRAST if arms == 2 and not self.is_pair_test else 1.0
        more = {"log_contrast": math.log(share), "scales": scales(family, (1 - share) / 2)}
        return super().parameters(family, arms, delta) | more

    def pull_equally(self, b: Any, a: Any, arms: int) -> float:
        b.stakes[:], a.stakes[:] = staked_equally(b, a), staked_equally(a, b)
        return 0.0
