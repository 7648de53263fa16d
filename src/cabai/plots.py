"""What cabai's pictures have in common: readable in grey, labelled where the eye is, at print size."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.0  # inches, the width of a printed page
STYLES: dict[str, dict[str, Any]] = {
    "co": {"color": "#000000", "linewidth": 1.8, "linestyle": "-"},
    "ctas": {"color": "#0b5fa5", "linewidth": 1.8, "linestyle": "--"},
    "tas": {"color": "#7a7a7a", "linewidth": 1.8, "linestyle": "-."},
    "d-lucb": {"color": "#b0632a", "linewidth": 1.3, "linestyle": (0, (1, 1))},
    "racing": {"color": "#9a9a9a", "linewidth": 1.3, "linestyle": "-"},
    "uniform": {"color": "#bdbdbd", "linewidth": 1.3, "linestyle": "--"},
}


def new_figure(*, rows: int = 1, columns: int = 1, height: float = 3.0, **options: Any) -> tuple[Figure, Any]:
    """A figure of print width and its axes, without a window or a global state."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 9, "axes.titlesize": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, columns, **options)
    return figure, axes


def direct_labels(axis: Axes, ends: dict[str, tuple[float, float]]) -> None:
    """Write each line's name where it ends, moved apart where two would overlap."""
    low, high = axis.get_ylim()
    gap = 0.075 * (high - low)
    names = sorted(ends, key=lambda name: ends[name][1])
    heights = np.array([ends[name][1] for name in names], float)
    for _ in range(100):  # push overlapping neighbours apart until none overlap
        close = np.diff(heights) < gap - 1e-9
        if not close.any():
            break
        for i in np.flatnonzero(close):
            push = (gap - (heights[i + 1] - heights[i])) / 2
            heights[i] -= push
            heights[i + 1] += push
    heights += max(0.0, low - heights[0]) if len(heights) else 0.0
    right = max(x for x, _ in ends.values())
    for name, height in zip(names, heights, strict=True):
        x, y = ends[name]
        axis.annotate(
            name,
            (x, y),
            xytext=(right * 1.03, height),
            fontsize=8,
            va="center",
            color=STYLES.get(name, {"color": "black"})["color"],
            arrowprops={"arrowstyle": "-", "color": "0.75", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 1},
        )


def as_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as a file's contents, the same for the same figure."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "cabai", "svg.fonttype": "none" if kind == "svg" else "path"}):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
    return buffer.getvalue()
