"""The paper's theorems as experiments: how fast what they promise in the limit is approached."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from cabai.bound import bound
from cabai.instance import Instance
from cabai.paper.lab import Lab, command
from cabai.paper.published import instance
from cabai.paper.section import Figure, Section, Table
from cabai.plots import STYLES, direct_labels, new_figure, title

DELTAS = [10.0**-k for k in (2, 3, 4, 6, 8, 10, 15, 20, 25, 30)]
TWO = Instance("gaussian", [1.0, 0.5], [1.0, 0.1])
ERROR_RATES = Instance("bernoulli", [0.5, 0.4, 0.3], [1, 0.1, 0.01])  # with few enough pulls to make errors


def theorems(lab: Lab) -> Section:
    section = Section("theorems", "Theorems, as experiments")
    optimality(lab, section)
    error_rates(lab, section)
    return section


def optimality(lab: Lab, section: Section) -> None:
    """Theorem 2 (CTAS, any instance) and Theorem 3 (CO, two Gaussian arms): cost / log(1/delta) against T*."""
    figure, axes = new_figure(columns=2, height=2.8, sharey=True)
    records, commands = [], []
    titles = {"three arms": "Theorem 2: three arms", "two arms": "Theorem 3: two arms"}
    for axis, (name, problem) in zip(axes, {"three arms": instance("G3"), "two arms": TWO}.items(), strict=True):
        hardness = bound(problem).hardness
        ends = {}
        for policy in ("ctas", "co"):
            values = []
            for runs in lab.several(problem, policy, DELTAS, share=0.3):
                scaled = runs.costs / (hardness * math.log(1 / runs.delta))
                error = scaled.std(ddof=1) / math.sqrt(len(runs))
                values.append(scaled.mean())
                records.append({"instance": name, "policy": policy, "delta": runs.delta,
                                "over_hardness": scaled.mean(), "standard_error": error})  # fmt: skip
                commands.append(command(runs))
            axis.plot(-np.log10(DELTAS), values, marker="o", markersize=3, **STYLES[policy])
            ends[policy] = (-math.log10(DELTAS[-1]), values[-1])
        axis.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axis.set_ylim(0.8, None)
        axis.set_xlim(1, 37)
        direct_labels(axis, ends | {"T*": (30, 1.0)})
        title(axis, titles[name])
        axis.set_xlabel("x, where delta = 10⁻ˣ")
    axes[0].set_ylabel("mean cost / (T* log(1/delta))")
    frame = pd.DataFrame(records)
    last = frame[frame["delta"] == DELTAS[-1]].set_index(["instance", "policy"])["over_hardness"]
    first = frame[frame["delta"] == DELTAS[0]].set_index(["instance", "policy"])["over_hardness"]
    section.text.append(
        f"Theorems 2 and 3: mean cost over T* log(1/delta) falls from {first['three arms', 'ctas']:.2f} at delta 1e-2 "
        f"to {last['three arms', 'ctas']:.2f} at 1e-30 for CTAS on three arms, and from {first['two arms', 'co']:.2f} "
        f"to {last['two arms', 'co']:.2f} for CO on two: towards 1, slowly, because the threshold adds log t."
    )
    caption = (
        "Mean cost over its asymptotic floor T* log(1/delta) as delta falls, Gaussian arms. Left: the paper's "
        "instance; right: means 1, 0.5 and costs 1, 0.1. The dotted line is the lower bound's limit."
    )
    section.figures.append(Figure("theorems", caption, figure, commands))
    section.data["theorem2"] = frame


def error_rates(lab: Lab, section: Section) -> None:
    """Propositions 1 and 2: errors against delta, with the paper's threshold, a proven one and an unproven one."""
    rows, commands = [], []
    for threshold in ("paper", "evalue", "stylized"):
        for policy in ("ctas", "co"):
            row = [threshold, policy]
            for delta in (0.3, 0.1, 0.03):
                runs = lab.runs(ERROR_RATES, policy, delta, threshold=threshold)
                wrong = float(runs.wrong.mean())
                row.append(f"{wrong:.4f} ± {math.sqrt(max(wrong, 1 / len(runs)) / len(runs)):.4f}")
                commands.append(command(runs))
            rows.append(row)
    header = ["threshold", "policy", *(f"delta {delta:g}" for delta in (0.3, 0.1, 0.03))]
    caption = "Propositions 1 and 2: share of wrong decisions, Bernoulli arms 0.5, 0.4, 0.3 (the proofs allow delta)."
    section.tables.append(Table(caption, header, rows, commands))
