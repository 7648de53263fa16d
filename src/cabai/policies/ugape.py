"""UGapE (Gabillon, Ghavamzadeh, Lazaric 2012), with Kullback-Leibler intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cabai.core.state import Fields
from cabai.core.stopping import interval_level
from cabai.families.base import lower_end, upper_end
from cabai.policies.d_lucb import DLUCB


def choose(arms, run, rules):
    """J = argmin B, B_a = max of U_e over e other than a, minus L_a; u = argmax of U_e over e other than J."""
    first, second = -1, -1  # the two largest upper ends
    for a in range(len(arms)):
        arm = arms[a]
        arm.upper = np.inf
        if arm.tested > 0:
            arm.level = interval_level(arm, run.t, rules, len(arms))
            arm.upper = upper_end(rules, arm.tested_mean, arm.level)
        if first < 0 or arm.upper > arms[first].upper:
            first, second = a, first
        elif second < 0 or arm.upper > arms[second].upper:
            second = a
    J, least, most = -1, np.inf, np.inf
    if arms[run.leader].tested > 0:
        most = arms[second if run.leader == first else first].upper - lower(arms[run.leader], rules)
    for a in range(len(arms)):
        highest = arms[second if a == first else first].upper
        if J < 0 or highest - arms[a].tested_mean <= most:  # else B_a is larger than the leader's
            gap = highest - lower(arms[a], rules)
            if J < 0 or gap < least:
                J, least = a, gap
    u = second if first == J else first
    return J if arms[J].costs * arms[J].pulls <= arms[u].costs * arms[u].pulls else u


def lower(arm, rules):
    return lower_end(rules, arm.tested_mean, arm.level) if arm.tested > 0 else -np.inf


@dataclass(frozen=True)
class UGapE(DLUCB):
    """UGapE: of the likely best arm and its most likely rival, pull the one with the smaller sqrt(cost) N.

    It stops as `d-lucb` does and has its intervals; like it, it may never end after a bad start between tied arms.

    >>> import cabai
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.5], costs=[1, 0.1])
    >>> cabai.simulate(instance, "ugape", trajectories=100).summary().errors
    0
    """

    name = "ugape"
    choose = staticmethod(choose)
    cost_blind = False
    arm_scratch: ClassVar[Fields] = {"upper": 0.0, "level": 0.0}
