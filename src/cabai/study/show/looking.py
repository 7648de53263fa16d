"""The status of a study, from its state."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cabai.core.goal import BEST, CHEAPEST
from cabai.datasets.race import PAIRED
from cabai.study.current import Row
from cabai.study.log.events import ACCEPTED, DECISIONS, EVIDENCE
from cabai.study.rules import warnings
from cabai.study.show import known
from cabai.study.show.equally import equal_cost
from cabai.study.show.known import closed, ranks
from cabai.study.show.status import ArmStatus, Forecast, Status
from cabai.study.state.accounts import Point, finite_or_none
from cabai.study.state.progress import Pairs, Remaining
from cabai.study.state.race import RaceState
from cabai.study.state.sampled import SampledState

AS_SET = ("direction", "delta", "max_cost", "max_pulls", "goal", "slack", "reserve")
LATELY = 9  # points of the history that say how fast results come


class Listed(NamedTuple):
    """A study in a list: of its status, what takes no tests in addition to the study's own."""

    name: str
    created: float
    stopped: bool
    decision: str | None
    leader: str | None
    progress: float | None
    looks_tied: bool
    spent: float
    max_cost: float | None
    last_result: float | None

    @classmethod
    def of(cls, state: Any, row: Row) -> Listed:
        ended, names = state.ended, state.settings.arms
        leader = state.leader if ended is None else ended.arm
        best = None if leader is None else names[leader]
        progress: float | None = 1.0
        looks_tied = False
        if ended is None:
            kind = looking(state, leader)
            remaining = kind.remaining()
            progress, looks_tied = kind.progress(remaining), remaining is not None and remaining.looks_tied
        return cls(row.name, row.created, ended is not None,
                   best if ended is not None and ended.words in DECISIONS else None, best, progress, looks_tied,
                   state.bill, state.settings.max_cost, state.last_result)  # fmt: skip


def looking(state: Any, leader: int | None) -> SampledLooking | RaceLooking:
    return RaceLooking(state, leader) if isinstance(state, RaceState) else SampledLooking(state, leader)


def status_of(state: Any, row: Row, now: float) -> Status:
    """The status of a study at this time."""
    settings, ended = state.settings, state.ended
    names, why = settings.arms, None if ended is None else ended.words
    is_decided = why in DECISIONS
    leader = state.leader if ended is None else ended.arm
    kind = looking(state, leader)
    closest = kind.closest()
    rival = closest[0] if closest is not None and settings.goal == BEST else None
    shown = kind.known(rival, is_decided=why == EVIDENCE)
    better = None if shown is None or shown.better is None else closed(shown.better)
    found, costs = None if better is None else ranks(better), state.paid_costs()
    arms = [
        replace(
            arm_status(state, kind, a, None if closest is None else closest[0], is_decided, shown),
            cost=finite_or_none(costs[a]),
            ranks=None if found is None else found[a],
            better_than=None if better is None else [names[b] for b in better[a].nonzero()[0]],
        )
        for a in range(len(names))
    ]
    waiting, missing = sum(arm.waiting for arm in arms), [pull.number for pull in state.waited_for()]
    remaining = kind.remaining() if ended is None else None
    error = 1 - ended.reward if ended is not None and why == ACCEPTED else settings.error
    return Status(
        name=row.name,
        family=settings.family.address,
        epsilon=ended.cost if ended is not None and why == ACCEPTED else settings.epsilon,
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
        stopped=ended is not None,
        reason=why,
        decision=names[leader] if is_decided and leader is not None else None,
        warnings=kind.warnings(arms),
        within=None if shown is None else shown.within,
        at_most=kind.at_most() if ended is None else 0.0,
        progress=1.0 if ended is not None else kind.progress(remaining),
        forecast=None if remaining is None else forecast_of(state, remaining),
        lead=None if leader is None or rival is None else finite_or_none(state.lead(leader, rival) or 0.0),
        lead_at_most=None if shown is None else shown.lead,
        looks_tied=remaining is not None and remaining.looks_tied,
        last_result=state.last_result,
        equal_cost=kind.equal_cost() if why == EVIDENCE else None,
        claim=state.claim() if closest is not None else None,
        imported=settings.elsewhere,
        amended=len(state.amendments),
        error=None if math.isclose(error, settings.delta) else error,
        tied=[names[a] for a in kind.tied],
        **kind.more(),
    )


