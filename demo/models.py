"""Which of eight classifiers reads these 897 handwritten digits best? A race on a dataset, paid per evaluation.

    python demo/models.py      race them, and then check the answer by evaluating everything

Think of the classifiers as models behind an API, of the images as the questions of a benchmark, and of the prices below
as what a call costs. docs/datasets.md explains it.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.svm import SVC

import cabai

MODELS: dict[str, Any] = {
    "centroid": NearestCentroid(),
    "bayes": MultinomialNB(),
    "neighbour": KNeighborsClassifier(n_neighbors=1),
    "lda": LinearDiscriminantAnalysis(),
    "svc": SVC(),
    "logistic": LogisticRegression(max_iter=1000),
    "extra": ExtraTreesClassifier(30, random_state=0),
    "forest": RandomForestClassifier(30, random_state=0),
}
PRICES = dict(zip(MODELS, [0.01, 0.01, 0.05, 0.01, 0.10, 0.01, 0.05, 0.05], strict=True))  # dollars per call: made up
EPSILON = 0.01  # a model that reads 1 in 100 digits less is good enough

warnings.filterwarnings("ignore", category=UserWarning, module="sklearn")  # pixels that are always 0
images, digits = load_digits(return_X_y=True)
mixed = np.random.default_rng(0).permutation(len(digits))
images, digits = images[mixed], digits[mixed]
ITEMS = range(900, len(digits))  # the models learn from the first 900 images


def read(model: str, item: int) -> bool:
    """One call: does the model read this image right?"""
    return bool(MODELS[model].predict(images[item : item + 1])[0] == digits[item])


def main() -> None:
    print(f"Training {len(MODELS)} models; then racing them on {len(ITEMS)} images.", flush=True)
    for model in MODELS.values():
        model.fit(images[:900], digits[:900])
    try:
        found = cabai.evaluate(list(MODELS), ITEMS, read, costs=PRICES, epsilon=EPSILON)
    except KeyboardInterrupt:
        sys.exit("\nStopped. With name= and storage= the same call would continue where it stopped.")
    print(f"\n{found}\n")
    scores = {name: model.predict(images[900:]) == digits[900:] for name, model in MODELS.items()}
    means = {name: float(np.mean(right)) for name, right in scores.items()}
    best = max(means, key=lambda name: means[name])
    chosen = found.decision or best
    other = "" if chosen == best else f"; that of {chosen} is {means[chosen]:.4f}"
    print(f"Checked by evaluating everything: {best} has the highest mean, {means[best]:.4f}{other}.")
    again = cabai.replay({name: right.tolist() for name, right in scores.items()}, costs=PRICES, epsilon=EPSILON)
    print(f"\nThe same race in 200 other random orders (cabai.replay):\n{again}")


if __name__ == "__main__":
    main()
