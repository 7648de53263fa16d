"""What is to be seen of a study, put together for the templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cabai.views.drawing import Chart, Span, chart, spans
from cabai.views.words import duration, money, number

if TYPE_CHECKING:
    from cabai.study.history import Point
    from cabai.study.status import ArmStatus, Status


@dataclass(frozen=True)
class Seen:
    """A study at one moment: its status, its past, what is under way and what has failed."""

    status: Status
    history: Sequence[Point] = ()
    pulls: Sequence[dict[str, Any]] = ()  # under way: id, arm, item, worker, asked, expires, offers
    failures: Sequence[dict[str, Any]] = ()  # arm, reason, count, last
    now: float = 0.0  # seconds since 1970, by the clock of the storage


@dataclass(frozen=True)
class Row:
    """One arm."""

    arm: ArmStatus
    span: Span | None
    share_of_bill: float
    evidence: float | None  # of the leader over it, as a share of what is required
    state: str  # leads, best, out, or nothing


def rows(status: Status) -> list[Row]:
    """The arms: the leader first, then those in play and then those out, each by their means."""
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
        )
        for arm, span in zip(arms, drawn, strict=True)
    ]


def scale(status: Status) -> tuple[float, float] | None:
    """Which means the intervals are drawn between."""
    _, low, high = spans([(arm.low, arm.mean, arm.high) for arm in status.arms])
    return (low, high) if high > low else None


def state(arm: ArmStatus, status: Status) -> str:
    if arm.name == status.decision:
        return "best"
    if arm.name == status.leader:
        return "led" if status.stopped else "leads"
    return "" if arm.in_play else "out"


def progress(status: Status) -> float | None:
    """How much of the evidence that is required there is, over the rival that is hardest to beat."""
    if status.decision is not None:
        return 1.0
    if status.evidence is None or not status.required:
        return None
    return min(max(status.evidence / status.required, 0.0), 1.0)


def to_come(status: Status) -> str:
    """What is still to be paid, as far as can be said."""
    if status.stopped:
        return "nothing"
    if status.remaining_cost is None:
        return "not known yet"
    return f"about {money(status.remaining_cost)}"


def charts(seen: Seen) -> list[Chart]:
    """Evidence against what is required, over the bill; and the bill over time."""
    status, points = seen.status, seen.history
    known = [(point.spent, point.evidence, point.required) for point in points]
    evidence = [(spent, found) for spent, found, _ in known if found is not None]
    required = [(spent, least) for spent, _, least in known if least is not None]
    now = status.spent - status.spent_late
    if status.evidence is not None and status.required is not None and not status.stopped:
        evidence.append((now, status.evidence))
        required.append((now, status.required))
    bill = [(status.created, 0.0), *((point.time, point.spent) for point in points)]
    end = status.ended if status.ended is not None else max(seen.now, bill[-1][0])
    bill.append((end, now))
    lines = {("spent", "main"): bill}
    limit = status.max_cost
    if limit is not None and now > limit / 4:
        lines[("max_cost", "limit")] = [(bill[0][0], limit), (end, limit)]
    last = evidence[-1][1] if evidence else 0.0
    found = [
        chart(
            "Evidence of the leader over its closest rival",
            f"{number(last, 3)} nats after a bill of {money(now)}"
            + (f"; {number(required[-1][1], 3)} are required" if required else ""),
            {("evidence", "main"): evidence, ("required", "limit"): required},
            "spent",
            money,
            lambda value: f"{value:.3g} nats",
        ),
        chart(
            "The bill",
            f"{money(now)} spent in {duration(end - status.created)}",
            lines,
            "time",
            lambda time: "start" if time == status.created else duration(time - status.created),
            money,
        ),
    ]
    return [each for each in found if each is not None]
