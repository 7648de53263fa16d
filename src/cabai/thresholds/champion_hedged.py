"""`champion` for gaussian rewards of known variance: with three and four arms, part of it is hedged, as in `hedged`.

For every arm a, the counted rewards of its rivals and all rewards of a are staked like those of the two arms there, in
one sequence that bets for the rivals and one that bets for a. With H_c and H_a of these sequences, and a share r,

    F_a = min over m of  sum over i, j of  W_ij (p (1 - r) u_i(m) + q u'_i(m)) v_j(m) + p r (H_c(m) + H_a(m))/2,

the second with its signs reversed.

The proof is in docs/theory/champion.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.core.state import Fields
from cabai.families import Family
from cabai.thresholds.champion import FORMS, Champion, log_f
from cabai.thresholds.champion import is_worth_testing as is_worth_testing_unhedged
from cabai.thresholds.champion import pair_log_e as unhedged_log_e
from cabai.thresholds.contrast import Contrast
from cabai.thresholds.hedged import are_worth_a_try, stake, staked_equally, with_stakes
from cabai.thresholds.rivals import credit
from cabai.thresholds.tilts import SCALES, scales

SHARE, MOST_ARMS = 0.3, 4  # r, and how many arms it pays for: with more, it gains nothing


def credit_hedged(arms, run, rules, b, pulls, reward):
    """As in `champion`, and stake the reward for b itself. Sums of gaussian rewards are not told: `pulls` is 1."""
    credit(arms, run, rules, b, pulls, reward)
    if rules.hedged > 0.0:
        own = arms[b]
        stake(own.stakes, own.rival_stakes, float(own.pulls) + 1.0, float(own.rivals), reward)


def count_for(rules, arm, b, pulls, reward):
    arm.rivals += pulls
    arm.rival_rewards += reward
    if rules.hedged > 0.0:
        stake(arm.rival_stakes, arm.stakes, float(arm.rivals), float(arm.pulls), reward)


def is_worth_testing(rules, t, b, a):
    if is_worth_testing_unhedged(rules, t, b, a):
        return True
    if rules.hedged == 0.0 or not b.tested_mean > a.tested_mean:
        return False
    m = (b.tested * b.tested_mean + a.tested * a.tested_mean) / (b.tested + a.tested)
    return are_worth_a_try(rules, a.rival_stakes, a.stakes, m, 0.0)


def beats(rules, t, b, a):
    return is_worth_testing(rules, t, b, a) and log_f(rules, b, a, rules.level, rules.level) > rules.level


def pair_log_e(rules, last, b, a, k, to_b, to_a, m, epsilon):
    """The log of the sum at m, and its slope; with an epsilon, of its second part alone."""
    log, slope = unhedged_log_e(rules, last, b, a, k, to_b, to_a, m, epsilon)
    if rules.hedged == 0.0 or epsilon != 0.0:
        return log, slope
    return with_stakes(rules, log, slope, a.rival_stakes, a.stakes, m, 0.0)


@dataclass(frozen=True)
class ChampionHedged(Champion):
    """`champion` for gaussian rewards of known variance.

    >>> from cabai.families import family_of
    >>> Champion().for_family(family_of("gaussian"))
    ChampionHedged()
    """

    functions = (
        *Champion.functions, ("credit", credit_hedged), count_for, is_worth_testing, beats, pair_log_e,
    )  # fmt: skip
    rule_fields: ClassVar[Fields] = {**Champion.rule_fields, "hedged": 0.0, "scales": np.zeros((SCALES, 3))}
    arm_fields: ClassVar[Fields] = {
        **Champion.arm_fields,
        "stakes": np.zeros(4),  # the sums of the sequence that bets for it
        "rival_stakes": np.zeros(4),  # and of that for its rivals
    }

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, Any]:
        found = super().parameters(family, arms, delta)
        if self.is_pair_test or not 2 < arms <= MOST_ARMS:
            return found
        p = math.exp(found["log_counted"])
        more = {"log_counted": math.log(p * (1 - SHARE)), "hedged": SHARE, "scales": scales(family, p * SHARE / 2)}
        return found | more

    def pull_equally(self, b: Any, a: Any, arms: int) -> float:
        a.rival_stakes[:], a.stakes[:] = staked_equally(b, a), staked_equally(a, b)
        return super().pull_equally(b, a, arms)

    @property
    def of_pairs(self) -> Contrast:
        return ChampionHedgedOfPairs()


@dataclass(frozen=True)
class ChampionHedgedOfPairs(ChampionHedged):
    """`contrast`, on the records of `champion`: for statements about pairs of arms."""

    is_pair_test = True


FORMS["gaussian"] = ChampionHedged(), ChampionHedgedOfPairs()
