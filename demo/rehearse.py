"""The demo's study, repeated many times on pulls drawn from those that pilot.py recorded: no classifier is trained.

python demo/rehearse.py [RUNS]     after python demo/pilot.py
"""

from __future__ import annotations

import json
import sys
from collections import Counter

import numpy as np

import cabai
from digits import RESULTS, SETTINGS

POLICIES = ["top-two", "co", "racing"]


def main(runs: int) -> None:
    recorded = json.loads((RESULTS / "pilot.json").read_text())
    pilot = {arm: recorded[arm] for arm in SETTINGS["arms"]}
    means = {arm: np.mean([reward for reward, _ in pulls]) for arm, pulls in pilot.items()}
    good = {arm for arm in means if means[arm] >= max(means.values()) - SETTINGS["epsilon"]}
    print(f"{'policy':8}{'mean bill':>10}{'99 %':>8}{'mean pulls':>12}  wrong  decisions")
    for policy in POLICIES:
        found = [once(pilot, policy, i) for i in range(runs)]
        bills = [status.spent for status in found]
        decisions = Counter(status.decision for status in found)
        wrong = sum(count for arm, count in decisions.items() if arm not in good)
        print(
            f"{policy:8}{np.mean(bills):10.1f}{np.quantile(bills, 0.99):8.1f}"
            f"{np.mean([status.pulls for status in found]):12.0f}  {wrong:5}  {dict(decisions)}"
        )


def once(pilot: dict[str, list[tuple[float, float]]], policy: str, seed: int) -> cabai.study.Status:
    random = np.random.default_rng(seed)
    name = f"{policy} {seed}"
    study = cabai.create_study(name, storage="memory", **SETTINGS | {"policy": policy})
    status = study.run(lambda arm: tuple(pilot[arm][random.integers(len(pilot[arm]))]))
    cabai.delete_study(name, storage="memory")
    return status


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
