"""What is known about a study at one moment, for people and programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cabai.core.goal import BEST, CHEAPEST
from cabai.support.tables import table
from cabai.views import status_table

SHARE = 0.8  # of forecasts: the chance that what is still to be paid lies within the range


@dataclass(frozen=True)
class Forecast:
    """What is still to be paid before the study stops: less than `low` with a chance of a tenth, more than `high` with
    a chance of a tenth. With a budget no more than its rest is paid, and `chance` is that of a decision within it."""

    low: float
    median: float
    high: float
    chance: float | None = None

    def __str__(self) -> str:
        """The end of a sentence that says what was spent."""
        if self.chance is not None and self.low >= 0.99 * self.high:
            much = f", {roughly(self.high)} more until the budget is used up"
        else:
            much = f", between {roughly(self.low)} and {roughly(self.high)} more ({100 * SHARE:.0f} %)"
        return (
            much if self.chance is None else f"{much}; chance of a decision within the budget: {percent(self.chance)}"
        )

    def after(self, paid: float) -> Forecast:
        """The same after some more has been paid."""
        low, median, high = (max(each - paid, 0.0) for each in (self.low, self.median, self.high))
        return Forecast(low, median, high, self.chance)


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
    may_be_best: bool | None = None  # False: shown not to be, at delta; None where that cannot be said
    ranks: list[int] | None = None  # the best and the worst that it can have, at delta for all arms at once
    better_than: list[str] | None = None  # the arms that it is shown to be better than, on which ranks are based
    running_cost: float | None = None  # of goal cheapest: what it costs to run; None: not known yet
    excluded: bool = False  # the same: it is shown too bad to be the answer


@dataclass(frozen=True)
class Status:
    """A study at one moment, from `study.status()`; print it to see a table of the arms and a sentence.

    >>> from cabai import create_study
    >>> study = create_study("at one moment", arms=["a", "b"], family="bernoulli", costs=[1, 2], storage="memory")
    >>> study.tell(study.ask(), reward=1)
    >>> status = study.status()
    >>> status.leader, status.spent, status.stopped, status.decision
    ('a', 1.0, False, None)
    >>> [(arm.name, arm.pulls, arm.mean, arm.cost) for arm in status.arms]
    [('a', 1, 1.0, 1.0), ('b', 0, None, 2.0)]
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
    remaining_cost: float | None  # still to be paid, the median of the forecast; None where none was made
    stopped: bool
    reason: str | None  # evidence, max_cost, max_pulls, certificate or by hand
    decision: str | None  # the best arm, as surely as `promise` says; None where the threshold was not reached
    warnings: list[str]
    items: int | None = None  # of a study with items: how many there are
    full_cost: float | None = None  # what evaluating everything would cost, as far as prices are known
    is_complete: bool = False  # whether everything was evaluated
    within: float | None = None  # the leader is shown to be at most so much worse than the best, at delta
    at_most: float | None = None  # still to be paid at most: the rest of a budget, or of a dataset; None: no limit
    forecast: Forecast | None = None  # what is still to be paid, where that was asked for and can be said
    goal: str = BEST  # what is looked for: the best arm, or the cheapest that is good enough
    slack: float | None = None  # of goal cheapest: cheaper arms are worse than the best by more than epsilon - slack
    claim: str | None = None  # the same: what `evidence` is for, in words
    imported: int = 0  # rows of the log that are from elsewhere
    amended: int = 0  # how often its settings were: see `study.amendments()`
    error: float | None = None  # the probability of a wrong decision, at most, where it is not delta
    reserve: float | None = None  # the share of delta that is kept for arms that join or are dropped by hand
    joined: list[str] = field(default_factory=list)  # arms that joined later
    dropped: list[str] = field(default_factory=list)  # arms that were dropped by hand
    tied: list[str] = field(default_factory=list)  # of a race: arms with exactly the leader's total on all items
    earlier: list[str] = field(default_factory=list)  # arms of the race that this one has joined, and that are not here

    def with_forecast(self, forecast: Forecast | None) -> Status:
        """The same, with what is still to be paid."""
        return replace(self, forecast=forecast, remaining_cost=None if forecast is None else forecast.median)

    @property
    def best(self) -> str:
        """What the decision claims about the arm, in words.

        >>> from cabai import create_study
        >>> about = {"arms": ["a", "b"], "family": "bernoulli", "storage": "memory"}
        >>> create_study("best", **about).status().best
        'has the largest mean'
        >>> create_study("good enough", epsilon=0.1, direction="minimize", **about).status().best
        'has a mean within 0.1 of the smallest mean'
        """
        if self.goal == CHEAPEST:
            return cheapest_best(self, in_words(len(self.arms)))
        wanted = "largest" if self.direction == "maximize" else "smallest"
        if self.items is not None:
            wanted = "highest" if self.direction == "maximize" else "lowest"
            mean = f"a mean within {self.epsilon:g} of the {wanted}" if self.epsilon else f"the {wanted} mean"
            tied = f", tied with {listed(self.tied)}," if self.tied and not self.epsilon else ""
            among = f"of these {in_words(len(self.arms))}"
            if self.earlier:
                among += f" and the {in_words(len(self.earlier))} of the earlier race"
            return f"has {mean}{tied} {among} on these {self.items} items"
        among = " among the arms still in" if self.dropped else ""
        close = f"has a mean within {self.epsilon:g} of the {wanted} mean"
        return (close if self.epsilon else f"has the {wanted} mean") + among

    @property
    def promise(self) -> str:
        """How sure the decision is, in words.

        >>> from cabai import create_study
        >>> create_study("promise", arms=["a", "b"], family="bernoulli", storage="memory").status().promise
        'wrong with probability at most 0.05'
        """
        if self.items is not None and self.confidence == 1:  # it was, when the study stopped
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
        """What has been decided, in words; None if nothing has.

        >>> from cabai import create_study
        >>> study = create_study("statement", arms=["a", "b"], items=100, costs=[1, 2], storage="memory")
        >>> study.run(lambda arm, item: arm == "b").statement
        'b has the highest mean of these two on these 100 items, wrong with probability at most 0.05'
        """
        return None if self.decision is None else f"{self.decision} {self.best}, {self.promise}"

    @property
    def sentence(self) -> str:
        """How the study stands, in one sentence.

        >>> from cabai import create_study
        >>> study = create_study("sentence", arms=["a", "b"], family="bernoulli", costs=[1, 2], storage="memory")
        >>> study.status().sentence
        'Nothing observed yet.'
        >>> study.run(lambda arm: 1 if arm == "b" else 0).sentence
        'Decided: b has the largest mean, wrong with probability at most 0.05; 12 spent on 9 pulls.'
        """
        if self.decision is not None:
            number = self.pulls + self.waiting + self.discarded + self.failures
            if self.items is not None:
                return f"Decided: {self.statement}; {self.spent:.6g} spent{self._share}."
            return f"Decided: {self.statement}; {self.spent:.6g} spent on {number} pulls."
        if self.stopped:
            if self.reason == "certificate":
                limit = f"{self.certified_pulls} pulls, where the certificate of its threshold ends,"
            else:
                most = self.max_cost if self.reason == "max_cost" else self.max_pulls
                limit = f"{self.reason} = {most or 0:g}"
            limit = "by hand" if self.reason == "by hand" else f"at {limit}"
            if self.leader is None:
                return f"Stopped {limit} before any reward; no decision."
            return f"Stopped {limit} without a guarantee: {self.leader} leads; {self._how_sure} {self.spent:.6g} spent."
        if self.items is not None and self.leader is not None:
            return self._race_sentence
        if self.leader is None and self.waiting:
            held = f"{self.waiting} told early, waiting for pulls asked before them"
            return f"Nothing counts yet: {held}. {self.spent:.6g} spent."
        if self.leader is None and self.failures:
            return f"No reward yet: {self.failures} failed. {self.spent:.6g} spent."
        if self.leader is None:
            return "Nothing observed yet."
        if self.confidence is None:
            return f"{self.leader} leads so far; its evidence cannot be shown here. {self.spent:.6g} spent."
        if self.evidence is None or self.required is None:
            return f"{self.leader} leads so far; too few pulls for evidence. {self.spent:.6g} spent."
        if self.claim is not None:
            return cheapest_sentence(self)
        return (
            f"{self.leader} leads; evidence over {self.rival} {self.evidence:.2f} of {self.required:.2f} nats. "
            f"{self.spent:.6g} spent{'' if self.forecast is None else self.forecast}."
        )

    @property
    def _share(self) -> str:
        """How much of the full evaluation was paid, where that is known."""
        if not self.full_cost:
            return ""
        return f", {self.spent / self.full_cost:.0%} of the {roughly(self.full_cost)} that evaluating everything costs"

    @property
    def _race_sentence(self) -> str:
        """The status of a race, in a sentence."""
        if self.claim is not None:
            return cheapest_sentence(self)
        left = [arm for arm in self.arms if arm.in_play]
        over = ""
        if self.evidence is not None and self.required is not None:
            over = f"; evidence over {self.rival} {self.evidence:.2f} of {self.required:.2f} nats"
        rest = "" if self.at_most is None else f", at most about {roughly(self.at_most)} more for these"
        rest = rest if self.forecast is None else str(self.forecast)
        return f"{self.leader} leads{over}; {len(left)} of {len(self.arms)} arms left. {self.spent:.6g} spent{rest}."

    @property
    def _how_sure(self) -> str:
        """The confidence in the leader of a study that stopped without a decision."""
        if self.certified_pulls is not None:
            return "its threshold gives no confidence."
        unproven = "" if self.proven else ", by a threshold that is not proven,"
        return (
            f"confidence {rounded_down(self.confidence or 0.0)}{unproven} that it {self.best} (required: "
            f"{1 - (self.error or self.delta):g})."
        )

    @property
    def shown(self) -> list[str]:
        """What is shown without a decision, in sentences: which arms may be the best, and which ranks are certain.

        Also how far the leader may be from the best.

        >>> from cabai import create_study
        >>> study = create_study("shown", arms=["a", "b"], family="bernoulli", costs=[1, 2], seed=1, storage="memory")
        >>> study.tell_many([{"pull": pull, "reward": pull.arm == "a"} for pull in study.ask(6)])
        >>> study.status().shown
        ['a is at most 0.1887 worse than the best (confidence 0.95).']
        """
        found, sure = [], f"(confidence {1 - self.delta:.4g})"
        possible = [arm.name for arm in self.arms if arm.may_be_best]
        if self.decision is None and possible and len(possible) < len(self.arms):
            found.append(f"May be the best {sure}: {listed(possible)}.")
        is_news = self.decision is None or 0 < (self.within or 0.0) < self.epsilon  # else the decision says as much
        if self.within is not None and is_news:
            found.append(
                f"{self.decision or self.leader} is at most {rounded_up(self.within)} worse than the best {sure}."
            )
        worst = len(self.arms)
        certain = [arm for arm in self.arms if arm.ranks not in (None, [1, worst])]
        best = [arm.ranks for arm in self.arms if arm.name == self.decision]
        doubts = bool(best) and self.epsilon == 0 and best != [[1, 1]]  # ranks need more evidence than the decision
        if certain and worst > 2 and not doubts:
            certain.sort(key=lambda arm: arm.ranks or [])
            found.append(f"Ranks {sure}: {', '.join(ranked(arm) for arm in certain)}.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """The status as a dictionary that JSON can hold: no NaN, no infinities.

        >>> from cabai import create_study
        >>> found = create_study("to_dict", arms=["a", "b"], family="bernoulli", storage="memory").status().to_dict()
        >>> found["pulls"], found["decision"], found["arms"][0]["name"]
        (0, None, 'a')
        """
        return asdict(self)

    def rows(self) -> list[list[str]]:
        """The arms as rows of a table, with a heading.

        >>> from cabai import create_study
        >>> study = create_study("rows", arms=["a", "b"], family="bernoulli", costs=[1, 2], storage="memory")
        >>> study.tell(study.ask(), reward=1)
        >>> for row in study.status().rows():
        ...     print(row)
        ['arm', 'pulls', 'mean', '0.95 interval', 'mean cost', 'spent', '']
        ['a', '1', '1', '0.0125 to 1', '1', '1', 'leads']
        ['b', '0', '', '', '2', '0', '']
        """
        if self.items is not None:
            header = ["arm", "items", "mean", "known to be", "mean cost", "spent", ""]
            return [header, *(self._row(arm) for arm in self.arms)]
        header = ["arm", "pulls", "mean", f"{1 - self.delta:.4g} interval", "mean cost", "spent", ""]
        return [header, *(self._row(arm) for arm in self.arms)]

    def _row(self, arm: ArmStatus) -> list[str]:
        ends = ["-inf" if arm.low is None else f"{arm.low:.4g}", "inf" if arm.high is None else f"{arm.high:.4g}"]
        state = "out" if not arm.in_play else "leads" if arm.name == self.leader else ""
        if self.goal == CHEAPEST and not self.stopped:
            state = "likely" if arm.name == self.leader else state
        if arm.excluded:
            state = "too bad"
        if arm.name in self.dropped:
            state = "dropped"
        if arm.name in self.tied:
            state = "tied"
        if arm.name == self.decision:
            state = "best" if self.goal == BEST else "cheapest"
        elif not state and not self.stopped and arm.share is not None:
            state = (
                "beaten" if arm.share == 1 and self.goal == BEST else f"{math.floor(100 * arm.share)} % of the evidence"
            )
            state += ", closest rival" if arm.name == self.rival else ""
        for number, what in ((arm.waiting, "waiting"), (arm.failures, "failed"), (arm.lapses, "lapsed")):
            if number and not (what == "waiting" and self.stopped):
                state = f"{state}, {number} {what}".lstrip(", ")
        return [
            arm.name,
            str(arm.pulls),
            "" if arm.mean is None else f"{arm.mean:.4g}",
            f"{ends[0]} to {ends[1]}" if arm.pulls else "",
            "" if arm.cost is None else f"{arm.cost:.4g}",
            f"{arm.spent:.4g}",
            state,
        ]

    def _repr_html_(self) -> str:
        return status_table(self)

    def __str__(self) -> str:
        about = f"{self.name}: {self.family}, {self.direction}, delta {self.delta:g}"
        about += f", epsilon {self.epsilon:g}" if self.epsilon else ""
        about += "" if self.slack is None else f", goal {self.goal}, slack {self.slack:g}"
        if self.items is None:
            about += f", policy {self.policy}, threshold {self.threshold}"
            about += f", reserve {self.reserve:g}" if self.reserve else ""
        else:
            about += f", {self.items} items, {self.threshold} race"
        more = []
        if self.under_way:
            lapsed = f", {self.lapsed} of them released or expired" if self.lapsed else ""
            more.append(f"{self.under_way} under way{lapsed}")
        if self.waiting_for is not None:
            decide = "; counting them would decide the study" if self.would_decide else ""
            more.append(f"{self.waiting} told early, waiting for {self.waiting_for}, asked before them{decide}")
        elif self.waiting and self.items is None:
            without = "the study stopped without" if self.decision is None else "the decision did not need"
            what, them = ("result is", "it") if self.waiting == 1 else ("results are", "them")
            more.append(f"{self.waiting} {what} not counted: {without} {them}")
        if self.imported:
            more.append(f"{self.imported} told by import")
        if self.discarded and self.items is not None:
            more.append(f"{self.discarded} told again of the same item: they do not count")
        elif self.discarded:
            out = sum(arm.discarded for arm in self.arms if not arm.in_play)
            for number, what in (
                (out, "of arms that are out"),
                (self.discarded - out, "as sums after the study stopped"),
            ):
                more += [f"{number} told {what}: they do not count"] if number else []
        if self.late:
            end = "the study stopped" if self.decision is None else "the decision"
            what, they = ("result", "it") if self.late == 1 else ("results", "they")
            more.append(f"{self.late} {what} arrived after {end}; {they} cost {self.spent_late:.6g}")
        more += self.shown
        rows = self.rows()
        arms = table([row[:-1] for row in rows]).split("\n")
        arms = [f"{line}  {row[-1]}".rstrip() for line, row in zip(arms, rows, strict=True)]  # words: aligned left
        return "\n".join([about, *arms, *more, self.sentence, *(f"Warning: {text}" for text in self.warnings)])


def in_words(number: int) -> str:
    """A small number as a word."""
    words = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    return words[number - 2] if 2 <= number <= 12 else str(number)


def ranked(arm: ArmStatus) -> str:
    """An arm and the ranks that it can have."""
    best, worst = arm.ranks or [0, 0]
    return f"{arm.name} {best}" if best == worst else f"{arm.name} {best} to {worst}"


def listed(names: Sequence[str], most: int = 10) -> str:
    """Some names, and how many more there are."""
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} others"


def rounded_up(epsilon: float) -> str:
    """Four digits, never rounded down."""
    text = f"{epsilon:.4g}"
    return text if float(text) >= epsilon else f"{epsilon * (1 + 1e-3):.4g}"


def rounded_down(share: float) -> str:
    """A confidence is never shown as more than it is."""
    return f"{math.floor(share * 10000) / 10000:.4g}"


def cheapest_best(status: Status, number: str) -> str:
    """What the decision is about: the arm decided for or, before that, the likely answer; `number` is that of arms."""
    of = ""
    if status.items is not None:
        of = f" of these {number} on these {status.items} items"
    assert status.slack is not None
    cheap = {arm.name: math.inf if arm.running_cost is None else arm.running_cost for arm in status.arms}
    answer = status.decision or status.leader
    if answer is not None and cheap[answer] == min(cheap.values()):
        return f"is within {status.epsilon:g} of the best{of}, and no arm is cheaper"
    margin = max(status.epsilon - status.slack, 0.0)
    worse = f"more than {margin:.6g} worse than the best" if margin else "worse than the best"
    return f"is within {status.epsilon:g} of the best{of}, and every cheaper arm is {worse}"


def cheapest_sentence(status: Status) -> str:
    """The status of an undecided study, in a sentence."""
    rest = "" if status.forecast is None else str(status.forecast)
    if status.items is not None:
        rest = "" if status.at_most is None else f", at most about {roughly(status.at_most)} more"
    return (
        f"{status.leader} is the likely answer; evidence that {status.claim}: {status.evidence or 0.0:.2f} of "
        f"{status.required or 0.0:.2f} nats. {status.spent:.6g} spent{rest}."
    )


def roughly(cost: float) -> str:
    """Three digits, without an exponent: 3300, not 3.3e+03."""
    return f"{float(f'{cost:.3g}'):g}"


def percent(chance: float) -> str:
    """A chance estimated by simulation is never shown as 0 % or 100 %."""
    return "less than 1 %" if chance < 0.01 else "more than 99 %" if chance > 0.99 else f"{100 * chance:.0f} %"
