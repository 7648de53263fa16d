"""What is known about a study at one moment, for people and programs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from cabai.core.goal import BEST, CHEAPEST
from cabai.study.log.events import ACCEPTED
from cabai.support.tables import table
from cabai.views import status_table, words

LISTED = ("name", "stopped", "reason", "decision", "leader", "pulls", "spent")  # of each study in a list


@dataclass(frozen=True)
class Forecast:
    """What is still to come before the study stops: of ten looks that are spread evenly over the bill, about one has
    less than `low` to come, and about one more than `high`. With a budget no more than its rest is paid, and `chance`
    is that of a decision within it. Seconds are those that it takes if results come as fast as of late; None where
    that is not known."""

    low: float
    high: float
    chance: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None

    @property
    def time(self) -> str:
        """How long it takes, in words; empty if that is not known, or a few seconds.

        >>> [Forecast(1, 2, None, 60.0 * low, 60.0 * high).time for low, high in ((2, 2), (3, 9), (0.5, 40))]
        ['2 min', '3 to 9 min', '30 s to 40 min']
        """
        if self.low_seconds is None or self.high_seconds is None or self.high_seconds < 10:
            return ""
        low, high = words.lasting(self.low_seconds), words.lasting(self.high_seconds)
        least, unit = low.split()
        return high if low == high else f"{least if high.endswith(f' {unit}') else low} to {high}"

    def said(self, limit: str) -> str:
        """The end of a sentence that says what was spent; what ends the study without a decision is called `limit`.

        >>> Forecast(1, 2).said("budget"), Forecast(8, 8, 0.2).said("budget")
        (', probably 1 to 2 more', ', 8 more until the budget is reached; chance of a decision within the budget: 20 %')
        """
        if self.chance is not None and self.low >= 0.99 * self.high:
            much = f", {words.rough(self.high, 3)} more until the {limit} is reached"
        else:
            much = f", probably {words.rough(self.low)} to {words.rough(self.high)} more"
            much += f", in {self.time}" if self.time else ""
        if self.chance is None:
            return much
        return f"{much}; chance of a decision within the {limit}: {words.percent(min(max(self.chance, 0.001), 0.999))}"


@dataclass(frozen=True)
class ArmStatus:
    """One arm: what it returned and what it cost. `low` and `high` are an interval of its mean that holds, for all arms
    and at all times, with probability 1 - delta."""

    name: str
    pulls: int  # that returned a reward which counts
    waiting: int  # that returned a reward which does not count, or not yet: it waits for pulls asked before it
    discarded: int  # that returned a reward after they were withdrawn, as pulls of an arm that is out are
    failures: int
    under_way: int
    offers: int  # how often a pull was handed out
    lapses: int  # of those, how often the lease ended without a result
    mean: float | None  # of the rewards that count
    low: float | None  # None: not bounded
    high: float | None
    cost: float | None  # the mean cost of a reward, failed pulls included
    spent: float
    in_play: bool  # False once the policy has dropped it
    standing: str | None = None  # in or out, and why, in words
    share: float | None = None  # the evidence of the leader over it, of what is required
    behind: float | None = None  # how much worse than the leader it is on average
    may_be_best: bool | None = None  # False: shown not to be, at delta; None where that cannot be said
    ranks: list[int] | None = None  # the best and the worst that it can have, at delta for all arms at once
    better_than: list[str] | None = None  # the arms that it is shown to be better than, on which ranks are based
    running_cost: float | None = None  # of goal cheapest: what it costs to run; None: not known yet
    excluded: bool = False  # the same: it is shown too bad to be the answer


@dataclass(frozen=True)
class Status:
    """A study at one moment, from `study.status()`; print it to see a table of the arms and a sentence.

    >>> from cabai import create_study
    >>> about = {"arms": ["a", "b"], "family": "bernoulli", "costs": [1, 2], "max_cost": 99, "storage": "memory"}
    >>> study = create_study("at one moment", **about)
    >>> study.status().sentence
    'Nothing observed yet.'
    >>> study.tell_many([{"pull": pull, "reward": pull.arm == "a"} for pull in study.ask(6)])
    >>> status = study.status()
    >>> status.leader, status.spent, status.stopped, status.decision, status.ahead, status.outlook
    ('a', 9.0, False, None, 'ahead of b by 1', 'no decision in sight')
    >>> status.known
    'a is at most 0.19 worse than the best, wrong with probability at most 0.05'
    >>> status.shown == [f"Proven: {status.known}."]
    True
    >>> [status.line(width) for width in (None, 30, 20)]
    ['6 pulls, 9 of 99 spent, 62 % done, a leads', '6 pulls, 9 of 99 spent', '9 of 99 spent']
    >>> for row in status.rows():
    ...     print(row)
    ['arm', 'pulls', 'mean', '0.95 interval', 'mean cost', 'spent', '']
    ['a', '3', '1.00', '0.20 to 1.00', '1', '3', 'leads']
    ['b', '3', '0.00', '0.00 to 0.80', '2', '6', 'closest rival']
    >>> [(arm["name"], arm["pulls"], arm["mean"], arm["cost"]) for arm in status.to_dict()["arms"]]
    [('a', 3, 1.0, 1.0), ('b', 3, 0.0, 2.0)]
    >>> found = study.run(lambda arm: arm == "a")
    >>> found.sentence
    'Decided: a has the largest mean, wrong with probability at most 0.05; 12 spent on 8 pulls.'
    >>> found.statement == f"{found.decision} {found.best}, {found.promise}"
    True
    """

    name: str
    family: str
    policy: str
    threshold: str
    proven: bool  # whether the threshold is proven for the family
    certified: bool  # whether simulation has certified it for such a study, up to where this one is
    certified_pulls: int | None  # where the certificate of the threshold ends
    direction: str
    delta: float
    epsilon: float
    max_cost: float | None
    max_pulls: int | None
    arms: list[ArmStatus]
    pulls: int  # that returned a reward which counts
    waiting: int  # that returned a reward which does not count, or not yet
    waiting_for: str | None  # the id of the first pull that they wait for
    discarded: int  # that returned a reward after they were withdrawn: it never counts
    would_decide: bool  # whether the results in hand, missing ones left out, decide: then there is nothing to ask for
    failures: int
    under_way: int
    lapsed: int  # of those: released, or with an expired lease, so that perhaps nobody works on them
    late: int  # told after the study had stopped
    spent: float
    spent_late: float  # of it, on those
    created: float  # seconds since 1970, as are all times
    ended: float | None  # when it stopped
    leader: str | None
    rival: str | None  # the arm that the leader is furthest from beating
    evidence: float | None  # of the leader over that rival, in nats
    required: float | None  # of it, to stop; None also where more data are needed to say
    confidence: float | None  # 1 - the delta at which the leader would have been decided for
    stopped: bool
    reason: str | None  # evidence, accepted, max_cost, max_pulls, certificate or by hand
    decision: str | None  # the best arm, as surely as `promise` says; None where the threshold was not reached
    warnings: list[str]
    items: int | None = None  # of a study with items: how many there are
    full_cost: float | None = None  # what evaluating everything would cost, as far as prices are known
    is_complete: bool = False  # whether everything was evaluated
    within: float | None = None  # the leader is shown to be at most so much worse than the best, at delta
    at_most: float | None = None  # still to be paid at most: the rest of a budget, or of a dataset; None: no limit
    progress: float | None = None  # the share of the expected bill that is paid: 1 once stopped; None: cannot be told
    forecast: Forecast | None = None  # what is still to come, where that can be told
    lead: float | None = None  # how much better than `rival` the leader is on average
    lead_at_most: float | None = None  # the same, shown at delta: for all pairs of arms together
    looks_tied: bool = False  # whether no end is in sight, because the best arms are perhaps equal
    last_result: float | None = None  # when it came
    equal_cost: float | None = None  # about what testing all arms equally would cost in total, up to the decision
    goal: str = BEST  # what is looked for: the best arm, or the cheapest that is good enough
    slack: float | None = None  # of goal cheapest: cheaper arms are worse than the best by more than epsilon - slack
    claim: str | None = None  # the same: what `evidence` is for, in words
    unused: int = 0  # of those that wait: told before the study stopped, which did not need them
    imported: int = 0  # rows of the log that are from elsewhere
    amended: int = 0  # how often its settings were: see `study.amendments()`
    error: float | None = None  # the probability of a wrong decision, at most, where it is not delta
    reserve: float | None = None  # the share of delta that is kept for arms that join or are dropped by hand
    joined: list[str] = field(default_factory=list)  # arms that joined later
    dropped: list[str] = field(default_factory=list)  # arms that were dropped by hand
    tied: list[str] = field(default_factory=list)  # of a race: arms with exactly the leader's total on all items
    earlier: list[str] = field(default_factory=list)  # arms of the race that this one has joined, and that are not here

    @property
    def best(self) -> str:
        """What the decision claims about the arm, in words."""
        epsilon = words.rounded_up(self.epsilon) if self.reason == ACCEPTED else f"{self.epsilon:g}"
        if self.items is None:
            wanted = "largest" if self.direction == "maximize" else "smallest"
            among = " among the arms still in" if self.dropped else ""
        else:
            wanted = "highest" if self.direction == "maximize" else "lowest"
            more = f" and the {words.in_words(len(self.earlier))} of the earlier race" if self.earlier else ""
            among = f" of these {words.in_words(len(self.arms))}{more} on these {self.items} items"
        if self.goal == CHEAPEST:
            return f"is within {epsilon} of the best{among}, and {self._cheaper}"
        tied = f", tied with {words.listed(self.tied)}," if self.tied and not self.epsilon else ""
        close = f"a mean within {epsilon} of the {wanted}{' mean' if self.items is None else ''}"
        return f"has {close if self.epsilon else f'the {wanted} mean'}{tied}{among}"

    @property
    def _cheaper(self) -> str:
        """Of goal cheapest: what is shown of the arms that are cheaper than the decision or, before, the leader."""
        assert self.slack is not None
        costs = {arm.name: math.inf if arm.running_cost is None else arm.running_cost for arm in self.arms}
        answer = self.decision or self.leader
        if answer is not None and costs[answer] == min(costs.values()):
            return "no arm is cheaper"
        margin = self.epsilon - self.slack
        return f"every cheaper arm is {f'more than {margin:.6g} ' if margin > 0 else ''}worse than the best"

    @property
    def promise(self) -> str:
        """How sure the decision is, in words."""
        if self.items is not None and self.stopped and self.confidence == 1:
            return "known exactly, since everything was evaluated"
        if self.proven:
            return f"wrong with probability at most {self.error or self.delta:g}"
        if self.certified:
            return (
                f"certified by simulation up to {self.certified_pulls} pulls to be wrong with probability at most "
                f"{self.delta:g}, not proven"
            )
        return f"at delta {self.delta:g} but by a threshold that is not proven, so without a guarantee"

    @property
    def statement(self) -> str | None:
        """What has been decided, in words; None if nothing has."""
        return None if self.decision is None else f"{self.decision} {self.best}, {self.promise}"

    @property
    def sentence(self) -> str:
        """How the study stands, in a sentence or two."""
        spent = f"{words.money(self.spent)} spent"
        if self.decision is not None:
            number = self.pulls + self.waiting + self.discarded + self.failures
            paid = f"{spent} on {number:,} pulls" if self.items is None else spent
            if self.items is not None and self.full_cost:
                share = words.percent(self.spent / self.full_cost)
                paid += f", {share} of the {words.rough(self.full_cost, 3)} that evaluating everything costs"
            return f"{'Accepted' if self.reason == ACCEPTED else 'Decided'}: {self.statement}; {paid}."
        if self.stopped:
            certified = f"at {self.certified_pulls or 0:,} pulls, where the certificate of its threshold ends"
            most = words.money(self.max_cost if self.reason == "max_cost" else self.max_pulls)
            ends = {"by hand": "by hand", "certificate": certified}
            limit = ends.get(self.reason or "", f"at {self.reason} = {most}")
            if self.leader is None:
                return f"Stopped {limit} before any reward; no decision."
            known = self.known or f"{self.leader} leads, but nothing is proven"
            if self.goal == CHEAPEST:
                known = f"{self.leader} is the likely answer; {self.known or 'nothing is proven'}"
            word = "Proven" if self.within == 0 and self.goal != CHEAPEST else "Undecided"
            return f"{word}: {known}. Stopped {limit}; {spent}."
        if self.leader is None and not self.waiting and not self.failures:
            return "Nothing observed yet."
        if self.leader is None and self.waiting:
            what = f"Nothing counts yet: {self.waiting} told early, waiting for pulls asked before them"
        elif self.leader is None:
            what = f"No reward yet: {self.failures} failed"
        elif self.progress is None:
            what = f"{self.leader} leads so far; how far it is from a decision cannot be told here"
        elif self.forecast is None:
            what = f"{self.leader} leads so far; it is too early to tell more"
            if self.items and self.at_most is not None:
                spent += f", at most about {words.rough(self.at_most, 3)} more"
        elif self.looks_tied and self.claim is None:
            what = f"{self.outlook.capitalize()}: {self.leader} and {self.rival} are perhaps tied"
            if self.within is not None:
                spent += f"; epsilon = {words.rounded_up(self.within)} would end it now"
        else:
            limit = "budget" if self.max_pulls is None and self.certified_pulls is None else "limit"
            spent = f"{words.percent(self.progress)} done: {spent}{self.forecast.said(limit)}"
            what = f"{self.leader} leads{', ' if self.ahead else ''}{self.ahead}"
            if self.claim is not None:
                what = f"{self.leader} is the likely answer. Still to show: {self.claim}"
        return f"{what}. {spent}."

    def line(self, width: int | None = None) -> str:
        """How it stands in one line, for a terminal of that width: cut from the right, and never the money."""
        scores = f"{self.pulls:,} of {(self.items or 0) * len(self.arms):,} scores"
        budget = "" if self.max_cost is None else f" of {words.money(self.max_cost)}"
        found = [f"{self.pulls:,} pulls" if self.items is None else scores, f"{words.money(self.spent)}{budget} spent"]
        if self.looks_tied:
            found.append(f"{self.outlook}, perhaps tied")
        elif self.progress is not None and not self.stopped:
            found.append(f"{words.percent(self.progress)} done")
        if self.forecast is not None and self.forecast.time and not self.looks_tied:
            found.append(f"{self.forecast.time} left")
        if self.leader is not None:
            found.append(f"{self.leader} {'decided' if self.decision else 'leads'}")
        while width is not None and len(found) > 1 and len(", ".join(found)) > width:
            found.pop(-1 if len(found) > 2 else 0)
        return ", ".join(found)[:width]

    @property
    def outlook(self) -> str:
        """What to expect while the best arms are perhaps tied: a study with a limit has an end, if no decision."""
        limits = self.max_cost, self.max_pulls, self.certified_pulls
        return f"no {'end' if all(limit is None for limit in limits) else 'decision'} in sight"

    @property
    def ahead(self) -> str:
        """By how much the leader leads, in words; the first number is observed, the second is proven."""
        if self.rival is None or self.lead is None or self.lead < 0:  # a race's leader may be behind on common items
            return ""
        if self.lead == 0:
            return f"level with {self.rival}"
        if self.lead_at_most is None:
            return f"ahead of {self.rival} by {words.rough(self.lead)}"
        much = words.difference(self.lead, words.decimals(self.lead, 2 * self.lead_at_most - self.lead))
        return f"ahead of {self.rival} by {much}, at most {words.rounded_up(self.lead_at_most)}"

    @property
    def known(self) -> str | None:
        """What is proven without a decision, in words: which arms may be the best, and how close the leader is."""
        found, possible = [], [arm.name for arm in self.arms if arm.may_be_best]
        if possible and len(possible) < len(self.arms):
            best = f"one of {len(possible)} arms" if len(possible) > 6 else words.either(possible)
            found.append(f"{best} is the best")
        if self.within is not None and (self.within or possible != [self.leader]):
            much = f"at most {words.rounded_up(self.within)} worse than the best" if self.within else "the best"
            found.append(f"{self.leader} is {much}")
        if not found:
            return None
        alone = self.goal == CHEAPEST or (self.items is not None and self.threshold == "champion")
        each = "each " if len(found) > 1 and alone else ""
        return f"{', and '.join(found)}, {each}wrong with probability at most {self.error or self.delta:g}"

    @property
    def shown(self) -> list[str]:
        """What else is proven, in sentences."""
        known = self.known
        if not self.stopped:
            return [] if known is None else [f"Proven: {known}."]
        found = [f"{self.leader} is {self.ahead}."] if self.ahead and (self.lead or 0.0) > 0 else []
        if self.decision is None:
            return found
        within = words.rounded_up(self.within or 0.0)
        if 0 < float(within) < self.epsilon:  # else the decision says as much
            found.append(f"{self.decision} is at most {within} worse than the best.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """The status as a dictionary that JSON can hold: no NaN, no infinities."""
        return asdict(self)

    def rows(self) -> list[list[str]]:
        """The arms as rows of a table, with a heading."""
        count, interval = "pulls" if self.items is None else "items", f"{1 - self.delta:.4g} interval"
        found = [["arm", count, "mean", interval, "mean cost", "spent", ""]]
        for arm in self.arms:
            texts, waiting = self.texts(arm), 0 if self.stopped else arm.waiting
            more = (waiting, "waiting"), (arm.failures, "failed"), (arm.lapses, "lapsed")
            state = [self.state_of(arm), *(f"{number} {what}" for number, what in more if number)]
            paid = words.money(arm.cost), words.money(arm.spent)
            found.append(
                [arm.name, str(arm.pulls), texts["mean"], texts["interval"], *paid, ", ".join(filter(None, state))]
            )
        return found if self.items is None else [[*row[:3], *row[4:]] for row in found]

    def texts(self, arm: ArmStatus) -> dict[str, str]:
        """The numbers of an arm's mean, with as many digits as its interval allows."""
        digits = (
            words.decimals(arm.low, arm.high) if self.items is None else words.decimals_of_mean(arm.pulls, self._width)
        )
        low = "-inf" if arm.low is None else words.fixed(arm.low, digits)
        high = "inf" if arm.high is None else words.fixed(arm.high, digits)
        interval = "not known yet" if arm.low is None and arm.high is None else f"{low} to {high}"
        return {
            "mean": words.fixed(arm.mean, digits), "interval": interval if arm.pulls else "",
            "behind": "" if arm.behind is None else words.difference(arm.behind, digits),
        }  # fmt: skip

    @property
    def _width(self) -> float:
        """Of the range of scores: an arm's interval covers the share of it that its scores leave open."""
        for arm in self.arms:
            share = 1 - (arm.pulls + arm.waiting) / (self.items or 1)
            if share and arm.low is not None and arm.high is not None:
                return (arm.high - arm.low) / share
        return 1.0

    def state_of(self, arm: ArmStatus) -> str:
        """What there is to say of an arm, in a word or two; empty where it is nothing."""
        is_best, best = self.goal == BEST, "decided" if self.epsilon else "best"  # with epsilon, another may be better
        best = "accepted" if self.reason == ACCEPTED else best
        leads = "led" if self.stopped else "leads"
        states = {
            best if is_best else "cheapest": arm.name == self.decision,
            "dropped": arm.name in self.dropped,
            "tied": arm.name in self.tied,
            "too bad": arm.excluded,
            leads if is_best else "likely": arm.name == self.leader,
            "out": not arm.in_play or (arm.standing or "").startswith("out"),
            "not the best": arm.may_be_best is False,
            "closest rival": arm.name == self.rival and is_best and not self.stopped,
        }
        return next((state for state, is_so in states.items() if is_so), "")

    def _repr_html_(self) -> str:
        return status_table(self)

    def __str__(self) -> str:
        about = f"{self.name}: {self.family}, {self.direction}, delta {self.delta:g}"
        about += f", epsilon {self.epsilon:g}" if self.epsilon else ""
        about += "" if self.slack is None else f", goal {self.goal}, slack {self.slack:g}"
        about += f", policy {self.policy}, threshold {self.threshold}" if self.items is None else ""
        about += "" if self.items is None else f", {self.items} items, {self.threshold} race"
        about += f", reserve {self.reserve:g}" if self.reserve else ""
        lapsed = f", {self.lapsed} of them released or expired" if self.lapsed else ""
        decide = "; counting them would decide the study" if self.would_decide else ""
        without, end = "the study stopped without", "the study stopped"
        if self.decision is not None:
            without, end = "the decision did not need", "the decision"
        unused, them = ("result is", "it") if self.unused == 1 else ("results are", "them")
        late, they = ("result", "it") if self.late == 1 else ("results", "they")
        again = 0 if self.items is None else self.discarded
        out = 0 if again else sum(arm.discarded for arm in self.arms if not arm.in_play)
        numbers = {
            f"under way{lapsed}": self.under_way,
            f"told early, waiting for {self.waiting_for}, asked before them{decide}": self.waiting_for and self.waiting,
            f"{unused} not counted: {without} {them}": self.unused,
            "told by import": self.imported,
            "told again of the same item: they do not count": again,
            "told of arms that are out: they do not count": out,
            "told as sums after the study stopped: they do not count": self.discarded - again - out,
            f"{late} arrived after {end}; {they} cost {words.money(self.spent_late)}": self.late,
        }
        more = [f"{number} {what}" for what, number in numbers.items() if number]
        rows = self.rows()
        arms = table([row[:-1] for row in rows]).split("\n")
        arms = [f"{line}  {row[-1]}".rstrip() for line, row in zip(arms, rows, strict=True)]  # words: aligned left
        warnings = [f"Warning: {text}" for text in self.warnings]
        return "\n".join([about, *arms, *more, *self.shown, self.sentence, *warnings])
