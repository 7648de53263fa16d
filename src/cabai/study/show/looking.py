"""The status of a study, from its state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cabai.core.goal import CHEAPEST
from cabai.datasets.race import PAIRED
from cabai.study.current import Row
from cabai.study.log.events import EVIDENCE
from cabai.study.rules import warnings
from cabai.study.show import known
from cabai.study.show.known import closed, ranks
from cabai.study.show.standing import Field, Pair
from cabai.study.show.status import ArmStatus, Status
from cabai.study.state.accounts import finite_or_none
from cabai.study.state.cheapest import CheapestState
from cabai.study.state.race import RaceState
from cabai.study.state.sampled import SampledState


def status_of(state: Any, row: Row, now: float) -> Status:
    """The status of a study at this time."""
    settings, ended = state.settings, state.ended
    names = settings.arms
    is_decided = ended is not None and ended.words == EVIDENCE
    leader = state.leader if ended is None else ended.arm
    kind: Looking = RaceLooking(state, leader) if isinstance(state, RaceState) else SampledLooking(state, leader)
    shown = kind.known(is_decided)
    closest = kind.closest()
    field = Field(
        names=names, pulled=[kind.counted(a)[0] > 0 for a in range(len(names))],
        in_play=[bool(each) for each in state.in_play], leader=leader, decision=leader if is_decided else None,
        stopped=ended is not None, pairs=kind.pairs, rival=None if closest is None else closest[0], known=shown,
        epsilon=settings.epsilon, dropped=settings.dropped, tied=kind.tied, by_pairs=kind.by_pairs,
    )  # fmt: skip
    if settings.items is not None and settings.items.earlier:
        shown = None  # what it says of ranks would be about these arms only
    better = None if shown is None else closed(shown.better)
    found, costs = None if better is None else ranks(better), state.paid_costs()
    arms = [
        replace(
            arm_status(state, kind, field, a),
            cost=finite_or_none(costs[a]),
            ranks=None if found is None else found[a],
            better_than=None if better is None else [names[b] for b in better[a].nonzero()[0]],
        )
        for a in range(len(names))
    ]
    waiting, missing = sum(arm.waiting for arm in arms), [pull.number for pull in state.waited_for()]
    return Status(
        name=row.name,
        family=settings.family.address,
        direction=settings.direction,
        delta=settings.delta,
        epsilon=settings.epsilon,
        max_cost=settings.max_cost,
        max_pulls=settings.max_pulls,
        arms=arms,
        pulls=sum(arm.pulls for arm in arms),
        waiting=waiting,
        waiting_for=f"{row.token}-{min(missing)}"
        if kind.counts_in_order and waiting and missing and not ended
        else None,
        discarded=sum(arm.discarded for arm in arms),
        failures=sum(arm.failures for arm in arms),
        under_way=len(state.pulls),
        lapsed=sum(pull.expires <= now for pull in state.pulls.values()),
        late=0 if ended is None else state.told - state.told_at_stop,
        spent=state.bill,
        spent_late=0.0 if ended is None else state.bill - state.bill_at_stop,
        created=row.created,
        ended=None if ended is None else ended.time,
        leader=None if leader is None else names[leader],
        rival=None if closest is None else names[closest[0]],
        evidence=None if closest is None else finite_or_none(closest[1]),
        required=None if closest is None else finite_or_none(closest[2]),
        confidence=kind.confidence() if ended is None else ended.reward,
        remaining_cost=None if ended is None else 0.0,
        stopped=ended is not None,
        reason=None if ended is None else ended.words,
        decision=names[leader] if is_decided and leader is not None else None,
        warnings=kind.warnings(arms),
        within=None if shown is None else shown.within,
        at_most=kind.at_most() if ended is None else 0.0,
        goal=settings.goal,
        slack=settings.slack,
        claim=kind.claim() if closest is not None else None,
        imported=settings.elsewhere,
        amended=len(state.amendments),
        error=settings.error if settings.error != settings.delta else None,
        reserve=settings.reserve,
        joined=list(settings.joined),
        dropped=list(settings.dropped),
        tied=[names[a] for a in kind.tied],
        **kind.more(),
    )


def arm_status(state: Any, kind: Looking, field: Field, a: int) -> ArmStatus:
    """One arm."""
    account, under_way = state.accounts[a], [pull for pull in state.pulls.values() if pull.arm == a]
    pulls, waiting, mean = kind.counted(a)
    low, high = kind.bounds(a)
    cheapest = state.settings.goal == CHEAPEST
    excluded = cheapest and kind.is_excluded(a)
    standing, share = field.standing(a), field.share(a)
    if cheapest:  # evidence is about pairs, and an arm is in several
        share = None
        if a == field.decision:
            standing = "the cheapest shown to be good enough: decided"
        elif excluded:
            standing = "out: too bad to be the answer"
    return ArmStatus(
        name=field.names[a],
        pulls=pulls,
        waiting=waiting,
        discarded=int(account["discarded"]),
        failures=int(account["failures"]),
        under_way=len(under_way),
        offers=int(account["offers"]) + sum(pull.offers for pull in under_way),
        lapses=int(account["lapses"]) + sum(pull.lapses for pull in under_way),
        mean=mean,
        low=finite_or_none(low),
        high=finite_or_none(high),
        cost=None,
        spent=float(account["spent"]),
        in_play=field.in_play[a],
        standing=standing,
        share=share,
        may_be_best=None if field.known is None else bool(field.known.may_be_best[a]),
        running_cost=running_cost(state, a) if cheapest else None,
        excluded=excluded,
    )


def running_cost(state: Any, a: int) -> float | None:
    """What an arm costs to run; once the study has stopped, what it cost then, since the decision is based on that."""
    if state.costs_at_stop is not None:
        return state.costs_at_stop[a]  # type: ignore[no-any-return]
    known = state.running_costs[a]
    return known if math.isfinite(known) else None


class SampledLooking:
    """What only the state of a study without items can say."""

    counts_in_order, by_pairs = True, True
    tied: Sequence[int] = ()

    def __init__(self, state: SampledState, leader: int | None) -> None:
        self.state, self.settings, self.leader = state, state.settings, leader
        self.shows = state.settings.can_test and state.setup.shows_evidence
        self._pairs = state.pairs(leader) if self.shows else [None] * len(state.settings.arms)
        self._closest = state.closest(self._pairs) if self.shows and leader == state.leader else None

    @property
    def pairs(self) -> list[Pair | None]:
        return [None if pair is None else Pair(*pair) for pair in self._pairs]

    def closest(self) -> tuple[int, float, float] | None:
        """None after late results, if another arm leads now."""
        return self._closest

    def confidence(self) -> float | None:
        return self.state.confidence_over(self._closest) if self.shows else None

    def known(self, decided: bool) -> known.Known | None:
        return known.known_of(self.state, self.leader, decided=decided)

    def counted(self, a: int) -> tuple[int, int, float | None]:
        """The pulls that count, those that wait, and the mean of the first."""
        arm, settings = self.state.ordered.arms[a], self.settings
        mean = float(settings.shown(arm["mean"])) if arm["pulls"] and settings.can_mirror else None
        return int(arm["pulls"]), int(self.state.told_view.arms[a]["pulls"] - arm["pulls"]), mean

    def bounds(self, a: int) -> tuple[float, float]:
        return self.state.interval(a)

    def is_excluded(self, a: int) -> bool:
        return bool(self.state.ordered.arms[a]["excluded"])

    def at_most(self) -> float | None:
        return self.state.rest_of_budget

    def claim(self) -> str | None:
        return self.state.claim() if isinstance(self.state, CheapestState) else None

    def warnings(self, arms: list[ArmStatus]) -> list[str]:
        state, threshold, family, found = self.state, self.settings.threshold, self.settings.family, list[str | None]()
        for a, arm in enumerate(arms):
            found += [warnings.failing(state, a), warnings.lapsing(state, a, arm.lapses), warnings.too_wide(state, a)]
        found.append(warnings.passing(state))
        if not threshold.is_proven_for(family):
            found.append(f"threshold {threshold}: {threshold.standing(family)}.")
        return [text for text in found if text]

    def more(self) -> dict[str, Any]:
        state, settings = self.state, self.settings
        told = state.told if state.ended is None else state.told_at_stop
        return {
            "policy": settings.policy.address, "threshold": settings.threshold.address,
            "proven": settings.threshold.is_proven_for(settings.family),
            "certified": settings.is_certified and told <= (settings.certified_pulls or 0),
            "certified_pulls": settings.certified_pulls,
            "would_decide": settings.is_present and state.ended is None and state.would_decide,
        }  # fmt: skip


class RaceLooking:
    """What only the state of a study with items can say."""

    counts_in_order = False

    def __init__(self, state: RaceState, leader: int | None) -> None:
        self.state, self.settings, self.leader, self.race = state, state.settings, leader, state.race
        self.by_pairs = self.race.name == PAIRED
        self.tied: Sequence[int] = () if leader is None else known.tied_with(state, leader)
        self.told = np.count_nonzero(~np.isnan(self.race.scores), axis=1)

    @property
    def pairs(self) -> list[Pair | None]:
        if self.leader is None:
            return [None] * len(self.settings.arms)
        capital, required = self.race.capital(self.leader), math.log(self.race.board.target)
        return [None if a == self.leader else Pair(math.log(capital[a]), required) for a in range(len(capital))]

    def closest(self) -> tuple[int, float, float] | None:
        return self.state.closest() if self.state.ended is None else None

    def confidence(self) -> float:
        return self.state.confidence()

    def known(self, decided: bool) -> known.Known:
        return known.race_known_of(self.state, self.leader, decided=decided)

    def counted(self, a: int) -> tuple[int, int, float | None]:
        prefix = int(self.race.board.prefix[a])
        mean = float(self.race.scores[a, :prefix].mean()) if prefix else None
        return prefix, int(self.told[a]) - prefix, mean

    def bounds(self, a: int) -> tuple[float, float]:
        """The range in which an arm's mean over all items certainly lies: if the rest were the worst, or the best."""
        low, high = self.settings.family.mean_range
        known, count = float(np.nansum(self.race.scores[a])), self.state.items.count
        left = count - int(self.told[a])
        return max((known + left * low) / count, low), min((known + left * high) / count, high)

    def is_excluded(self, a: int) -> bool:
        return bool(self.race.board.out[a])

    def at_most(self) -> float | None:
        """What evaluating the rest costs, or what is left of the budget."""
        costs, count = self.state.paid_costs(), self.state.items.count
        may_come = np.ones(len(costs), np.bool_) if self.settings.goal == CHEAPEST else self.state.in_play
        remaining = sum(costs[a] * (count - self.told[a]) for a in np.flatnonzero(may_come))
        limits = [each for each in (finite_or_none(remaining), self.state.rest_of_budget) if each is not None]
        return min(limits, default=None)

    def claim(self) -> str | None:
        return self.state.claim()

    def warnings(self, arms: list[ArmStatus]) -> list[str]:
        return [text for a in range(len(arms)) if (text := warnings.failing(self.state, a))]

    def more(self) -> dict[str, Any]:
        return {
            "policy": "lockstep", "threshold": self.race.name, "proven": True, "certified": False,
            "certified_pulls": None, "would_decide": False, "items": self.state.items.count,
            "full_cost": finite_or_none(float(self.state.full_costs().sum())), "is_complete": self.race.is_complete,
            "earlier": [arm for arm in self.state.items.earlier if arm not in self.state.settings.arms],
        }  # fmt: skip


Looking = SampledLooking | RaceLooking
