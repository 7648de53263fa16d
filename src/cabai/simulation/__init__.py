"""Many trajectories, compiled, on all cores."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
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
def simulate(  # type: ignore[misc]  # the options are spelt out here, once
    instance: Instance,
    policy: str | Policy,
    *,
    delta: float | Sequence[float] = 0.05,
    threshold: str | Threshold = "paper",
    epsilon: float = 0.0,
    trajectories: int = 1000,
    seed: int = 0,
    workers: int | None = None,
    max_pulls: int | None = None,
    max_cost: float | None = None,
    grid: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Runs | list[Runs]:
    """Run a policy on an instance many times.

    Trajectory i depends on (seed, i) only, whatever the number of workers, and all policies face the same rewards:
    arm a's n-th reward in trajectory i is the same for each. `max_pulls` and `max_cost` end a trajectory as unfinished;
    without them, a run on arms that are tied, or all but tied, may never end. A list of deltas gives a list of results
    from the same trajectories, for policies whose choices do not depend on delta (all but co, racing and d-lucb).
    With `epsilon`, any arm whose mean is within epsilon of the best is a right answer, and tied arms end a run.
    `grid` lists the numbers of pulls t after which to record each arm's pulls. `progress` is called with the number of
    trajectories done.

    >>> runs = simulate(Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01]), "co", delta=1e-6, trajectories=1000)
    >>> summary = runs.summary()
    >>> round(summary.mean_cost), round(summary.se_cost), round(summary.lower_bound), summary.errors
    (314, 3, 192, 0)
    >>> runs.pulls.shape, runs.decisions[:4]
    ((1000, 3), array([0, 0, 0, 0]))
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
    whole(seed, "seed", 0, below=2**64)
    most_pulls = 2**62 if max_pulls is None else whole(max_pulls, "max_pulls", len(instance))
    most_cost = math.inf if max_cost is None else positive(max_cost, "max_cost")
    marks = np.array(sorted({whole(t, "grid", 1) for t in ([] if grid is None else grid)}), np.int64)

    order = sorted(deltas, reverse=True)
    check_memory(trajectories, len(deltas), len(instance), len(marks))
    rules = [chosen.rules(instance.family, rule, arms=len(instance), delta=value, epsilon=epsilon) for value in order]
    work = Work(instance, chosen, rules, seed, most_pulls, most_cost, marks)
    work.compiled()  # here, once, rather than in every worker at the same time
    started = time.perf_counter()
    results, pulls, path = collect(work, trajectories, workers, progress)
    seconds = time.perf_counter() - started
    runs = {}
    for j, value in enumerate(order):
        decisions, paid, steps = (results[field][:, j].copy() for field in ("decision", "cost", "steps"))
        own_path = np.where((marks <= steps[:, None])[:, :, None], path, -1)
        runs[value] = Runs(
            instance, str(chosen), rule, value, seed, decisions, paid, steps, pulls[:, j], marks, own_path,
            seconds, float(epsilon),
        )  # fmt: skip
    return [runs[value] for value in deltas] if several else runs[deltas[0]]


