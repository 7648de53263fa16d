"""Make every picture of the documentation: python docs/pictures.py

The files in docs/pictures/ are the same, byte for byte, each time this runs with the same Matplotlib.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import cabai
from cabai.bench.suites import random_instance
from cabai.plots import plan_figure
from cabai.thresholds import threshold_of

FOLDER = Path(__file__).parent / "pictures"
DARK, MIDDLE, LIGHT = "#17344f", "#5f8fb8", "#c9dcec"  # told apart in grey too
STYLE = {
    "svg.hashsalt": "cabai",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}


def bound():
    """Pull shares and cost shares as the best arm's cost changes and the others cost 1."""
    costs = np.geomspace(0.01, 100, 161)
    solved = [cabai.bound(cabai.Instance("gaussian", [1.5, 1, 0.5], [cost, 1, 1])) for cost in costs]
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.1), sharey=True)
    pulls = np.array([each.pull_shares for each in solved])
    paid = np.array([each.cost_shares for each in solved])
    places = {  # where each line is named: cost, share
        "pulls": [("best arm", 0.06, 0.83), ("runner-up", 2.2, 0.83), ("third arm", 1.3, 0.085)],
        "paid": [("best arm", 2.2, 0.83), ("runner-up", 0.03, 0.76), ("third arm", 0.012, 0.22)],
    }
    for panel, shares, key, title in [
        (panels[0], pulls, "pulls", "share of the pulls"),
        (panels[1], paid, "paid", "share of the cost"),
    ]:
        panel.set_title(title, loc="left")
        for a, (colour, style) in enumerate([(DARK, "-"), (MIDDLE, "--"), (MIDDLE, ":")]):
            panel.plot(costs, shares[:, a], style, color=colour, linewidth=2.2)
            name, x, y = places[key][a]
            panel.text(x, y, name, color=DARK, fontweight="bold" if a == 0 else "normal")
        panel.axvline(1, color="0.75", linewidth=0.8, zorder=0)
        panel.text(1.1, 1.0, "equal costs", color="0.35", fontsize=9, va="top")
        panel.set_xscale("log")
        panel.set_xticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
        panel.set_ylim(0, 1.01)
        panel.set_xlabel("cost of a pull of the best arm (others: 1)")
    return figure


def hardness():
    """T_co/T* as one gaussian arm faces more and more equal rivals."""
    arms = np.unique(np.geomspace(2, 1000, 60).astype(int))

    def ratio(count, cost):
        solved = cabai.bound(cabai.Instance("gaussian", [1] + [0] * (count - 1), [1] + [cost] * (count - 1)))
        return solved.hardness_of("co") / solved.hardness

    figure, panel = plt.subplots(figsize=(7.2, 3.1))
    for label, cost, style, colour in [
        ("cost 1", 1, ":", MIDDLE),
        ("cost 0.1", 0.1, "--", MIDDLE),
        ("cost 0.01", 0.01, "-", MIDDLE),
        ("worst cost,\n1/(K-1)", None, "-", DARK),
    ]:
        values = [ratio(K, 1 / (K - 1) if cost is None else cost) for K in arms]
        panel.plot(arms, values, style, color=colour, linewidth=2.2)
        panel.text(1080, values[-1], label, color=DARK, va="center")
    panel.set_title("cost of co over the optimum, small delta", loc="left")
    panel.set_xscale("log")
    panel.set_xticks([2, 10, 100, 1000], ["2", "10", "100", "1000"])
    panel.set_xlim(2, 1000)
    panel.set_ylim(0.9, 8.5)
    panel.set_xlabel("arms K: one best of cost 1, the others equal")
    return figure


