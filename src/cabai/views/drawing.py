"""Simple line charts that stretch to the available width. Labels are HTML next to the chart, so that they are readable
at every width."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 1000.0, 300.0
Tracks = dict[tuple[str, str], Sequence[tuple[float, float]]]  # points of each line, by name and kind


@dataclass(frozen=True)
class Line:
    """A line of a chart: its name, how it looks, and an SVG path."""

    name: str
    kind: str  # a class of the style sheet: lines differ in more than their color
    path: str


@dataclass(frozen=True)
class Chart:
    """A chart and its labels."""

    title: str
    description: str  # for screen readers
    lines: list[Line]
    bottom: str
    top: str
    left: str
    right: str
    across: str  # label of the horizontal axis


def chart(
    title: str,
    description: str,
    tracks: Tracks,
    across: str,
    write_x: Callable[[float], str],
    write_y: Callable[[float], str],
    top: float | None = None,
) -> Chart | None:
    """Make a chart of lines through points; None if there is nothing to draw. Both axes start at 0; the vertical one
    ends at `top` if that is given.

    >>> lines = {("spent", "main"): [(0, 0), (4, 2)]}
    >>> found = chart("Bill", "It grows.", lines, "hours", "{:g} h".format, "{:g}".format)
    >>> found.lines[0].path, found.top, found.right
    ('M0 300L1000 0', '2', '4 h')
    """
    points = [point for track in tracks.values() for point in track if all(map(math.isfinite, point))]
    right = max((x for x, _ in points), default=0.0)
    top = max((y for _, y in points), default=0.0) if top is None else top
    if not right > 0 or not top > 0 or len({x for x, _ in points}) < 2:
        return None

    def place(x: float, y: float) -> str:
        return f"{x / right * WIDTH:.4g} {HEIGHT - max(y, 0.0) / top * HEIGHT:.4g}"

    lines = []
    for (name, kind), track in tracks.items():
        drawn = [place(x, y) for x, y in track if math.isfinite(x) and math.isfinite(y)]
        if drawn:
            lines.append(Line(name, kind, "M" + "L".join(drawn)))
    return Chart(title, description, lines, write_y(0.0), write_y(top), write_x(0.0), write_x(right), across)


@dataclass(frozen=True)
class Span:
    """The position of an interval and its mean on a common scale from 0 to 100. An open end has no mark."""

    low: float
    high: float
    mean: float
    is_open_below: bool
    is_open_above: bool


def spans(
    intervals: Sequence[tuple[float | None, float | None, float | None]],
) -> tuple[list[Span | None], float, float]:
    """Place intervals on one scale; returns them and both ends of the scale. Far ends are cut off: the scale covers the
    means and the intervals of at most twice the usual width.

    >>> found, low, high = spans([(0.0, 0.5, 1.0), (None, None, None)])
    >>> found, low, high
    ([Span(low=0.0, high=100.0, mean=50.0, is_open_below=False, is_open_above=False), None], 0.0, 1.0)
    """
    known = [(low, mean, high) for low, mean, high in intervals if mean is not None]
    if not known:
        return [None] * len(intervals), 0.0, 0.0
    means = [mean for _, mean, _ in known]
    closed = [(low, high) for low, _, high in known if low is not None and high is not None]
    usual = sorted(high - low for low, high in closed)[: (len(closed) + 1) // 2]
    narrow = [(low, high) for low, high in closed if high - low <= 2 * usual[-1]]
    start = min([*means, *(low for low, _ in narrow)])
    end = max([*means, *(high for _, high in narrow)])
    if not end > start or not math.isfinite(end - start):
        room = max(abs(start), 1e-9) * 0.5
        start, end = start - room, end + room
        if not math.isfinite(end - start):
            return [None] * len(intervals), 0.0, 0.0

    def place(value: float | None, default: float) -> float:
        return default if value is None else round(min(max((value - start) / (end - start) * 100, 0.0), 100.0), 2)

    found: list[Span | None] = []
    for low, mean, high in intervals:
        if mean is None:
            found.append(None)
            continue
        is_open = low is None or low < start - 1e-12, high is None or high > end + 1e-12
        found.append(Span(place(low, 0.0), place(high, 100.0), place(mean, 0.0), *is_open))
    return found, start, end