def forecast_of(state: Any, remaining: Remaining) -> Forecast:
    """What is still to come, in money and in time."""
    pace, found = seconds_per_result(state.points), list[float]()
    if pace is not None and remaining.cost > 0:
        each = pace * remaining.results / remaining.cost
        found = [each * remaining.low, each * remaining.high]
    return Forecast(remaining.low, remaining.high, remaining.chance, *found)


def seconds_per_result(points: Sequence[Point]) -> float | None:
    """How fast results come: the median of the latest stretches of the history, so that a pause does not count."""
    last = points[-LATELY:]
    paces = [(b.time - a.time) / (b.told - a.told) for a, b in itertools.pairwise(last) if b.told > a.told]
    return statistics.median(paces) if len(paces) > 1 else None


def arm_status(state: Any, kind: Any, a: int, rival: int | None, is_decided: bool, shown: Any) -> ArmStatus:
    """One arm."""
    under_way = [pull for pull in state.pulls.values() if pull.arm == a]
    pulls, waiting, mean = kind.counted(a)
    low, high = kind.bounds(a)
    cheapest = state.settings.goal == CHEAPEST
    excluded = cheapest and kind.is_excluded(a)
    may_be_best = None if shown is None else bool(shown.may_be_best[a])
    behind = None if kind.leader is None or a == kind.leader else state.lead(kind.leader, a)
    return ArmStatus(
        name=state.settings.arms[a],
        pulls=pulls,
        waiting=waiting,
        discarded=int(state.discarded[a]),
        failures=int(state.failures[a]),
        under_way=len(under_way),
        offers=int(state.offers[a]) + sum(pull.offers for pull in under_way),
        lapses=int(state.lapses[a]) + sum(pull.lapses for pull in under_way),
        mean=mean,
        low=finite_or_none(low),
        high=finite_or_none(high),
        cost=None,
        spent=float(state.spent[a]),
        in_play=bool(state.in_play[a]),
        standing=standing(state, kind, a, rival, is_decided, excluded, may_be_best),
        share=None if cheapest else share(state, kind, a),
        behind=None if behind is None else finite_or_none(behind),
        may_be_best=may_be_best,
        running_cost=running_cost(state, a) if cheapest else None,
        excluded=excluded,
    )


def share(state: Any, kind: Any, a: int) -> float | None:
    """The evidence of the leader over an arm, as a share of what is required of it."""
    pair = kind.pairs[a]
    if pair is None or a == kind.leader or state.settings.arms[a] in state.settings.dropped:
        return None
    if not state.unbeaten[a]:
        return 1.0
    evidence, required = pair
    return min(max(evidence / required, 0.0), 1.0) if math.isfinite(required) and required > 0 else None


def standing(
    state: Any, kind: Any, a: int, rival: int | None, is_decided: bool, excluded: bool, may_be_best: bool | None
) -> str:
    """In or out, and why, in words."""
    settings, pair = state.settings, kind.pairs[a]
    leader = "" if kind.leader is None else settings.arms[kind.leader]
    if a == kind.leader and is_decided:
        return "best: decided" if settings.goal == BEST else "the cheapest shown to be good enough: decided"
    if excluded:
        return "out: too bad to be the answer"
    if settings.arms[a] in settings.dropped:
        return "out: dropped by hand"
    if a in kind.tied:
        return f"tied with {leader}: the same total on all items"
    if not kind.counted(a)[0]:
        return "in: not pulled yet"
    is_enough = pair is not None and pair[0] > pair[1]
    if not state.unbeaten[a] and not is_enough:
        return "out: it was beaten"
    if a == kind.leader:
        return "leads"
    if is_enough and settings.epsilon and state.in_play[a]:
        return f"settled: {leader} is at most {settings.epsilon:g} worse"
    if is_enough:
        return f"out: {leader} beats it" if kind.by_pairs else "out: it is not the best"
    if not state.in_play[a]:
        return "out: dropped without proof"
    if may_be_best is False:
        return "in, though it is not the best"
    return "in: closest rival" if a == rival and state.ended is None else "in"


