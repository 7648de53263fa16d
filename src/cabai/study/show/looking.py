"""The status of a study, from its state."""

from __future__ import annotations

import itertools
import math
import statistics
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import BEST, CHEAPEST
from cabai.core.observe import weigh
from cabai.core.state import Record, copy_of, copy_of_all
from cabai.study.current import Row
from cabai.study.log.events import ACCEPTED, DECISIONS, EVIDENCE
from cabai.study.rules import warnings
from cabai.study.show.known import closed, known_of, ranks, tied_with
from cabai.study.show.status import ArmStatus, Forecast, Status
from cabai.study.stand_ins import is_own
from cabai.study.state.accounts import finite_or_none
from cabai.study.state.progress import prices, variances_of

AS_SET = ("direction", "delta", "max_pulls", "goal", "slack", "reserve")
OF_ALL = ("pulls", "waiting", "discarded", "failures")  # of all arms together
LATELY = 9  # points of the history that say how fast results come
MOST_PULLS = 2**40  # pulls of an arm
SUMS = "up", "down", "squares"  # what thresholds keep of the rewards that count
WALKS, STEP = 200, 1.06  # random walks; their looks are at pulls that grow by this factor
EARLY, LATE = -45, 30  # the first and the last look: before and after the n of the closest rival
MATTERS = 4  # rivals that need fewer pulls than the closest one by this factor do not


class Look:
    def __init__(self, state: Any) -> None:
        self.state, self.settings, self.names, ended = state, state.settings, state.settings.arms, state.ended
        self.why = None if ended is None else ended.words
        self.is_decided = self.why in DECISIONS
        self.leader = state.leader if ended is None else ended.arm
        self.remaining = state.remaining() if ended is None and state.shows else None

    def listed(self, row: Row) -> dict[str, Any]:
        """What a list shows of a study: of its status, what takes no tests in addition to the study's own."""
        state, remaining, leader = self.state, self.remaining, None if self.leader is None else self.names[self.leader]
        progress = 0.0 if state.shows and not self.settings.policy.spends_budget else None
        if state.ended is not None or remaining is not None:
            progress = 1.0 if remaining is None else state.progress(remaining)
        return {
            "name": row.name, "created": row.created, "stopped": state.ended is not None,
            "decision": leader if self.is_decided else None, "leader": leader, "progress": progress,
            "looks_tied": remaining is not None and remaining.looks_tied, "spent": state.bill,
            "max_cost": self.settings.max_cost, "last_result": state.last_result,
        }  # fmt: skip


class WholeLook(Look):
    def __init__(self, state: Any) -> None:
        super().__init__(state)
        leader, settings = self.leader, self.settings
        self.is_cheapest = settings.goal == CHEAPEST
        # After late results, another arm may lead now.
        self.closest = state.closest() if state.shows and leader == state.leader else None
        self.rival = None if self.closest is None else self.closest[0]
        self.pairs = state.pairs(leader) if state.shows else [None] * len(self.names)
        self.tied = tied_with(state, leader) if settings.items is not None and leader is not None else []
        rival = None if self.is_cheapest else self.rival
        self.known = known_of(state, leader, rival, decided=self.why == EVIDENCE)
        self.better = None if self.known.better is None else closed(self.known.better)
        self.ranks = None if self.better is None else ranks(self.better)
        self.costs = state.paid_costs()
        # What arms cost to run; once the study has stopped, what they cost then: the decision is based on that.
        running = state.running_costs if self.is_cheapest else ()
        self.running_costs = state.costs_at_stop or list(map(finite_or_none, running))

    def share(self, a: int) -> float | None:
        """The evidence of the leader over an arm, as a share of what is required of it."""
        pair = self.pairs[a]
        if pair is None or a == self.leader or self.is_cheapest or self.names[a] in self.settings.dropped:
            return None
        if not self.state.unbeaten[a]:
            return 1.0
        evidence, required = pair
        return min(max(evidence / required, 0.0), 1.0) if math.isfinite(required) and required > 0 else None

    def standing(self, a: int, pulls: int, may_be_best: bool | None, excluded: bool) -> str:
        """In or out, and why, in words."""
        state, settings, pair = self.state, self.settings, self.pairs[a]
        leader = "" if self.leader is None else self.names[self.leader]
        is_enough, is_in_play = pair is not None and pair[0] > pair[1], state.in_play[a]
        decided = "the cheapest shown to be good enough" if self.is_cheapest else "best"
        standings = {
            f"{decided}: decided": a == self.leader and self.is_decided,
            "out: too bad to be the answer": excluded,
            "out: dropped by hand": self.names[a] in settings.dropped,
            f"tied with {leader}: the same total on all items": a in self.tied,
            "in: not pulled yet": pulls == 0,
            "out: it was beaten": not state.unbeaten[a] and not is_enough,
            "leads": a == self.leader,
            f"settled: {leader} is at most {settings.epsilon:g} worse": is_enough and settings.epsilon and is_in_play,
            f"out: {leader} beats it" if settings.decides_by_pairs else "out: it is not the best": is_enough,
            "out: dropped without proof": not is_in_play,
            "in, though it is not the best": may_be_best is False,
            "in: closest rival": a == self.rival and state.ended is None,
        }
        return next((words for words, is_so in standings.items() if is_so), "in")

    def arm(self, a: int) -> ArmStatus:
        state = self.state
        under_way = [pull for pull in state.pulls.values() if pull.arm == a]
        pulls, waiting, mean = state.counted(a)
        low, high = state.interval(a)
        behind = None if self.leader is None or a == self.leader else state.lead(self.leader, a)
        may_be_best = None if self.known.may_be_best is None else bool(self.known.may_be_best[a])
        excluded = self.is_cheapest and bool(state.is_excluded(a))
        return ArmStatus(
            name=self.names[a],
            pulls=pulls,
            waiting=waiting,
            discarded=int(state.discarded[a]),
            failures=int(state.failures[a]),
            under_way=len(under_way),
            offers=int(state.offers[a]) + sum(pull.offers for pull in under_way),
            lapses=warnings.lapses_of(state, a),
            mean=mean,
            low=finite_or_none(low),
            high=finite_or_none(high),
            cost=finite_or_none(self.costs[a]),
            spent=float(state.spent[a]),
            in_play=bool(state.in_play[a]),
            standing=self.standing(a, pulls, may_be_best, excluded),
            share=self.share(a),
            behind=None if behind is None else finite_or_none(behind),
            may_be_best=may_be_best,
            ranks=None if self.ranks is None else self.ranks[a],
            better_than=None if self.better is None else [self.names[b] for b in self.better[a].nonzero()[0]],
            running_cost=self.running_costs[a] if self.is_cheapest else None,
            excluded=excluded,
        )


