"""Thresholds that are a curve in the number of pulls, with an optional part per arm:

Z_{b,a} > level + slope log t + loglog log(offset + log t) + price_b + price_a,
price_a = pair_loglog log(pair_offset + log N_a).
"""

from __future__ import annotations

import math

FIELDS = {"slope": 0.0, "loglog": 0.0, "offset": 0.0, "pair_loglog": 0.0, "pair_offset": 0.0}


def required(t, rules):
    if rules.loglog != 0.0:
        log_t = math.log(t)
        return rules.level + rules.slope * log_t + rules.loglog * math.log(rules.offset + log_t)
    if rules.slope != 0.0:
        return rules.level + rules.slope * math.log(t)
    return rules.level


def weigh(arm, rules):
    arm.tested = arm.pulls
    arm.tested_mean = arm.mean
    if rules.pair_loglog != 0.0:
        arm.price = rules.pair_loglog * math.log(rules.pair_offset + math.log(arm.pulls))


def has_prices(rules):
    return rules.pair_loglog != 0.0
