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
        arm.upper, arm.lower = np.inf, -np.inf
        if arm.tested > 0:
            level = interval_level(arm, run.t, rules, len(arms))
            arm.upper = upper_end(rules, arm.tested_mean, level)
            arm.lower = lower_end(rules, arm.tested_mean, level)
        if first < 0 or arm.upper > arms[first].upper:
            first, second = a, first
        elif second < 0 or arm.upper > arms[second].upper:
            second = a
    J, least = -1, np.inf
    for a in range(len(arms)):
        gap = arms[second if a == first else first].upper - arms[a].lower
        if J < 0 or gap < least:
            J, least = a, gap
    u = second if first == J else first
    return J if arms[J].costs * arms[J].pulls <= arms[u].costs * arms[u].pulls else u


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
    arm_scratch: ClassVar[Fields] = {"upper": 0.0, "lower": 0.0}
