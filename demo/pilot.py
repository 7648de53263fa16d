"""What one pull of each arm of the demo returns and costs: where the study's settings come from.

python demo/pilot.py [SECONDS]     measure every arm for that long (default: 20), and write results/pilot.json
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from digits import ARMS, RESULTS, test

LEFT_OUT = {"tree": DecisionTreeClassifier, "gaussian": GaussianNB}  # of the study: both are far behind
MOST = 2000  # pulls of an arm


def main(seconds: float) -> None:
    ARMS.update(LEFT_OUT)
    pilot = {arm: measure(arm, seconds) for arm in ARMS}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pilot.json").write_text(json.dumps(pilot))
    print(f"{'arm':12}{'pulls':>6}{'mean':>9}{'sd':>9}{'cost, ms':>10}")
    for arm, pulls in pilot.items():
        rewards, costs = np.array(pulls).T
        print(f"{arm:12}{len(rewards):6}{rewards.mean():9.4f}{rewards.std(ddof=1):9.4f}{1000 * costs.mean():10.2f}")


def measure(arm: str, seconds: float) -> list[tuple[float, float]]:
    test(arm)  # what the first call loads is not part of the cost of a pull
    pulls, end = [], time.process_time() + seconds
    while len(pulls) < MOST and (len(pulls) < 2 or time.process_time() < end):
        pulls.append(test(arm))
    return pulls


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
