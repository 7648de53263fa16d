"""The state of a study as policies see it: the same records, changed by the same functions, as in a simulation."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.observe import find_leader, weigh
from cabai.core.state import Record, Records, copy_of
from cabai.core.stopping import interval_level, required
from cabai.families.base import lower_end, upper_end
from cabai.simulation.truth import open_streams
from cabai.study import levels
from cabai.study.absent import Absent
from cabai.study.books import KEPT, Books
from cabai.study.part import with_part
from cabai.study.settings import Settings
from cabai.support.streams import GOLDEN
from cabai.support.validation import InvalidInput
from cabai.thresholds import EValue

SUMS = ("pulls", "rewards", "first", "costs")  # of an arm, for both views
STORED = (*KEPT, *SUMS, *(f"ordered_{name}" for name in SUMS), "squares")  # of an arm


@dataclass
class Side:
    """The records of the arms and of the run after some of the results."""

    arms: NDArray[Any]
    run: Any
    all_pulled: bool = False  # once it is known

    def copy(self) -> Side:
        return Side(self.arms.copy(), copy_of(self.run), self.all_pulled)

    @property
    def everything_pulled(self) -> bool:
        """Whether every arm that is not out has returned a reward, so that policies can be asked."""
        self.all_pulled = self.all_pulled or bool(((self.arms["pulls"] > 0) | (self.arms["in_play"] == 0)).all())
        return self.all_pulled

    @property
    def leader(self) -> int | None:
        return int(self.run["leader"]) if self.run["leader"] >= 0 else None


class Play(Books):
    """Arms, run and rules of a study, and what its policy says of them.

    There are two views of a study. `told` is everything told so far: the policy chooses from it. `ordered` has the
    results of the pulls before the first missing one, in the order of asking: the test decides from it, since only in
    that order does its proof hold whatever the delays. While no result waits for an earlier one, both are the same
    object.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.setup = settings.setup()
        self.policy, self.rules, self.kernels = settings.policy, self.setup.rules, settings.kernels
        self.is_own = settings.policy.is_own
        self.told = self.ordered = Side(*settings.start).copy()
        self.run["stream"] = first_coin(settings.seed)
        self.here = np.array([name not in settings.dropped for name in settings.arms])  # not dropped by hand
        self.left = int(np.count_nonzero(self.here))  # so many of them
        self.is_wide: dict[int, bool] = {}  # by arm, once it is known: whether its rewards are too wide for the family
        self.squares = np.zeros(len(self.arms))  # of rewards that count, relative to the arm's first; nan where unknown
        self.summed: set[int] = set()  # arms whose first reward is not known, only a sum with it: `first` is a mean
        self._decides: bool | None = None
        self._summed_up = itemgetter(*map((self.arms.dtype.names or ()).index, SUMS))  # the sums in a record's values

    @property
    def arms(self) -> NDArray[Any]:
        """The arms after everything told."""
        return self.told.arms

    @property
    def run(self) -> Any:
        """The run after everything told."""
        return self.told.run

    @property
    def bill(self) -> float:
        return float(self.run["spent"])

    @property
    def counted_costs(self) -> float:
        return float(self.run["counted"])

    @property
    def rewards_told(self) -> NDArray[np.int64]:
        told: NDArray[np.int64] = self.arms["pulls"]
        return told

    @classmethod
    def restored(cls, settings: Settings, arms: Sequence[Any], spent: float, counted: float, memory: str) -> Play:
        """The state that the stored sums and the policy's memory describe."""
        play, remembered = cls(settings), json.loads(memory)
        columns = dict(zip(arms[0]._fields, zip(*arms, strict=True), strict=True))
        play.restore_books(columns)
        play.squares[:] = [math.nan if value is None else value for value in columns["squares"]]
        play.summed = set(remembered.get("summed", ()))
        play.remember_stop(remembered)
        if "ordered" in remembered:
            play.ordered = play.told.copy()
            play._restore(play.ordered, columns, "ordered_", remembered["ordered"])
            play.ordered.run["counted"] = play.ordered.arms["costs"].sum()
        play._restore(play.told, columns, "", remembered)
        play.run["counted"], play.run["spent"] = counted, spent
        return play

    def _restore(
        self, side: Side, columns: Mapping[str, Sequence[Any]], prefix: str, remembered: Mapping[str, Any]
    ) -> None:
        arms = side.arms
        for name in SUMS:
            arms[name] = columns[prefix + name]
        pulled = arms["pulls"] > 0
        for mean, total in (("mean", "rewards"), ("cost", "costs")):
            arms[mean] = np.divide(arms[total], arms["pulls"], out=np.zeros(len(arms)), where=pulled)
        side.run["t"] = int(side.arms["pulls"].sum())
        drawn = max(int(side.run["t"]) - len(arms), 0)  # of older versions, which did not store the stream
        with np.errstate(over="ignore"):
            side.run["stream"] += np.uint64(drawn) * GOLDEN
        kept = self.settings
        parts: Any = (("arms", arms, kept.arm_memory), ("run", side.run, kept.run_memory))
        for part, target, names in parts:
            for name, value in remembered.get(part, {}).items():
                if name in names:  # what an older version of a policy kept is computed again
                    target[name] = value
        self.kernels.weigh(arms, side.run)  # after the memory: a threshold may weigh what it keeps

    def memory(self) -> str:
        """What the policy remembers, to be stored."""
        told, ordered = self.settings.memories
        text = told.text(self.told.arms, self.told.run)
        if self.has_waiting:
            text = f'{text[:-1]}, "ordered": {ordered.text(self.ordered.arms, self.ordered.run)}}}'
        if self.summed:
            text = f'{text[:-1]}, "summed": {json.dumps(sorted(self.summed))}}}'
        if self.costs_at_stop is not None:
            text = f"{text[:-1]}, {json.dumps(self.memory_of_stop())[1:]}"
        return text

    def sums(self, a: int) -> dict[str, Any]:
        """What is stored of an arm, besides the policy's memory."""
        told = self._summed_up(self.arms[a].item())
        ordered = self._summed_up(self.ordered.arms[a].item()) if self.has_waiting else told
        return dict(
            zip(STORED, (*self.accounts[a].item(), *told, *ordered, finite_or_none(self.squares[a])), strict=True)
        )

    def copy(self) -> Play:
        """A copy of the state, to try something out."""
        other = copy.copy(self)
        other.told = self.told.copy()
        other.ordered = self.ordered.copy() if self.has_waiting else other.told
        other.copy_books(self)
        other.squares = self.squares.copy()
        return other

    @property
    def has_waiting(self) -> bool:
        """Whether results were told that do not count yet."""
        return self.ordered is not self.told

    @property
    def leader(self) -> int | None:
        """The arm that leads by the results that count."""
        return self.ordered.leader

    @property
    def in_play(self) -> NDArray[Any]:
        """For each arm, 0 once the policy has dropped it."""
        in_play: NDArray[Any] = self.ordered.arms["in_play"]
        return in_play

    def observe(self, a: int, reward: float, cost: float, *, waits: bool = False) -> None:
        """Record that a pull of arm a returned `reward`, as the kernels see it, and cost `cost`. If it `waits`, it is
        counted later, else now."""
        if waits and not self.has_waiting:
            self.ordered = self.told.copy()
            self._forget(self.ordered)
        self._take_in(self.told, a, reward, cost)
        if self.has_waiting and not waits:
            self._take_in(self.ordered, a, reward, cost)
        self.pay(a, cost)

    def observe_sum(self, a: int, pulls: int, reward: float, cost: float, *, counts: bool = True) -> None:
        """Record that so many pulls of arm a returned rewards with this sum, as the kernels see them, and cost `cost`.
        Only while nothing waits; unless it `counts`, it is only paid."""
        if counts:
            known = self.settings.steering_costs
            charged = cost if known is None else known[a] * pulls
            charged = float(pulls) if self.rules["cost_blind"] else charged
            arm, run = Record(self.arms[a]), Record(self.run)
            with np.errstate(all="ignore"):
                if arm.pulls == 0:
                    arm.first = reward / pulls
                    self.summed.add(a)
                arm.pulls += pulls
                arm.rewards += reward
                arm.costs += charged
                arm.mean, arm.cost = arm.rewards / arm.pulls, arm.costs / arm.pulls
                run.t += pulls
                run.counted += charged
                run.last = a
                self.setup.bound(weigh)(arm, Record(self.rules))
                if arm.in_play:
                    find_leader(Records(self.arms), run, a)
            self.squares[a] = math.nan
        else:
            self.discarded[a] += pulls
        with np.errstate(all="ignore"):
            for side in {id(side): side for side in (self.told, self.ordered)}.values():
                side.run["spent"] += cost
        self.offers[a] += pulls
        largest = max(self.largest_cost[a], cost / pulls)
        self.pay(a, cost)
        self.largest_cost[a] = largest

    def count(self, a: int, reward: float, cost: float) -> None:
        """A result that was told before counts from now on."""
        self._take_in(self.ordered, a, reward, cost)
        self.changed.add(a)
        self._decides = None

    def discard(self, a: int, cost: float) -> None:
        """Record that a withdrawn pull of arm a has returned a reward after all: it is paid, and never counts."""
        self.discarded[a] += 1
        with np.errstate(all="ignore"):
            for side in {id(side): side for side in (self.told, self.ordered)}.values():
                side.run["spent"] += cost
        self.pay(a, cost)

    def _forget(self, side: Side) -> None:
        """Forget earlier choices and tests, in a view that not all of them were made on; of arms, only what can be
        computed again."""
        arms, run = self.settings.start
        for name in self.policy.run_memory:
            side.run[name] = run[name]
        for name in self.policy.arm_memory:
            if name not in self.policy.keeps_of_arms:
                side.arms[name] = arms[name]

    def _take_in(self, side: Side, a: int, reward: float, cost: float) -> None:
        known = self.settings.steering_costs
        counted = cost if known is None else known[a]
        self.kernels.observe(side.arms, side.run, a, reward, counted)
        if counted != cost:
            with np.errstate(all="ignore"):
                side.run["spent"] += cost - counted
        if side is self.ordered:
            away = reward - float(side.arms[a]["first"])
            self.squares[a] = float(self.squares[a]) + away * away

    def pay(self, a: int, cost: float) -> None:
        super().pay(a, cost)
        self._decides = None

    def fail(self, a: int, cost: float) -> None:
        """Record that a pull of arm a failed and cost `cost`: that is part of what a reward of that arm costs."""
        self.failures[a] += 1
        with np.errstate(all="ignore"):
            for side in (self.told, self.ordered) if self.has_waiting else (self.told,):
                side.run["spent"] += cost
                if self.settings.costs is None and not self.rules["cost_blind"]:
                    arm = Record(side.arms[a])
                    arm.costs += cost
                    side.run["counted"] += cost
                    if arm.pulls > 0:
                        arm.cost = arm.costs / arm.pulls
        self.pay(a, cost)

    @property
    def nothing_waits(self) -> bool:
        """Whether everything told has been counted."""
        return bool(self.told.run["t"] == self.ordered.run["t"])

    def catch_up(self) -> None:
        """Nothing waits any more: everything told counts. The policy's memory is what its last choice left."""
        told, self.told = self.told, self.ordered
        self._decides = None
        for name in ("stream", "counted", "spent", *self.policy.keeps):
            self.run[name] = told.run[name]
        for name in SUMS:  # a sum may differ in its last digit, by the order of addition
            self.changed |= set(np.flatnonzero(told.arms[name] != self.arms[name]).tolist())

    def has_overflown(self, a: int) -> bool:
        """Whether a sum of rewards or costs, with those of arm a, is too large for a double."""
        arm, run = self.arms[a], self.run
        return not all(map(math.isfinite, (arm["rewards"], arm["costs"], run["counted"], run["spent"])))

    def stops(self) -> bool:
        """Whether the policy stops here, with its guarantee, by the results that count."""
        left = int(self.ordered.run["left"])
        stops = self._stops(self.ordered)
        if self.has_waiting and left != self.ordered.run["left"]:  # dropped for good, whatever is counted later
            self._drop()
        return stops

    def _stops(self, side: Side) -> bool:
        if not side.everything_pulled:
            return False
        if self.is_even:
            return self.kernels.stop(side.arms, side.run)
        rules = self.rules_of(int(side.run["leader"]))
        if self.left == len(self.here):
            return self.kernels.stop(side.arms, side.run, rules)
        chosen = np.flatnonzero(self.here)
        return with_part(side.arms, side.run, chosen, lambda arms, run: self.kernels.stop(arms, run, rules))

    @property
    def is_even(self) -> bool:
        """Whether all arms are here, with equal parts of delta: then all have the same rules."""
        return self.left == len(self.here) and self.settings.reserve is None and not self.settings.dropped

    def rules_of(self, leader: int, among: int | None = None) -> Any:
        """The rules by which an arm is compared with its rivals: those in play or, when choosing, so many."""
        return self.settings.rules_for(leader, self.left if among is None else among)

    def look_anew(self) -> None:
        """Test every pair of arms the next time: several arms have changed at once. Only while nothing waits."""
        self._forget(self.told)

    def reset_policy(self) -> None:
        """Forget earlier choices: from now on, the arms to choose from are others."""
        start = self.settings.start[0]
        for side in {id(side): side for side in (self.told, self.ordered)}.values():
            self._forget(side)
            for name in self.policy.arm_memory:
                side.arms[name] = start[name]
            side.run["rival"] = -1
        self._decides = None

    def drop(self, a: int) -> None:
        """Drop arm a by hand, whatever it has returned; the settings already say so."""
        self.here[a] = False
        self.left = int(np.count_nonzero(self.here))
        self.reset_policy()
        for side in {id(side): side for side in (self.told, self.ordered)}.values():
            arms, run = side.arms, side.run
            run["left"] -= int(arms[a]["in_play"])
            arms[a]["in_play"] = 0
            run["leader"], run["second"] = -1, -np.inf
            for other in np.flatnonzero((arms["in_play"] > 0) & (arms["pulls"] > 0)):
                find_leader(Records(arms), Record(run), other)

    def grown(self, settings: Settings) -> Play:
        """The same state with one more arm, about which nothing is known."""
        play = Play(settings)
        sides = [(self.told, play.told)]
        if self.has_waiting:
            play.ordered = play.told.copy()
            sides.append((self.ordered, play.ordered))
        for old, new in sides:
            new.arms[:-1] = old.arms
            for name in new.run.dtype.names or ():
                new.run[name] = old.run[name]
            new.run["left"] += 1
        play.accounts[:-1] = self.accounts
        play.squares[:-1] = self.squares
        play.summed = set(self.summed)
        play.changed = set(self.changed)
        play.reset_policy()
        return play

    def _drop(self) -> None:
        """In the view `told`, drop the arms that the results that count have dropped."""
        self._decides = None
        arms, run = self.told.arms, self.told.run
        arms["in_play"], run["left"] = self.ordered.arms["in_play"], self.ordered.run["left"]
        run["leader"], run["second"] = -1, -np.inf
        for a in np.flatnonzero((arms["in_play"] > 0) & (arms["pulls"] > 0)):
            find_leader(Records(arms), Record(run), a)

    @property
    def decides(self) -> bool:
        """Whether the results told so far would decide if the missing ones were left out. If not, policies see the
        rival that prevents it."""
        if not self.has_waiting:
            return False
        if self._decides is None:
            trial = self.told.copy()
            self._forget(trial)
            self._decides = self._stops(trial)
            self.run["rival"] = trial.run["rival"]
        return self._decides

    def variance(self, a: int) -> float | None:
        """The sample variance of the rewards of arm a that count, if it is known; as kernels see them."""
        (pulls, rewards, first, _), squares = self._summed_up(self.ordered.arms[a].item()), float(self.squares[a])
        if pulls < 2 or not math.isfinite(squares):
            return None
        away = rewards / pulls - first
        return float(max(squares - pulls * away * away, 0.0) / (pulls - 1))

    def choose(self, under_way: Sequence[int]) -> int:
        """The arm for the next pull, where `under_way[a]` pulls of each arm a have been handed out and not been told.

        They count as pulled, at the arm's mean reward and cost, when choosing; never as evidence.
        """
        among, count = self.here, self.left
        if not self.told.everything_pulled:
            among = self.here & (self.arms["pulls"] > 0)
            if not among[: self.settings.first_arms][self.here[: self.settings.first_arms]].all() or among.sum() < 2:
                return self._first_round(np.asarray(under_way))
            new = np.flatnonzero(self.here & ~among & (np.asarray(under_way) == 0))
            if len(new):  # an arm that has just joined
                return int(new[0])
            count = int(np.count_nonzero(among))
        arms, run, is_pending = self.arms, self.run, any(under_way)
        if is_pending or self.is_own:
            arms, run = arms.copy(), copy_of(run)
        if is_pending:
            pending = np.asarray(under_way)
            arms["pulls"] += pending
            arms["rewards"] += pending * arms["mean"]
            arms["costs"] += pending * arms["cost"]
            run["t"] += pending.sum()
            run["counted"] += (pending * arms["cost"]).sum()
        rules = None if count == len(arms) and self.is_even else self.rules_of(int(run["leader"]), count)
        if count == len(arms):
            chosen = self.kernels.choose(arms, run, rules)
        else:
            some = np.flatnonzero(among)
            chosen = int(some[with_part(arms, run, some, lambda part, own: self.kernels.choose(part, own, rules))])
        if not 0 <= chosen < len(arms):
            raise InvalidInput(f"policy {self.policy} chose an arm that does not exist.")
        if is_pending:  # what was computed with pulls that are not told yet must not be used later as if it were true
            for name in ("stream", *self.policy.keeps):
                self.run[name] = run[name]
        elif self.is_own:  # the policy may have written where it should not
            for name in self.settings.arm_memory:
                self.arms[name] = arms[name]
            for name in self.settings.run_memory:
                self.run[name] = run[name]
        return chosen

    def _first_round(self, pending: NDArray[np.int64]) -> int:
        """Until every arm has returned a reward: an arm of which nothing is known or under way; else the arm that CO
        would pull. An arm whose first reward is still to come is then taken to cost what the others do, so that one
        result that is long in coming does not leave all workers with the other arms; but with a budget it waits until
        its cost is known."""
        pulls = self.arms["pulls"]
        trials = np.where(self.here, pulls + pending, np.iinfo(np.int64).max)
        if not trials.all():
            return int(np.argmin(trials))
        known = self.here & (pulls > 0)
        if not known.any():
            return int(np.argmin(trials))
        costs = np.where(known, self.arms["cost"], self.arms["cost"][known].mean())
        candidates = self.knows_cost & self.here if self.settings.max_cost is not None else self.here
        trials = np.where(self.here, trials, 0)
        return int(np.argmin(np.where(candidates, costs * trials * trials, np.inf)))

    def pair(self, b: int, a: int) -> tuple[float, float]:
        """The evidence that b is better than a (up to epsilon), and how much is required of it."""
        arms, rules, t = Records(self.ordered.arms), self.rules_of(b), int(self.ordered.run["t"])
        with np.errstate(all="ignore"):
            least = float(self.setup.bound(required)(t, Record(rules)) + arms[b].price + arms[a].price)
            more = self.kernels.surplus(self.ordered.arms, self.ordered.run, b, a, rules)
        return least + more if math.isfinite(least) else 0.0, least

    def closest(self, pairs: Sequence[tuple[float, float] | None] | None = None) -> tuple[int, float, float] | None:
        """The rival in play that the leader is furthest from beating, its evidence and what is required of it; from
        the `pairs` of the leader with each arm, if they are known."""
        side = self.ordered
        if not side.everything_pulled or side.run["left"] < 2 or not self.setup.shows_evidence:
            return None
        leader = int(side.run["leader"])
        rivals = [a for a in range(len(side.arms)) if a != leader and side.arms[a]["in_play"]]
        known: Sequence[tuple[float, float] | None] = [None] * len(side.arms) if pairs is None else pairs
        found = [(a, *(known[a] or self.pair(leader, a))) for a in rivals]
        return min(found, key=lambda pair: pair[1] - pair[2])

    def confidence(self) -> float:
        return self.confidence_over(self.closest())

    def confidence_over(self, closest: tuple[int, float, float] | None) -> float:
        """1 - the smallest delta at which the leader would now beat every rival, this being the closest; 0 if there is
        none.

        It is valid at any time, by the proof of the guarantee. Arms that were dropped were beaten at delta.
        """
        delta, leader = self.settings.delta, int(self.ordered.run["leader"])
        if closest is None or not math.isfinite(closest[2]):
            return 1 - delta if self.ordered.run["left"] == 1 else 0.0
        _, z, least = closest
        gathered = z - least + float(self.rules_of(leader)["level"])  # the level that would have been reached
        if self.settings.reserve is not None or self.settings.dropped:
            chance = math.exp(min(levels.level(self.settings, leader, delta) - gathered, 0.0 - math.log(delta)))
            return max(1 - self.settings.error * max(chance, 1.0), 0.0)

        def level(chance: float) -> float:
            return float(self.settings.setup(delta=chance).rules["level"])

        low, high = math.log(delta), math.log(1 - 1e-9)  # of delta; the level falls as it grows
        if gathered > level(delta):
            return 1 - delta
        try:
            level((1 + delta) / 2)
        except InvalidInput:  # a calibrated threshold is for one delta only
            return 0.0
        if gathered <= level(math.exp(high)):
            return 0.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if gathered > level(math.exp(middle)) else (middle, high)
        return 1 - math.exp(high)

    def interval(self, a: int) -> tuple[float, float]:
        """A confidence interval of the mean of arm a, from the results that count; all K hold at all times with
        probability 1 - delta.

        {q : n d(mean, q) <= log(K/delta) + price}, n and mean of the rewards that count, from the mixture of `evalue`
        for one arm alone: proven for every family, whatever the study's own threshold.
        """
        everything, ordered = self.settings.family.mean_range, self.ordered.arms[a]
        if ordered["pulls"] == 0 or isinstance(self.settings.family, Absent):
            return everything
        if a in self.summed and self.settings.family.sets_first_aside:
            return everything
        try:
            setup = self.settings.test(EValue())
        except InvalidInput:  # a user's own family, without a mixture
            return everything
        arm, rules = Record(setup.start()[0][0]), Record(setup.rules)
        for name in ("pulls", "rewards", "first", "mean"):
            setattr(arm, name, ordered[name])
        with np.errstate(all="ignore"):
            setup.bound(weigh)(arm, rules)
            if arm.tested == 0:
                return everything
            more = levels.log_parts(self.settings, a) - math.log(len(self.arms))  # where parts of delta are not equal
            level = setup.bound(interval_level)(arm, 0, rules, len(self.arms)) + more / arm.tested
            ends = [setup.bound(end)(rules, arm.tested_mean, level) for end in (lower_end, upper_end)]
        low, high = sorted(float(self.settings.shown(end)) for end in ends)
        return low, high


def finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@cache
def first_coin(seed: int) -> np.uint64:
    """The start of the policy's random numbers: the same as for trajectory 0 of a simulation with this seed."""
    with np.errstate(over="ignore"):
        return np.uint64(open_streams((), np.uint64(seed), np.uint64(0)))
