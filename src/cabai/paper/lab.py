"""The simulations a reproduction needs, each run once; the command that repeats each; estimates with their errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai import thresholds
from cabai.instance import Instance
from cabai.policies import Policy, policy_of
from cabai.simulation import Runs, simulate
from cabai.simulation.engines import Engine

Numbers = NDArray[Any]


@dataclass
class Lab:
    """How many trajectories, from which seed; `progress` is called with a line about what is being done."""

    trajectories: int = 1000
    seed: int = 0
    engine: Engine | None = None
    quick: bool = False
    progress: Callable[[str], None] = lambda text: None
    done: dict[tuple[object, ...], Runs] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)  # what repeats the trajectories given out, until taken

    def runs(self, instance: Instance, policy: str | Policy, delta: float, **options: Any) -> Runs:
        return self.several(instance, policy, [delta], **options)[0]

    def several(
        self,
        instance: Instance,
        policy: str | Policy,
        deltas: Sequence[float],
        *,
        threshold: str = "paper",
        share: float = 1.0,
        **options: Any,
    ) -> list[Runs]:
        """One result for each delta; from the same trajectories where the policy's choices do not depend on delta.

        `share` times the number of trajectories is run; the other options are those of `simulate`.
        """
        count = max(20, round(share * self.trajectories))
        rest = (threshold, count, repr(options))
        missing = [delta for delta in deltas if (instance, policy, delta, *rest) not in self.done]
        single = policy_of(policy).depends_on_delta
        for group in [[delta] for delta in missing] if single else [missing] if missing else []:
            self.progress(f"{policy} on {instance.family}, K = {len(instance)}, delta {', '.join(map(str, group))}")
            results = simulate(
                instance, policy, delta=group, threshold=threshold, trajectories=count, seed=self.seed,
                engine=self.engine, **options,
            )  # fmt: skip
            for runs in results:
                self.done[(instance, policy, runs.delta, *rest)] = runs
        given = [self.done[(instance, policy, delta, *rest)] for delta in deltas]
        if isinstance(policy, str):
            self.commands += [command(runs, options.get("max_pulls")) for runs in given]
        return given

    def command(self, part: str) -> str:
        """The shell command that repeats a part."""
        options = "--quick" if self.quick else f"--trajectories {self.trajectories}"
        return f"cabai reproduce {part} {options} --seed {self.seed}"


def command(runs: Runs, max_pulls: int | None) -> str:
    """The shell command that repeats a result."""
    instance = runs.instance
    model = "" if instance.cost_model == "fixed" else f" --cost-model {instance.cost_model}"
    usual = thresholds.cheapest(instance.family, len(instance))
    threshold = "" if str(runs.threshold) == usual else f' --threshold "{runs.threshold}"'
    policy = f'"{runs.policy}"' if "(" in runs.policy else runs.policy
    return (
        f"cabai simulate {instance_options(instance)}{model} --policy {policy}{threshold} --delta {runs.delta:g} "
        f"--trajectories {len(runs)} --seed {runs.seed}{f' --max-pulls {max_pulls}' if max_pulls else ''}"
    )


def instance_options(instance: Instance) -> str:
    means, costs = (",".join(f"{x:.10g}" for x in values) for values in (instance.means, instance.costs))
    return f"--family {instance.family} --means {means} --costs {costs}"


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.{4 if self.value >= 1000 else 3}g} ± {self.error:.2g}"


def mean_of(values: Numbers) -> Estimate:
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def share_of(happened: Numbers) -> Estimate:
    """How often something happened; the error of none is that of one."""
    p, n = float(happened.mean()), len(happened)
    return Estimate(p, math.sqrt(max(p * (1 - p), 1 / n) / n))


def quantile_of(values: Numbers, q: float) -> Estimate:
    """A quantile; half the distance of the order statistics that are one standard error of the rank around it."""
    ranks = q + np.array([-1, 1]) * math.sqrt(q * (1 - q) / len(values))
    low, high = np.quantile(values, np.clip(ranks, 0, 1))
    return Estimate(float(np.quantile(values, q)), float(high - low) / 2)


def ratio(above: Runs, below: Runs) -> Estimate:
    """The ratio of two mean costs; the trajectories are paired, they face the same rewards."""
    n = min(len(above), len(below))
    x, y = above.costs[:n], below.costs[:n]
    r = x.mean() / y.mean()
    return Estimate(float(r), float((x - r * y).std(ddof=1) / (math.sqrt(n) * y.mean())))
