"""UGapE (Gabillon, Ghavamzadeh, Lazaric 2012), with Kullback-Leibler intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cabai.core.state import Fields
from cabai.core.stopping import interval_level
from cabai.families.base import lower_end, upper_end
from cabai.families.slots import divergence, edges
from cabai.policies.d_lucb import DLUCB, may_exceed


def stop(arms, run, rules):
    """Whether the leader's lower end is above every rival's upper end minus epsilon."""
    leader = arms[run.leader]
    if leader.tested == 0 or prevents(arms, run.rival, leader.tested_mean, run, rules):  # the last rival that did
        return False
    low = lower_end(rules, leader.tested_mean, interval_level(leader, run.t, rules, len(arms)))
    for a in range(len(arms)):
        if prevents(arms, a, low, run, rules):
            run.rival = a
            return False
    return True


def prevents(arms, a, low, run, rules):
    if a < 0 or a == run.leader:
        return False
    level = interval_level(arms[a], run.t, rules, len(arms)) if arms[a].tested > 0 else np.inf
    return may_exceed(rules, arms[a].tested_mean, level, low + rules.epsilon)


def choose(arms, run, rules):
    """J = argmin B, B_a = max of U_e over e other than a, minus L_a; u = argmax of U_e over e other than J."""
    first, second = -1, -1  # the two largest upper ends
    for a in range(len(arms)):
        arm = arms[a]
        arm.upper, arm.level = np.inf, np.inf
        if arm.tested > 0:
            arm.level = interval_level(arm, run.t, rules, len(arms))
            if second >= 0 and not may_exceed(rules, arm.tested_mean, arm.level, arms[second].upper):
                continue
            arm.upper = upper_end(rules, arm.tested_mean, arm.level)
        if first < 0 or arm.upper > arms[first].upper:
            first, second = a, first
        elif second < 0 or arm.upper > arms[second].upper:
            second = a
    J, (low, _) = run.leader, edges(rules)
    least = arms[second if first == J else first].upper - lower(arms[J], rules)
    for a in range(len(arms)):
        arm, highest = arms[a], arms[second if a == first else first].upper
        q = highest - least  # if L_a is below q, B_a is larger; unless that is clear, L_a is needed
        d = divergence(rules, arm.tested_mean, arm.tested_mean - q, q, 1.0 - q) if q > low else np.inf
        if a != run.leader and not (arm.tested_mean < q or d < 0.999 * arm.level):
            gap = highest - lower(arm, rules)
            if gap < least or (gap == least and a < J):
                J, least = a, gap
    u = second if first == J else first
    return J if arms[J].costs * arms[J].pulls <= arms[u].costs * arms[u].pulls else u


def lower(arm, rules):
    return lower_end(rules, arm.tested_mean, arm.level) if arm.tested > 0 else -np.inf


@dataclass(frozen=True)
class UGapE(DLUCB):
    """UGapE: of the likely best arm and its most likely rival, pull the one with the smaller sqrt(cost) N.

    It stops as `d-lucb` does and has its intervals; like it, it may never end after a bad start between tied arms.
    """

    name = "ugape"
    choose = staticmethod(choose)
    stop = staticmethod(stop)
    cost_blind = False
    arm_scratch: ClassVar[Fields] = {"upper": 0.0, "level": 0.0}
