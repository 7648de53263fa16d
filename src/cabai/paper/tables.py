"""The paper's two tables and its Figure 2, reproduced: how policies divide their pulls, and what they pay."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import numpy as np
import pandas as pd

from cabai.bound import bound
from cabai.instance import Instance
from cabai.paper.lab import Lab, instance_options, mean_of
from cabai.paper.published import DELTA, NAMES, POLICIES, TABLE_1, TABLE_2, instance
from cabai.paper.report import Section
from cabai.plots import STYLES, cost_boxes, direct_labels, new_figure, title
from cabai.simulation import Runs, simulate

RANDOM = "uniform"  # the random costs shown: within 50 % of the mean; the paper does not say how it drew them


def table_1(lab: Lab) -> Section:
    """Shares of the pulls: exact optima, what the paper prints, and simulation."""
    paper = instance("G3")
    blind = Instance("gaussian", paper.means, [1.0] * len(paper))
    rows, records = [], []
    for policy, optimum, problem in (("tas", "cost-blind", blind), ("ctas", "cost-aware", paper)):
        runs = lab.runs(paper, policy, DELTA)
        exact, printed = bound(problem).pull_shares, TABLE_1[policy]
        simulated = [mean_of(runs.pulls[:, a] / runs.steps) for a in range(len(paper))]
        rows += [
            [f"{optimum} optimum, exact", *(f"{x:.4f}" for x in exact)],
            [f"{policy}, printed", *(f"{x:.2f}" for x in printed)],
            [f"{policy}, simulated", *(f"{x.value:.4f} ± {x.error:.4f}" for x in simulated)],
        ]
        records += [
            {"policy": policy, "arm": a + 1, "exact": exact[a], "printed": printed[a], "simulated": x.value,
             "standard_error": x.error} for a, x in enumerate(simulated)
        ]  # fmt: skip
        lab.commands.append(f"cabai bound {instance_options(problem)}")
    header = ["", *(f"arm {a + 1} ({paper.means[a]:g}, {paper.costs[a]:g})" for a in range(len(paper)))]
    caption = "Shares of the pulls, Gaussian, delta 1e-6; arms as (mean, cost). Simulated: mean of N_a/t at the end."
    section = Section(lab, "table1", "Table 1: optimal and simulated shares of the pulls")
    section.data["table1"] = pd.DataFrame(records)
    section.add(caption, header, rows)
    return section


def table_2(lab: Lab) -> Section:
    """Seconds for 1000 trajectories: printed, ours, and a straightforward version on this machine."""
    records = []
    for family, name in NAMES.items():
        problem = instance(name)
        for policy in POLICIES:
            lab.runs(problem, policy, DELTA)  # so that loading compiled code is not timed below
            runs, seconds = timed(lab, problem, policy)
            plain = plain_seconds(lab, problem, policy, float(runs.steps.mean()))
            ours = 1000 * seconds / len(runs)
            records.append({
                "family": family, "policy": policy, "printed": TABLE_2[family][policy], "plain": plain, "cabai": ours,
                "plain_over_cabai": plain / ours, "nanoseconds_per_pull": 1e9 * seconds / runs.steps.sum(),
            })  # fmt: skip
    frame = pd.DataFrame(records)
    rows = [
        [f"{r.family}, {r.policy}", f"{r.printed}", f"{r.plain:.4g}", f"{r.cabai:.3g}", f"{r.plain_over_cabai:.3g}",
         f"{r.nanoseconds_per_pull:.3g}"]
        for r in frame.itertuples()
    ]  # fmt: skip
    text = (
        f"Machine: {machine()}; CPU seconds of one core. The straightforward version (NumPy, nested "
        "root finding, src/cabai/paper/plain.py) was timed for a few hundred pulls and extrapolated to "
        "the mean length of a trajectory. The part claims has what CTAS takes over CO."
    )
    header = ["family, policy", "printed s", "straightforward s", "cabai s", "ratio", "ns per pull"]
    caption = "Seconds for 1000 trajectories, delta 1e-6; ratio: straightforward over cabai, both on this machine."
    section = Section(lab, "table2", "Table 2: computing time", [text], data={"table2": frame})
    section.add(caption, header, rows)
    return section


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


def timed(lab: Lab, problem: Instance, policy: str) -> tuple[Runs, float]:
    """The trajectories of a policy, and the CPU seconds that one core needed for them; the least of three times."""
    lab.progress(f"timing {policy} on {problem.family}")
    times = []
    for _ in range(3):
        started = time.process_time()
        runs = simulate(
            problem, policy, delta=DELTA, trajectories=lab.trajectories, seed=lab.seed, workers=1, threshold="paper"
        )
        times.append(time.process_time() - started)
    return runs, min(times)


def plain_seconds(lab: Lab, problem: Instance, policy: str, pulls: float) -> float:
    """Seconds the straightforward version would take for 1000 trajectories of that many pulls."""
    from cabai.paper import plain

    tracks = policy in ("ctas", "tas")
    limit = (15 if tracks else 60) if lab.quick else (200 if tracks else 2000)
    lab.progress(f"timing the straightforward {policy} on {problem.family}")
    started, done, rng = time.process_time(), 0, np.random.default_rng(lab.seed)
    while done < limit:
        state = plain.Trajectory(problem.family.name, problem.means, problem.costs, DELTA, rng)
        state.run(policy, limit - done)
        done += state.t
    return 1000 * pulls * (time.process_time() - started) / done


def machine() -> str:
    """The processor's name and the versions that matter."""
    import numba

    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    name = models[0] if models else platform.processor() or platform.machine()
    return f"{name}, {platform.system()}, Python {platform.python_version()}, Numba {numba.__version__}"
