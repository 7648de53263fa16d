"""The state of a study whose arms are sampled: what its policy sees, and what its test has counted."""

from __future__ import annotations

import copy
import heapq
import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cabai.core.kernels import with_part
from cabai.core.observe import credit, find_leader, observe_sum
from cabai.core.state import Record, Records, copy_of, copy_of_all
from cabai.simulation.truth import open_streams
from cabai.study.log.events import ASK, MAY_DECIDE, TELL, Event, check_event, wrong
from cabai.study.settings import Settings
from cabai.study.state.accounts import Accounts, Lease, Point, Verdict, packed, unpack
from cabai.study.state.evidence import Evidence
from cabai.support.streams import GOLDEN
from cabai.support.validation import InvalidInput

WORTH_COMPILING = 20_000  # events: fewer are taken sooner one by one
FEW = 8  # pulls to be taken at once


class View:
    """The records of the arms and of the run after some of the results."""

    def __init__(self, arms: NDArray[Any], run: Any, *, is_complete: bool = False) -> None:
        self.arms, self.run = arms, run
        self._is_complete = is_complete  # the following, once it is true

    def copy(self) -> View:
        return View(copy_of_all(self.arms), copy_of(self.run), is_complete=self._is_complete)

    @property
    def everything_pulled(self) -> bool:
        """Whether every arm that is not out has returned a reward, so that policies can be asked."""
        if not self._is_complete:
            self._is_complete = bool(((self.arms["pulls"] > 0) | (self.arms["in_play"] == 0)).all())
        return self._is_complete

    @property
    def leader(self) -> int | None:
        return int(self.run["leader"]) if self.run["leader"] >= 0 else None

    def find_leader(self) -> None:
        """Find the leader again, after arms were dropped."""
        self.run["leader"], self.run["second"] = -1, -np.inf
        for a in np.flatnonzero((self.arms["in_play"] > 0) & (self.arms["pulls"] > 0)):
            find_leader(Records(self.arms), Record(self.run), a)