def running_cost(state: Any, a: int) -> float | None:
    """What an arm costs to run; once the study has stopped, what it cost then, since the decision is based on that."""
    if state.costs_at_stop is not None:
        return state.costs_at_stop[a]  # type: ignore[no-any-return]
    known = state.running_costs[a]
    return known if math.isfinite(known) else None


class Looking:
    """What a state says of itself, as it is shown; each kind of study adds what only its state can say."""

    counts_in_order, by_pairs = True, True
    tied: Sequence[int] = ()

    def __init__(self, state: Any, leader: int | None, *, shows: bool = True) -> None:
        self.state, self.settings, self.leader, self.shows = state, state.settings, leader, shows
        self.pairs: Pairs = state.pairs(leader) if shows else [None] * len(self.settings.arms)

    def remaining(self) -> Remaining | None:
        return self.state.remaining() if self.shows else None

    def progress(self, remaining: Remaining | None) -> float | None:
        if remaining is None:
            return 0.0 if self.shows and not self.settings.spends_budget else None
        return self.state.progress(remaining)  # type: ignore[no-any-return]

    def closest(self) -> tuple[int, float, float] | None:
        """None after late results, if another arm leads now."""
        return self.state.closest() if self.shows and self.leader == self.state.leader else None

    def confidence(self) -> float | None:
        return self.state.confidence() if self.shows else None

    def more(self) -> dict[str, Any]:
        """Fields of the status that are as they were set."""
        lists = {name: list(getattr(self.settings, name)) for name in ("joined", "dropped")}
        return {name: getattr(self.settings, name) for name in AS_SET} | lists


class SampledLooking(Looking):
    """Of a study without items."""

    state: SampledState

    def __init__(self, state: SampledState, leader: int | None) -> None:
        super().__init__(state, leader, shows=state.settings.can_test and state.setup.shows_evidence)

    def equal_cost(self) -> float | None:
        return equal_cost(self.state, self.leader) if self.shows and self.leader is not None else None

    def known(self, rival: int | None, *, is_decided: bool) -> known.Known | None:
        return known.known_of(self.state, self.leader, rival, decided=is_decided)

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
        return super().more() | {
            "policy": settings.policy.address, "threshold": settings.threshold.address,
            "proven": settings.threshold.is_proven_for(settings.family),
            "certified": settings.is_certified and told <= (settings.certified_pulls or 0),
            "certified_pulls": settings.certified_pulls,
            "would_decide": settings.is_present and state.ended is None and state.would_decide,
            "unused": 0 if state.ended is None else state.waiting_at_stop,
        }  # fmt: skip


class RaceLooking(Looking):
    """Of a study with items."""

    state: RaceState
    counts_in_order = False

    def __init__(self, state: RaceState, leader: int | None) -> None:
        super().__init__(state, leader)
        self.race = state.race
        self.by_pairs = self.race.name == PAIRED
        self.tied = () if leader is None else known.tied_with(state, leader)
        self.told = np.count_nonzero(~np.isnan(self.race.scores), axis=1)

    def equal_cost(self) -> None:
        return None

    def known(self, rival: int | None, *, is_decided: bool) -> known.Known:
        return known.race_known_of(self.state, self.leader, rival, decided=is_decided)

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

    def warnings(self, arms: list[ArmStatus]) -> list[str]:
        return [text for a in range(len(arms)) if (text := warnings.failing(self.state, a))]

    def more(self) -> dict[str, Any]:
        return super().more() | {
            "policy": "lockstep", "threshold": self.race.name, "proven": True, "certified": False,
            "certified_pulls": None, "would_decide": False, "items": self.state.items.count,
            "full_cost": finite_or_none(float(self.state.full_costs().sum())), "is_complete": self.race.is_complete,
            "earlier": [arm for arm in self.state.items.earlier if arm not in self.state.settings.arms],
        }  # fmt: skip
