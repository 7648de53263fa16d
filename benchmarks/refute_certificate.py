"""Try to refute a certificate: an independent random search for an instance on which its threshold is wrong too often.

    python benchmarks/refute_certificate.py                          # ten gaussian arms, top-two, within 1500 pulls
    python benchmarks/refute_certificate.py --trajectories 40000     # a tighter certificate

`cabai calibrate` looks at a few dozen instances. This script draws 200 of its own, in its own way and from its own
seed: one, two or more rivals tied with the best arm, the others 0.3 to 6 standard deviations below. It simulates each
2000 times, and the five worst 40,000 times more, on new random numbers. It ends with code 1 if the error rate on one of
these exceeds delta by more than three standard errors.
"""

from __future__ import annotations

import argparse
import math
import sys
import time

import numpy as np

import cabai

COSTS = [10 ** (-2 * a / 9) for a in range(10)]


def random_instance(rng: np.random.Generator, costs: list[float]) -> cabai.Instance:
    """A gaussian instance with random rivals and gaps; half of them have the best arm's neighbour in cost as rival."""
    K = len(costs)
    means = (
        -np.exp(rng.uniform(math.log(0.3), math.log(6), K)) if rng.random() < 0.7 else np.full(K, -rng.uniform(1, 6))
    )
    best = int(rng.integers(K))
    if rng.random() < 0.5:
        rivals = np.array([best - 1 if best else 1])
    else:
        others = rng.permutation([a for a in range(K) if a != best])
        rivals = others[: int(rng.choice([1, 1, 2, 3, K - 1]))]
    means[rivals], means[best] = 0.0, 1e-9
    return cabai.Instance("gaussian", means, costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="top-two")
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument("--max-pulls", type=int, default=1500)
    parser.add_argument("--trajectories", type=int, default=4000, help="of the certificate")
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2024)
    given = parser.parse_args()
    options = {"delta": given.delta, "max_pulls": given.max_pulls}
    started = time.perf_counter()
    certificate = cabai.calibrate("gaussian", COSTS, given.policy, trajectories=given.trajectories, **options)
    print(f"{certificate}\n{time.perf_counter() - started:.0f} s\n")

    def rate(instance: cabai.Instance, trajectories: int, seed: int) -> float:
        runs = cabai.simulate(
            instance, given.policy, threshold=certificate.threshold, trajectories=trajectories, seed=seed, **options
        )
        return float(runs.wrong.mean())

    rng = np.random.default_rng(given.seed)
    drawn = [random_instance(rng, COSTS) for _ in range(given.instances)]
    rates = [rate(instance, 2000, given.seed + i) for i, instance in enumerate(drawn)]
    order = np.argsort(rates)[::-1]
    print(
        f"{given.instances} random instances, 2000 trajectories each: {np.quantile(rates, 0.5):.4f} is the median rate"
    )
    refuted = False
    for i in order[:5]:
        again, error = rate(drawn[i], 40_000, given.seed + 10_000 + int(i)), math.sqrt(given.delta / 40_000)
        refuted |= again > given.delta + 3 * error
        print(f"{rates[i]:.4f}, and with 40,000 new ones {again:.4f} ± {error:.4f}: {drawn[i].means.round(2).tolist()}")
    print("REFUTED" if refuted else f"none above delta = {given.delta:g} beyond three standard errors")
    sys.exit(refuted)


if __name__ == "__main__":
    main()
