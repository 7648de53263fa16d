"""About what a decided study would have cost if all its arms had been tested equally often.

With n pulls of every arm and the means that the study has found, its own test would be passed at some n for the closest
rival: found by bisection. What every arm's records sum up grows in proportion to its pulls. The test is passed earlier
or later by chance, and the last of several rivals decides: for that, the sums are followed as normal random walks, all
with the evidence that the closest rival needs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import BEST
from cabai.core.observe import weigh
from cabai.core.state import Record, copy_of, copy_of_all
from cabai.study.stand_ins import is_own
from cabai.study.state.progress import prices, variances_of

MOST = 2**40  # pulls of an arm
SUMS = "up", "down", "squares"  # what thresholds keep of the rewards that count
WALKS, STEP = 200, 1.06  # random walks; their looks are at pulls that grow by this factor
EARLY, LATE = -45, 30  # the first and the last look: before and after the n of the closest rival
MATTERS = 4  # rivals that need fewer pulls than the closest one by this factor do not


def equal_cost(state: Any, leader: int) -> float | None:
    """None where arms have come or gone, for a threshold from outside, and where numbers are too large for it."""
    settings = state.settings
    if settings.goal != BEST or settings.dropped or settings.joined or is_own(settings.threshold.address):
        return None
    with suppress(ArithmeticError, ValueError):  # it is only shown
        return find(state, leader)
    return None


def find(state: Any, leader: int) -> float | None:
    arms = state.ordered.arms
    pulls, mean = arms["pulls"].astype(float), arms["mean"].astype(float)
    variances = np.array(variances_of(state, pulls.tolist(), mean.tolist()))
    rivals = np.flatnonzero(np.arange(len(arms)) != leader)
    gaps = mean[leader] - mean[rivals] + float(state.rules["epsilon"])
    if not (gaps > 0).all():
        return None
    ease = gaps * gaps / (variances[leader] + variances[rivals])  # as much evidence comes with each pull
    n = pulls_that_show(state, leader, int(rivals[ease.argmin()]))
    if n is None:
        return None
    matter = ease < MATTERS * ease.min()
    walks = last_of(gaps[matter], variances[leader], variances[rivals[matter]], n, n * float(ease.min()))
    return walks * sum(prices(state.paid_costs()))


def pulls_that_show(state: Any, b: int, a: int) -> int | None:
    """The number of pulls of each arm at which b would beat a, if their means stayed as they are."""
    arms, run, rules = state.ordered.arms, copy_of(state.ordered.run), state.rules_of(b)
    sums = [name for name in SUMS if name in arms.dtype.names]

    def is_shown(n: int) -> bool:
        trial = copy_of_all(arms)
        for each in (a, b):
            arm = Record(trial[each])
            tested = max(int(arm.tested), 1)
            grows = max(n - int(arm.pulls) + tested, 1) / tested
            arm.pulls, arm.rewards = n, n * arm.mean
            for name in sums:
                setattr(arm, name, getattr(arm, name) * grows)
            state.setup.bound(weigh)(arm, Record(rules))
        lost = state.setup.threshold.pull_equally(Record(trial[b]), Record(trial[a]), len(arms))
        run["t"] = n * len(arms)
        return state.settings.kernels.surplus(trial, run, b, a, rules) > lost  # type: ignore[no-any-return]

    high = 2
    with np.errstate(all="ignore"):
        while not is_shown(high):
            high *= 2
            if high > MOST:
                return None
        low = high // 2
        while high - low > max(low // 100, 1):
            middle = (low + high) // 2
            low, high = (low, middle) if is_shown(middle) else (middle, high)
    return high


def last_of(gaps: NDArray[Any], own: float, variances: NDArray[Any], n: int, level: float) -> float:
    """The mean, over random walks, of the pulls after which S²/(n V) is at least the level for every rival, S being the
    sum of the differences of n rewards, and V the variance of one."""
    at = n * STEP ** np.arange(EARLY, LATE)[:, None, None]
    chance = np.random.default_rng(0)  # the same number at every look
    steps = chance.standard_normal((len(at), WALKS, 1 + len(gaps))) * np.sqrt(np.diff(at, axis=0, prepend=0))
    noise = steps.cumsum(axis=0)
    total = at * gaps + np.sqrt(own) * noise[:, :, :1] - np.sqrt(variances) * noise[:, :, 1:]
    passed = ((total > 0) & (total * total >= level * (own + variances) * at)).all(axis=2)
    passed[-1] = True
    return float(at[passed.argmax(axis=0), 0, 0].mean())