def thresholds():
    """Evidence asked for after t pulls, a third of them on each arm; K = 3, delta = 0.05."""
    counts = np.unique(np.geomspace(2, 1e6 / 3, 120).astype(int))
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.7), sharey=True)
    lines = {
        "stylized": (MIDDLE, ":"),
        "evalue": (DARK, "-"),
        "kt": (MIDDLE, "-"),
        "paper": (MIDDLE, "--"),
        "mixture": (DARK, "-."),
    }
    labels = {  # where each curve is named: pulls, nats
        "gaussian": [
            ("mixture", 30, 15.9), ("paper\n(no proof)", 8, 9.5), ("evalue", 4000, 9.4),
            ("stylized (no proof)", 40, 2.9),
        ],
        "bernoulli": [
            ("mixture", 12, 31.0), ("paper,\nkt just below", 8, 10.6), ("evalue", 4000, 8.9),
            ("stylized (no proof)", 40, 2.9),
        ],
    }  # fmt: skip
    for panel, family in zip(panels, ["gaussian", "bernoulli"], strict=True):
        panel.set_title(family, loc="left")
        for name, (colour, style) in lines.items():
            if name == "kt" and family == "gaussian":
                continue
            needed = [evidence_asked_for(family, name, int(n)) for n in counts]
            panel.plot(3 * counts, needed, style, color=colour, linewidth=2.6 if name == "evalue" else 1.8)
        for name, x, y in labels[family]:
            panel.text(x, y, name, color=DARK, fontweight="bold" if name == "evalue" else "normal")
        panel.set_xscale("log")
        panel.set_xlim(6, 1e6)
        panel.set_ylim(0, 40)
        panel.set_xlabel("pulls t")
    panels[0].set_ylabel("evidence asked for (nats)")
    return figure


def evidence_asked_for(family, threshold, pulls):
    """Every arm has the same pulls; bernoulli means of 1/2, gaussian first rewards one standard deviation off."""
    rewards = pulls // 2 if family == "bernoulli" else 0
    data = cabai.Statistics(family, pulls=[pulls] * 3, rewards=[rewards] * 3, first=[1] * 3)
    return threshold_of(threshold).required(data, 0, 1, delta=0.05)


def ctas():
    """Each arm's cost over its optimal cost when a run stops: median and middle 80 % of 400 trajectories."""
    means = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    costs = [0.03, 0.6, 0.08, 1, 0.02, 0.2, 0.4, 0.05, 0.01, 0.1]
    instance = cabai.Instance("gaussian", means, costs)
    target = cabai.bound(instance).cost_shares
    order = np.argsort(-target)
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.3), sharey=True)
    titles = {"ctas": "by deficit", "ctas(slack=0.5, tracking=ratio)": "by ratio, slack 0.5"}
    for panel, policy in zip(panels, titles, strict=True):
        runs = cabai.simulate(instance, policy, delta=0.05, threshold="evalue", trajectories=400, seed=0)
        got = (runs.pulls * instance.costs / runs.costs[:, None] / target)[:, order]
        low, middle, high = np.quantile(got, [0.1, 0.5, 0.9], axis=0)
        places = np.arange(len(order))
        panel.vlines(places, low, high, color=MIDDLE, linewidth=6)
        panel.plot(places, middle, "o", color=DARK, markersize=4.5)
        panel.axhline(1, color="0.6", linewidth=0.8, zorder=0)
        panel.set_title(f"{titles[policy]}: mean cost {runs.costs.mean():.0f}", loc="left")
        panel.set_xticks(
            places, [f"{100 * share:.{0 if share > 0.01 else 1 if share > 0.0005 else 2}f}" for share in target[order]]
        )
        panel.set_xlabel("optimal share of the cost, in %")
    panels[0].set_yscale("log")
    panels[0].set_yticks([0.5, 0.7, 1, 2, 4], ["0.5", "0.7", "1", "2", "4"])
    panels[0].minorticks_off()
    panels[0].set_ylabel("cost got / optimal cost")
    return figure