def compare(
    instance: Instance,
    policies: Sequence[str | Policy] = ("top-two", "co", "ctas", "tas", "d-lucb", "racing", "uniform"),
    *,
    delta: float = 0.05,
    progress: Progress | None = None,
    **options: Any,
) -> Comparison:
    """Run several policies on one instance, facing the same rewards and costs; `options` are those of `simulate`.

    >>> compare(Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01]), ["co", "ctas", "tas"], delta=1e-6)
    delta 1e-06, threshold paper (not proven for this family), 1000 trajectories, lower bound 191.819
    policy  mean cost  ± 95 %  ratio  median    99 %  mean pulls  errors  unfinished
    co        ...
    ctas      ...
    tas       ...
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


def check_memory(trajectories: int, deltas: int, arms: int, marks: int) -> None:
    """Refuse more results than this machine's memory holds."""
    needed = 8 * trajectories * (deltas * (6 + arms) + (1 + deltas) * marks * arms)  # eight bytes each
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not known on this system
        return
    if needed > there:
        raise InvalidInput(
            f"{trajectories} trajectories would take {needed / 1e9:,.0f} GB of memory, and this machine has "
            f"{there / 1e9:,.0f} GB: give fewer trajectories" + (", or a shorter grid." if marks else ".")
        )


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

    def compiled(self) -> tuple[Any, Any, Any]:
        """The loop and the policy's two functions, compiled or loaded when first asked for."""
        from cabai.compiling import CHOOSE, STOP, compiled, compiled_rule, features_of
        from cabai.simulation.loop import RUN_CHUNK, run_chunk
        from cabai.simulation.sampling import drawing_features

        drawing = features_of(self.rules[0], *drawing_features(self.instance))
        loop = compiled(run_chunk, RUN_CHUNK, drawing)
        features = features_of(self.rules[0])
        choose = compiled_rule(str(self.policy), self.policy.choose, CHOOSE, features)
        return loop, choose, compiled_rule(str(self.policy), self.policy.stop, STOP, features)

    @staticmethod
    def truth(instance: Instance) -> tuple[NDArray[Any], int]:
        """What rewards and costs are drawn from, as records, and the number of the family that draws them."""
        from cabai.simulation.sampling import BOUNDED, TRUTH

        truth = np.zeros(len(instance), TRUTH)
        truth["mean"], truth["cost"] = instance.means, instance.costs
        gaussian = instance.family.name == "gaussian"
        truth["spread"] = math.sqrt(instance.family.variance) if gaussian else np.exp(-instance.means)
        return truth, BOUNDED if instance.family.name == "bounded" else instance.family.code

    def run(self, first: int, count: int, signals: NDArray[np.int64]) -> tuple[int, int, tuple[NDArray[Any], ...]]:
        """Trajectories first ... first + count - 1; returns first, how many were run, and their results."""
        from cabai.simulation.loop import NO_SUCH_ARM, RESULT

        K, levels = len(self.instance), np.array([float(rules["level"]) for rules in self.rules])
        truth, family = self.truth(self.instance)
        shape = count, len(levels)
        results = (
            np.empty(shape, RESULT),
            np.empty((*shape, K), np.int64),
            np.full((count, len(self.grid), K), -1, np.int64),
        )
        loop, choose, stop = self.compiled()
        done = loop(
            choose, stop, np.zeros(K, ARM), record(RUN), self.rules[0].copy(), levels, truth, family,
            list(COST_MODELS).index(self.instance.cost_model), np.uint64(self.seed), np.uint64(first),
            self.max_pulls, self.max_cost, self.grid, *results, signals,
        )  # fmt: skip
        if signals[NO_SUCH_ARM]:
            raise InvalidInput(f"policy {self.policy} chose an arm that does not exist.")
        return first, done, results


def collect(work: Work, trajectories: int, workers: int | None, progress: Progress | None) -> list[NDArray[Any]]:
    """Run all trajectories in chunks, on threads unless a joblib.parallel_config says otherwise; put them in order."""
    jobs = whole(workers, "workers", 1) if workers is not None else os.cpu_count() or 1
    size = max(1, min(100, math.ceil(trajectories / (4 * jobs))))
    signals = np.zeros(2, np.int64)
    chunks = [(first, min(size, trajectories - first), signals) for first in range(0, trajectories, size)]
    gathered: list[NDArray[Any]] = []
    done = 0
    try:
        for first, count, parts in in_parallel(work.run, chunks, jobs):
            if not gathered:
                gathered = [np.empty((trajectories, *part.shape[1:]), part.dtype) for part in parts]
            for target, part in zip(gathered, parts, strict=True):
                target[first : first + count] = part[:count]
            done += count
            if progress is not None:
                progress(done)
    except BaseException:  # Ctrl-C for one: tell the workers to stop where they are
        signals[:] = 1
        raise
    return gathered


def in_parallel(function: Callable[..., Any], arguments: list[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """function(*arguments[i]) for every i, in any order, none of it in this thread, which stays free to hear Ctrl-C.

    Where joblib has been imported, it runs them: on threads, or where its parallel_config says, in other processes or
    on a Dask cluster. Else nobody can have configured it, and it need not be loaded.
    """
    if "joblib" in sys.modules and jobs > 1:
        import joblib

        backend, _ = joblib.parallel.get_active_backend(prefer="threads")
        if not backend.supports_return_generator:
            raise InvalidInput(
                f"joblib's {type(backend).__name__} cannot return results one by one, which a simulation needs; "
                "the backends threading, loky and dask can."
            )
        tasks = (joblib.delayed(function)(*each) for each in arguments)
        yield from joblib.Parallel(n_jobs=jobs, prefer="threads", return_as="generator_unordered")(tasks)
        return
    executor = ThreadPoolExecutor(jobs)
    try:
        for future in as_completed([executor.submit(function, *each) for each in arguments]):
            yield future.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