def status_of(state: Any, row: Row, now: float) -> Status:
    """The status of a study at this time."""
    look, settings, ended, names = WholeLook(state), state.settings, state.ended, state.settings.arms
    leader, rival, is_accepted = look.leader, look.rival, look.why == ACCEPTED
    arms = list(map(look.arm, range(len(names))))
    together = {name: sum(getattr(arm, name) for arm in arms) for name in OF_ALL}
    missing = [pull.number for pull in state.waited_for()]
    waits = together["waiting"] and missing and ended is None and settings.items is None
    evidence, required = (None, None) if look.closest is None else map(finite_or_none, look.closest[1:])
    leads = None if leader is None or rival is None or look.is_cheapest else state.lead(leader, rival) or 0.0
    error = 1 - ended.reward if is_accepted else settings.error
    is_equal_shown = look.why == EVIDENCE and state.shows and settings.items is None
    return Status(
        **look.listed(row),
        **{name: getattr(settings, name) for name in AS_SET},
        **state.about(),
        **together,
        family=settings.family.address,
        epsilon=ended.cost if is_accepted else settings.epsilon,
        arms=arms,
        waiting_for=f"{row.token}-{min(missing)}" if waits else None,
        under_way=len(state.pulls),
        lapsed=sum(pull.expires <= now for pull in state.pulls.values()),
        late=0 if ended is None else state.told - state.told_at_stop,
        spent_late=0.0 if ended is None else state.bill - state.bill_at_stop,
        ended=None if ended is None else ended.time,
        rival=None if rival is None else names[rival],
        evidence=evidence,
        required=required,
        confidence=ended.reward if ended is not None else state.confidence() if state.shows else None,
        reason=look.why,
        warnings=warnings.all_of(state),
        within=look.known.within,
        at_most=state.at_most() if ended is None else 0.0,
        forecast=None if look.remaining is None else forecast_of(state, look.remaining),
        lead=None if leads is None else finite_or_none(leads),
        lead_at_most=look.known.lead,
        equal_cost=equal_cost(state, leader) if is_equal_shown else None,
        claim=None if look.closest is None else state.claim(),
        imported=settings.elsewhere,
        amended=len(state.amendments),
        error=None if math.isclose(error, settings.delta) else error,
        joined=list(settings.joined),
        dropped=list(settings.dropped),
        tied=[names[a] for a in look.tied],
    )


def forecast_of(state: Any, remaining: Any) -> Forecast:
    """What is still to come, in money, and in time by the median pace of late: a pause does not count."""
    stretches = itertools.pairwise(state.points[-LATELY:])
    paces = [(b.time - a.time) / (b.told - a.told) for a, b in stretches if b.told > a.told]
    found = list[float]()
    if len(paces) > 1 and remaining.cost > 0:
        each = statistics.median(paces) * remaining.results / remaining.cost
        found = [each * remaining.low, each * remaining.high]
    return Forecast(remaining.low, remaining.high, remaining.chance, *found)


def equal_cost(state: Any, leader: int) -> float | None:
    """About what a decided study would have cost if all its arms had been tested equally often; None where arms have
    come or gone, for a threshold from outside, and where numbers are too large for it.

    With n pulls of every arm and the means that the study has found, its own test would be passed at some n for the
    closest rival: found by bisection. What every arm's records sum up grows in proportion to its pulls. The test is
    passed earlier or later by chance, and the last of several rivals decides: for that, the sums are followed as normal
    random walks, all with the evidence that the closest rival needs.
    """
    settings = state.settings
    if settings.goal != BEST or settings.dropped or settings.joined or is_own(settings.threshold.address):
        return None
    with suppress(ArithmeticError, ValueError):  # it is only shown
        return equal_cost_of(state, leader)
    return None


def equal_cost_of(state: Any, leader: int) -> float | None:
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
            if high > MOST_PULLS:
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
