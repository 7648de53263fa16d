"""What a step of each policy takes, over one of ctas(slack=0.5), with 3 and 100 arms: ratios of CPU time in one run.

Without the slack, ctas only explores for the first K² pulls.

python benchmarks/bench_policies.py [gaussian|bernoulli] [policy ...]
"""

from __future__ import annotations

import sys
import time

import numpy as np

import cabai
from cabai.policies import POLICIES, policy_of


def instance_of(family: str, arms: int) -> cabai.Instance:
    return cabai.Instance(family, np.linspace(0.9, 0.1, arms), np.geomspace(1, 0.1, arms))


def per_step(instance: cabai.Instance, policy: str) -> float:
    """Microseconds of CPU time, the least of three runs, each cut after 100 pulls per arm."""
    pulls = 100 * len(instance)
    ends = {"budget": 40.0 * len(instance)} if policy_of(policy).spends_budget else {"max_pulls": pulls}
    options = {"delta": 1e-9, "workers": 1, **ends}
    cabai.simulate(instance, policy, trajectories=1, **options)  # compiles
    found = []
    for seed in range(3):
        started = time.process_time()
        result = cabai.simulate(instance, policy, trajectories=200_000 // pulls, seed=seed, **options)
        found.append(1e6 * (time.process_time() - started) / result.summary().steps)
    return min(found)


def main(family: str = "gaussian", *policies: str) -> None:
    for arms in (3, 100):
        instance = instance_of(family, arms)
        usual = per_step(instance, "ctas(slack=0.5)")
        print(f"{family}, {arms} arms: ctas(slack=0.5) {usual:.3f} µs", flush=True)
        for policy in policies or POLICIES.names:
            print(f"{family}, {arms} arms: {policy:20} {per_step(instance, policy) / usual:6.2f} of ctas", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
