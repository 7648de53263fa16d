"""What it costs not to know the variance, and how often `symmetric` is wrong, also for laws that it is not proven for.

    python benchmarks/bench_symmetric.py [--trajectories N]

Pulls per arm of two gaussian arms pulled in turn, at delta 0.05, over those with the variance known (goals: 2.3, 1.6,
1.2, 1.1 times those of `evalue` at gaps of 2, 1, 0.5, 0.25 standard deviations). Then, for two arms that are tied but
for 1e-9, how often the better one is beaten within 400 pulls per arm: both with this law, or only the better one, or
only the other one, which then is gaussian with three times the standard deviation.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import stats

from bench_times import LEVELS, instance
from cabai import Instance, simulate
from cabai.families import UnknownVariance
from cabai.support.tables import table

GAPS = 2.0, 1.0, 0.5, 0.25
GOALS = 2.3, 1.6, 1.2, 1.1
#: 20,000 quantiles each, so that these are symmetric, too.
SYMMETRIC = {
    "gaussian": stats.norm.ppf(LEVELS), "uniform": LEVELS - 0.5, "Laplace": stats.laplace.ppf(LEVELS),
    "t, 3 degrees": stats.t.ppf(LEVELS, 3), "two-point": np.sign(LEVELS - 0.5),
}  # fmt: skip
OUTSIDE = {
    "exponential": -np.log(LEVELS), "lognormal": np.exp(stats.norm.ppf(LEVELS)),
    "2 % outliers": np.where(LEVELS > 0.98, 10.0, stats.norm.ppf(LEVELS)),
    "1 in 100 is large": np.where(LEVELS > 0.99, 150.0, stats.norm.ppf(LEVELS)),
}  # fmt: skip


def pulls_per_arm(family: str, gap: float, threshold: str | None, n: int) -> tuple[float, float]:
    """And the standard error."""
    runs = simulate(Instance(family, [gap, 0], [1, 1]), "uniform", threshold=threshold, trajectories=n, seed=7)
    return float(runs.steps.mean()) / 2, float(runs.steps.std()) / 2 / n**0.5


def standard(law: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).permutation((law - law.mean()) / law.std())


def wrong(other: np.ndarray, best: np.ndarray, policy: str, n: int) -> float:
    tied = instance(UnknownVariance(), [other - 1e-9, best], [1.0, 1.0])
    return float(simulate(tied, policy, delta=0.05, trajectories=n, max_pulls=800, seed=3).wrong.mean())


def main(n: int) -> None:
    rows = [["gap in sd", "evalue, known", "contrast, known", "unknown", "over evalue's", "goal"]]
    for gap, goal in zip(GAPS, GOALS, strict=True):
        found = [pulls_per_arm("gaussian", gap, each, n) for each in ("evalue", "contrast")]
        found.append(pulls_per_arm("gaussian(variance=unknown)", gap, None, n))
        words = [f"{mean:.1f} ± {error:.1f}" for mean, error in found]
        rows.append([f"{gap:g}", *words, f"{found[2][0] / found[0][0]:.2f}", f"{goal:g}"])
    print(f"Pulls per arm, two gaussian arms in turn, delta 0.05, {n} trajectories")
    print(table(rows))
    gaussian = 3 * standard(SYMMETRIC["gaussian"])
    for laws, heading in ((SYMMETRIC, "Symmetric laws"), (OUTSIDE, "Skewed laws, for which nothing is proven")):
        rows = [["law", "policy", "both", "the better one", "the other one"]]
        for name, law in laws.items():
            own = standard(law)
            for policy in ("uniform", "top-two"):
                for sign, side in ((1, ""), (-1, ", negated")) if laws is OUTSIDE else ((1, ""),):
                    pairs = (own, own), (gaussian, own), (own, gaussian)
                    found = [f"{wrong(sign * other, sign * best, policy, 4 * n):.2%}" for other, best in pairs]
                    rows.append([name + side, policy, *found])
        print(f"\n{heading}: the better of two tied arms is beaten, delta 0.05, {4 * n} trajectories")
        print(table(rows, left=2), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--trajectories", type=int, default=500)
    main(parser.parse_args().trajectories)
