"""The simulations a reproduction needs, each run once, and the command that repeats each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cabai import thresholds
from cabai.instance import Instance
from cabai.simulation import Runs, simulate
from cabai.simulation.engines import Engine

SLOWER = ("co", "racing", "d-lucb")  # one run per delta, because their choices depend on it


@dataclass
class Lab:
    """How many trajectories, from which seed; `progress` is called with a line about what is being done."""

    trajectories: int = 1000
    seed: int = 0
    engine: Engine | None = None
    quick: bool = False
    progress: Callable[[str], None] = lambda text: None
    done: dict[tuple[object, ...], Runs] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)  # the numbers of errata, by where

    def runs(
        self,
        instance: Instance,
        policy: str,
        delta: float,
        *,
        threshold: str = "paper",
        grid: Sequence[int] = (),
        max_pulls: int | None = None,
        share: float = 1.0,
    ) -> Runs:
        """The trajectories of a policy, or the share of them that a long run can afford."""
        return self.several(
            instance, policy, [delta], threshold=threshold, grid=grid, max_pulls=max_pulls, share=share
        )[0]

    def several(
        self,
        instance: Instance,
        policy: str,
        deltas: Sequence[float],
        *,
        threshold: str = "paper",
        grid: Sequence[int] = (),
        max_pulls: int | None = None,
        share: float = 1.0,
    ) -> list[Runs]:
        """One result for each delta; from the same trajectories where the policy's choices do not depend on delta."""
        count = max(20, round(share * self.trajectories))
        rest = (threshold, tuple(grid), max_pulls, count)
        missing = [delta for delta in deltas if (instance, policy, delta, *rest) not in self.done]
        single = policy.partition("(")[0] in SLOWER
        for group in [[delta] for delta in missing] if single else [missing] if missing else []:
            self.progress(f"{policy} on {instance.family}, K = {len(instance)}, delta {', '.join(map(str, group))}")
            results = simulate(
                instance, policy, delta=group, threshold=threshold, grid=grid, max_pulls=max_pulls,
                trajectories=count, seed=self.seed, engine=self.engine,
            )  # fmt: skip
            for runs in results:
                self.done[(instance, policy, runs.delta, *rest)] = runs
        return [self.done[(instance, policy, delta, *rest)] for delta in deltas]


def command(runs: Runs) -> str:
    """The shell command that repeats a result."""
    instance = runs.instance
    model = "" if instance.cost_model == "fixed" else f" --cost-model {instance.cost_model}"
    threshold = (
        "" if str(runs.threshold) == thresholds.cheapest(instance.family) else f' --threshold "{runs.threshold}"'
    )
    policy = f'"{runs.policy}"' if "(" in runs.policy else runs.policy
    return (
        f"cabai simulate {instance_options(instance)}{model} --policy {policy}{threshold} --delta {runs.delta:g} "
        f"--trajectories {len(runs)} --seed {runs.seed}"
    )


def instance_options(instance: Instance) -> str:
    means, costs = (",".join(f"{x:.10g}" for x in values) for values in (instance.means, instance.costs))
    return f"--family {instance.family} --means {means} --costs {costs}"
