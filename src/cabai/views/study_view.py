"""Prepare a study's data for the templates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cabai.views.drawing import Chart, Span, Tracks, chart, spans
from cabai.views.words import duration, money, number, percent, rough, rounded_up

if TYPE_CHECKING:
    from cabai.study.show.status import ArmStatus, Status
    from cabai.study.state.accounts import Point


@dataclass(frozen=True)
class StudyView:
    """A study at one moment: its status, history, pulls under way and failures."""

    status: Status
    history: Sequence[Point] = ()
    pulls: Sequence[dict[str, Any]] = ()  # under way: id, arm, item, worker, asked, expires, offers
    failures: Sequence[dict[str, Any]] = ()  # arm, reason, count, last
    now: float = 0.0  # Unix time, by the clock of the storage


@dataclass(frozen=True)
class ArmRow:
    """One row of the table of arms."""

    arm: ArmStatus
    span: Span | None
    share_of_bill: float
    state: str  # leads, best, out and so on, or empty
    texts: dict[str, str]  # its mean, interval, and how far it is behind


def table_of(status: Status) -> tuple[list[ArmRow], tuple[str, str] | None]:
    """The arms: the leader first, then those in play, then those out, each sorted by mean; and the range of means over
    which intervals are drawn, with the digits that tell its ends apart."""
    better = -1.0 if status.direction == "maximize" else 1.0

    def order(arm: ArmStatus) -> tuple[bool, bool, bool, float]:
        return arm.name != status.leader, not arm.in_play, arm.mean is None, better * (arm.mean or 0.0)

    arms = sorted(status.arms, key=order)
    drawn, low, high = spans([(arm.low, arm.mean, arm.high) for arm in arms])
    rows = [
        ArmRow(arm, span, arm.spent / (status.spent or 1.0), status.state_of(arm), status.texts(arm))
        for arm, span in zip(arms, drawn, strict=True)
    ]
    if not high > low:
        return rows, None
    decimals = 1 - math.floor(math.log10(high - low))
    return rows, (number(round(low, decimals), 12), number(round(high, decimals), 12))


def left(status: Status) -> tuple[str, int] | None:
    """How many arms may still be the answer, and what to call them; None if that is not known, or over."""
    if status.decision is not None and status.epsilon:
        return None
    if status.goal == "best" and all(arm.may_be_best is not None for arm in status.arms):
        return "May be the best", sum(arm.may_be_best is True for arm in status.arms)
    count = sum(not (arm.standing or "").startswith("out") for arm in status.arms)
    is_said = count < len(status.arms) and (status.goal == "best" or not status.stopped)
    return ("Arms left", count) if is_said else None


def to_come(status: Status) -> str:
    """How much is still to pay, as far as it is known."""
    if status.stopped:
        number = status.under_way
        return f"{number} {'pull' if number == 1 else 'pulls'} under way" if number else "nothing"
    found = status.forecast
    if status.looks_tied and status.outlook == "no end in sight":
        return status.outlook
    if found is not None and found.low >= 0.99 * found.high:
        return f"{rough(found.high)}, {'the rest of the budget' if status.max_cost else 'up to its limit of pulls'}"
    if found is not None:
        return f"{rough(found.low)} to {rough(found.high)}"
    return "not known yet" if status.at_most is None else f"at most {money(status.at_most)}"


def time_to_come(status: Status) -> str:
    """How long it may take, as far as that is known; empty if not."""
    return "" if status.forecast is None or status.looks_tied else status.forecast.time


def progress_over_bill(view: StudyView) -> Tracks:
    """The share of the expected bill that was paid, against the bill."""
    status = view.status
    found = [(point.spent, point.progress) for point in view.history if point.progress is not None]
    if not status.stopped and status.progress is not None:
        found.append((status.spent, status.progress))
    return {("progress", "main"): found}


def lead_over_bill(view: StudyView) -> Tracks:
    """How far the leader was ahead of the next best, against the bill; and how far it is at most, as shown now."""
    status = view.status
    end = status.spent - status.spent_late
    found = [(point.spent, point.lead) for point in view.history if point.lead is not None and point.spent > end / 20]
    leads = [arm.behind for arm in status.arms if arm.in_play and arm.behind is not None]
    if not status.stopped and leads:
        found.append((end, min(leads)))
    most = [] if status.lead_at_most is None else [(0.0, status.lead_at_most), (end, status.lead_at_most)]
    return {("lead", "main"): found, ("at most, proven by now", "limit"): most if found else []}


def bill_over_time(view: StudyView) -> Tracks:
    """The bill against seconds since the study started; and the budget, once a quarter of it is spent."""
    status = view.status
    spent = status.spent - status.spent_late
    bill = [(0.0, 0.0), *((point.time - status.created, point.spent) for point in view.history)]
    if status.ended is None and status.last_result is not None:
        bill.append((status.last_result - status.created, spent))
    end = max((view.now if status.ended is None else status.ended) - status.created, bill[-1][0])
    found: Tracks = {("spent", "main"): [*bill, (end, spent)]}
    if status.max_cost is not None and spent > status.max_cost / 4:
        found["budget", "limit"] = [(0.0, status.max_cost), (end, status.max_cost)]
    return found


def charts(view: StudyView) -> list[Chart]:
    """Progress and the leader's lead against the bill, and the bill over time."""
    status, bill, lead = view.status, bill_over_time(view), lead_over_bill(view)
    end, spent = bill["spent", "main"][-1]
    ahead = f"{status.leader}, {status.ahead}" if status.ahead else "of the leader over the next best"
    paid = "too early to tell" if status.forecast is None else f"{percent(status.progress)} of the expected bill"
    paid = "ended" if status.stopped else status.outlook if status.looks_tied else paid
    found = [
        chart(
            "Progress", paid, progress_over_bill(view), "spent", money,
            lambda share: f"{share:.0%}".replace("%", " %"), top=1.0,
        ),
        chart("The lead", ahead, lead, "spent", money, rounded_up)
        if status.goal == "best" else None,
        chart(
            "The bill", f"{money(spent)} spent in {duration(end)}", bill, "time",
            lambda seconds: duration(seconds) if seconds else "start", money,
        ),
    ]  # fmt: skip
    return [each for each in found if each is not None]
