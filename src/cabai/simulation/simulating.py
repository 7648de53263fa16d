"""Run policies on instances many times."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from cabai import policies
from cabai.bound import bound
from cabai.core.goal import BEST, CHEAPEST, Cheapest, checked_goal
from cabai.core.setup import Setup
from cabai.instance import Instance
from cabai.policies import Policy, policy_of
from cabai.simulation.engines import EngineLike, opened
from cabai.simulation.parallel import Progress, gathered
from cabai.simulation.results import Comparison, Comparisons, Runs, Totals
from cabai.simulation.work import Work
from cabai.support.interruptible import interruptible, plainly_interrupted
from cabai.support.validation import InvalidInput, positive, probability, shown, whole
from cabai.thresholds import Threshold, threshold_of

LONGEST, LONGEST_UNBOUNDED = 10**7, 10**9  # pulls


class Options(TypedDict, total=False):
    """What `simulate` and `compare` take besides the instance, the policies, delta and keep."""

    threshold: str | Threshold | None
    epsilon: float
    goal: str
    slack: float | None
    running_costs: Sequence[float] | None
    trajectories: int
    seed: int
    workers: int | None
    engine: EngineLike
    address: str | None
    max_pulls: int | None
    max_cost: float | None
    budget: float | None
    shuffle: bool
    grid: Sequence[int] | None
    progress: Progress | None


Rows = Literal["rows"]
Sums = Literal["summary"]
Several = Sequence[float]


@overload
def simulate(
    instance: Instance, policy: str | Policy = ..., *, delta: float = ..., keep: Rows = ..., **options: Unpack[Options]
) -> Runs: ...
@overload
def simulate(
    instance: Instance, policy: str | Policy = ..., *, delta: Several, keep: Rows = ..., **options: Unpack[Options]
) -> list[Runs]: ...
@overload
def simulate(
    instance: Instance, policy: str | Policy = ..., *, delta: float = ..., keep: Sums, **options: Unpack[Options]
) -> Totals: ...
@overload
def simulate(
    instance: Instance, policy: str | Policy = ..., *, delta: Several, keep: Sums, **options: Unpack[Options]
) -> list[Totals]: ...
def simulate(
    instance: Instance,
    policy: str | Policy = policies.DEFAULT,
    *,
    delta: float | Sequence[float] = 0.05,
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
) -> Runs | list[Runs] | Totals | list[Totals]:
    """Run a policy on an instance many times.

    Trajectory i depends only on (seed, i), not on the number of workers, and all policies face the same rewards: arm
    a's n-th reward in trajectory i is the same for each. `max_pulls` and `max_cost` end a trajectory as unfinished.
    Without `max_pulls`, a run that would not end, as between tied arms, is ended when any other would have ended long
    ago: after ten million pulls, or K thousand times the lower bound's if that is more; after a billion where there is
    no lower bound. A list of deltas gives a list of results from the same trajectories, for policies whose choices do
    not depend on delta (all but co, racing and d-lucb).
    Without a `threshold`, the cheapest proven test is taken: `champion` for the best of three or more arms, `hedged`
    for that of two gaussian ones, else `bets` for bounded rewards and `contrast` for others.
    With `epsilon`, any arm whose mean is within epsilon of the best is a right answer, and tied arms end a run.
    With `goal="cheapest"`, the policy looks for the cheapest arm to run that is within epsilon of the best. An answer
    is right if it is such an arm and every cheaper arm is worse than the best by more than epsilon - `slack` (default:
    half of epsilon). `running_costs` is what arms cost to run (default: their mean costs). See docs/cheapest.md.
    With `budget`, a run ends with its leader before the first pull that would exceed the budget, whatever the
    evidence: delta is not used, except by policies whose choices depend on it, and nothing is promised; the summary
    counts the errors. Ties go to the first arm. With `shuffle`, each trajectory has its arms in a random order, so that
    ties favour none.
    `grid` lists the numbers of pulls t after which to record each arm's pulls. `progress` is called with the number of
    trajectories done.

    `engine` says where trajectories run: None, in threads of this process; "processes"; "dask" or "ray", on the cluster
    at `address`, or the one that this process is connected to, or else a new one of this machine's cores; or a
    `dask.distributed.Client`. `workers` is how many run at a time (default: all cores of the machine or the cluster).
    With keep="summary", only what a summary needs is kept: any number of trajectories needs little memory. None of
    these changes a result.

    >>> runs = simulate(Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01]), "co", delta=1e-6, trajectories=1000)
    >>> summary = runs.summary()
    >>> round(summary.mean_cost), round(summary.se_cost), round(summary.lower_bound), summary.errors
    (236, 3, 192, 0)
    >>> runs.pulls.shape, runs.decisions[:4]
    ((1000, 3), array([0, 0, 0, 0]))
    """
    if not isinstance(instance, Instance):
        raise InvalidInput(f"simulate takes a cabai.Instance, got {instance!r}.")
    chosen, best_of = policy_of(policy, goal), len(instance) if goal == BEST and epsilon == 0 else 1
    rule = threshold_of(threshold, instance.family, best_of)
    running = instance.costs if goal == CHEAPEST and running_costs is None else running_costs
    looked_for = checked_goal(goal, instance.family.check_epsilon(epsilon), slack, running, instance.names)
    several = not isinstance(delta, (int, float, np.number, str))
    deltas = [probability(value) for value in delta] if several else [probability(delta)]  # type: ignore[union-attr]
    if not deltas or len(set(deltas)) < len(deltas):
        raise InvalidInput(f"delta must be a number or a list of different numbers, got {delta!r}.")
    if len(deltas) > 1 and chosen.depends_on_delta:
        raise InvalidInput(f"the choices of policy {chosen} depend on delta: give one delta at a time, got {delta!r}.")
    if keep not in ("rows", "summary"):
        raise InvalidInput(f"keep must be 'rows' or 'summary', got {keep!r}.")
    if keep == "summary" and grid is not None:
        raise InvalidInput("grid records pulls in every trajectory: it needs keep='rows'.")
    if keep == "summary" and shuffle:
        raise InvalidInput("shuffle needs keep='rows': arms get their places back in every trajectory.")
    whole(trajectories, "trajectories", 1)
    whole(seed, "seed", 0, below=2**64)
    money = math.inf if budget is None else positive(budget, "budget")
    if money < instance.costs.sum():
        raise InvalidInput(f"budget must pay for each arm once, {instance.costs.sum():g}, got {budget!r}.")
    if budget is not None and (several or epsilon or looked_for is not None or max_cost is not None):
        raise InvalidInput("budget goes with one delta, and without epsilon, another goal or max_cost.")
    if max_pulls is not None:
        most_pulls = whole(max_pulls, "max_pulls", len(instance))
    else:
        most_pulls = 2**62 if budget is not None else longest_run(instance, min(deltas), epsilon, looked_for)
    most_cost = math.inf if max_cost is None else positive(max_cost, "max_cost")
    marks = np.array(sorted({whole(t, "grid", 1) for t in ([] if grid is None else grid)}), np.int64)

    order = sorted(deltas, reverse=True)
    if keep == "rows":
        check_memory(trajectories, len(deltas), len(instance), len(marks))
    rules = {"arms": len(instance), "epsilon": epsilon, "goal": looked_for, "budget": money}
    setups = [Setup(instance.family, rule, chosen, delta=value, **rules) for value in order]  # type: ignore[arg-type]
    work = Work([instance], setups, seed, most_pulls, most_cost, grid=marks, keeps_rows=keep == "rows")
    if budget is not None and not chosen.depends_on_delta:
        work.levels = np.array([math.inf])  # no evidence ends a run
    orders = work.shuffle(trajectories) if shuffle else None
    about: dict[str, Any] = {
        "instance": instance, "policy": str(chosen), "threshold": rule, "seed": seed, "epsilon": float(epsilon),
        "own_stop": chosen.stops_by_itself, "goal": looked_for, "budget": budget,
    }  # fmt: skip
    with plainly_interrupted(), opened(engine, workers=workers, address=address) as place:
        interruptible(lambda: place.prepare(work))
        started = time.perf_counter()
        found = gathered(work, trajectories, place, progress)
        about["seconds"] = time.perf_counter() - started
    if keep == "summary":
        totals = {value: Totals(**about, delta=value, sums=sums) for value, sums in zip(order, found, strict=True)}
        return [totals[value] for value in deltas] if several else totals[deltas[0]]
    results, pulls, path = found
    if orders is not None:
        unshuffle(orders, results["decision"], pulls, path)
    runs = {}
    for j, value in enumerate(order):
        decisions, paid, steps = (results[field][:, j].copy() for field in ("decision", "cost", "steps"))
        own_path = np.where((marks <= steps[:, None])[:, :, None], path, -1)
        runs[value] = Runs(
            **about, delta=value, decisions=decisions, costs=paid, steps=steps, pulls=pulls[:, j], grid=marks,
            path=own_path,
        )  # fmt: skip
    return [runs[value] for value in deltas] if several else runs[deltas[0]]


def unshuffle(
    orders: NDArray[np.int64], decisions: NDArray[np.int64], pulls: NDArray[np.int64], path: NDArray[np.int64]
) -> None:
    """Give the arms their places back, after `Work.shuffle`."""
    np.copyto(decisions, np.take_along_axis(orders, np.maximum(decisions, 0), axis=1), where=decisions >= 0)
    places = orders.argsort(axis=1)[:, None, :]
    pulls[:], path[:] = (np.take_along_axis(each, places, axis=2) for each in (pulls, path))


def longest_run(instance: Instance, delta: float, epsilon: float, goal: Cheapest | None) -> int:
    """After how many pulls a run is ended that would not end by itself: more than any other needs."""
    if goal is None and len(instance.best_arms) > 1 and epsilon == 0:  # tied: only an error ends such a run
        return LONGEST
    try:
        optimum = bound(instance, epsilon)
        pulls = optimum.cost(delta) * float((optimum.cost_shares / instance.costs).sum())
    except Exception:  # there is none for this family, delta or epsilon; or a user's family fails, which is told later
        return LONGEST_UNBOUNDED
    return min(max(LONGEST, math.ceil(1000 * len(instance) * pulls)), 2**62)


def check_memory(trajectories: int, deltas: int, arms: int, marks: int) -> None:
    """Refuse more results than fit into this machine's memory."""
    needed = 8 * trajectories * (deltas * (6 + arms) + (1 + deltas) * marks * arms)  # eight bytes each
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not known on this system
        return
    if needed > there:
        raise InvalidInput(
            f"{trajectories} trajectories would take {needed / 1e9:,.0f} GB of memory, and this machine has "
            f"{there / 1e9:,.0f} GB: give fewer trajectories"
            + (", or a shorter grid." if marks else ", or keep='summary'.")
        )


POLICIES = ("top-two", "co", "ctas", "tas", "d-lucb", "racing", "uniform")
FOR_CHEAPEST = ("cheapest", "cheapest(uniform=true)")
Policies = Sequence[str | Policy]
Instances = Sequence[Instance] | Mapping[str, Instance]


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
    instance: Instances, policies: Policies = ..., *, delta: float = ..., keep: Rows = ..., **options: Unpack[Options]
) -> Comparisons[Runs]: ...
@overload
def compare(
    instance: Instances, policies: Policies = ..., *, delta: float = ..., keep: Sums, **options: Unpack[Options]
) -> Comparisons[Totals]: ...
def compare(
    instance: Instance | Instances,
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
    named = named_instances(instance)
    if isinstance(policies, str) or not policies:
        raise InvalidInput(f"policies must be a list of policies, got {policies!r}.")
    if goal == CHEAPEST and policies is POLICIES:
        policies = FOR_CHEAPEST
    looked_for: dict[str, Any] = {"goal": goal, "slack": slack, "running_costs": running_costs}
    parts: dict[str, Comparison[Any]] = {}
    with opened(engine, workers=workers, address=address) as place:
        for name, each in named.items():
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
