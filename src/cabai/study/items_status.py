"""The status of a study with items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cabai.core.goal import CHEAPEST
from cabai.datasets.race import PAIRED
from cabai.study import cheapest_status
from cabai.study.items_known import known_of
from cabai.study.items_play import ItemsPlay
from cabai.study.play import finite_or_none
from cabai.study.standing import Field, Pair
from cabai.study.status import ArmStatus, Status, rest_of_budget, with_standing


def status_of(row: Any, play: ItemsPlay, pulls: Sequence[Any]) -> Status:
    """The status of a study with items from its row, its state and its pulls under way."""
    settings, names, race, n = play.settings, play.settings.arms, play.race, play.items.count
    costs, stopped = play.paid_costs(), row.stopped is not None
    told = np.count_nonzero(~np.isnan(race.scores), axis=1)
    arms = []
    for a, name in enumerate(names):
        out, prefix = [pull for pull in pulls if pull.arm == a], int(race.board.prefix[a])
        low, high = bounds(play, a, int(told[a]))
        arms.append(
            ArmStatus(
                name=name,
                pulls=prefix,
                waiting=int(told[a]) - prefix,
                discarded=int(play.discarded[a]),
                failures=int(play.failures[a]),
                under_way=len(out),
                offers=int(play.offers[a]) + sum(pull.offers for pull in out),
                lapses=int(play.lapses[a]) + sum(pull.lapses for pull in out),
                mean=float(race.scores[a, :prefix].mean()) if prefix else None,
                low=low,
                high=high,
                cost=finite_or_none(costs[a]),
                spent=float(play.spent[a]),
                in_play=bool(play.in_play[a]),
                **cheapest_status.of_racer(play, a),
            )
        )
    leader = row.decision if stopped else play.leader
    closest = play.closest() if not stopped else None
    decided = row.reason == "evidence"
    known = known_of(play, leader, decided=decided)
    field = Field(
        names=names, pulled=[arm.pulls > 0 for arm in arms], in_play=[arm.in_play for arm in arms], leader=leader,
        decision=row.decision if decided else None, stopped=stopped, pairs=pairs_of(play, leader),
        rival=None if closest is None else closest[0], known=known, epsilon=settings.epsilon,
        by_pairs=race.name == PAIRED,
    )  # fmt: skip
    arms = cheapest_status.with_standing(settings, with_standing(arms, field), field.decision)
    may_come = np.ones(len(names), np.bool_) if settings.goal == CHEAPEST else play.in_play  # it may come back
    remaining = sum(costs[a] * (n - told[a]) for a in np.flatnonzero(may_come))
    return Status(
        name=row.name,
        family=settings.family.address,
        policy="lockstep",
        threshold=race.name,
        proven=True,
        certified=False,
        certified_pulls=None,
        direction=settings.direction,
        delta=settings.delta,
        epsilon=settings.epsilon,
        max_cost=settings.max_cost,
        max_pulls=settings.max_pulls,
        arms=arms,
        pulls=sum(arm.pulls for arm in arms),
        waiting=sum(arm.waiting for arm in arms),
        waiting_for=None,
        discarded=sum(arm.discarded for arm in arms),
        would_decide=False,
        failures=sum(arm.failures for arm in arms),
        under_way=len(pulls),
        lapsed=sum(pull.expires <= row.now for pull in pulls),
        late=row.told - row.told_at_stop if stopped else 0,
        spent=row.spent,
        spent_late=row.spent - row.spent_at_stop if stopped else 0.0,
        created=row.created,
        ended=row.stopped,
        leader=None if leader is None else names[leader],
        rival=None if closest is None else names[closest[0]],
        evidence=None if closest is None else finite_or_none(closest[1]),
        required=None if closest is None else closest[2],
        confidence=row.confidence if stopped else play.confidence(),
        remaining_cost=0.0 if stopped else None,
        stopped=stopped,
        reason=row.reason,
        decision=names[row.decision] if row.reason == "evidence" else None,
        warnings=[text for a in range(len(names)) if (text := failing(play, a))],
        items=n,
        full_cost=finite_or_none(float(play.full_costs().sum())),
        is_complete=race.is_complete,
        amended=row.amended,
        within=known.within,
        at_most=0.0 if stopped else at_most(play, remaining),
        goal=settings.goal,
        slack=settings.slack,
        claim=play.claim() if closest is not None else None,
    )


def at_most(play: ItemsPlay, remaining: float) -> float | None:
    """What evaluating the rest costs, or what is left of the budget."""
    limits = [each for each in (finite_or_none(remaining), rest_of_budget(play)) if each is not None]
    return min(limits, default=None)


def pairs_of(play: ItemsPlay, leader: int | None) -> list[Pair | None]:
    """The evidence of the leader over each other arm, and what is required of it."""
    if leader is None:
        return [None] * len(play.settings.arms)
    capital, required = play.race.capital(leader), math.log(play.race.board.target)
    return [None if a == leader else Pair(math.log(capital[a]), required) for a in range(len(capital))]


def bounds(play: ItemsPlay, a: int, told: int) -> tuple[float, float]:
    """The range in which an arm's mean over all items certainly lies: if the rest were the worst, or the best."""
    low, high = play.settings.family.mean_range
    known, left = float(np.nansum(play.race.scores[a])), play.items.count - told
    return max((known + left * low) / play.items.count, low), min((known + left * high) / play.items.count, high)


def failing(play: ItemsPlay, a: int) -> str | None:
    """A warning where at least 3 evaluations of an arm have failed, and more than a tenth of all."""
    failures, told = int(play.failures[a]), int(play.failures[a] + play.pulls[a])
    if failures < 3 or failures * 10 <= told:
        return None
    return (
        f"{failures} of {told} evaluations of arm {play.settings.arms[a]!r} failed, and count as a score of "
        f"{play.failed_score:g}."
    )
