"""An audit that takes a GPU: error rates counted in 10^8 trajectories, certificates attacked, the tail of the bill.

    python benchmarks/audit_gpu.py [--quick] [--engine threads] [--seconds S] [--trajectories N] [--out FILE.json]

1. Every family's default test at delta 1e-3, with policy top-two, where it is hardest: the best two arms tied (the best
   is better by 1e-9) or nearly tied, with 2, 3 and 10 arms. An error is a wrong arm within `max_pulls`.
2. Certificates of `cabai.calibrate`, on the instances it searched and on random ones of our own.
3. What is paid at worst: quantiles of the bill up to 99.99 %.

Each cell has N trajectories (10^8, with --quick 10^5), or as many as take S seconds. It ends with code 1 if an error
rate is above its delta by more than chance allows (once in a million).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any

import numpy as np

import cabai
from bench_gpu import Cell, compile_all
from cabai.calibration.binomial import upper_limit
from cabai.errors import EngineFailed
from cabai.simulation.engines import opened
from cabai.support.tables import table

DELTA = 1e-3
CHANCE = 1e-6  # of an alarm although all is well
# A tie, and a near tie, of each family: the best mean, the tied one, the nearly tied one, and that of all other arms.
HARD = {
    "gaussian": (1e-9, 0.0, -0.15, -0.5),
    "gaussian(variance=unknown)": (1e-9, 0.0, -0.15, -0.5),
    "bernoulli": (0.5 + 1e-9, 0.5, 0.43, 0.3),
    "poisson": (1 + 1e-9, 1.0, 0.85, 0.6),
    "exponential": (1 + 1e-9, 1.0, 0.85, 0.6),
    "bounded": (0.5 + 1e-9, 0.5, 0.46, 0.3),
}
SEEDS = {"pilot": 900, "audit": 901, "attack": 902}
PAPER = {
    "gaussian": [1.5, 1, 0.5], "bernoulli": [0.9, 0.6, 0.3], "poisson": [1.5, 1, 0.5], "exponential": [1.5, 1, 0.5],
    "bounded": [0.9, 0.6, 0.3], "gaussian(variance=unknown)": [1.5, 1, 0.5],
}  # fmt: skip


class Audit:
    def __init__(self, given: argparse.Namespace) -> None:
        self.engine = None if given.engine == "threads" else given.engine
        self.trajectories, self.seconds, self.out = given.trajectories, given.seconds, given.out
        self.told: dict[str, Any] = {}
        self.alarms: list[str] = []

    def keep(self, part: str, rows: list[list[str]]) -> None:
        self.told[part] = rows
        print(table([rows[0], rows[-1]], left=1), flush=True)
        if self.out:
            with open(self.out, "w") as file:
                json.dump(self.told | {"alarms": self.alarms}, file, indent=1)

    def run(self, instance: cabai.Instance, most: int | None = None, **options: Any) -> cabai.results.Totals:
        """As many trajectories as were asked for, or fit into the time."""
        most = self.trajectories if most is None else most
        pilot = cabai.simulate(
            instance, trajectories=max(min(most // 10, 300_000), 1), seed=SEEDS["pilot"], keep="summary",
            engine=self.engine, **options,
        )  # fmt: skip
        fit = self.seconds * pilot.sums.trajectories / max(pilot.seconds, 1e-3)
        count = int(max(1, min(most, fit)))
        return cabai.simulate(
            instance, trajectories=count, seed=SEEDS["audit"], keep="summary", engine=self.engine, **options
        )

    def judged(self, what: str, errors: int, trajectories: int, delta: float, counts: bool = True) -> str:
        """The rate over delta with its upper limit; an alarm if that many errors have a chance below CHANCE at delta
        (Chernoff's bound)."""
        rate = errors / trajectories
        if rate > delta:
            excess = rate * math.log(rate / delta) + (1 - rate) * (math.log1p(-rate) - math.log1p(-delta))
        if counts and rate > delta and trajectories * excess > -math.log(CHANCE):
            self.alarms.append(f"{what}: {errors} of {trajectories}, delta {delta:g}")
        return f"{rate / delta:.3f} (at most {upper_limit(errors, trajectories, 1e-3) / delta:.3f})"

    def tests(self, families: list[str]) -> None:
        rows = [["test", "arms", "instance", "max pulls", "trajectories", "errors", "rate / delta (99.9 %)", "seconds"]]
        for family in families:
            best, tied, near, rest = HARD[family]
            cells = [
                ("tie", [best, tied], 300), ("near tie", [best, near], 1000), ("tie", [best, tied, tied], 300),
                ("tie of two", [best, tied, *[rest] * 8], 600),
            ]  # fmt: skip
            for what, means, most in cells:
                instance = cabai.Instance(family, means, np.geomspace(1, 0.1, len(means)))
                done = self.run(instance, delta=DELTA, max_pulls=most)
                n, wrong = done.sums.trajectories, done.sums.errors
                name = f"{family}, {done.threshold}"
                judged = self.judged(f"{name}, {what}", wrong, n, DELTA)
                taken = f"{done.seconds:.1f}"
                rows.append([name, str(len(means)), what, str(most), f"{n:,}", str(wrong), judged, taken])
                self.keep("tests", rows)

    def certificates(self, policies: list[str], budget: int) -> None:
        """Attack a certificate with `budget` trajectories in all, first on what it searched, then on random ones."""
        rows = [["certificate", "instance", "trajectories", "errors", "rate / delta (99.9 %)", "seconds"]]
        costs, rng = [1, 0.3, 0.1, 0.03], np.random.default_rng(SEEDS["attack"])
        for policy in policies:
            options = {"delta": 0.05, "max_pulls": 200}
            size = min(10**6, max(self.trajectories // 50, 4000))
            found = cabai.calibrate("gaussian", costs, policy, trajectories=size, engine=self.engine, **options)
            hard = [(each.what, each.means) for each in found.searched]
            for k in range(4):
                means = -np.exp(rng.uniform(math.log(0.3), math.log(6), len(costs)))
                places = rng.permutation(len(costs))[: 2 + k % 2]
                means[places], means[places[0]] = 0.0, 1e-9
                hard.append((f"random of ours {k + 1}", means.tolist()))
            for what, means in hard:
                instance = cabai.Instance("gaussian", means, costs)
                started = time.perf_counter()
                most = max(budget // len(hard) // len(policies), 1)
                done = self.run(instance, most, policy=policy, threshold=found.threshold, **options)
                n, wrong = done.sums.trajectories, done.sums.errors
                searched = not what.startswith("random of ours")  # a certificate covers no other instances
                judged = self.judged(f"{found.threshold}, {what}", wrong, n, options["delta"], searched)
                taken = f"{time.perf_counter() - started:.1f}"
                rows.append([f"{policy}, {found.threshold}", what, f"{n:,}", str(wrong), judged, taken])
                self.keep("certificates", rows)

    def bills(self, families: list[str]) -> None:
        rows = [["bill", "policy", "delta", "trajectories", "mean", "99 %", "99.99 %", "largest", "errors", "seconds"]]
        for family in families:
            for policy, delta in (("top-two", 0.05), ("co", 0.05), ("ctas", 1e-6)):
                if policy == "ctas" and "unknown" in family:  # it needs the variance
                    continue
                done = self.run(cabai.Instance(family, PAPER[family], [1, 0.1, 0.01]), policy=policy, delta=delta)
                sums = done.sums
                rows.append([
                    family, policy, f"{delta:g}", f"{sums.trajectories:,}", f"{sums.mean:.2f}",
                    *(f"{sums.quantile(q):.1f}" for q in (0.99, 0.9999)), f"{sums.largest:.1f}", str(sums.errors),
                    f"{done.seconds:.1f}",
                ])  # fmt: skip
                self.judged(f"{family} {policy}", sums.errors, sums.trajectories, delta)
                self.keep("bills", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--engine", default="cuda")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of a cell, at most")
    parser.add_argument("--trajectories", type=int, help="of a cell: 10^8, with --quick 10^5")
    parser.add_argument("--families", default=",".join(HARD))
    parser.add_argument("--parts", default="tests,certificates,bills")
    parser.add_argument("--out")
    given = parser.parse_args()
    given.trajectories = given.trajectories or (10**5 if given.quick else 10**8)
    try:
        opened(None if given.engine == "threads" else given.engine).__exit__(None, None, None)
    except EngineFailed as error:
        sys.exit(str(error))
    audit, families = Audit(given), given.families.split(",")
    if given.engine == "cuda":
        arms = {"tests": (2, 3, 10), "bills": (3,)}
        many = {n for part, each in arms.items() if part in given.parts for n in each}
        cells = [Cell(family, [*HARD[family][:1], *HARD[family][1:2] * (n - 1)], [1] * n, "top-two", DELTA)
                 for family in families for n in sorted(many)]  # fmt: skip
        compile_all([(f"{each.family}, {len(each.means)} arms", each, {}) for each in cells])
    if "tests" in given.parts:
        audit.tests(families)
    if "certificates" in given.parts:
        audit.certificates(["top-two"] if given.quick else ["top-two", "racing"], 10 * given.trajectories)
    if "bills" in given.parts:
        audit.bills(families)
    for part, rows in audit.told.items():
        print(f"\n{part}\n{table(rows, left=1)}")
    if audit.alarms:
        sys.exit("above delta by more than chance allows: " + "; ".join(audit.alarms))


if __name__ == "__main__":
    main()
