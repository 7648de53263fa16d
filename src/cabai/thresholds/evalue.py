"""The e-value test: an e-value against "mu_b <= mu_a" must reach (K - 1)/delta.

Its log, log E = M(b) + M(a) - L0, is the evidence Z of the counted data minus each arm's price: what its mixture M
loses against the best fit of its own data. The formulas below are this loss with the leading terms cancelled by hand,
so that they are accurate for millions of pulls and for large means:

    all but bernoulli   log(N)/2 + Z(first reward, the rest) + remainder(first) - remainder(all)
    bernoulli           log(N)/2 - remainder(all)

The remainder is the part in which the family's mixture and best fit differ: 0 for gaussian, r(R) for poisson, s(N) for
exponential, r(R) + r(N - R) - s(N) - log(pi/2)/2 for bernoulli. r(x) and s(x) are the errors of Stirling's formula for
lgamma(x + 1/2) and lgamma(x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cabai.core.evidence import pair_evidence
from cabai.core.state import Fields
from cabai.families import Family
from cabai.families.slots import remainder
from cabai.thresholds.base import ALL_FAMILIES, Threshold
from cabai.thresholds.shown import required


def weigh(arm, rules):
    """Set arm.price to what the mixture over an arm's data loses against their best fit, in nats."""
    if rules.skip:
        arm.tested = arm.pulls - 1
        if arm.tested == 0:  # nothing to compare yet
            arm.tested_mean = np.nan
            arm.price = np.inf
            return
        arm.tested_mean = (arm.rewards - arm.first) / arm.tested
        surprise = pair_evidence(rules, 1, arm.first, arm.tested, arm.tested_mean)
        lost = 0.5 * math.log(arm.pulls) + surprise + remainder(rules, 1.0, arm.first)
    else:
        arm.tested = arm.pulls
        arm.tested_mean = arm.mean
        lost = 0.5 * math.log(arm.pulls)
    arm.price = lost - remainder(rules, arm.pulls, arm.rewards)


def interval_level(arm, t, rules, arms):
    """An interval is about one of K arms alone, hence log(K/delta) and one price."""
    return (rules.level + math.log(arms / (arms - 1)) + arm.price) / arm.tested


@dataclass(frozen=True)
class EValue(Threshold):
    """b beats a when an e-value against "mu_b <= mu_a" reaches (K - 1)/delta: proven for all families.

    The e-value is the likelihood of both arms' data under a mixture (Jeffreys' prior), over the largest likelihood
    under "mu_b <= mu_a". In the form of the other thresholds: Z_{b,a} > log((K - 1)/delta) + price_b + price_a, where
    an arm's price, about log(N)/2, is what its mixture loses against the best fit. Except for bernoulli and bounded,
    the first reward of each arm is not part of Z: it makes the mixture proper. See docs/theory/evidence.md.

    >>> from cabai import Statistics
    >>> data = Statistics("bernoulli", pulls=[100, 100], rewards=[90, 60])
    >>> EValue().beats(data, 0, 1, delta=0.05), EValue().beats(data, 0, 1, delta=1e-9)
    (True, False)
    """

    name = "evalue"
    proof = "Ville's inequality for the mixture likelihood ratio"
    proven_for = ALL_FAMILIES
    functions = required, weigh, interval_level
    rule_fields: ClassVar[Fields] = {"skip": 0}  # 1: the first reward is set aside

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        return {"level": math.log((arms - 1) / delta), "skip": int(family.sets_first_aside)}

    def needs_first(self, family: Family) -> bool:
        return family.sets_first_aside
