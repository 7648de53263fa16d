"""The paper's Figure 2, reproduced: how policies divide their pulls, and what they pay."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cabai.bound import bound
from cabai.instance import Instance
from cabai.paper.lab import Lab
from cabai.paper.published import DELTA, NAMES, POLICIES, instance
from cabai.paper.report import Section
from cabai.plots import STYLES, cost_boxes, direct_labels, new_figure, title

RANDOM = "uniform"  # the random costs shown: within 50 % of the mean; the paper does not say how it drew them


def figure_2(lab: Lab) -> Section:
    text = (
        "The paper's captions swap the means of Bernoulli and Poisson; here Bernoulli has 0.9, 0.6, 0.3 and "
        "Poisson 1.5, 1, 0.5. It does not say how costs were drawn: shown are fixed costs and, for the totals, "
        "also costs uniform within 50 % of their mean."
    )
    section = Section(lab, "figure2", "Figure 2: pulls along the way, and total cost", [text])
    for family in ("bernoulli", "poisson"):
        pulls_against_t(lab, section, instance(NAMES[family]))
    total_costs(lab, section)
    return section


def pulls_against_t(lab: Lab, section: Section, problem: Instance) -> None:
    shares = bound(problem).pull_shares
    last = {policy: float(np.median(lab.runs(problem, policy, DELTA).steps)) for policy in POLICIES}
    grid = np.unique(np.linspace(len(problem), max(last.values()), 60).astype(int)).tolist()
    figure, axes = new_figure(columns=len(problem), height=2.6)
    frames, means = [], {}
    for policy in POLICIES:
        path = lab.runs(problem, policy, DELTA, grid=grid).path[:, np.array(grid) <= last[policy]]
        means[policy] = np.nanmean(np.where(path >= 0, path, np.nan), axis=0)
        frames += [
            pd.DataFrame({"policy": policy, "t": grid[: len(pulls)], "arm": a + 1, "pulls": pulls})
            for a, pulls in enumerate(means[policy].T)
        ]
    end = max(last.values())
    for a, axis in enumerate(axes):
        ends = {"optimal": (end, shares[a] * end)}
        for policy, pulls in means.items():
            axis.plot(grid[: len(pulls)], pulls[:, a], **STYLES[policy])
            ends[policy] = (grid[len(pulls) - 1], pulls[-1, a])
        axis.plot([0, end], [0, shares[a] * end], color="black", linewidth=0.8, linestyle=":")
        title(axis, f"arm {a + 1}: mean {problem.means[a]:g}, cost {problem.costs[a]:g}")
        axis.set_xlabel("pulls t")
        axis.set_xlim(0, 1.28 * end)
        axis.set_ylim(0, None)
        direct_labels(axis, ends)
    axes[0].set_ylabel("mean pulls of the arm")
    name, caption = f"figure2a-{problem.family}", (
        f"Mean pulls of each arm after t pulls, {str(problem.family).capitalize()}, fixed costs, delta 1e-6, over the "
        "trajectories still running, until half have stopped. Dotted: the optimal cost-aware share of t."
    )  # fmt: skip
    section.draw(name, caption, figure)
    section.data[name] = pd.concat(frames, ignore_index=True)


def total_costs(lab: Lab, section: Section) -> None:
    figure, axes = new_figure(rows=2, columns=2, height=4.2, sharex="row")
    frames = []
    for i, family in enumerate(("bernoulli", "poisson")):
        for j, model in enumerate(("fixed", RANDOM)):
            problem = instance(NAMES[family], model)
            costs = {}
            for policy in POLICIES:
                costs[policy] = paid = lab.runs(problem, policy, DELTA).costs
                frames.append(pd.DataFrame({"family": family, "costs": model, "policy": policy, "cost": paid}))
            cost_boxes(axes[i][j], costs, bound(problem).cost(DELTA))
            title(axes[i][j], f"{family.capitalize()}, {'fixed costs' if model == 'fixed' else 'random costs'}")
    for axis in axes[1]:
        axis.set_xlabel("total cost")
    caption = (
        "Total cost of a trajectory, delta 1e-6. Boxes hold the middle half, whiskers 5 % to 95 %, dots are means; "
        "the dashed line is the lower bound on the mean."
    )
    section.draw("figure2b", caption, figure)
    section.data["figure2b"] = pd.concat(frames, ignore_index=True)
