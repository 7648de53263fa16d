"""Results told as sums: the number of pulls of each arm in a period, and the totals of rewards and costs.

A test that depends only on an arm's pulls and the sum of its rewards may be checked after every period instead of after
every pull: that is always valid. The pulls of a period count as asked and told together, at the moment of telling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cabai.families import Bernoulli, Bounded, Poisson
from cabai.study import statements
from cabai.study.books import ROUNDING
from cabai.study.change import Change
from cabai.study.errors import AlreadyTold, CostlyStudy
from cabai.study.ledger import MAX_COST, MAX_PULLS
from cabai.study.play import Play
from cabai.study.settings import Settings
from cabai.study.status import passing, rest_of_budget
from cabai.support.validation import InvalidInput, amount, shown, whole
from cabai.thresholds import Calibrated

MOST = 2**53  # pulls of a study, beyond which sums are not exact
STEPS = 200  # steps in which the pulls of a period are divided


@dataclass(frozen=True)
class Sum:
    """The totals of several pulls of an arm."""

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
    if threshold.is_own or threshold.arm_fields or threshold.needs_first(settings.family):
        raise InvalidInput(
            f"threshold {threshold} looks at single rewards of {settings.family.name} arms, so sums are refused: use "
            "contrast, the default, or evalue for bernoulli."
        )
    if isinstance(threshold, Calibrated):
        raise InvalidInput(
            "a calibrated threshold is certified only for pulls that its policy chose one by one: sums are refused."
        )


def read(settings: Settings, given: Any) -> list[Sum]:
    """The arguments of `tell_counts`, checked; without arms that were not pulled."""
    check_use(settings)
    if not isinstance(given, Mapping) or not given or not set(given) <= set(settings.arms):
        raise InvalidInput(
            f"counts must be a dictionary that maps names of arms ({', '.join(settings.arms)}) to (pulls, reward, "
            f"cost), got {shown(given)}."
        )
    found = [read_one(settings, arm, given[arm]) for arm in settings.arms if arm in given]
    if not any(each.pulls for each in found):
        raise InvalidInput(f"at least one arm must have been pulled in a period, got {shown(given)}.")
    return [each for each in found if each.pulls]


def read_one(settings: Settings, arm: str, given: Any) -> Sum:
    known = settings.costs is not None
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence) or not 3 - known <= len(given) <= 3:
        what = "(pulls, reward) or (pulls, reward, cost)" if known else "(pulls, reward, cost)"
        raise InvalidInput(f"the counts of arm {arm!r} must be {what}, got {shown(given)}.")
    pulls, reward = (
        whole(given[0], f"pulls of arm {arm!r}", 0, MOST),
        whole(given[1], f"reward of arm {arm!r}", 0, MOST),
    )
    if isinstance(settings.family, Bernoulli) and reward > pulls:
        raise InvalidInput(f"arm {arm!r} was pulled {pulls} times: its rewards, 0 or 1 each, cannot sum to {reward}.")
    if pulls == 0 and reward:
        raise InvalidInput(f"arm {arm!r} was not pulled: its rewards cannot sum to {reward}.")
    a = settings.arms.index(arm)
    if len(given) < 3 or given[2] is None:
        if not known:
            raise InvalidInput(f"the counts of arm {arm!r} need a cost: the study has no known costs.")
        assert settings.costs is not None
        return Sum(a, pulls, float(reward), settings.costs[a] * pulls)
    cost = amount(given[2], f"cost of arm {arm!r}")
    if cost < 0 or (cost == 0 and pulls and not known):
        raise InvalidInput(f"cost of arm {arm!r} must be positive, got {shown(given[2])}.")
    return Sum(a, pulls, float(reward), cost)


def tell(change: Change, sums: Sequence[Sum], period: str, following: int | None) -> dict[str, float]:
    """Count a period, once; returns how to divide the next, as shares by arm, or nothing if the study has stopped."""
    change.write()
    before = statements.PERIOD.rows(change.connection, {**change.ledger.of, "of_period": period})
    if before:
        check_told_before(before, sums, period)
    else:
        take(change, sums, period)
    if change.is_over:
        return {}
    pulls = sum(each.pulls for each in sums) if following is None else following
    return shares(change.settings, split(change.play, pulls))


def told(
    change: Change, sums: Sequence[Sum], period: str, following: int | None
) -> tuple[dict[str, float], list[UserWarning]]:
    """The same, with warnings."""
    return tell(change, sums, period, following), change.warnings


def check_told_before(before: Sequence[Any], sums: Sequence[Sum], period: str) -> None:
    told = {each.arm: Sum(each.arm, each.pulls, each.reward, each.cost) for each in before}
    if told != {each.arm: each for each in sums}:
        words = "; ".join(f"{each.pulls} pulls, reward {each.reward:g}, cost {each.cost:g}" for each in told.values())
        raise AlreadyTold(f"period {period!r} was told before with other counts ({words}), which are kept.")


def take(change: Change, sums: Sequence[Sum], period: str) -> None:
    if change.is_over and change.row.reason in (MAX_COST, MAX_PULLS):
        raise InvalidInput(
            f"study {change.ledger.name!r} has stopped at {change.row.reason}: raise it with amend() first, then tell."
        )
    if not change.is_over:
        live = change.settle_lapsed()
        change.count()
        if not change.is_over and (live or change.play.has_waiting):
            raise InvalidInput(
                "pulls that were asked for one by one are under way: tell or release them first, since results count "
                "in the order of asking."
            )
    total = change.asked + change.beyond + sum(each.pulls for each in sums)
    if total >= MOST:
        raise InvalidInput(f"a study must have fewer than 2**53 pulls in all, and would have {total}.")
    was_over = passing(change.play) is not None
    for each in sums:
        take_one(change, each, period)
    if not change.is_over:
        change.through = change.asked
        change.play.look_anew()
        change.decide()
        change.stop_at_limit()
    if not was_over:
        change.warn(passing(change.play), category=CostlyStudy)


def take_one(change: Change, each: Sum, period: str) -> None:
    """Log the totals of an arm, and count them unless the study has stopped or the arm is out."""
    play, a = change.play, each.arm
    counts = not change.is_over and bool(play.here[a])
    play.observe_sum(a, each.pulls, change.settings.seen_sum(each.pulls, each.reward), each.cost, counts=counts)
    if play.has_overflown(a):
        raise InvalidInput(
            f"{each.pulls} pulls, cost={each.cost!r} and those told before add up to a number that is too large to "
            "store."
        )
    change.asked += 1
    change.told += 1
    change.beyond += each.pulls - 1
    change.is_changed = True
    logged = {"study": change.ledger.id, "number": change.asked, "place": change.told, "arm": a, "reward": each.reward,
              "cost": each.cost, "asked": change.now, "told": change.now, "offers": 1, "pulls": each.pulls,
              "withdrawn": None if counts else change.now, "period": period}  # fmt: skip
    change.writes.append((statements.ADD_TO_LOG, logged))


def split(play: Play, pulls: int, money: float | None = None) -> list[int]:
    """How the policy would divide this many pulls if rewards were as expected; fewer if `money` does not pay for all of
    them, at what pulls of each arm have cost."""
    trial, given, left = play.copy(), [0] * len(play.arms), pulls
    step, prices = math.ceil(pulls / STEPS), prices_of(play)
    while left > 0:
        arm, some = trial.choose(given), min(step, left)
        if money is not None and prices[arm] > 0:
            some = min(some, max(math.floor(money / prices[arm] * (1 + ROUNDING)), 0))
            money -= some * prices[arm]
        if some == 0:
            break
        given[arm] += some
        left -= some
    return given


def prices_of(play: Play) -> list[float]:
    """What a pull of each arm costs; where that is not known, the cost of the most expensive other arm."""
    costs = play.paid_costs().tolist()
    known = [cost for cost in costs if math.isfinite(cost)]
    return [cost if math.isfinite(cost) else max(known, default=0.0) for cost in costs]


def split_within(play: Play, pulls: int, under_way: Sequence[int], asked: int) -> list[int]:
    """The same, within what `under_way` pulls of each arm, and as many as were `asked` for in all, leave of the
    study's limits."""
    settings, money = play.settings, rest_of_budget(play)
    limits = [limit for limit in (settings.max_pulls, settings.certified_pulls) if limit is not None]
    if money is not None:
        money -= sum(number * price for number, price in zip(under_way, prices_of(play), strict=True))
    return split(play, min(pulls, *(max(limit - asked, 0) for limit in limits)) if limits else pulls, money)


def shares(settings: Settings, given: Sequence[int]) -> dict[str, float]:
    """The share of each arm that is still in."""
    return {
        arm: part / sum(given) for arm, part in zip(settings.arms, given, strict=True) if arm not in settings.dropped
    }
