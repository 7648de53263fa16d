"""Beyond the paper: cost-aware top-two against the paper's policies, on known instances and on random ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from cabai.bound import bound
from cabai.core.evidence import pair_evidence
from cabai.instance import Instance
from cabai.paper.lab import Estimate, Lab, mean_of, ratio
from cabai.paper.published import instance, random_instance
from cabai.paper.report import Section
from cabai.policies import policy
from cabai.policies.top_two import coin
from cabai.support.streams import uniform

RIVALS = {"co": "co", "ctas": "ctas", "ratio": "ctas(tracking=ratio, slack=0.5)"}
DELTAS = (0.05, 1e-6)
ERRORS = 4  # how many standard errors more than a limit is above it
KNOWN = ("G3", "G3r", "G10", "B10", "G50")  # on G3r the best arm is by far the cheapest, and CO is cheaper
GAPS = {"gaussian": 0.3, "bernoulli": 0.15, "poisson": 0.5}  # how far the best of the grid is above all others at least
SHARES = {3: 2.0, 10: 0.5, 50: 0.1}  # of the trajectories, by number of arms: fewer where they are long


def top_two(lab: Lab) -> Section:
    section = Section(lab, "top-two", "Beyond the paper: cost-aware top-two")
    add_costs(section, "known", measure(lab, {name: instance(name) for name in KNOWN}, (0.1, 0.05, 0.01, 1e-6)))
    frame = measure(lab, dict(list(grid().items())[:: 10 if lab.quick else 1]), DELTAS)
    over = frame[frame["over_best"] - ERRORS * frame["error_best"] > 1.03]
    many = frame[frame["arms"] >= 10]
    section.text += [
        f"On {len(frame)} pairs of a random instance and a delta, top-two costs at most {frame['over_best'].max():.3f} "
        f"times the best of CO, CTAS and CTAS with ratio tracking; on {len(over)} of them more than 1.03 times by more "
        f"than {ERRORS} standard errors.",
        f"With 10 and 50 arms, on average: {1 - many['over_co'].mean():.1%} below CO, "
        f"{1 - many['over_ctas'].mean():.1%} below CTAS, {1 - many['over_ratio'].mean():.1%} below CTAS with ratio "
        "tracking.",
    ]
    add_costs(section, "grid", frame)
    tails(lab, section)
    return section


@cache
def grid() -> dict[str, Instance]:
    """30 random instances, always the same: 3, 10 and 50 arms, three families, costs over two orders of magnitude."""
    rng, families = np.random.default_rng(0), [list(GAPS)[i % 3] for i in range(30)]
    return {
        f"{i}: {family}, K = {(3, 10, 50)[i // 10]}": random_instance(rng, family, (3, 10, 50)[i // 10], GAPS[family])
        for i, family in enumerate(families)
    }


def measure(lab: Lab, problems: dict[str, Instance], deltas: tuple[float, ...]) -> pd.DataFrame:
    """One row per instance and delta: top-two's mean cost, its ratio to each rival's, and their standard errors."""
    records = []
    for name, problem in problems.items():
        ours, *theirs = (
            lab.several(problem, policy, deltas, share=SHARES[len(problem)]) for policy in ("top-two", *RIVALS.values())
        )
        for j, runs in enumerate(ours):
            cost = mean_of(runs.costs)
            record: dict[str, Any] = {"instance": name, "arms": len(problem), "delta": runs.delta, "cost": cost.value,
                      "error": cost.error, "bound": bound(problem).cost(runs.delta),
                      "errors": int(runs.wrong.sum())}  # fmt: skip
            for rival, results in zip(RIVALS, theirs, strict=True):
                record[f"over_{rival}"], record[f"error_{rival}"] = ratio(runs, results[j])
            best = max(RIVALS, key=lambda rival: record[f"over_{rival}"])
            records.append(record | {"over_best": record[f"over_{best}"], "error_best": record[f"error_{best}"]})
    return pd.DataFrame(records)


def add_costs(section: Section, name: str, frame: pd.DataFrame) -> None:
    """Add what was measured to the section, as a table and as data."""
    rows = [
        [f"{r.instance}, delta {r.delta:g}", str(Estimate(r.cost, r.error)), f"{r.cost / r.bound:.2f}",
         *(str(Estimate(getattr(r, f"over_{x}"), getattr(r, f"error_{x}"))) for x in (*RIVALS, "best"))]
        for r in frame.itertuples()
    ]  # fmt: skip
    caption = (
        "Mean cost of top-two ± its standard error; over the lower bound; over each rival's on the same rewards, ± the "
        "standard error of the ratio; last, over the cheapest rival's."
    )
    header = ["instance", "top-two", "over bound", "over CO", "over CTAS", "over CTAS, ratio", "over the best"]
    section.add(caption, header, rows)
    section.data[name] = frame


def empirical_leader(arms, run, rules):  # type: ignore[no-untyped-def]
    """Top-two with the best mean as leader."""
    leader = arms[run.leader]
    challenger, least = -1, np.inf
    for a in range(len(arms)):
        if a != run.leader:
            z = pair_evidence(rules, leader.pulls, leader.mean, arms[a].pulls, arms[a].mean)
            if z < least or challenger < 0:
                challenger, least = a, z
    h_l, h_c = coin(rules, leader, arms[challenger])
    return run.leader if uniform(run) * (h_l + h_c) < h_l else challenger


def tails(lab: Lab, section: Section) -> None:
    """Why the leader is the arm that reaches highest: if the arm with the best mean leads, some runs cost far more."""
    problem, delta, rows = instance("G50"), 0.1, []
    good = lab.runs(problem, "top-two", delta, share=0.4)
    bad = lab.runs(problem, policy(empirical_leader), delta, share=0.4)
    for name, runs in (("largest upper end", good), ("best mean", bad)):
        quantiles = [f"{np.quantile(runs.costs, q):.5g}" for q in (0.5, 0.99, 1)]
        rows.append([name, str(mean_of(runs.costs)), *quantiles])
    caption = "The cost of a trajectory by who leads, 50 Gaussian arms, delta 0.1. Both stop by the same rule."
    header = ["leader", "mean", "median", "99 %", "largest"]
    section.add(caption, header, rows, save="tails")
