"""The leaderboard of a bench, as Markdown and as one HTML file."""

from __future__ import annotations

import math
from typing import Any

from cabai import views
from cabai.support.version import __version__

Rows = list[dict[str, Any]]


def cases_of(rows: Rows) -> list[tuple[str, str, Rows]]:
    """A title, a sentence and the rows, the best first, of each case."""
    found: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        found.setdefault((row["suite"], row["instance"], row["delta"], row["budget"]), []).append(row)
    cases = []
    for (suite, name, delta, budget), group in found.items():
        first, has_budget = group[0], budget is not None
        ends = f"budget {budget:g}" if has_budget else f"delta {delta:g}, threshold {first['threshold']}"
        floor = "" if first["lower_bound"] is None else f", lower bound {first['lower_bound']:.5g}"
        ordered = sorted(group, key=lambda row: (row["errors" if has_budget else "mean_cost"], row["mean_cost"]))
        counts = {row["trajectories"] for row in group}
        fewer = f", fewer ({min(counts)} or more) of policies that need many pulls" if len(counts) > 1 else ""
        about = f"{first['arms']} arms, {first['family']}, {ends}{floor}, {max(counts)} trajectories{fewer}"
        cases.append((f"{suite}: {name}", about, ordered))
    return cases


def cells(group: Rows) -> list[list[str]]:
    reference = group[0]["reference"]
    has_budget = group[0]["budget"] is not None
    minus = f"errors minus {reference}" if has_budget else f"minus {reference}"
    costs = [] if has_budget else ["mean cost", "± se", "ratio", "median", "99 %"]
    table = [
        ["policy", *costs, "errors", "95 % interval", *([] if has_budget else ["unfinished"]), minus, "µs per step"]
    ]
    for row in group:
        n = row["trajectories"]
        apart = "-" if row["difference"] is None else f"{row['difference']:+.3g} ± {row['se_difference']:.2g}"
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
        paid = [f"{row['mean_cost']:.5g}", f"{row['se_cost']:.2g}", ratio, f"{row['median_cost']:.5g}",
                f"{row['p99_cost']:.5g}"]  # fmt: skip
        wrong = [f"{row['errors']}/{n}", f"{row['error_low']:.2%} to {row['error_high']:.2%}"]
        table.append([
            row["policy"], *([] if has_budget else paid), *wrong, *([] if has_budget else [str(row["unfinished"])]),
            apart, f"{row['us_per_step']:.2f}",
        ])  # fmt: skip
    return table


def markdown(rows: Rows, command: str = "") -> str:
    parts = ["# Leaderboard", f"Made by `{command}` with cabai {__version__}." if command else ""]
    for title, about, group in cases_of(rows):
        heading, *table = cells(group)
        lines = [heading, ["---"] + ["---:"] * (len(heading) - 1), *table]
        parts += [f"## {title}", about, "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    return "\n\n".join(filter(None, parts))


def page(rows: Rows, command: str = "") -> str:
    """One HTML file without scripts or links to a network."""
    tables = [
        {"title": title, "about": about, "rows": cells(group), "plots": plots(group)}
        for title, about, group in cases_of(rows)
    ]
    style = views.asset("style.css")
    return views.render("leaderboard.html", style=style, tables=tables, command=command, version=__version__)


def plots(group: Rows) -> list[dict[str, Any]]:
    """What a policy pays (or how often it is wrong, with a budget) against what it computes; and against its errors."""
    has_budget = group[0]["budget"] is not None
    if has_budget:
        shares = [max(row["errors"], 0.5) / row["trajectories"] for row in group]
        worth = "share of errors (none counts as half of one)", shares
    else:
        worth = "mean cost", [row["mean_cost"] for row in group]
    names, compute = [row["policy"] for row in group], [row["us_per_step"] for row in group]
    found = [scatter("µs per step", worth[0], compute, worth[1], names)]
    if not has_budget:
        over = [max(row["errors"], 0.5) / row["trajectories"] / row["delta"] for row in group]
        if any(row["errors"] for row in group):
            found.append(scatter("errors over delta (none counts as half of one)", worth[0], over, worth[1], names))
    return found


def scatter(across: str, up: str, x: list[float], y: list[float], names: list[str]) -> dict[str, Any]:
    """Points on logarithmic scales, with their places in a square of 100, and the heights of their labels."""

    def places(values: list[float]) -> list[float]:
        logs = [math.log(max(value, 1e-300)) for value in values]
        low, high = min(logs), max(logs)
        return [50.0 if high == low else round(5 + 90 * (value - low) / (high - low), 1) for value in logs]

    points: list[tuple[float, float, str, float]] = []
    for left, up_to, name in sorted(zip(places(x), places(y), names, strict=True), key=lambda point: -point[1]):
        label = top = 100 - up_to
        while any(abs(label - other) < 3 and -1.1 * len(name) < left - at < 1.1 * len(text)
                  for at, _, text, other in points):  # fmt: skip
            label -= 1  # up, where no other label is
        points.append((left, top, name, label))
    ends = [f"{value:.3g}" for value in (min(x), max(x), min(y), max(y))]
    return {"across": across, "up": up, "points": points, "ends": ends}
