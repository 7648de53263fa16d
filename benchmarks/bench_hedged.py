"""What `hedged` costs against `contrast` for two gaussian arms, on the same rewards, and how long a trajectory takes.

    python benchmarks/bench_hedged.py [--trajectories N]

Mean cost over contrast's for gaps of 2 to 0.1 standard deviations, with top-two, co and ctas, the better arm 1, 10 and
1000 times as expensive as the other or as cheap. Goal: at most 1.02 where the leader has more than 20
pulls on average. Then CPU seconds per trajectory over contrast's, warm, on one core (goal: 1.5).
"""

from __future__ import annotations

import argparse

import numpy as np

from bench_champion import DELTAS, ratios, seconds
from cabai import Instance
from cabai.support.tables import table

GAPS = 2.0, 1.0, 0.5, 0.25, 0.1
COSTS = (1.0, 1.0), (10.0, 1.0), (1.0, 10.0), (1e3, 1.0), (1.0, 1e3)


def main(n: int) -> None:
    rows, every, worst = [["gap", "costs", "policy", *(f"delta {delta:g}" for delta in DELTAS)]], [], (-np.inf, 0.0)
    for policy in ("top-two", "co", "ctas"):
        for gap in GAPS:
            for costs in COSTS:
                found = ratios(Instance("gaussian", [gap, 0], costs), policy, n, DELTAS)[:, :3]
                every.append(found[:, 0])
                worst = max(worst, *((ratio, error) for ratio, error, pulls in found if pulls > 20), (-np.inf, 0.0))
                words = [f"{ratio:.3f} ± {error:.3f}" for ratio, error, _ in found]
                rows.append([f"{gap:g}", ":".join(f"{cost:g}" for cost in costs), policy, *words])
    print(f"Mean cost of hedged over contrast's, {n} trajectories with the same rewards")
    print(table(rows, left=3))
    print("mean of each column:", *(f"{mean:.3f}" for mean in np.mean(every, axis=0)))
    print(f"largest where the leader has more than 20 pulls: {worst[0]:.3f} ± {worst[1]:.3f} (goal 1.02)", flush=True)
    for gap in (1.0, 0.3):
        times = [seconds(Instance("gaussian", [gap, 0], [1, 1]), policy, 10 * n) for policy in ("top-two", "co")]
        print(f"CPU time over contrast's, gap {gap:g}: top-two {times[0]:.2f}, co {times[1]:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--trajectories", type=int, default=1000)
    main(parser.parse_args().trajectories)
