"""Times as rewards: what each family pays to find the command with the smallest mean time, and how often it is wrong.

The times follow no family: they are drawn from a sample of 20,000 for each arm. Besides the families that a study file
may name, `log` treats the logarithms of times as gaussian, which answers another question. Numbers for docs/times.md.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import cabai
from cabai.families import Bounded, Exponential, Gaussian, UnknownVariance, mirror_image
from cabai.support.tables import table

N = 20_000
LEVELS = (np.arange(N) + 0.5) / N
TIMEOUT = 20.0
DELTA = 0.05


def lognormal(mean: float, sigma: float) -> Any:
    """By its quantiles, scaled to have just this mean."""
    from statistics import NormalDist

    times = np.exp(sigma * np.array([NormalDist().inv_cdf(level) for level in LEVELS.tolist()]))
    return times * (mean / times.mean())


def sometimes(usual: float, slow: float, share: float) -> Any:
    """A spread of a tenth around the usual time, and a share of runs that take `slow`."""
    times = lognormal(usual, 0.1)
    times[:: round(1 / share)] = slow
    return np.random.default_rng(1).permutation(times)


CASES = {
    "lognormal, sd half the mean": [lognormal(mean, 0.47) for mean in (1.0, 1.2, 1.5)],
    "lognormal, sd 1.3 means": [lognormal(mean, 1.0) for mean in (1.0, 1.2, 1.5)],
    "1 run in 20 takes 10 times as long": [sometimes(mean, 10 * mean, 0.05) for mean in (1.0, 1.2, 1.5)],
    "regular 1.0; fast, but 1 in 100 takes 15 s": [lognormal(1.0, 0.1), sometimes(0.95, 15.0, 0.01)],
    "lognormal, sd 2.9 means": [lognormal(mean, 1.5) for mean in (1.0, 1.1)],
    "regular 1.0 and 0.9 lognormal, sd 1.3 means": [lognormal(1.0, 0.1), lognormal(0.9, 1.0)],
}


def instance(family: Any, samples: list[Any], costs: list[float]) -> cabai.Instance:
    """Arms whose rewards are drawn from these samples, whatever the family."""
    found = cabai.Instance(family, [float(np.mean(each)) for each in samples], costs)
    object.__setattr__(found, "samples", tuple(tuple(each.tolist()) for each in samples))
    return found


def main() -> None:
    trajectories = 200 if "--quick" in sys.argv else 2000
    for name, times in CASES.items():
        means = [float(each.mean()) for each in times]
        best = int(np.argmin(means))
        widest = max(float(each.var()) for each in times)
        tried = max(float(each[np.random.default_rng(2).integers(N, size=30)].var(ddof=1)) for each in times)
        logs = max(float(np.log(each).var()) for each in times)
        families = {
            f"bounded(high={TIMEOUT:g})": (
                Bounded(low=0.0, high=TIMEOUT),
                [TIMEOUT - np.minimum(t, TIMEOUT) for t in times],
            ),
            f"gaussian, variance {widest:.2g}: the true one": (Gaussian(widest), [-t for t in times]),
            f"gaussian, variance {tried:.2g}: of 30 runs": (Gaussian(tried), [-t for t in times]),
            "gaussian without a variance": (UnknownVariance(), [-t for t in times]),
            "exponential": (mirror_image(Exponential()), [-t for t in times]),
            f"log: gaussian, variance {logs:.2g}": (Gaussian(logs), [-np.log(t) for t in times]),
        }
        rows = [["", "mean bill, s", "pulls", "wrong", "unfinished"]]
        for what, (family, samples) in families.items():
            runs = cabai.simulate(
                instance(family, samples, means), delta=DELTA, trajectories=trajectories, max_pulls=200_000, seed=1
            )
            wrong = int(((runs.decisions >= 0) & (runs.decisions != best)).sum())
            left = int((runs.decisions < 0).sum())
            rows.append(
                [what, f"{runs.costs.mean():.0f}", f"{runs.steps.mean():.0f}", f"{wrong / trajectories:.1%}",
                 f"{left / trajectories:.1%}"]
            )  # fmt: skip
        print(f"{name}: means {', '.join(f'{mean:.3g}' for mean in means)} s", flush=True)
        print(table(rows), flush=True)
    name, times = next(iter(CASES.items()))
    rows = [["time-out, s", "mean bill, s"]]
    for high in (5.0, 20.0, 100.0):
        cut = [high - np.minimum(t, high) for t in times]
        runs = cabai.simulate(
            instance(Bounded(low=0.0, high=high), cut, [float(each.mean()) for each in times]), delta=DELTA,
            trajectories=trajectories // 4, seed=1,
        )  # fmt: skip
        rows.append([f"{high:g}", f"{runs.costs.mean():.0f}"])
    print(f"bounded, {name}")
    print(table(rows))


if __name__ == "__main__":
    main()
