"""Results told as sums: the number of pulls of each arm in a period, and the totals of rewards and costs.

A test that depends only on an arm's pulls and the sum of its rewards may be checked after every period instead of after
every pull: that is always valid. The pulls of a period count as asked and told together, at the moment of telling.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cabai.errors import AlreadyTold
from cabai.families import Bernoulli, Bounded, Poisson
from cabai.study.current import Transaction
from cabai.study.log import tables
from cabai.study.log.events import COUNTS, LIMITS
from cabai.study.rules import warnings
from cabai.study.rules.asking import settle_lapsed
from cabai.study.rules.telling import check_size, stop_at_limit
from cabai.study.settings import Settings
from cabai.study.state.accounts import ROUNDING
from cabai.study.state.sampled import SampledState
from cabai.support.specialise import binding
from cabai.support.validation import InvalidInput, not_negative, positive, shown, whole
from cabai.thresholds import Calibrated

MOST_SUMMED = 2**53  # pulls of a study, beyond which sums are not exact
STEPS = 200  # steps in which the pulls of a period are divided


class Sum(NamedTuple):
    arm: int
    pulls: int
    reward: float
    cost: float


def check_use(settings: Settings) -> None:
    """Refuse sums if the test depends on more than sums."""
    if settings.items is not None:
        raise InvalidInput("a study with items takes evaluations one by one: sums are refused.")
    if not isinstance(settings.family, (Bernoulli, Poisson)) or isinstance(settings.family, Bounded):
        raise InvalidInput(f"sums can be told only of bernoulli and poisson rewards, got family {settings.family}.")
    threshold = settings.setup().threshold
    keeps = "keep" in dict(binding(threshold.functions))
    if threshold.is_own or keeps or threshold.needs_first(settings.family):
        looks = f"threshold {threshold} looks at single rewards of {settings.family.name} arms"
        raise InvalidInput(f"{looks}: sums need none, or evalue for bernoulli.")
    if isinstance(threshold, Calibrated):
        raise InvalidInput("a calibrated threshold is certified only for pulls that its policy chose: sums are not.")


def read(settings: Settings, given: Any) -> list[Sum]:
    """The arguments of `tell_counts`, checked; without arms that were not pulled."""
    check_use(settings)
    if not isinstance(given, Mapping) or not given or not set(given) <= set(settings.arms):
        what = f"maps names of arms ({', '.join(settings.arms)}) to (pulls, reward, cost)"
        raise InvalidInput(f"counts must be a dictionary that {what}, got {shown(given)}.")
    all_of = [read_one(settings, arm, given[arm]) for arm in settings.arms if arm in given]
    found = [each for each in all_of if each.pulls]
    if not found:
        raise InvalidInput(f"at least one arm must have been pulled in a period, got {shown(given)}.")
    return found


def read_one(settings: Settings, arm: str, given: Any) -> Sum:
    known = settings.costs is not None
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence) or not 3 - known <= len(given) <= 3:
        what = "(pulls, reward) or (pulls, reward, cost)" if known else "(pulls, reward, cost)"
        raise InvalidInput(f"the counts of arm {arm!r} must be {what}, got {shown(given)}.")
    pulls = whole(given[0], f"pulls of arm {arm!r}", 0, MOST_SUMMED)
    reward = whole(given[1], f"reward of arm {arm!r}", 0, MOST_SUMMED)
    if reward > (pulls if isinstance(settings.family, Bernoulli) else pulls * MOST_SUMMED):
        rewards = f"{settings.family.name} rewards"
        raise InvalidInput(f"arm {arm!r} was pulled {pulls} times: its {rewards} cannot sum to {reward}.")
    a, cost = settings.arms.index(arm), given[2] if len(given) == 3 else None
    if cost is not None:
        cost = (not_negative if known or not pulls else positive)(cost, f"cost of arm {arm!r}")
    elif settings.costs is not None:
        cost = settings.costs[a] * pulls
    else:
        raise InvalidInput(f"the counts of arm {arm!r} need a cost: the study has no known costs.")
    return Sum(a, pulls, float(reward), cost)


def tell(transaction: Transaction, sums: Sequence[Sum], period: str, following: int | None) -> dict[str, float]:
    """Count a period, once; returns how to divide the next, as shares by arm, or nothing if the study has stopped."""
    state, before = transaction.state, transaction.found(tables.PERIOD, period)
    if before is None:
        take(transaction, sums, period)
    elif (told := sorted(map(Sum._make, json.loads(before.words or "")))) != sorted(sums):
        words = "; ".join(f"{each.pulls} pulls, reward {each.reward:g}, cost {each.cost:g}" for each in told)
        raise AlreadyTold(f"period {period!r} was told before with other counts ({words}), which are kept.")
    if state.ended is not None:
        return {}
    pulls = sum(each.pulls for each in sums) if following is None else following
    given = split(state, pulls)
    arms = zip(state.settings.arms, given, strict=True)
    return {arm: part / sum(given) for arm, part in arms if arm not in state.settings.dropped}


def take(transaction: Transaction, sums: Sequence[Sum], period: str) -> None:
    state, ended = transaction.state, transaction.state.ended
    if ended is not None and ended.words in LIMITS:
        why = f"study {transaction.row.name!r} has stopped at {ended.words}"
        raise InvalidInput(f"{why}: raise it with amend() first, then tell.")
    total = state.asked + state.in_sums + sum(each.pulls for each in sums)
    if total >= MOST_SUMMED:
        raise InvalidInput(f"a study must have fewer than 2**53 pulls in all, and would have {total}.")
    paid = 0.0
    for each in sums:  # the costs before it count too
        check_size(state, each.arm, each.reward, paid + each.cost)
        paid += each.cost
    if ended is None:
        settle_lapsed(transaction)
        if state.ended is None and (state.live.any() or state.has_waiting):
            why = "results count in the order of asking, and pulls that were asked for one by one are under way"
            raise InvalidInput(f"{why}: tell or release them first.")
    with warnings.noticed(transaction, sums[0].arm):
        transaction.add(COUNTS, pull=state.asked + 1, request=period, words=json.dumps(sums))
        stop_at_limit(transaction)


def split(state: SampledState, pulls: int, money: float | None = None) -> list[int]:
    """How the policy would divide these pulls, or those that `money` pays for, if rewards were as expected."""
    trial, given, left = state.trial(), [0] * len(state.settings.arms), pulls
    step, prices = math.ceil(pulls / STEPS), prices_of(state)
    while left > 0:
        arm, some = trial.choose_after(given), min(step, left)
        if money is not None and prices[arm] > 0:
            some = min(some, max(math.floor(money / prices[arm] * (1 + ROUNDING)), 0))
            money -= some * prices[arm]
        if some == 0:
            break
        given[arm] += some
        left -= some
    return given


def prices_of(state: SampledState) -> list[float]:
    """What a pull of each arm costs; where that is not known, the cost of the most expensive other arm."""
    costs = state.paid_costs().tolist()
    known = [cost for cost in costs if math.isfinite(cost)]
    return [cost if math.isfinite(cost) else max(known, default=0.0) for cost in costs]
