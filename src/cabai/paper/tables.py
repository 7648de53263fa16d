"""The paper's two tables, reproduced."""

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
from cabai.simulation import Runs, simulate


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
