"""Figures of cabai: readable in grey, with direct labels, at print size."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cabai.support.files import write_whole
from cabai.views.study_view import bill_over_time, lead_over_bill, progress_over_bill

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cabai.datasets import Replay
    from cabai.planning import Plan
    from cabai.simulation import Comparison, Runs
    from cabai.simulation.results import Summary
    from cabai.views.drawing import Tracks
    from cabai.views.study_view import StudyView

PICTURES = ("png", "svg")  # kinds of files
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
    """Make a figure of print width and its axes, without a window or global state. A notebook shows it as a picture."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, columns, **options)
    figure._repr_png_ = partial(as_bytes, figure, "png", dpi=150)  # type: ignore[attr-defined]
    return figure, axes


def title(axis: Axes, text: str) -> None:
    axis.set_title(text, fontsize=9, loc="left")


def direct_labels(axis: Axes, ends: dict[str, tuple[float, float]]) -> None:
    """Write each line's name at its end, moved apart if two would overlap."""
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
    heights[0] = max(heights[0], low + gap / 2)  # above the axis
    for above in range(1, len(heights)):
        heights[above] = max(heights[above], heights[above - 1] + gap)
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


def cost_boxes(axis: Axes, costs: dict[str, NDArray[np.float64]], floor: float | None) -> None:
    """One horizontal box per policy, the cheapest on top, and the lower bound as a line."""
    order = sorted(costs, key=lambda policy: -costs[policy].mean())
    values = [costs[policy] for policy in order]
    axis.boxplot(
        values,
        orientation="horizontal",
        whis=(5, 95),
        showfliers=False,
        widths=0.55,
        patch_artist=True,
        boxprops={"facecolor": "0.85", "linewidth": 0.8},
        medianprops={"color": "black"},
    )
    axis.plot([v.mean() for v in values], range(1, len(order) + 1), "o", color="black", markersize=3.5)
    axis.set_yticks(range(1, len(order) + 1), order)
    if floor is not None:
        axis.axvline(floor, color="black", linestyle="--", linewidth=1)
        above = len(order) + 0.6  # a row of its own, above the boxes
        axis.annotate("lower bound", (floor, above), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
        axis.set_ylim(0.5, above + 0.25)
    axis.set_xlim(0, None)


def comparison_figure(comparisons: dict[str, Comparison[Runs]]) -> Figure:
    """What each policy pays, a panel per instance: boxes show the middle half, whiskers 5 % to 95 %, dots the means.
    With a budget, how often each is wrong, with 95 % intervals."""
    heights = [0.6 + 0.4 * len(each.runs) for each in comparisons.values()]
    figure, axes = new_figure(rows=len(heights), height=sum(heights), height_ratios=heights, squeeze=False)
    for axis, (name, each) in zip(axes[:, 0], comparisons.items(), strict=True):
        summary, where = each.summaries[0], f"{name}: " if name else ""
        if summary.budget is None:
            cost_boxes(axis, {runs.policy: runs.costs for runs in each.runs}, summary.lower_bound)
            title(axis, f"{where}total cost per trajectory, {summary.allowed}, threshold {summary.threshold}")
        else:
            error_bars(axis, each.summaries)
            title(axis, f"{where}% of trajectories that are wrong, {summary.allowed}")
    return figure


def error_bars(axis: Axes, summaries: list[Summary]) -> None:
    """The share of errors of each policy, the smallest on top."""
    order = sorted(summaries, key=lambda summary: -summary.errors)
    for height, summary in enumerate(order):
        axis.plot([100 * end for end in summary.error_interval], [height, height], color="0.6", linewidth=2.5)
        axis.plot([100 * summary.errors / summary.trajectories], [height], "o", color="black", markersize=4)
    axis.set_yticks(range(len(order)), [summary.policy for summary in order])
    axis.set_ylim(-0.5, len(order) - 0.5)
    axis.set_xlim(0, None)


def runs_figure(runs: Runs) -> Figure:
    """The cost of trajectories, with their mean and the lower bound; and each arm's share of pulls and cost."""
    summary = runs.summary()
    figure, (left, right) = new_figure(columns=2, height=max(2.4, 0.8 + 0.25 * len(summary.pull_shares)))
    left.hist(runs.costs, bins=40, color="0.75", edgecolor="white", linewidth=0.4)
    left.axvline(summary.mean_cost, color="black", linewidth=1)
    if summary.lower_bound is not None:
        left.axvline(summary.lower_bound, color="black", linestyle="--", linewidth=1)
    left.set_ylabel("trajectories")
    floor = "" if summary.lower_bound is None else f"; dashed: lower bound {summary.lower_bound:.4g}"
    title(left, f"cost per trajectory: mean {summary.mean_cost:.4g}{floor}")
    heights = np.arange(len(summary.pull_shares))[::-1]
    right.barh(heights + 0.2, summary.pull_shares, height=0.36, color="0.35", label="pulls")
    right.barh(heights - 0.2, summary.cost_shares, height=0.36, color="0.75", label="cost")
    right.set_yticks(heights, runs.instance.names)
    right.legend(frameon=False, fontsize=8)
    title(right, f"shares of the arms, {summary.policy}")
    return figure


def study_figure(view: StudyView) -> Figure:
    """A study: the arms with intervals and spending, progress, the leader's lead, and the bill."""
    status = view.status
    shown = sorted(status.arms, key=lambda arm: (arm.name != status.leader, not arm.in_play))[:40]
    rows = max(3.0, 0.8 + 0.22 * len(shown))
    figure, panels = new_figure(rows=3, columns=2, height=rows + 4.8, height_ratios=[rows, 2.4, 2.4])
    (arms, spending), (progress, lead), (bill, rest) = panels
    rest.set_axis_off()
    heights = np.arange(len(shown))[::-1]
    for height, arm in zip(heights, shown, strict=True):
        if arm.mean is None:
            continue
        ends = [arm.mean if end is None else end for end in (arm.low, arm.high)]
        arms.plot(ends, [height, height], color="0.6", linewidth=2.5 if arm.in_play else 1.2)
        arms.plot([arm.mean], [height], "o", color="black", markersize=4, fillstyle="full" if arm.in_play else "none")
    arms.set_yticks(heights, [arm.name for arm in shown])
    arms.set_ylim(-0.6, len(shown) - 0.4)
    more = f", {len(shown)} of {len(status.arms)} arms" if len(shown) < len(status.arms) else ""
    title(arms, f"means and {1 - status.delta:g} intervals{more}")
    spending.barh(heights, [arm.spent for arm in shown], height=0.6, color="0.75")
    spending.set_yticks(heights, ["" for _ in shown])
    spending.set_ylim(-0.6, len(shown) - 0.4)
    title(spending, f"spent: {status.spent:.4g}")
    lines(progress, progress_over_bill(view), "progress, by amount spent")
    progress.set_ylim(0, 1)
    lines(lead, lead_over_bill(view), "lead over the next best, by amount spent")
    lines(bill, bill_over_time(view), "the bill, by seconds since the start")
    return figure


def lines(axis: Axes, tracks: Tracks, what: str) -> None:
    for (name, kind), track in tracks.items():
        if track:
            style: dict[str, Any] = {"color": "black", "linestyle": "--"} if kind == "limit" else {"color": "#0b5fa5"}
            axis.plot([x for x, _ in track], [y for _, y in track], label=name, linewidth=1.4, **style)
    axis.set_xlim(0, None)
    axis.set_ylim(0, None)
    if any(tracks.values()):
        axis.legend(frameon=False, fontsize=8)
    title(axis, what)


def replay_figure(replay: Replay) -> Figure:
    """What races would have paid: the share of the full cost per repeat, and the share of items evaluated per arm."""
    shown = replay.ranking[:40]
    figure, (left, right) = new_figure(columns=2, height=max(2.4, 0.8 + 0.2 * len(shown)))
    paid, evaluated = 100 * replay.shares, 100 * replay.evaluated[shown]
    right_end = min(100.0, 1.15 * paid.max())
    left.hist(paid, bins=np.linspace(0, right_end, 31), color="0.75", edgecolor="white", linewidth=0.4)
    left.axvline(paid.mean(), color="black", linewidth=1)
    left.set_xlim(0, right_end)
    left.yaxis.get_major_locator().set_params(integer=True)
    left.set_ylabel("repeats")
    title(left, f"% of the full cost paid: mean {paid.mean():.3g}")
    heights = np.arange(len(shown))[::-1]  # the best arm on top
    right.barh(heights, evaluated, height=0.6, color="0.75")
    right.set_yticks(heights, [replay.table.arms[a] for a in shown])
    right.set_xlim(0, min(100.0, 1.15 * evaluated.max()))
    more = f", the best {len(shown)} of {len(replay.ranking)}" if len(shown) < len(replay.ranking) else ""
    title(right, f"% of the items evaluated, by arm{more}")
    return figure


def plan_figure(plan: Plan) -> Figure:
    """What studies pay by gap or epsilon: the median as a line, bands from 10 to 90 % and to 99 %. Triangles mark
    values for which studies were cut: they pay more than is drawn."""
    figure, axis = new_figure(height=3.2)
    at = np.array([point.at for point in plan.curve])
    found = {share: [point.bills.quantile(share) for point in plan.curve] for share in (0.1, 0.5, 0.9, 0.99)}
    values = {share: np.array([amount.value for amount in amounts]) for share, amounts in found.items()}
    axis.fill_between(at, values[0.1], values[0.99], color="0.9", linewidth=0)
    axis.fill_between(at, values[0.1], values[0.9], color="0.75", linewidth=0)
    axis.plot(at, values[0.5], color="black", marker="o", markersize=3.5, linewidth=1.5)
    for share, amounts in found.items():
        above = [amount.at_least for amount in amounts]
        axis.plot(at[above], values[share][above], linestyle="", marker="^", color="black", markersize=5)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(at, [f"{each:g}" for each in at])
    axis.minorticks_off()
    axis.yaxis.set_major_formatter("{x:g}")
    is_of_epsilon = plan.curve_of == "epsilon"
    what = (
        "how much worse than the best an arm may be" if is_of_epsilon else "how far the best arm is ahead of the next"
    )
    axis.set_xlabel(f"{plan.curve_of}: {what}")
    if plan.given_budget is not None:
        axis.axhline(plan.given_budget, color="black", linestyle="--", linewidth=1)
        axis.annotate(
            f"budget {plan.given_budget:g}", (at[-1], plan.given_budget), xytext=(0, 3), textcoords="offset points",
            ha="right", fontsize=8,
        )  # fmt: skip
    cut = any(amount.at_least for amounts in found.values() for amount in amounts)
    more = "; triangles: more than shown" if cut else ""
    title(axis, f"the bill: median, 10 to 90 %, and 99 %{more}; delta {plan.delta:g}")
    return figure


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file that ends in one of PICTURES, atomically."""
    write_whole(path, as_bytes(figure, Path(path).suffix.lstrip(".").lower()))


def as_bytes(figure: Figure, kind: str, dpi: int = 200) -> bytes:
    """The figure as the contents of a file; the same figure always gives the same bytes."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "cabai", "svg.fonttype": "none" if kind == "svg" else "path"}):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
    return buffer.getvalue()
