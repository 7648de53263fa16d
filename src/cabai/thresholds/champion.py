"""One e-value per arm instead of one per pair: no union bound over rivals. Like `contrast`, with its tilts and weights.

For every arm a, some pulls of other arms are *counted*: those of the arm with the best mean of all arms but a, once it
is clearly ahead of the next. What counts is decided before the pull. With u_i over the counted rewards and u'_i over
the rewards of the arm L that is to beat a, and v_j over all rewards of a, as in `contrast`,

    F_a = min over m of  sum over i, j of  W_ij (p u_i(m) + q u'_i(m)) v_j(m),    p = 1 - 1/(2K),   q = (1 - p)/(K - 1).

L beats a when F_a reaches 1/delta. F_a says only that a is not a best arm. With an epsilon, L is settled over a if it
beats a, or if q E_{L,a} of `contrast` with this epsilon reaches 1/delta. The proof is in docs/theory/champion.md.

For three and four gaussian arms, part of it is hedged: the counted rewards of the rivals of a and all rewards of a are
staked like those of the two arms of `hedged`, in one sequence that bets for the rivals and one that bets for a. With
H_c and H_a of these sequences, the second with its signs reversed, and a share r, p u_i in the sum becomes
p (1 - r) u_i, and p r (H_c(m) + H_a(m))/2 is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.core.evidence import evidence, evidence_at_most, pair_evidence
from cabai.core.state import Fields
from cabai.families import Family
from cabai.thresholds.base import Threshold
from cabai.thresholds.champion_bets import ChampionBets
from cabai.thresholds.contrast import (
    LEAST_PRICE,
    Contrast,
    excess,
    is_shown,
    is_worth_a_try,
    least_of_all_ranges,
    log_e,
    may_be_shown,
    surplus,
)
from cabai.thresholds.hedged import are_worth_a_try, stake, staked_equally, with_stakes
from cabai.thresholds.rivals import OneTestPerArm, credit, sizes
from cabai.thresholds.tilts import SCALES, scales

SHARE, MOST_ARMS = 0.3, 4  # r, and how many arms it pays for: with more, it gains nothing
LEAST_PRICE_OF_STAKES = 2.0  # nats by which the best stakes alone almost always exceed the sum: their share is small


def may_beat(rules, b, a):
    """As for `contrast`, of the counted rewards or of those of b."""
    n_b, mean_b = float(b.tested), float(b.tested_mean)  # Python's numbers: without a compiler, NumPy's are slow
    n_a, mean_a, n = float(a.tested), float(a.tested_mean), float(a.rivals)
    if not mean_b > mean_a:
        return False
    if n > 0.0:
        mean, level = float(a.rival_rewards) / n, rules.level - rules.log_counted
        if mean > mean_a:
            z = pair_evidence(rules, n, mean, n_a, mean_a)
            if is_worth_a_try(rules, level, z, n, mean, n_a, mean_a):
                return True
    level = rules.level - rules.log_leader
    if not evidence_at_most(rules, b, a) > level + LEAST_PRICE:
        return False
    z = pair_evidence(rules, n_b, mean_b, n_a, mean_a)
    return is_worth_a_try(rules, level, z, n_b, mean_b, n_a, mean_a)


def is_settled_within(rules, t, b, a):
    if may_beat(rules, b, a) and log_f(rules, b, a, rules.level, rules.level) > rules.level:
        return True
    return is_shown(rules, t, b, a, rules.epsilon)


def is_worth_testing_within(rules, t, b, a):
    return may_beat(rules, b, a) or may_be_shown(rules, b, a, rules.epsilon)


def surplus_within(rules, t, b, a):
    return max(surplus(rules, t, b, a), excess(rules, t, b, a, rules.epsilon))


def log_f(rules, b, a, no, yes):
    """A lower bound on log F_a, starting from the mean at which its larger part is about least."""
    n, mean, n_a, mean_a = b.tested, b.tested_mean, a.tested, a.tested_mean
    if a.rivals > 0:
        counted = a.rival_rewards / a.rivals
        z = pair_evidence(rules, a.rivals, counted, n_a, mean_a) + rules.log_counted
        if counted > mean_a and z > evidence(rules, b, a) + rules.log_leader:
            n, mean = a.rivals, counted
    m = (n * mean + n_a * mean_a) / (n + n_a)
    return least_of_all_ranges(rules, b, a, m, b.tested_mean - m, b.tested_mean - mean_a, 0.0, no, yes)


def pair_log_e(rules, last, b, a, k, to_b, to_a, m, epsilon):
    """The log of the sum at m, and its slope; with an epsilon, of its second part alone."""
    p, q, n, to_counted = math.exp(rules.log_counted), math.exp(rules.log_leader), 0, 0.0
    if p > 0.0 and epsilon == 0.0 and a.rivals > 0:
        n, to_counted = a.rivals, to_b + (a.rival_rewards / a.rivals - b.tested_mean)
    return log_e(rules, last, k, b.tested, to_b, a.tested, to_a, m, epsilon, q, n, to_counted, p)


# With stakes, for gaussian rewards of known variance.


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


def may_beat_hedged(rules, b, a):
    if may_beat(rules, b, a):
        return True
    n_b, mean_b, n_a, mean_a = float(b.tested), float(b.tested_mean), float(a.tested), float(a.tested_mean)
    if rules.hedged == 0.0 or not mean_b > mean_a:
        return False
    m = (n_b * mean_b + n_a * mean_a) / (n_b + n_a)
    return are_worth_a_try(rules, LEAST_PRICE_OF_STAKES, a.rival_stakes, a.stakes, m, 0.0)


def hedged_log_e(rules, last, b, a, k, to_b, to_a, m, epsilon):
    """The log of the sum at m, and its slope; with an epsilon, of its second part alone."""
    log, slope = pair_log_e(rules, last, b, a, k, to_b, to_a, m, epsilon)
    if rules.hedged == 0.0 or epsilon != 0.0:
        return log, slope
    return with_stakes(rules, log, slope, a.rival_stakes, a.stakes, m, 0.0)


@dataclass(frozen=True)
class Champion(OneTestPerArm, Contrast):
    """An arm is beaten when one e-value against "it is a best arm" reaches 1/delta; without a union over rivals.

    It is proven for all families, and cheaper than `contrast` from three arms on, most with many arms; with two arms it
    is the same. The test bets that each reward of an arm is below a mean m, and those of its best rival of the moment
    above it. Which arm that is, is known before the pull, so if the arm is a best one every bet is fair at its own
    mean, whatever the rivals. The test depends on the order of the pulls. With an epsilon `contrast` is usually
    cheaper. For the family bounded, it is made of the bets of `bets`. See docs/theory/champion.md.

    >>> import cabai
    >>> ten = cabai.Instance("gaussian", [1, *[0.5] * 9], [1] * 10)
    >>> for threshold in ("contrast", "champion"):
    ...     print(f"{cabai.simulate(ten, threshold=threshold, delta=0.05, trajectories=200).summary().mean_cost:.0f}")
    1073
    837
    """

    proof = "Ville's inequality for a mixture of tilts, on the best rival of each arm"
    functions = (*Contrast.functions, credit, may_beat, ("log_of_pair", log_f), sizes, pair_log_e)
    within = (
        ("is_settled", is_settled_within), ("is_worth_testing", is_worth_testing_within), ("surplus", surplus_within),
        is_shown, excess,
    )  # fmt: skip
    rule_fields: ClassVar[Fields] = {**Contrast.rule_fields, "log_counted": 0.0, "log_leader": 0.0}
    arm_fields: ClassVar[Fields] = {
        "rivals": 0,  # the counted pulls of its rivals
        "rival_rewards": 0.0,  # the sum of their rewards
    }

    def for_family(self, family: Family) -> Threshold:
        found: Any = {"bounded": ChampionBets(), "gaussian": ChampionHedged()}.get(family.key, self)
        return found.of_pairs if self.is_pair_test else found


@dataclass(frozen=True)
class ChampionHedged(Champion):
    """`champion` for gaussian rewards of known variance.

    >>> from cabai.families import family_of
    >>> Champion().for_family(family_of("gaussian"))
    ChampionHedged()
    """

    functions = (
        *Champion.functions, ("credit", credit_hedged), count_for, ("may_beat", may_beat_hedged),
        ("pair_log_e", hedged_log_e),
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
