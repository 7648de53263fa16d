"""Many trajectories, compiled, on all cores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from cabai.checks import InvalidInput, positive, probability, whole
from cabai.instance import COST_MODELS, Instance
from cabai.policies import policy_of
from cabai.simulation.results import Comparison, Runs, Summary
from cabai.state import ARM, RUN, record
from cabai.thresholds import Threshold, threshold_of

if TYPE_CHECKING:
    from cabai.policies import Policy

__all__ = ["Comparison", "Runs", "Summary", "compare", "simulate"]

Progress = Callable[[int], None]


@overload
def simulate(instance: Instance, policy: str | Policy, *, delta: float = ..., **options: Any) -> Runs: ...
@overload
def simulate(instance: Instance, policy: str | Policy, *, delta: Sequence[float], **options: Any) -> list[Runs]: ...
def simulate(
    instance: Instance,
    policy: str | Policy,
    *,
    delta: float | Sequence[float] = 0.05,
    threshold: str | Threshold = "paper",
    trajectories: int = 1000,
    seed: int = 0,
    workers: int | None = None,
    max_pulls: int | None = None,
    max_cost: float | None = None,
    grid: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Runs | list[Runs]:
    """Run a policy on an instance many times.

    Trajectory i depends on (seed, i) only, whatever the number of workers, and all policies face the same rewards: arm a's n-th
    reward in trajectory i is the same for each. `max_pulls` and `max_cost` end a trajectory as unfinished. A list of deltas gives
    a list of results from the same trajectories, for policies whose choices do not depend on delta (all but co, racing and
    d-lucb). `grid` lists the numbers of pulls t after which to record each arm's pulls. `progress` is called with the number of
    trajectories done.

    >>> runs = simulate(Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01]), "co", delta=1e-6, trajectories=1000)
    >>> runs.summary().mean_cost
    318.6...
    >>> runs.pulls[0], runs.decisions[0]
    (array([ 325,  868,  ...]), np.int64(0))
    """
    if not isinstance(instance, Instance):
        raise InvalidInput(f"simulate takes a cabai.Instance, got {instance!r}.")
    chosen, rule = policy_of(policy), threshold_of(threshold)
    several = not isinstance(delta, (int, float, np.number, str))
    deltas = [probability(value) for value in delta] if several else [probability(delta)]  # type: ignore[union-attr]
    if not deltas or len(set(deltas)) < len(deltas):
        raise InvalidInput(f"delta must be a number or a list of different numbers, got {delta!r}.")
    if len(deltas) > 1 and chosen.depends_on_delta:
        raise InvalidInput(f"the choices of policy {chosen} depend on delta: give one delta at a time, got {delta!r}.")
    whole(trajectories, "trajectories", 1)
    if whole(seed, "seed", 0) >= 2**64:
        raise InvalidInput(f"seed must be below 2**64, got {seed}.")
    most_pulls = 2**62 if max_pulls is None else whole(max_pulls, "max_pulls", len(instance))
    most_cost = math.inf if max_cost is None else positive(max_cost, "max_cost")
    marks = np.array(sorted({whole(t, "grid", 1) for t in ([] if grid is None else grid)}), np.int64)

    started = time.perf_counter()
    order = sorted(deltas, reverse=True)
    rules = [chosen.rules(instance.family, rule, arms=len(instance), delta=value) for value in order]
    work = Work(instance, chosen, rules, seed, most_pulls, most_cost, marks)
    results = collect(work, trajectories, workers, progress)
    seconds = time.perf_counter() - started
    runs = {
        value: Runs(
            instance, str(chosen), str(rule), value, seed,
            *(array[:, j] for array in results[:-1]), marks, results[-1], seconds,
        )
        for j, value in enumerate(order)
    }  # fmt: skip
    return [runs[value] for value in deltas] if several else runs[deltas[0]]


def compare(
    instance: Instance,
    policies: Sequence[str | Policy] = ("co", "ctas", "tas", "d-lucb", "racing", "uniform"),
    *,
    delta: float = 0.05,
    progress: Progress | None = None,
    **options: Any,
) -> Comparison:
    """Run several policies on one instance, facing the same rewards and costs; `options` are those of `simulate`.

    >>> compare(Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01]), ["co", "ctas", "tas"], delta=1e-6)
    """
    if isinstance(policies, str) or not policies:
        raise InvalidInput(f"policies must be a list of policies, got {policies!r}.")
    done = 0
    runs = []
    for policy in policies:
        base = done
        watch = None if progress is None else (lambda n, base=base: progress(base + n))
        runs.append(simulate(instance, policy, delta=delta, progress=watch, **options))
        done += len(runs[-1])
    return Comparison(instance, runs)


class Work:
    """All that a worker needs to run a chunk of trajectories; it can be sent to another process."""

    def __init__(
        self,
        instance: Instance,
        policy: Policy,
        rules: list[np.void],
        seed: int,
        max_pulls: int,
        max_cost: float,
        grid: NDArray[np.int64],
    ) -> None:
        self.instance, self.policy, self.rules, self.seed = instance, policy, rules, seed
        self.max_pulls, self.max_cost, self.grid = max_pulls, max_cost, grid

    def run(self, first: int, count: int, signals: NDArray[np.int64]) -> tuple[int, int, tuple[NDArray[Any], ...]]:
        """Trajectories first ... first + count - 1; returns first, how many were run, and their results."""
        from cabai.simulation.loop import run_chunk
        from cabai.simulation.sampling import BOUNDED, TRUTH

        K, levels = len(self.instance), np.array([float(rules["level"]) for rules in self.rules])
        family = self.instance.family
        truth = np.zeros(K, TRUTH)
        truth["mean"], truth["cost"] = self.instance.means, self.instance.costs
        truth["spread"] = math.sqrt(family.variance) if family.name == "gaussian" else np.exp(-self.instance.means)
        shape = count, len(levels)
        results = (
            np.empty(shape, np.int64),
            np.empty(shape, np.float64),
            np.empty(shape, np.int64),
            np.empty((*shape, K), np.int64),
            np.full((count, len(self.grid), K), -1, np.int64),
        )
        done = run_chunk(
            self.policy.choose, self.policy.stop, np.zeros(K, ARM), record(RUN), self.rules[0].copy(), levels, truth,
            BOUNDED if family.name == "bounded" else family.code, list(COST_MODELS).index(self.instance.cost_model),
            np.uint64(self.seed), first, self.max_pulls, self.max_cost, self.grid, *results, signals,
        )  # fmt: skip
        if signals[2]:
            raise InvalidInput(f"policy {self.policy} chose an arm that does not exist.")
        return first, done, results


def collect(work: Work, trajectories: int, workers: int | None, progress: Progress | None) -> list[NDArray[Any]]:
    """Run all trajectories in chunks, on threads unless a joblib.parallel_config says otherwise, and put them in order."""
    import joblib

    jobs = whole(workers, "workers", 1) if workers is not None else joblib.cpu_count()
    size = max(1, min(100, math.ceil(trajectories / (4 * jobs))))
    signals = np.zeros(3, np.int64)
    tasks = (joblib.delayed(work.run)(i, min(size, trajectories - i), signals) for i in range(0, trajectories, size))
    whole_results: list[NDArray[Any]] = []
    done = 0
    with stopping(signals):
        for first, count, parts in joblib.Parallel(n_jobs=jobs, prefer="threads", return_as="generator_unordered")(tasks):
            if not whole_results:
                whole_results = [np.empty((trajectories, *part.shape[1:]), part.dtype) for part in parts]
            for target, part in zip(whole_results, parts, strict=True):
                target[first : first + count] = part[:count]
            done += count
            if progress is not None:
                progress(done)
    return whole_results


@contextmanager
def stopping(signals: NDArray[np.int64]) -> Iterator[None]:
    """Leaving this by an error, Ctrl-C for one, tells the workers to stop where they are."""
    try:
        yield
    except BaseException:
        signals[1] = 1
        raise