class SampledState(Evidence):
    """There are two views of a study. `told_view` has everything told so far: the policy chooses from it. `ordered` has
    the results of the pulls before the first missing one, in the order of asking: the test decides from it, since only
    in that order does its proof hold whatever the delays. While no result waits for an earlier one, both are the same
    object."""

    KEPT = (*Accounts.KEPT, "through", "decided", "waiting_at_stop")
    OF_ARMS: ClassVar = {
        **Accounts.OF_ARMS,
        "squares": np.float64,  # of rewards that count, about the arm's first; nan where unknown
    }

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.told_view = self.ordered = View(*settings.start).copy()
        self.told_view.run["stream"] = first_coin(settings.seed)
        self.here = np.array([name not in settings.dropped for name in settings.arms])  # not dropped by hand
        self.summed: set[int] = set()  # arms whose first reward is not known, only a sum with it: `first` is a mean
        self.through = 0  # no result up to this pull is still to count
        self.waiting: dict[int, tuple[int, float, float]] = {}  # told, not counted: arm, reward, cost, by number
        self.waiting_order: list[int] = []  # a heap of their numbers
        self.waiting_at_stop = 0  # how many there were
        self.decided = False  # by the results that count
        self._choice: Any = None  # the next, if it is known
        self._pairs = {}
        self._ahead: tuple[bool, int] | None = None  # what the results in hand would decide, if it is known

    @property
    def bill(self) -> float:
        return float(self.told_view.run["spent"])

    @property
    def rewards_told(self) -> NDArray[np.int64]:
        told: NDArray[np.int64] = self.told_view.arms["pulls"]
        return told

    @property
    def has_waiting(self) -> bool:
        """Whether results were told that do not count yet."""
        return self.ordered is not self.told_view

    @property
    def views(self) -> tuple[View, ...]:
        return (self.told_view, self.ordered) if self.has_waiting else (self.told_view,)

    @property
    def leader(self) -> int | None:
        return self.ordered.leader

    @property
    def in_play(self) -> NDArray[Any]:
        in_play: NDArray[Any] = self.ordered.arms["in_play"]
        return in_play

    @property
    def unbeaten(self) -> NDArray[Any]:
        return self.here if self.settings.policy.spends_budget else self.in_play

    # Events.

    def take(self, event: Event) -> None:
        self._pairs = {}
        if event.kind in MAY_DECIDE:
            self._ahead = None
        if self.decided and event.kind != "stop":  # another version of cabai went on here: so does the count
            self.decided, self._ahead = False, None
            self.count()
        super().take(event)
        self._choice = None

    def take_all(self, events: Sequence[Event]) -> None:
        """Many pulls that were made one by one, as by a single worker, are taken at once."""
        if len(events) < WORTH_COMPILING:
            return super().take_all(events)
        begin = 0
        while begin < len(events):
            count = self._alone(events, begin)
            if count >= FEW:
                begin += self._replay(events, begin, count)
            else:
                super().take_all(events[begin : begin + max(2 * count, 1)])
                begin += max(2 * count, 1)

    def _alone(self, events: Sequence[Event], begin: int) -> int:
        """How many of the next pulls one worker made, one by one, up to the next point of the history."""
        settings, busy = self.settings, self.pulls or self.has_waiting or self.ended or self.decided
        if busy or not self.told_view.everything_pulled:
            return 0
        if settings.own or settings.reserve is not None or settings.dropped or settings.certified_pulls is not None:
            return 0  # not cabai's own code, or other rules for some arms
        count, most = 0, min((len(events) - begin) // 2, self.next_point - self.told)
        while count < most:
            asked, told = events[begin + 2 * count], events[begin + 2 * count + 1]
            if asked.kind != ASK or told.kind != TELL or told[3:5] != asked[3:5] or told.reward is None:
                break
            if asked.pull != self.asked + 1 + count or self.through + 1 + count != asked.pull:
                break
            count += 1
        return count

    def _replay(self, events: Sequence[Event], begin: int, count: int) -> int:
        """Take that many pulls; returns the number of events that were taken."""
        told = events[begin + 1 : begin + 2 * count : 2]
        known, settings = self.settings.steering_costs, self.settings
        for event in told:
            check_event(event, settings)
        pulled = np.array([event.arm for event in told], np.int64)
        rewards = np.array([settings.seen(event.reward) for event in told])  # type: ignore[arg-type]
        costs = np.array([event.cost for event in told], np.float64)
        counted = costs if known is None else np.array(known)[pulled]
        view, sums = self.told_view, (self.offers, self.spent, self.largest_cost, self.squares)
        taken = settings.kernels.replay(view.arms, view.run, (pulled, rewards, counted, costs), sums)
        if taken is None:
            super().take_all(events[begin : begin + 2 * count])
            return 2 * count
        last = told[taken - 1]
        self.asked = self.through = int(last.pull)  # type: ignore[arg-type]
        self.told += taken
        self.place, self._ahead, self._choice, self.last_result = last.place, None, None, last.time
        self._pairs = {}
        self.decided = taken < count or self._decides()
        if self.told >= self.next_point:
            self.points.append(Point.of(self, last.time))
        return 2 * taken

    def _ask(self, event: Event) -> None:
        draws = self.settings.policy.draws
        if self._choice is not None:
            self._keep(self._choice)
        elif event.words is not None:
            self._keep_fields(json.loads(event.words))
        elif draws is not None and self.told_view.everything_pulled and self.live.any():
            # Another worker chose, with pulls under way: all that is kept of it is where the random numbers are.
            self.told_view.run["stream"] = (int(self.told_view.run["stream"]) + draws * int(GOLDEN)) % 2**64
        elif self.settings.is_present:
            self._keep(self._choose())
        super()._ask(event)

    def _withdraw(self, event: Event) -> None:
        super()._withdraw(event)
        self.count()

    def _stop(self, event: Event) -> None:
        super()._stop(event)
        self.waiting_at_stop = len(self.waiting)

    def result(self, event: Event, lease: Lease) -> None:
        a, cost = lease.arm, float(event.cost)  # type: ignore[arg-type]
        is_next = lease.number == self.through + 1 and not (self.has_waiting or self.ended or lease.withdrawn)
        if event.reward is None:
            self._fail(a, cost)
        elif lease.withdrawn:
            self._discard(a, 1, cost)
        else:
            seen = self.settings.seen(event.reward)
            if not is_next:
                self.waiting[lease.number] = a, seen, cost
                heapq.heappush(self.waiting_order, lease.number)
                if not self.has_waiting:
                    self.ordered = self.told_view.copy()
                    self._forget(self.ordered)
            self._observe(self.told_view, a, seen, cost)
        if is_next:
            self.through = lease.number
            self.decided = event.reward is not None and self._decides()
        self.count()

    def _import(self, event: Event) -> None:
        """It counts at once, for a test of pairs only, since the order of asking is not known; the last may decide."""
        a, cost = int(event.arm), float(event.cost)  # type: ignore[arg-type]
        if event.reward is None:
            self.failures[a] += 1
            self._fail(a, cost)
        else:
            self._observe(self.told_view, a, self.settings.seen(event.reward), cost, self.settings.pairs.rules)
        self.pay(a, cost)
        self._number(event)

    def _counts(self, event: Event) -> None:
        """Sums count together. Pulls of arms that are out, or told after the end, are only paid."""
        counts = json.loads(event.words or "")
        arms, run, rules = Records(self.told_view.arms), Record(self.told_view.run), Record(self.rules)
        seen, known = self.settings.seen_sum, self.settings.steering_costs
        if self.ended is None:  # what they count for is decided before the period
            for a, pulls, reward, _ in counts:
                self.setup.bound(credit)(arms, run, rules, a, pulls, seen(pulls, reward))
        for a, pulls, reward, cost in counts:
            if self.ended is None and self.here[a]:
                if arms[a].pulls == 0:
                    self.summed.add(a)
                charged, self.squares[a] = cost if known is None else known[a] * pulls, math.nan
                with np.errstate(all="ignore"):
                    self.setup.bound(observe_sum)(arms, run, rules, a, pulls, seen(pulls, reward), cost, charged)
            else:
                self._discard(a, pulls, cost)
            self.offers[a] += pulls
            self.spent[a] += cost
            self.largest_cost[a] = max(self.largest_cost[a], cost / pulls)
            self.in_sums += pulls - 1
        self._number(event, len(counts))
        if self.ended is None and event.worker is None:
            self._forget(self.told_view)
            self.decided = self._decides()

    def _number(self, event: Event, count: int = 1) -> None:
        """Results that nobody asked for have numbers too."""
        if event.pull != self.asked + 1:
            raise wrong(event, "pull")
        self.asked += count
        self.told += count
        if self.ended is None:
            self.through = self.asked
        if self.asked == self.settings.elsewhere:  # the last of those that were imported
            self.decided = self._decides()

    def _fail(self, a: int, cost: float) -> None:
        """A failed pull is part of what a reward of its arm costs."""
        with np.errstate(all="ignore"):
            for view in self.views:
                view.run["spent"] += cost
                if self.settings.costs is None and not self.rules["cost_blind"]:
                    arm = Record(view.arms[a])
                    arm.costs += cost
                    view.run["counted"] += cost
                    if arm.pulls > 0:
                        arm.cost = arm.costs / arm.pulls

    def _discard(self, a: int, pulls: int, cost: float) -> None:
        self.discarded[a] += pulls
        with np.errstate(all="ignore"):
            for view in self.views:
                view.run["spent"] += cost

    def _observe(self, view: View, a: int, reward: float, cost: float, rules: Any = None) -> None:
        known = self.settings.steering_costs
        counted = cost if known is None else known[a]
        self.settings.kernels.observe(view.arms, view.run, a, reward, counted, rules)
        if counted != cost:
            with np.errstate(all="ignore"):
                view.run["spent"] += cost - counted
        if view is self.ordered:
            away = reward - float(view.arms[a]["first"])
            self.squares[a] = float(self.squares[a]) + away * away

    def count(self) -> None:
        """Count, in the order of asking, the results that no longer wait for an earlier pull, until they decide."""
        if self.ended or self.decided or not self.has_waiting:
            return
        missing = next((pull.number for pull in self.pulls.values() if not pull.withdrawn), self.asked + 1)
        while self.waiting_order and self.waiting_order[0] < missing:
            number = heapq.heappop(self.waiting_order)
            self._observe(self.ordered, *self.waiting.pop(number))
            self.through = number
            if self._decides():
                self.decided = True
                return
        if not self.waiting:
            told, self.told_view = self.told_view, self.ordered
            for name in ("stream", "counted", "spent", *self.settings.policy.keeps):
                self.told_view.run[name] = told.run[name]

    def _forget(self, view: View) -> None:
        """Forget earlier choices and tests, in a view that not all were made on; of arms, what can be found again."""
        arms, run = self.settings.start
        for name in self.settings.policy.run_memory:
            view.run[name] = run[name]
        for name in set(self.settings.policy.arm_memory) - set(self.settings.policy.keeps_of_arms):
            view.arms[name] = arms[name]

    def _amend(self, event: Event) -> None:
        before = self.settings
        super()._amend(event)
        for arm in self.settings.dropped[len(before.dropped) :]:
            self._drop(self.settings.arms.index(arm))
        if len(self.settings.arms) > len(before.arms):
            self.join()
        is_new_test = (self.settings.dropped, self.settings.epsilon) != (before.dropped, before.epsilon)
        if (self.settings.epsilon, self.settings.budget) != (before.epsilon, before.budget):
            self._reset_policy()
        self.count()
        if is_new_test and not self.decided and self.ended is None:
            self.decided = self._decides()

    def _drop(self, a: int) -> None:
        """Drop arm a by hand, whatever it has returned; its pulls under way are withdrawn."""
        self.here[a] = False
        self._reset_policy()
        for view in self.views:
            view.run["left"] -= int(view.arms[a]["in_play"])
            view.arms[a]["in_play"] = 0
            view.find_leader()
        for pull in self.waited_for():
            if pull.arm == a:
                self.withdraw(pull)

    def join(self) -> None:
        super().join()
        for view in self.views:
            old, view.arms = view.arms, self.settings.start[0].copy()
            view.arms[:-1] = old
            view.run["left"] += 1
            view._is_complete = False
        self.here = np.append(self.here, True)
        self._reset_policy()

    def _reset_policy(self) -> None:
        """Forget earlier choices: from now on, the arms to choose from, or the budget, are others."""
        for view in self.views:
            self._forget(view)
            view.run["rival"] = -1
            if self.settings.policy.spends_budget:  # a new plan, in which arms that were dropped are back
                view.arms["in_play"], view.run["left"] = self.here, np.count_nonzero(self.here)
                view.find_leader()

    # The test.

    def verdict(self) -> Verdict | None:
        leader = self.leader
        return Verdict(leader, max(1 - self.settings.error, 0.0)) if self.decided and leader is not None else None

    def _decides(self) -> bool:
        """Whether the results that count decide; arms that they drop are out for good."""
        certified, left = self.settings.certified_pulls, int(self.ordered.run["left"])
        if (certified is not None and self.through > certified) or not self.settings.is_present:
            return False
        stops = self._stops(self.ordered)
        if self.has_waiting and left != self.ordered.run["left"]:
            self.told_view.arms["in_play"] = self.ordered.arms["in_play"]
            self.told_view.run["left"] = self.ordered.run["left"]
            self.told_view.find_leader()
        return stops

    def _stops(self, view: View) -> bool:
        stop = self.settings.kernels.stop
        return view.everything_pulled and bool(self._called(stop, view.arms, view.run, self.here))

    def _called(self, function: Callable[..., Any], arms: Any, run: Any, among: NDArray[Any]) -> Any:
        """What a function of the policy returns, as if there were no other arms than those `among` which it chooses."""
        count = int(np.count_nonzero(among))
        rules = self.settings.rules_for(int(run["leader"]), count)
        if count == len(arms):
            return function(arms, run, rules)
        return with_part(arms, run, np.flatnonzero(among), lambda part, own: function(part, own, rules))

    def _look_ahead(self) -> tuple[bool, int]:
        """Whether what was told would decide if the missing results were left out; if not, the rival in the way."""
        if self._ahead is None:
            trial = self.told_view.copy()
            self._forget(trial)
            self._ahead = self._stops(trial), int(trial.run["rival"])
        return self._ahead

    @property
    def would_decide(self) -> bool:
        """Whether the results told so far would decide if the missing ones were left out."""
        return self.has_waiting and self._look_ahead()[0]

    # The policy.

    def choose(self, extra: int = 0, batch: int = 0, arm: int | None = None) -> tuple[int, int | None] | None:
        if self.would_decide:
            return None
        if self._choice is None:
            self._choice = self._choose()
        return self._choice[0], None

    def next_if_idle(self) -> int:
        return int(self._choose(np.zeros(len(self.here), np.int64))[0])

    def trial(self) -> SampledState:
        """A copy, to look at later or to try something out; it can take no events."""
        other = copy.copy(self)
        other.told_view, other._pairs = self.told_view.copy(), {}
        other.ordered = self.ordered.copy() if self.has_waiting else other.told_view
        for name in self.OF_ARMS:
            setattr(other, name, getattr(self, name).copy())
        return other

    def choose_after(self, pulls: Sequence[int]) -> int:
        """In a trial, the arm for the next pull if this many pulls of each were under way, and nothing else."""
        choice = self._choose(np.asarray(pulls))
        self._keep(choice)
        return choice[0]

    def _choose(self, pending: NDArray[np.int64] | None = None) -> tuple[int, Any, Any, bool]:
        """The arm, the records that choosing has left, if any, and whether pulls are under way: they count as pulled,
        at the arm's mean reward and cost, when choosing; never as evidence."""
        pending = self.live if pending is None else pending
        among, view = self.here, self.told_view
        if not view.everything_pulled:
            among, first = self.here & (view.arms["pulls"] > 0), self.settings.first_arms
            if not among[:first][self.here[:first]].all() or among.sum() < 2:
                return self._first_round(pending), None, None, True
            new = np.flatnonzero(self.here & ~among & (pending == 0))
            if len(new):  # an arm that has just joined
                return int(new[0]), None, None, True
        arms, run, is_pending = copy_of_all(view.arms), copy_of(view.run), bool(pending.any())
        if self.has_waiting:  # the rival that keeps the results in hand from deciding
            run["rival"] = self._look_ahead()[1]
        if is_pending:
            arms["pulls"] += pending
            arms["rewards"] += pending * arms["mean"]
            arms["costs"] += pending * arms["cost"]
            run["t"] += pending.sum()
            run["counted"] += (pending * arms["cost"]).sum()
        chosen = self._called(self.settings.kernels.choose, arms, run, among)
        if np.count_nonzero(among) < len(arms):
            chosen = int(np.flatnonzero(among)[chosen])
        if not 0 <= chosen < len(arms):
            raise InvalidInput(f"policy {self.settings.policy} chose an arm that does not exist.")
        return chosen, arms, run, is_pending

    def _first_round(self, pending: NDArray[np.int64]) -> int:
        """Until every arm has returned a reward: an arm of which nothing is known or under way; else the arm that CO
        would pull. An arm whose first reward is still to come is then taken to cost what the others do, so that one
        result that is long in coming does not leave all workers with the other arms; but with a budget it waits until
        its cost is known."""
        arms = self.told_view.arms
        trials = np.where(self.here, arms["pulls"] + pending, np.iinfo(np.int64).max)
        known = self.here & (arms["pulls"] > 0)
        if not trials.all() or not known.any():
            return int(np.argmin(trials))
        costs = np.where(known, arms["cost"], arms["cost"][known].mean())
        candidates = self.knows_cost & self.here if self.settings.max_cost is not None else self.here
        trials = np.where(self.here, trials, 0)
        with np.errstate(all="ignore"):
            return int(np.argmin(np.where(candidates, costs * trials * trials, np.inf)))

    def _keep(self, choice: tuple[int, Any, Any, bool]) -> None:
        _, arms, run, is_pending = choice
        if is_pending or self.settings.policy.is_own:  # which may have written where it should not
            self._keep_fields(self._kept_fields(choice))
        else:
            self.told_view.arms, self.told_view.run = arms, run

    def _kept_fields(self, choice: tuple[int, Any, Any, bool]) -> dict[str, dict[str, Any]]:
        """What choosing has left, by name; not what holds only if pulls under way return the means."""
        (_, arms, run, is_pending), settings = choice, self.settings
        if run is None:
            return {}
        if is_pending:
            return {"run": {name: run[name] for name in ("stream", *settings.policy.keeps)}}
        return {
            "arms": {name: arms[name] for name in settings.arm_memory},
            "run": {name: run[name] for name in settings.run_memory},
        }

    def _keep_fields(self, kept: dict[str, dict[str, Any]]) -> None:
        """Keep these; what is not known here, since the user's code was not imported, is left out."""
        for part, records in (("arms", self.told_view.arms), ("run", self.told_view.run)):
            for name, value in kept.get(part, {}).items():
                if name in (records.dtype.names or ()):
                    records[name] = value

    def kept_choice(self) -> str | None:
        if not self.settings.own or self._choice is None:
            return None
        return json.dumps(self._kept_fields(self._choice), default=lambda value: value.tolist())

    def overflows(self, a: int, reward: float | None, cost: float) -> bool:
        known, arm, run = self.settings.steering_costs, self.told_view.arms[a], self.told_view.run
        counted = cost if known is None else 0.0 if reward is None else known[a]
        more = 0.0 if reward is None else self.settings.seen(reward)
        sums = (float(arm["rewards"]) + more, float(arm["costs"]) + counted, float(run["counted"]) + counted,
                float(run["spent"]) + cost)  # fmt: skip
        return not all(map(math.isfinite, sums))

    # Snapshots.

    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {
            "views": [(packed(view.arms), packed(view.run.base)) for view in self.views], "summed": sorted(self.summed),
            "waiting": [(number, *self.waiting[number]) for number in sorted(self.waiting)],
        }  # fmt: skip

    def restore(self, kept: dict[str, Any]) -> None:
        super().restore(kept)
        some = not self.settings.is_present  # a stand-in for the user's own code has fewer fields
        if len(kept["views"]) == 2:
            self.ordered = self.told_view.copy()
        for view, (arms, run) in zip(self.views, kept["views"], strict=True):
            unpack(view.arms, arms, some=some)
            unpack(view.run.base, run, some=some)
        self.summed = set(kept["summed"])
        self.waiting = {number: (a, reward, cost) for number, a, reward, cost in kept["waiting"]}
        self.waiting_order = list(self.waiting)


@cache
def first_coin(seed: int) -> np.uint64:
    """The start of the policy's random numbers: the same as for trajectory 0 of a simulation with this seed."""
    with np.errstate(over="ignore"):
        return np.uint64(open_streams((), np.uint64(seed), np.uint64(0)))
