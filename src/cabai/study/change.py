"""One transaction on a study: results are logged, counted in the order of asking, and may decide; and pulls are handed
out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cabai.study import statements
from cabai.study.connections import Connection
from cabai.study.errors import CostlyStudy, FailedPulls, WideRewards
from cabai.study.ledger import CERTIFICATE, EVIDENCE, MAX_COST, MAX_PULLS, Ledger
from cabai.study.pull import Pull
from cabai.study.settings import FAIL, Settings
from cabai.study.status import failing, lapsing, passing, too_wide
from cabai.support.validation import InvalidInput

MILESTONES = frozenset(step * 10**power for step in (3, 10) for power in range(8))  # failures of an arm to warn at
Asker = Mapping[str, str | None]  # who asks: the columns of a pull that say so, `worker` and `request`
LARGE = 1e200  # adding a number up to this to any double does not overflow
LAPSED = "the lease ended without a result"


class Result(NamedTuple):
    """The result of a pull: a reward, or why there is none."""

    number: int
    reward: float | None = None
    cost: float | None = None
    failed: str | None = None


class Change:
    """A transaction on a study: its row, locked, its state, and what is to be written at the end. With `number`, the
    pull of that number is taken in the same statement."""

    def __init__(self, ledger: Ledger, connection: Connection, number: int | None = None) -> None:
        self.ledger, self.connection, self.settings = ledger, connection, ledger.settings
        self.row, self.now, self.pulls, self.taken = ledger.locked(connection, number)
        self.play = ledger.play_on(connection, self.row)
        self.asked, self.told, self.through = int(self.row.asked), int(self.row.told), int(self.row.through)
        self.beyond = int(self.row.beyond)  # pulls that rows of the log sum up, beyond one each
        self.writes: list[statements.Write] = []  # rows to add when the state is saved
        self.is_changed = False
        self.ended: dict[str, Any] = {}  # what is stored of the study's end, if it ends here
        self.warnings: list[UserWarning] = []
        self.withdrawn = [0] * len(self.settings.arms)  # by arm, once the pulls under way have been read

    @property
    def is_over(self) -> bool:
        return self.row.stopped is not None or bool(self.ended)

    def save(self) -> None:
        """Store what was changed, if anything was."""
        if not self.is_changed:
            return
        self.record()
        values: dict[str, Any] = {"asked": self.asked, "told": self.told, "through": self.through}
        if self.told > self.row.told:
            values |= {"spent": self.play.bill, "counted": self.play.counted_costs, "beyond": self.beyond}
        self.ledger.save(self.connection, self.row, self.play, values | self.ended, self.writes, self.pulls)

    def record(self) -> None:
        """Store a point of the history now and then, until the study has stopped."""
        if self.row.stopped is None:
            point = self.ledger.recorder.point(self.play, self.row.told, self.told, is_last=bool(self.ended))
            if point is not None:
                of_now = {"study": self.ledger.id, "told": self.told, "time": self.now}
                self.writes.append((statements.ADD_POINT, of_now | point))

    def write(self) -> None:
        """Add the rows that are to be added."""
        statements.write_all(self.connection, self.writes)
        self.writes.clear()

    def end(self, reason: str, confidence: float, decision: int | None = None) -> None:
        self.is_changed = True
        self.play.stop()
        self.ended = {
            "stopped": self.now, "reason": reason, "confidence": confidence,
            "decision": self.play.leader if decision is None else decision,
            "told_at_stop": self.told, "spent_at_stop": self.play.bill,
        }  # fmt: skip

    def take_pull(self, number: int) -> Any:
        """The pull of that number, which is no longer under way; None if it was not."""
        if number in self.taken:
            return self.taken.pop(number)
        if number > self.row.asked:  # handed out in this transaction, if at all: nobody can have its result
            return None
        if self.pulls is None:
            return self.ledger.take_pull(self.connection, number)
        pull = self.pulls.pop(number, None)
        if pull is not None:
            statements.DROP_PULL.run(self.connection, self.ledger.key(number))
        return pull

    def take(self, pull: Any, result: Result, *, lapses: int | None = None) -> None:
        """Log what a pull returned, and add it to the state; it counts now if it is the next in order, and never if it
        was withdrawn."""
        play, a, cost = self.play, pull.arm, cost_of(self.settings, pull.arm, result.cost)
        is_next = pull.number == self.through + 1 and not play.has_waiting and not self.is_over
        is_next = is_next and pull.withdrawn is None
        was_wide = play.is_wide[a] if a in play.is_wide else too_wide(play, a) is not None
        was_over = passing(play) is not None
        if result.failed is None:
            assert result.reward is not None
            if pull.withdrawn is None:
                play.observe(a, self.settings.seen(result.reward), cost, waits=not is_next)
            else:
                play.discard(a, cost)
        else:
            play.fail(a, cost)
        self.log(pull, result, cost, lapses)
        if is_next:
            self.through = pull.number
            if result.failed is None:
                self.decide()
        if result.failed is not None and play.failures[a] in MILESTONES:
            self.warn(failing(play, a), f" The last: {result.failed}")
        wide = too_wide(play, a)
        play.is_wide[a] = wide is not None
        if not was_wide:
            self.warn(wide, category=WideRewards)
        if not was_over:
            self.warn(passing(play), category=CostlyStudy)

    def log(self, pull: Any, result: Result, cost: float, lapses: int | None) -> None:
        """Log what a pull returned, unless it is too large to be added to the rest."""
        play, a = self.play, pull.arm
        known = self.settings.steering_costs
        counted = 0.0 if known is None else known[a]
        if max(cost, counted, abs(result.reward or 0.0)) > LARGE and play.has_overflown(a):
            raise InvalidInput(
                f"reward={result.reward!r}, cost={cost!r} and those told before add up to a number that is too large "
                "to store."
            )
        play.offers[a] += pull.offers
        play.lapses[a] += pull.lapses if lapses is None else lapses
        self.told += 1
        self.is_changed = True
        logged = {"study": self.ledger.id, "number": pull.number, "place": self.told, "arm": a, "reward": result.reward,
                  "cost": cost, "failed": result.failed, "asked": pull.asked, "told": self.now, "worker": pull.worker,
                  "offers": pull.offers, "withdrawn": pull.withdrawn, "item": pull.item}  # fmt: skip
        self.writes.append((statements.ADD_TO_LOG, logged))

    def warn(self, text: str | None, more: str = "", category: type[UserWarning] = FailedPulls) -> None:
        if text is not None:
            self.warnings.append(category(text + more))

    def count(self) -> None:
        """Count, in the order of asking, the results that no longer wait for an earlier pull, until they decide."""
        if self.is_over or not self.play.has_waiting:
            return
        self.write()  # the log is about to be read
        for each in self.ledger.next_in_order(self.connection, self.row, self.through):
            self.play.count(each.arm, self.settings.seen(each.reward), each.cost)
            self.through = each.number
            self.decide()
            if self.is_over:
                return
        if self.play.nothing_waits:
            self.play.catch_up()

    def decide(self) -> None:
        """End the study if the results that count decide."""
        certified = self.settings.certified_pulls
        if (certified is None or self.through <= certified) and self.play.stops():
            self.end(EVIDENCE, max(1 - self.settings.error, 0.0))

    def live(self) -> list[Any]:
        """The pulls under way that the study waits for; `withdrawn` counts others that may still have to be paid."""
        if self.pulls is None:
            self.write()
            found = self.ledger.pulls(self.connection) if self.told < self.asked else []
            self.pulls = {pull.number: pull for pull in found}
        self.withdrawn = self.under_way([pull for pull in self.pulls.values() if pull.withdrawn is not None])
        return [pull for pull in self.pulls.values() if pull.withdrawn is None]

    def reached(self, under_way: Sequence[int]) -> str | None:
        """The limit that is reached with this many pulls of each arm under way, if any."""
        return limit(self.settings, self.told + self.beyond + sum(under_way) + sum(self.withdrawn))

    def affordable(self, under_way: Sequence[int]) -> Any:
        """For each arm, whether the budget pays for one more pull in addition to those under way. A withdrawn pull
        keeps what it has reserved: it may still be told."""
        return self.play.affordable([live + gone for live, gone in zip(under_way, self.withdrawn, strict=True)])

    def stop_at_limit(self) -> None:
        """End the study if a limit is reached and nothing is under way, so that everything told counts."""
        settings, play = self.settings, self.play
        limits = settings.max_cost, settings.max_pulls, settings.certified_pulls
        if self.is_over or limits == (None, None, None) or self.live():
            return
        none = [0] * len(settings.arms)
        reason, pays = self.reached(none), self.affordable(none)
        if play.is_spent or (not pays.all() and not pays[self.next_arm()]):
            reason = MAX_COST
        if reason is not None:
            self.end(reason, play.confidence())

    def next_arm(self) -> int | None:
        """The arm that would be pulled if nothing were under way."""
        arm: int | None = self.play.copy().choose([0] * len(self.settings.arms))
        return arm

    def is_wanted(self, arm: int) -> bool:
        """Whether a lapsed pull of an arm is to be offered again."""
        return bool(self.play.in_play[arm])

    def hand_again(self, asker: Asker) -> list[Pull]:
        """The pulls leased to this worker for this very request, whose answer was lost; their leases are renewed."""
        if asker["request"] is None:
            return []
        leased = [pull for pull in self.live() if pull.expires > self.now]
        found = [pull for pull in leased if {name: getattr(pull, name) for name in asker} == asker]
        for pull in found:
            self.change_pull(pull.number, {"expires": self.expires})
        return [self.ledger.handed(pull.number, pull.arm, self.expires, pull.offers, pull.item) for pull in found]

    def offer_again(self, live: Sequence[Any], count: int, asker: Asker) -> tuple[list[Pull], list[Any]]:
        """Up to so many of the lapsed pulls, and those for which the budget does not pay a second time."""
        handed: list[Pull] = []
        under_way, unpaid = self.under_way(live), []
        lapsed = self.play.lapses.tolist()
        for pull in live:
            lapsed[pull.arm] += pull.lapses
        for pull in live:
            if pull.expires > self.now or len(handed) == count:
                continue
            under_way[pull.arm] -= 1
            if self.affordable(under_way)[pull.arm]:
                lapses = pull.lapses + (pull.expires > 0)
                values = {"expires": self.expires, "offers": pull.offers + 1, "lapses": lapses, **asker}
                self.change_pull(pull.number, values)
                handed.append(self.ledger.handed(pull.number, pull.arm, self.expires, pull.offers + 1, pull.item))
                lapsed[pull.arm] += lapses - pull.lapses
                if lapses > pull.lapses and lapsed[pull.arm] in MILESTONES and self.settings.items is None:
                    self.warn(lapsing(self.play, pull.arm, lapsed[pull.arm]))
            else:
                unpaid.append(pull)
            under_way[pull.arm] += 1
        return handed, unpaid

    def hand_out(self, live: Sequence[Any], count: int, asker: Asker, beyond: int = 0) -> tuple[list[Pull], str]:
        """Up to so many new pulls, and why there are no more."""
        handed: list[Pull] = []
        settings, under_way = self.settings, self.under_way(live)
        if self.play.decides:
            return [], "the results told so far decide, once those of pulls asked before them are told"
        why = ""
        while len(handed) < count and self.reached(under_way) is None:
            after = self.play if settings.max_cost is None else self.play.copy()
            arm = after.choose(under_way)
            if settings.max_cost is not None and not self.affordable(under_way)[arm]:
                if under_way[arm] and not self.play.knows_cost[arm]:
                    why = (
                        f"the cost of a pull of arm {settings.arms[arm]!r} is not known yet, and the first one is "
                        "under way"
                    )
                break
            self.play = after  # a choice that is not made must leave no trace in the policy's memory
            under_way[arm] += 1
            handed.append(self.hand(arm, asker))
        if not handed and not why:
            why = f"the budget of study {self.ledger.name!r} is used up by pulls under way ({len(live)})"
        return handed, why

    def hand(self, arm: int, asker: Asker, item: int | None = None) -> Pull:
        """A new pull of an arm, which is under way from now on."""
        self.asked += 1
        expires = self.now + self.settings.lease
        fresh = {"study": self.ledger.id, "number": self.asked, "arm": arm, "asked": self.now, "expires": expires,
                 "offers": 1, "worker": asker["worker"], "lapses": 0, "withdrawn": None, "item": item,
                 "request": asker["request"]}  # fmt: skip
        self.writes.append((statements.ADD_PULL, fresh))
        self.is_changed = True
        if self.pulls is not None:
            self.pulls[self.asked] = statements.PULLS.row_type._make(fresh.values())  # in the order of the columns
        return self.ledger.handed(self.asked, arm, expires, item=item)

    @property
    def expires(self) -> float:
        """When a lease that begins now ends."""
        return self.now + self.settings.lease

    def under_way(self, live: Sequence[Any]) -> list[int]:
        """How many pulls of each arm are under way."""
        found = [0] * len(self.settings.arms)
        for pull in live:
            found[pull.arm] += 1
        return found

    def withdraw(self, pull: Any) -> None:
        """This pull is not offered again, and no result waits for it; it may still be told."""
        self.change_pull(pull.number, {"withdrawn": self.now})

    def change_pull(self, number: int, values: dict[str, Any]) -> None:
        statements.CHANGE_PULL.run(self.connection, {**self.ledger.key(number), **values})
        self.pulls, self.is_changed = None, True

    def settle_lapsed(self) -> list[Any]:
        """Withdraw lapsed pulls that are not needed, fail those that are not offered again, and count what waited for
        them, which may drop more arms; returns the pulls that the study still waits for."""
        while True:
            live, settled = self.live(), 0
            for pull in live:
                if pull.expires > self.now:
                    continue
                if not self.is_wanted(pull.arm):
                    self.withdraw(pull)
                    settled += 1
                elif self.settings.on_lapse == FAIL and pull.expires > 0:  # it was not released
                    self.take_pull(pull.number)
                    self.take(pull, Result(pull.number, failed=LAPSED), lapses=pull.lapses + 1)
                    settled += 1
            if not settled:
                return live
            self.count()


def limit(settings: Settings, pulls: int) -> str | None:
    """The limit that this many pulls have reached, if any."""
    if settings.max_pulls is not None and pulls >= settings.max_pulls:
        return MAX_PULLS
    if settings.certified_pulls is not None and pulls >= settings.certified_pulls:
        return CERTIFICATE
    return None


def cost_of(settings: Settings, arm: int, cost: float | None) -> float:
    """What a pull cost: as told, else as known, else nothing, which is allowed only for a failed pull."""
    if cost is not None:
        return cost
    return settings.costs[arm] if settings.costs is not None else 0.0
