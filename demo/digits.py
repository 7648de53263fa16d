"""Which of eight classifiers reads handwritten digits best? A live study, paid in seconds of CPU.

    python demo/digits.py          run the study, or continue it, and show the result
    python demo/digits.py svc      one pull of one arm, as a command of `cabai run` must print it

docs/study.md explains the choices made here.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["OMP_NUM_THREADS"] = "1"  # one core; must be set before scikit-learn is imported

import numpy as np
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

import cabai
from cabai.plots import new_figure, save, title
from cabai.study.run.watching import watched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cabai.study import Status, Study

ARMS = {
    "centroid": NearestCentroid,
    "bayes": MultinomialNB,
    "neighbour": lambda: KNeighborsClassifier(n_neighbors=1),
    "lda": LinearDiscriminantAnalysis,
    "svc": SVC,
    "logistic": lambda: LogisticRegression(max_iter=1000),
    "extra": ExtraTreesClassifier,
    "forest": RandomForestClassifier,
}
SETTINGS: dict[str, Any] = {  # also in study.toml
    "arms": list(ARMS),
    "family": "bounded",  # an accuracy lies in [0, 1]: nothing else is assumed
    "delta": 0.05,
    "epsilon": 0.005,
    "policy": "top-two",
    "lease": 60,  # seconds; a pull takes less than one
}
OTHERS = ["co", "racing", "tas", "uniform"]  # compared with the policy of the study
TRAINED_ON = 900  # images; the other 897 are for the test
RESULTS = Path("results")

threadpool_limits(1)  # one core, even if NumPy was imported before this file, as in `cabai run`
warnings.filterwarnings("ignore", category=UserWarning, module="sklearn")  # pixels that are always 0

images, digits = load_digits(return_X_y=True)
random = np.random.default_rng()  # a new split every time, also after a restart


def test(arm: str) -> tuple[float, float]:
    """One pull: train on random images, read the others. Reward: the share read right. Cost: the CPU seconds of
    the training."""
    order = random.permutation(len(digits))
    train, held_out = order[:TRAINED_ON], order[TRAINED_ON:]
    classifier = ARMS[arm]()
    begun = time.thread_time()
    classifier.fit(images[train], digits[train])
    cost = time.thread_time() - begun
    return float(np.mean(classifier.predict(images[held_out]) == digits[held_out])), cost


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    study = cabai.create_study("digits", storage="sqlite:///results/digits.db", load_if_exists=True, **SETTINGS)
    print("Choosing among eight classifiers, live: about a minute. Ctrl-C stops; run it again to continue.", flush=True)
    try:
        with watched(study):
            status = study.run(test)
    except KeyboardInterrupt:
        sys.exit(f"\n{study.status().sentence} Run it again to continue.")
    print(f"\n{status}\n\n{what_others_pay(study)}\n")
    save(picture(status), RESULTS / "digits.svg")
    print(f"A picture of it: {RESULTS / 'digits.svg'}. Every pull: cabai study export digits --storage {study.storage}")


def what_others_pay(study: Study) -> str:
    """What the study's policy and others would pay, with rewards drawn from the measured ones."""
    status, told = study.status(), study.observations()
    instance = cabai.Instance.of_samples(
        status.family,
        [
            [each["reward"] for each in told if each["arm"] == arm.name and each["reward"] is not None]
            for arm in status.arms
        ],
        costs=[arm.cost for arm in status.arms],
        names=[arm.name for arm in status.arms],
    )
    policies = [status.policy, *OTHERS]
    comparison = cabai.compare(
        instance, policies, delta=status.delta, epsilon=status.epsilon, threshold=status.threshold, trajectories=200
    )
    own, *others = (summary.mean_cost for summary in comparison.summaries)
    times = ", ".join(f"{policy} {cost / own:.1f}" for policy, cost in zip(OTHERS, others, strict=True))
    return (
        "Simulated, drawing from the measured rewards; racing, tas, uniform do not look at costs:\n"
        f"{comparison}\nCost, in times that of {status.policy}: {times}. Actually paid: {status.spent:.1f} s of CPU."
    )


def picture(status: Status) -> Figure:
    """What is known about each arm, and what was spent on it."""
    arms = sorted(status.arms, key=lambda arm: arm.mean)
    rows = range(len(arms))
    figure, (left, right) = new_figure(columns=2, height=2.8, sharey=True)
    means = np.array([arm.mean for arm in arms])
    ends = np.array([[arm.low, arm.high] for arm in arms], float)
    left.errorbar(means, rows, xerr=np.abs(ends.T - means), fmt="o", color="black", markersize=4, linewidth=1)
    best = max(arm.mean for arm in arms)
    left.axvspan(best - status.epsilon, best, color="0.85", linewidth=0)
    left.set_yticks(rows, [arm.name for arm in arms])
    left.set_xlim(right=1.0)
    left.locator_params(axis="x", nbins=4)
    title(left, "accuracy (grey: epsilon below the best)")
    spent = [arm.spent for arm in arms]
    right.barh(rows, spent, color=["black" if arm.name == status.decision else "0.65" for arm in arms], height=0.6)
    for row, arm in zip(rows, arms, strict=True):
        right.annotate(
            f"{arm.pulls} of {1000 * arm.cost:.1f} ms", (arm.spent, row), xytext=(4, 0), textcoords="offset points",
            va="center", fontsize=8,
        )  # fmt: skip
    right.set_xlim(0, 1.45 * max(spent))
    title(right, "CPU seconds spent (pulls of so many ms)")
    return figure


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    elif len(sys.argv) == 2 and sys.argv[1] in ARMS:
        reward, cost = test(sys.argv[1])
        print(json.dumps({"reward": reward, "cost": cost}))
    else:
        sys.exit(f"usage: python demo/digits.py [{'|'.join(ARMS)}]")