def problem():
    """Mean pulls and mean cost of three policies on the paper's Gaussian instance."""
    instance = cabai.Instance("gaussian", means=[1.5, 1.0, 0.5], costs=[1, 0.1, 0.01])
    policies = ["uniform", "co", "ctas"]
    compared = cabai.compare(instance, policies, delta=0.05, trajectories=1000, seed=0)
    pulls = np.array([summary.mean_pulls for summary in compared.summaries])
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.0), sharey=True)
    for panel, values, title in [
        (panels[0], pulls, "mean pulls"),
        (panels[1], pulls * instance.costs, "mean cost"),
    ]:
        panel.set_title(title, loc="left")
        left = np.zeros(len(policies))
        for a, colour in enumerate([DARK, MIDDLE, LIGHT]):
            panel.barh(policies, values[:, a], left=left, color=colour, edgecolor="white", height=0.62)
            for row, value in enumerate(values[:, a]):
                if value > 0.05 * values.sum(axis=1).max():
                    ink = "black" if colour == LIGHT else "white"
                    panel.text(left[row] + value / 2, row, f"{value:.0f}", ha="center", va="center", color=ink)
            left = left + values[:, a]
        for row, total in enumerate(left):
            panel.text(total, row, f" {total:.0f}", va="center", fontweight="bold")
        panel.set_xlim(0, 1.13 * left.max())
        panel.tick_params(axis="y", length=0)
        panel.set_xticks([])
        panel.spines[["bottom", "left"]].set_visible(False)
    panels[0].set_ylim(2.4, -0.75)  # the first policy on top, and room for the names of the arms
    middles = np.cumsum(pulls[0]) - pulls[0] / 2
    for a, (x, cost) in enumerate(zip(middles, instance.costs, strict=True)):
        panels[0].text(x, -0.36, f"arm {a + 1}:\n{cost:g} a pull", ha="center", va="bottom", fontsize=9, color=DARK)
    return figure


def plan():
    """What studies pay by how far the best arm is ahead: the picture of docs/plan.md."""
    found = cabai.plan(
        family="bernoulli", arms=["large", "medium", "small"], means=["0.8..0.9", "0.75..0.85", "0.5..0.7"],
        costs=[2, 1, 0.2], budget=5000, epsilon=0, delta=0.05, curve="gap", worth=False,
    )  # fmt: skip
    return plan_figure(found)


def savings():
    """What finding the best costs next to the usual ways, in studies and on a dataset: the README's picture."""
    drawn = [random_instance("bernoulli", 10, seed=0, number=i) for i in range(10)]
    options = {"delta": 0.05, "trajectories": 100}
    ratios = [
        np.mean([cabai.simulate(instance, policy, **options).summary().ratio for instance in drawn])
        for policy in ("uniform", "tas", "top-two")
    ]
    shares = [100, 100 * models_replayed().shares.mean()]
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.2))
    for panel, names, values, label, title, unit in [
        (panels[0], ["test all equally", "ignore costs", "cabai"], ratios, "{:.1f} x", "Best of 10 options",
         "mean cost, in multiples of the least possible"),
        (panels[1], ["evaluate all", "cabai"], shares, "{:.0f} %", "Best of 8 models on 897 items",
         "mean cost, of evaluating everything"),
    ]:  # fmt: skip
        panel.barh(names, values, color=[DARK if name == "cabai" else LIGHT for name in names], height=0.62)
        for row, value in enumerate(values):
            panel.text(value, row, " " + label.format(value), va="center", fontweight="bold")
        panel.set_title(title, loc="left", fontweight="bold")
        panel.set_xlim(0, 1.25 * max(values))
        panel.set_ylim(2.4, -0.4)  # the first on top
        panel.tick_params(axis="y", length=0)
        panel.set_xticks([])
        panel.set_xlabel(unit, loc="left", fontsize=9)
        panel.spines[["bottom", "left"]].set_visible(False)
    return figure


def models_replayed():
    """The demo's eight models raced on its 897 images in 200 random orders."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "demo"))
    import models

    known, unseen = slice(0, models.ITEMS.start), slice(models.ITEMS.start, None)
    scores = {}
    for name, model in models.MODELS.items():
        model.fit(models.images[known], models.digits[known])
        scores[name] = (model.predict(models.images[unseen]) == models.digits[unseen]).tolist()
    return cabai.replay(scores, costs=models.PRICES, epsilon=models.EPSILON)


def main():
    FOLDER.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for draw in (savings, problem, bound, hardness, thresholds, ctas, plan):
            figure = draw()
            figure.savefig(FOLDER / f"{draw.__name__}.svg", metadata={"Date": None, "Creator": None})
            plt.close(figure)


if __name__ == "__main__":
    main()
