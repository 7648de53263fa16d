"""What the states of all kinds of studies share: pulls under way, bill, limits, and how each event changes them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.study.log import events as log
from cabai.study.log.events import RESULTS, Event, check_event, wrong
from cabai.study.settings import AMENDABLE, Settings
from cabai.study.state.progress import Remaining

ROUNDING = 1e-9  # of a budget: ten times 0.1 is 1, in spite of rounding
STEP = 16  # results between two points, or twice as many as there are arms: a point compares all of them
SHARE, FEW = 33, 3  # of the results so far, a part of 33 if that is more, and a third while that is less


@dataclass(slots=True)
class Lease:
    number: int
    arm: int
    item: int | None
    asked: float
    expires: float  # 0: it was released
    worker: str | None = None
    request: str | None = None
    offers: int = 1
    lapses: int = 0  # leases that ended without a result
    withdrawn: bool = False  # its arm is out: no result waits for it, and its own does not count


class Point(NamedTuple):
    """A study at one moment of its past."""

    told: int  # results so far
    time: float  # seconds since 1970
    spent: float
    arms: int  # still in play
    leader: str | None
    rival: str | None  # the arm that the leader was furthest from beating
    evidence: float | None  # of the leader over that rival, in nats
    required: float | None  # of it, to stop
    progress: float | None = None  # the share of the expected bill that was paid; 1 once it has stopped
    lead: float | None = None  # how much better than the next best in play the leader was, on average

    @classmethod
    def of(cls, state: Accounts, time: float) -> Point:
        """What cannot be computed is left out: something only shown must not keep a result from being stored."""
        names, found = state.settings.arms, dict[str, Any](leader=None, rival=None, evidence=None, required=None)
        with suppress(Exception):  # of a user's own code, perhaps
            leader, closest = state.leader, state.closest()
            found["leader"] = None if leader is None else names[leader]
            if leader is not None and closest is not None:
                rival, evidence, required = closest
                leads = [state.lead(leader, a) for a in {rival, *np.flatnonzero(state.in_play).tolist()} - {leader}]
                found["lead"] = min((each for each in leads if each is not None), default=None)
                found |= {"rival": names[rival], "evidence": finite_or_none(evidence)}
                found["required"] = finite_or_none(required)
            remaining = state.remaining()
            found["progress"] = None if remaining is None else state.progress(remaining)
        return cls(state.told, time, state.bill, int(state.in_play.sum()), **found)


class Verdict(NamedTuple):
    arm: int
    confidence: float


class Accounts:
    """A state: a fold over the events of a log. Only `take` changes it. Each kind of study adds:

    - `bill`; `rewards_told`, the number of pulls of each arm that returned a reward that was paid for here; `leader`,
      by the results that count; `in_play`; `running_costs`, with goal cheapest, inf where they are not known
    - `choose(extra)`, the arm and the item to pull next, or None while results under way may decide (it leaves no
      trace until it is asked); `next_if_idle()`, the arm to pull if nothing were under way
    - `verdict()`, the decision that the results which count show; `confidence()`, 1 - the smallest delta at which the
      leader would have been decided for by now; `closest()`, the rival that the leader is furthest from beating, the
      evidence against it, and what is required; `lead(b, a)`, how much better than a the arm b is on average
    - `estimate()`, what is still to come; `overflows(arm, reward, cost)`, whether sums become too large for a double
    - `result(event, lease)`: a pull has returned something, or failed; its accounts are settled
    """

    KEPT: tuple[str, ...] = ("place", "asked", "told", "in_sums", "ended", "told_at_stop", "bill_at_stop",
                             "costs_at_stop", "amendments", "points", "last_result")  # fmt: skip
    # What is known of each arm, in one array each: of pulls under way, the first two; else of those that were told.
    OF_ARMS: ClassVar[dict[str, Any]] = {
        "live": np.int64,  # that are waited for
        "gone": np.int64,  # that were withdrawn
        "spent": np.float64,
        "failures": np.int64,
        "largest_cost": np.float64,
        "offers": np.int64,
        "lapses": np.int64,
        "discarded": np.int64,  # rewards that are paid, and never count
    }

    def __init__(self, settings: Settings) -> None:
        self.settings, self.place = settings, 0  # the place of the last event
        self.asked = self.told = 0  # pulls handed out; results, of which sums count once for each arm
        self.in_sums = 0  # pulls that sums stand for, without one for each arm of a sum
        self.pulls: dict[int, Lease] = {}  # under way, by number
        for name, kind in self.OF_ARMS.items():
            setattr(self, name, np.zeros(len(settings.arms), kind))
        self.ended: Event | None = None
        self.told_at_stop, self.bill_at_stop = 0, 0.0
        self.costs_at_stop: list[float | None] | None = None  # running costs, with goal cheapest
        self.amendments: list[dict[str, Any]] = []  # made, by, changes, reopened
        self.points: list[Point] = []  # some of the past, for pictures
        self.last_result: float | None = None  # when it came

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What each kind of study has in its own way: see above."""

    @property
    def unbeaten(self) -> NDArray[Any]:
        """The arms that no test has beaten."""
        return self.in_play  # type: ignore[no-any-return]

    why_none = "the results told so far decide, once those of pulls asked before them are told"

    def kept_choice(self) -> str | None:
        """What the event of the last choice must say, where nobody can choose again: a user's own code did."""
        return None

    def claim(self) -> str | None:
        """What the evidence of the closest pair is for, in words, where that does not go without saying."""
        return None

    def wants(self, arm: int) -> bool:
        """Whether a lapsed pull of an arm is to be offered again."""
        return bool(self.in_play[arm])

    def remaining(self) -> Remaining | None:
        """What is still to come, as far as that can be told; it is only shown, so numbers too large are no error."""
        with suppress(ArithmeticError, ValueError):
            found = self.estimate()
            if found is None or all(map(math.isfinite, found[:5])):
                return found  # type: ignore[no-any-return]
        return None

    def progress(self, remaining: Remaining) -> float:
        """The share of the expected bill that is paid, from what is left and from the last point of the history."""
        before = next(((point.spent, point.progress) for point in reversed(self.points) if point.progress), None)
        return remaining.progress(None if before is None or before[1] == 1 else before)

    @property
    def next_point(self) -> int:
        """The number of results at which the next point of the history is due: 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, ..."""
        last = self.points[-1].told if self.points else 0
        return last + max(1, last // SHARE, min(last // FEW, max(STEP, 2 * len(self.settings.arms))))

    # The fold.

    def take(self, event: Event) -> None:
        """The only way to change a state: for one's own events, for those of others, and from the first one on."""
        if event.place != self.place + 1:
            raise ValueError(f"its log has event {event.place} after event {self.place}")
        getattr(self, f"_{event.kind}")(event)
        self.place = event.place
        if event.kind in RESULTS:
            self.last_result = event.time
            if self.ended is None and self.told >= self.next_point:
                self.points.append(Point.of(self, event.time))

    def take_all(self, events: Sequence[Event]) -> None:
        """The same of many, as they are read from a log."""
        for event in events:
            check_event(event, self.settings)
            self.take(event)

    def _ask(self, event: Event) -> None:
        assert event.arm is not None
        if event.pull != self.asked + 1:
            raise wrong(event, "pull")
        self.asked = number = event.pull
        expires = event.time + self.settings.lease
        self.pulls[number] = Lease(number, event.arm, event.item, event.time, expires, event.worker, event.request)
        self.live[event.arm] += 1

    def _lease(self, event: Event) -> None:
        """A pull is handed out again, or its lease begins again, is given back, or ends now."""
        pull = self.pulls[event.pull]  # type: ignore[index]
        if event.kind == log.OFFER:
            pull.lapses += pull.expires > 0
            pull.offers += 1
            pull.worker, pull.request = event.worker, event.request
        elif event.kind == log.RELEASE:
            pull.request = None
        pull.expires = {log.RELEASE: 0.0, log.LAPSE: event.time}.get(event.kind, event.time + self.settings.lease)

    _offer = _renew = _release = _lapse = _lease

    def _withdraw(self, event: Event) -> None:
        self.withdraw(self.pulls[event.pull])  # type: ignore[index]

    def withdraw(self, pull: Lease) -> None:
        if not pull.withdrawn:
            pull.withdrawn = True
            self.live[pull.arm] -= 1
            self.gone[pull.arm] += 1

    def _tell(self, event: Event) -> None:
        pull, a = self.pulls.pop(event.pull), event.arm  # type: ignore[arg-type]
        assert event.cost is not None
        if a != pull.arm or event.item != pull.item:
            raise wrong(event, "pull", "arm", "item")
        (self.gone if pull.withdrawn else self.live)[a] -= 1
        self.offers[a] += pull.offers
        self.lapses[a] += pull.lapses
        self.failures[a] += event.reward is None
        self.pay(a, event.cost)
        self.told += 1
        self.result(event, pull)

    def _lose(self, event: Event) -> None:
        self.pulls[event.pull].lapses += 1  # type: ignore[index]
        self._tell(event)

    def _counts(self, event: Event) -> None:
        raise ValueError("it has sums where none are possible")

    def _stop(self, event: Event) -> None:
        if self.settings.cheapest is not None:  # the decision is about these, whatever is told later
            self.costs_at_stop = list(map(finite_or_none, self.running_costs))
        self.ended, self.told_at_stop, self.bill_at_stop = event, self.told, self.bill
        last = self.amendments[-1] if self.amendments else {"place": None}
        if last["place"] == event.place - 1 and last["reopened"] == event.words:  # its limit was still reached
            last["reopened"] = None
        if self.points and self.points[-1].told == self.told:
            self.points.pop()
        self.points.append(Point.of(self, event.time)._replace(progress=1.0))

    def _amend(self, event: Event) -> None:
        changes = json.loads(event.words or "")
        if not set(changes) <= AMENDED:
            raise wrong(event, "words")
        stopped = None if self.ended is None else self.ended.words
        reopened = stopped if stopped in log.LIMITS and set(changes) & log.REOPENING else None
        self.amendments.append(
            {"made": event.time, "by": event.worker, "changes": changes, "reopened": reopened, "place": event.place}
        )
        before, self.settings = self.settings, self.settings.amended(**{name: to for name, (_, to) in changes.items()})
        Settings.stored(self.settings.to_json())  # an error if no study can have these
        for _ in self.settings.arms[len(before.arms) :]:
            self.join()
        if reopened is not None:
            self.ended, self.costs_at_stop = None, None

    def pay(self, a: int, cost: float, pulls: int = 1) -> None:
        self.spent[a] += cost
        self.largest_cost[a] = max(self.largest_cost[a], cost / pulls)

    def join(self) -> None:
        """One more arm, about which nothing is known."""
        for name, kind in self.OF_ARMS.items():
            setattr(self, name, np.append(getattr(self, name), np.zeros(1, kind)))

    # What the rules ask of it.

    def waited_for(self) -> list[Lease]:
        """The pulls under way whose results the study waits for."""
        return [pull for pull in self.pulls.values() if not pull.withdrawn]

    def limit(self) -> str | None:
        """The limit on pulls that is reached with those under way, if any."""
        pulls, most = self.told + self.in_sums + len(self.pulls), self.settings
        if most.max_pulls is not None and pulls >= most.max_pulls:
            return log.MAX_PULLS
        return log.CERTIFICATE if most.certified_pulls is not None and pulls >= most.certified_pulls else None

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left of the budget."""
        limit = self.settings.max_cost
        return limit is not None and bool(self.bill >= limit * (1 - ROUNDING))

    @property
    def rest_of_budget(self) -> float | None:
        limit = self.settings.max_cost
        return None if limit is None else max(limit - self.bill, 0.0)

    @property
    def knows_cost(self) -> NDArray[np.bool_]:
        """The arms whose cost per pull is known: all if costs are given, else those with a reward."""
        return (self.rewards_told > 0) | (self.settings.costs is not None)  # type: ignore[no-any-return]

    def affords(self, arm: int, without: int = 0) -> bool:
        """Whether the budget pays for one more pull of an arm in addition to those under way, `without` some of it.

        A pull reserves its arm's known cost, or the largest cost of its arm so far; a withdrawn one too, which may
        still be told. An arm whose cost is not known may be pulled while something is left, one pull at a time, which
        reserves the largest cost of any arm so far.
        """
        limit, pending = self.settings.max_cost, self.live + self.gone
        if limit is None:
            return True
        pending[arm] -= without
        if self.settings.costs is not None:
            reserved = np.array(self.settings.costs)
        else:
            reserved = np.where(self.largest_cost > 0, self.largest_cost, self.largest_cost.max())
        with np.errstate(all="ignore"):
            left = limit - self.bill - (pending * reserved).sum()
        if self.knows_cost[arm]:
            return bool(reserved[arm] <= left + limit * ROUNDING)
        return bool(pending[arm] == 0 and left > limit * ROUNDING)

    def paid_costs(self) -> NDArray[np.float64]:
        """What a reward of each arm costs, even if the policy ignores costs; nan where nothing is known."""
        if self.settings.costs is not None:
            return np.array(self.settings.costs)
        with np.errstate(all="ignore"):
            return self.spent / (self.rewards_told + self.discarded)  # type: ignore[no-any-return]

    # Snapshots.

    def snapshot(self) -> dict[str, Any]:
        kept = {name: packed(getattr(self, name)) for name in (*self.KEPT, *self.OF_ARMS)}
        pulls = [[getattr(pull, name) for name in pull.__slots__] for pull in self.pulls.values()]
        return kept | {"pulls": pulls, "settings": self.settings.to_json()}

    def restore(self, kept: dict[str, Any]) -> None:
        """The same, of a state that is new."""
        for name in self.KEPT:
            setattr(self, name, kept[name])
        for name in self.OF_ARMS:
            unpack(getattr(self, name), kept[name])
        self.ended = None if self.ended is None else Event._make(self.ended)
        self.points = [Point._make(each) for each in self.points]
        self.pulls = {each[0]: Lease(*each) for each in kept["pulls"]}


AMENDED = {*AMENDABLE, "arms", "costs", "joined", "dropped"}


def packed(value: Any) -> Any:
    """An array, perhaps of records, as JSON: its type and its bytes. Anything else is as it is."""
    if not isinstance(value, np.ndarray):
        return value
    kind = value.dtype.str if value.dtype.names is None else value.dtype.descr
    return kind, base64.b64encode(value.tobytes()).decode()


def unpack(values: NDArray[Any], kept: Sequence[Any], *, some: bool = False) -> None:
    """Put an array back. Its fields must be the same; with `some`, those that are known here will do."""
    kind, text = kept
    if not isinstance(kind, str):
        kind = [(name, of, *map(tuple, shape)) for name, of, *shape in kind]
    found = np.frombuffer(base64.b64decode(text), kind).reshape(values.shape)
    if some:
        for name in set(values.dtype.names or ()) & set(found.dtype.names or ()):
            values[name] = found[name]
    elif found.dtype != values.dtype:
        raise ValueError("its snapshot has other fields")
    else:
        values[...] = found


def finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
