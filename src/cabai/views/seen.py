"""Prepare a study's data for the templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cabai.views.drawing import Chart, Span, Tracks, chart, spans
from cabai.views.words import duration, money, number

if TYPE_CHECKING:
    from cabai.study.show.status import ArmStatus, Status
    from cabai.study.state.accounts import Point


@dataclass(frozen=True)
class Seen:
    """A study at one moment: its status, history, pulls under way and failures."""

    status: Status
    history: Sequence[Point] = ()
    pulls: Sequence[dict[str, Any]] = ()  # under way: id, arm, item, worker, asked, expires, offers
    failures: Sequence[dict[str, Any]] = ()  # arm, reason, count, last
    now: float = 0.0  # Unix time, by the clock of the storage


@dataclass(frozen=True)
class Row:
    """One row of the table of arms."""

    arm: ArmStatus
    span: Span | None
    share_of_bill: float
    evidence: float | None  # of the leader over this arm, as a share of the evidence required
    state: str  # leads, best, out and so on, or empty
    reason: str  # in or out, and why; empty where that says no more than the rest of the row


def rows(status: Status) -> list[Row]:
    """The arms: the leader first, then those in play, then those out, each sorted by mean."""
    better = -1.0 if status.direction == "maximize" else 1.0

    def order(arm: ArmStatus) -> tuple[bool, bool, bool, float]:
        return arm.name != status.leader, not arm.in_play, arm.mean is None, better * (arm.mean or 0.0)

    arms = sorted(status.arms, key=order)
    drawn, _, _ = spans([(arm.low, arm.mean, arm.high) for arm in arms])
    return [
        Row(
            arm,
            span,
            arm.spent / status.spent if status.spent else 0.0,
            None if arm.share is None else min(max(arm.share, 0.0), 1.0),
            state(arm, status),
            reason(arm, status),
        )
        for arm, span in zip(arms, drawn, strict=True)
    ]


def scale(status: Status) -> tuple[float, float] | None:
    """The range of means over which intervals are drawn."""
    _, low, high = spans([(arm.low, arm.mean, arm.high) for arm in status.arms])
    return (low, high) if high > low else None


def state(arm: ArmStatus, status: Status) -> str:
    is_best = status.goal == "best"
    if arm.name == status.decision:
        return "best" if is_best else "cheapest"
    if arm.name in status.dropped:
        return "dropped"
    if arm.name in status.tied:
        return "tied"
    if arm.excluded:
        return "too bad"
    if arm.name == status.leader:
        return ("led" if status.stopped else "leads") if is_best else "likely"
    if not arm.in_play or (is_out(arm) and status.decision is not None):
        return "out"
    return "beaten" if is_out(arm) else ""


def reason(arm: ArmStatus, status: Status) -> str:
    is_news = arm.name == status.rival or is_out(arm) or (status.stopped and arm.name != status.leader)
    return arm.standing or "" if is_news or status.goal != "best" else ""


def is_out(arm: ArmStatus) -> bool:
    """Whether an arm was dropped, or is beaten now."""
    return (arm.standing or "").startswith("out")


def left(status: Status) -> tuple[str, int] | None:
    """How many arms may still be the answer, and what to call them; None if the test does not say."""
    if status.goal == "best" and all(arm.may_be_best is not None for arm in status.arms):
        return "May be the best", sum(arm.may_be_best is True for arm in status.arms)
    count = sum(not is_out(arm) for arm in status.arms)
    is_said = count < len(status.arms) and (status.goal == "best" or not status.stopped)
    return ("Arms left", count) if is_said else None


def progress(status: Status) -> float | None:
    """The evidence over the rival that is hardest to beat, as a share of the evidence required."""
    if status.decision is not None:
        return 1.0
    if status.evidence is None or not status.required:
        return None
    return min(max(status.evidence / status.required, 0.0), 1.0)


def to_come(status: Status) -> str:
    """How much is still to pay, as far as it is known."""
    if status.stopped:
        return "pulls under way" if status.under_way else "nothing"
    found = status.forecast
    if found is not None:
        return f"{money(found.low)} to {money(found.high)} (80 %)"
    return "not known yet" if status.at_most is None else f"at most {money(status.at_most)}"


def evidence_over_bill(seen: Seen) -> Tracks:
    """The leader's evidence over the rival that is hardest to beat, and the evidence required, against the bill."""
    status = seen.status
    moments = [(point.spent, point.evidence, point.required) for point in seen.history]
    if not status.stopped:
        moments.append((status.spent, status.evidence, status.required))
    known = [(spent, found, least) for spent, found, least in moments if found is not None and least is not None]
    return {
        ("evidence", "main"): [(spent, found) for spent, found, _ in known],
        ("required", "limit"): [(spent, least) for spent, _, least in known],
    }


def bill_over_time(seen: Seen) -> Tracks:
    """The bill against seconds since the study started; and the budget, once a quarter of it is spent."""
    status = seen.status
    spent = status.spent - status.spent_late
    bill = [(0.0, 0.0), *((point.time - status.created, point.spent) for point in seen.history)]
    end = max((seen.now if status.ended is None else status.ended) - status.created, bill[-1][0])
    found: Tracks = {("spent", "main"): [*bill, (end, spent)]}
    if status.max_cost is not None and spent > status.max_cost / 4:
        found["max_cost", "limit"] = [(0.0, status.max_cost), (end, status.max_cost)]
    return found


def charts(seen: Seen) -> list[Chart]:
    """Two charts: evidence and evidence required against the bill, and the bill over time."""
    evidence, bill = evidence_over_bill(seen), bill_over_time(seen)
    said, is_best = "", seen.status.goal == "best"
    title = "Evidence of the leader over its closest rival" if is_best else "Evidence for the least certain claim"
    if evidence["evidence", "main"]:
        (spent, last), (_, least) = evidence["evidence", "main"][-1], evidence["required", "limit"][-1]
        said = f"{number(last, 3)} of {number(least, 3)} nats after a bill of {money(spent)}"
    end, spent = bill["spent", "main"][-1]
    found = [
        chart(
            title,
            said, evidence, "spent", money,
            lambda value: f"{value:.3g} nats",
        ),
        chart(
            "The bill", f"{money(spent)} spent in {duration(end)}", bill, "time",
            lambda seconds: duration(seconds) if seconds else "start", money,
        ),
    ]  # fmt: skip
    return [each for each in found if each is not None]
