"""Beyond the paper: cost-aware top-two against the paper's policies, on known instances and on random ones."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pandas as pd

from cabai.bound import bound
from cabai.core.evidence import pair_evidence
from cabai.instance import Instance
from cabai.paper.lab import Estimate, Lab, command, mean_of, ratio
from cabai.paper.published import instance
from cabai.paper.section import Section
from cabai.policies.base import own_policy
from cabai.policies.top_two import coin
from cabai.support.streams import uniform

TOP_TWO = "top-two"
RATIO = "ctas(tracking=ratio, slack=0.5)"
RIVALS = ("co", "ctas", RATIO)
DELTAS = (0.05, 1e-6)
ERRORS = 4  # how many standard errors apart two numbers may be and still agree

# Mean costs of prototypes, from as many trajectories: instance, delta, trajectories, and by policy.
PROTOTYPES = [
    ("G3", 1e-6, 1000, {"co": 317, "ctas": 310, RATIO: 308, TOP_TWO: 309}),
    ("G10", 1e-6, 1000, {"co": 5783, "ctas": 9578, TOP_TWO: 5644}),
    ("B10", 1e-6, 1000, {"co": 410, "ctas": 516, TOP_TWO: 382}),
    ("G50", 1e-6, 200, {"co": 2686, "ctas": 3606, RATIO: 2048, TOP_TWO: 2003}),
    ("G50", 0.1, 200, {"co": 1513, "ctas": 2728, RATIO: 1184, TOP_TWO: 1117}),
]

# The grid's means by family: the range they are drawn from, and how far the best is above all others at least.
MEANS = {"gaussian": (0.0, 1.0, 0.3), "bernoulli": (0.1, 0.9, 0.15), "poisson": (0.5, 2.5, 0.5)}
SHARES = {3: 2.0, 10: 0.5, 50: 0.1}  # of the trajectories, by number of arms: fewer where they are long


def top_two(lab: Lab) -> Section:
    section = Section("top-two", "Beyond the paper: cost-aware top-two")
    prototypes(lab, section)
    random_instances(lab, section)
    losing(lab, section)
    tails(lab, section)
    return section


def prototypes(lab: Lab, section: Section) -> None:
    """The table of the prototypes, and whether the engine agrees with it."""
    rows, records, commands = [], [], []
    for name, delta, trajectories, costs in PROTOTYPES:
        problem = instance(name)
        row = [f"{name}, {delta:g}"]
        for policy in (*RIVALS, TOP_TWO):
            runs = lab.runs(problem, policy, delta, share=trajectories / (3000 if lab.quick else 1000))
            ours = mean_of(runs.costs)
            cell = str(ours)
            if policy in costs:
                combined = ours.error * math.sqrt(1 + len(runs) / trajectories)
                apart = (ours.value - costs[policy]) / combined
                cell += f" ({costs[policy]}: {apart:+.1f})"
                records.append({
                    "instance": name, "delta": delta, "policy": policy, "cost": ours.value,
                    "standard_error": ours.error, "prototype": costs[policy], "errors_apart": apart,
                })  # fmt: skip
            row.append(cell)
            commands.append(command(runs))
        rows.append([*row, f"{bound(problem).cost(delta):.4g}"])
    frame = pd.DataFrame(records)
    far = frame[frame["errors_apart"].abs() > ERRORS]
    section.text.append(
        f"{len(frame) - len(far)} of {len(frame)} mean costs agree with the prototypes' within {ERRORS} combined "
        f"standard errors; the largest distance is {frame['errors_apart'].abs().max():.1f}."
    )
    caption = (
        "Mean cost ± its standard error; in brackets the prototype's, and how many combined standard errors ours is "
        "above it (the prototype's own is estimated from our spread and its 1000 trajectories, or 200 for 50 arms)."
    )
    header = ["instance, delta", "CO", "CTAS", "CTAS, ratio, slack 0.5", "top-two", "lower bound"]
    section.add(caption, header, rows, commands)
    section.data["prototypes"] = frame


@cache
def grid() -> list[Instance]:
    """30 random instances, always the same: 3, 10 and 50 arms, three families, costs over two orders of magnitude."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(30):
        K = (3, 10, 50)[i // 10]
        family = list(MEANS)[i % 3]
        low, high, gap = MEANS[family]
        others = rng.uniform(low, high - gap, K - 1)
        best = rng.uniform(others.max() + gap, high)
        means = rng.permutation([best, *others]).round(4)
        made.append(Instance(family, means, (10 ** rng.uniform(-2, 0, K)).round(4)))
    return made


def random_instances(lab: Lab, section: Section) -> None:
    """Top-two over each rival on the grid, where each faces the same rewards."""
    frame, commands = measure(lab)
    rows = [
        [f"{r.number}: {r.family}, K = {r.arms}, delta {r.delta:g}", f"{r.cost:.4g}", f"{r.cost / r.bound:.2f}",
         *(str(Estimate(getattr(r, f"over_{x}"), getattr(r, f"error_{x}"))) for x in ("co", "ctas", "ratio", "best"))]
        for r in frame.itertuples()
    ]  # fmt: skip
    over = frame[frame["over_best"] - ERRORS * frame["error_best"] > 1.03]
    surely = frame[frame["over_best"] + ERRORS * frame["error_best"] < 1.03]
    many = frame[frame["arms"] >= 10]
    section.text += [
        f"On {len(frame)} pairs of a random instance and a delta, top-two costs at most {frame['over_best'].max():.3f} "
        f"times the best of CO, CTAS and CTAS with ratio tracking; on {len(over)} of them more than 1.03 times by more "
        f"than {ERRORS} standard errors, on {len(surely)} less than that by as much.",
        f"With 10 and 50 arms, on average: {1 - many['over_co'].mean():.1%} below CO, "
        f"{1 - many['over_ctas'].mean():.1%} below CTAS, {1 - many['over_ratio'].mean():.1%} below CTAS with ratio "
        "tracking.",
    ]
    caption = (
        "Mean cost of top-two on random instances; over the lower bound; over each rival's on the same rewards, ± the "
        "standard error of the ratio; last, over the cheapest rival's."
    )
    header = ["instance", "top-two", "over bound", "over CO", "over CTAS", "over CTAS, ratio", "over the best"]
    section.add(caption, header, rows, commands)
    section.data["grid"] = frame


def measure(lab: Lab) -> tuple[pd.DataFrame, list[str]]:
    """One row per instance and delta: top-two's mean cost, its ratio to each rival's, and their standard errors."""
    records, commands = [], []
    for number, problem in enumerate(grid()):
        if lab.quick and number % 10:
            continue
        results = {
            policy: lab.several(problem, policy, DELTAS, share=SHARES[len(problem)]) for policy in (TOP_TWO, *RIVALS)
        }
        for j, delta in enumerate(DELTAS):
            ours = results[TOP_TWO][j]
            record = {"number": number, "family": problem.family.name, "arms": len(problem), "delta": delta,
                      "cost": ours.costs.mean(), "bound": bound(problem).cost(delta),
                      "errors": int(ours.wrong.sum())}  # fmt: skip
            for name, policy in zip(("co", "ctas", "ratio"), RIVALS, strict=True):
                record[f"over_{name}"], record[f"error_{name}"] = ratio(ours, results[policy][j])
            best = max(("co", "ctas", "ratio"), key=lambda name: record[f"over_{name}"])
            record |= {"best": best, "over_best": record[f"over_{best}"], "error_best": record[f"error_{best}"]}
            records.append(record)
            commands += [command(results[policy][j]) for policy in (TOP_TWO, *RIVALS)]
    return pd.DataFrame(records), commands


def losing(lab: Lab, section: Section) -> None:
    """Where CO is known to be cheaper: three arms, the best by far the cheapest, a large delta."""
    problem, rows, commands = instance("G3r"), [], []
    for delta in (0.1, 0.05, 0.01, 1e-6):
        ours, theirs = (lab.runs(problem, name, delta, share=SHARES[3]) for name in (TOP_TWO, "co"))
        rows.append([f"{delta:g}", str(mean_of(theirs.costs)), str(mean_of(ours.costs)), str(ratio(ours, theirs))])
        commands += [command(ours), command(theirs)]
    caption = "Where CO is cheaper: Gaussian means 1.5, 1, 0.5 with costs 0.01, 0.1, 1."
    section.add(caption, ["delta", "CO", "top-two", "top-two over CO"], rows, commands)


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
    good = lab.runs(problem, TOP_TWO, delta, share=0.4)
    bad = lab.runs(problem, own_policy(empirical_leader), delta, share=0.4)
    for name, runs in (("largest upper end", good), ("best mean", bad)):
        quantiles = [f"{np.quantile(runs.costs, q):.5g}" for q in (0.5, 0.99, 1)]
        rows.append([name, str(mean_of(runs.costs)), *quantiles])
    caption = "The cost of a trajectory by who leads, 50 Gaussian arms, delta 0.1. Both stop by the same rule."
    header = ["leader", "mean", "median", "99 %", "largest"]
    section.add(caption, header, rows, [command(good), lab.command("top-two")])
    section.data["tails"] = pd.DataFrame(
        {"leader": [row[0] for row in rows], "largest": [float(row[-1]) for row in rows]}
    )
