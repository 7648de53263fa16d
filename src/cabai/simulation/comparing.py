"""Run several policies on one instance, or on several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack, overload

from cabai.core.goal import BEST, CHEAPEST
from cabai.instance import Instance
from cabai.policies import Policy
from cabai.simulation.engines import EngineLike, opened
from cabai.simulation.parallel import Progress
from cabai.simulation.results import Comparison, Comparisons, Runs, Totals
from cabai.simulation.simulating import Options, Rows, Sums, simulate
from cabai.support.validation import InvalidInput, shown
from cabai.thresholds import Threshold

POLICIES = ("top-two", "co", "ctas", "tas", "d-lucb", "racing", "uniform")
FOR_CHEAPEST = ("cheapest", "cheapest(uniform=true)")


Policies = Sequence[str | Policy]
Several = Sequence[Instance] | Mapping[str, Instance]


@overload
def compare(
    instance: Instance, policies: Policies = ..., *, delta: float = ..., keep: Rows = ..., **options: Unpack[Options]
) -> Comparison[Runs]: ...
@overload
def compare(
    instance: Instance, policies: Policies = ..., *, delta: float = ..., keep: Sums, **options: Unpack[Options]
) -> Comparison[Totals]: ...
@overload
def compare(
    instance: Several, policies: Policies = ..., *, delta: float = ..., keep: Rows = ..., **options: Unpack[Options]
) -> Comparisons[Runs]: ...
@overload
def compare(
    instance: Several, policies: Policies = ..., *, delta: float = ..., keep: Sums, **options: Unpack[Options]
) -> Comparisons[Totals]: ...
def compare(
    instance: Instance | Several,
    policies: Sequence[str | Policy] = POLICIES,
    *,
    delta: float = 0.05,
    threshold: str | Threshold | None = None,
    epsilon: float = 0.0,
    goal: str = BEST,
    slack: float | None = None,
    running_costs: Sequence[float] | None = None,
    trajectories: int = 1000,
    seed: int = 0,
    workers: int | None = None,
    engine: EngineLike = None,
    address: str | None = None,
    keep: Literal["rows", "summary"] = "rows",
    max_pulls: int | None = None,
    max_cost: float | None = None,
    budget: float | None = None,
    shuffle: bool = False,
    grid: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Comparison[Runs] | Comparison[Totals] | Comparisons[Runs] | Comparisons[Totals]:
    """Run several policies on one instance, facing the same rewards and costs; the options are those of `simulate`.

    Several instances, a list or a dictionary with their names, are compared one after the other.

    >>> compare(Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01]), ["co", "ctas", "tas"], delta=1e-6)
    delta 1e-06, threshold champion, 1000 trajectories, lower bound 191.819, ± is a standard error
    policy  mean cost    ±  ratio  median    99 %  mean pulls  errors  unfinished
    co        236.052  2.6  1.231  223.87  450.83      1126.9  0/1000           0
    ctas      244.498  2.6  1.275  234.83  479.51      817.08  0/1000           0
    tas       305.455  3.2  1.592  299.81  559.11       594.2  0/1000           0
    """
    several = named_instances(instance)
    if isinstance(policies, str) or not policies:
        raise InvalidInput(f"policies must be a list of policies, got {policies!r}.")
    if goal == CHEAPEST and policies is POLICIES:
        policies = FOR_CHEAPEST
    looked_for: dict[str, Any] = {"goal": goal, "slack": slack, "running_costs": running_costs}
    parts: dict[str, Comparison[Any]] = {}
    with opened(engine, workers=workers, address=address) as place:
        for name, each in several.items():
            runs: list[Any] = []
            for policy in policies:
                base = (len(parts) * len(policies) + len(runs)) * trajectories
                watch = None if progress is None else (lambda n, base=base: progress(base + n))
                runs.append(
                    simulate(
                        each, policy, delta=delta, threshold=threshold, epsilon=epsilon, trajectories=trajectories,
                        seed=seed, engine=place, keep=keep, max_pulls=max_pulls, max_cost=max_cost, budget=budget,
                        shuffle=shuffle, grid=grid, progress=watch, **looked_for,
                    )
                )  # fmt: skip
            parts[name] = Comparison(each, runs)
    return parts[""] if isinstance(instance, Instance) else Comparisons(parts)


def named_instances(given: Any) -> dict[str, Instance]:
    """The instances by name; one alone has none."""
    if isinstance(given, Instance):
        return {"": given}
    if isinstance(given, Mapping):
        named = {str(name): each for name, each in given.items()}
    else:
        named = {f"instance {i}": each for i, each in enumerate(given if isinstance(given, Sequence) else [given], 1)}
    if not named or not all(isinstance(each, Instance) for each in named.values()):
        raise InvalidInput(f"compare takes a cabai.Instance, or a list or a dictionary of them, got {shown(given)}.")
    return named
