"""Policies, thresholds and deltas compared on a family of random instances: which to use when."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cabai.bound import bound
from cabai.families import family_of
from cabai.instance import Instance
from cabai.policies import Policy, policy_of
from cabai.simulation import simulate
from cabai.simulation.engines import EngineLike, opened
from cabai.simulation.results import Runs
from cabai.support.tables import table
from cabai.support.validation import InvalidInput, optional, probability, whole
from cabai.thresholds import Threshold, threshold_of

if TYPE_CHECKING:
    import pandas as pd

LEAST_GAP = 0.15  # of the best mean: every other mean is smaller by at least this share
COSTS = (0.01, 1.0)
DRAWN = ["gaussian", "bernoulli", "poisson", "exponential"]  # the position in this list is part of the seed
BEST = {"gaussian": (1.0, 1.0), "bernoulli": (0.5, 0.95), "bounded": (0.5, 0.95), "poisson": (0.5, 3.0)}


def random_instance(family: str, arms: int, seed: int, number: int) -> Instance:
    """Instance `number` of a family: costs over two orders of magnitude, and means at least 15 % below the best.

    Costs are log-uniform in [0.01, 1]; the best mean is 1 (gaussian and exponential) or uniform in [0.5, 0.95]
    (bernoulli) or [0.5, 3] (poisson); the others are smaller by a share of it that is uniform in [0.15, 1).

    >>> random_instance("bernoulli", 3, seed=0, number=0)
    Instance('bernoulli', ...)
    """
    kind = family_of(family)
    drawn = "bernoulli" if kind.key == "bounded" else kind.key
    if drawn not in DRAWN:
        raise InvalidInput(f"random instances are drawn only for {', '.join(DRAWN)} and bounded, got family {kind}.")
    random = np.random.Generator(np.random.PCG64([seed, arms, number, DRAWN.index(drawn)]))
    best = random.uniform(*BEST.get(kind.name, (1.0, 1.0)))
    means = best * (1 - random.uniform(LEAST_GAP, 1, arms))
    means[random.integers(arms)] = best
    means = np.array([kind.unscaled(mean) for mean in means.tolist()])
    return Instance(kind, means, np.exp(random.uniform(math.log(COSTS[0]), math.log(COSTS[1]), arms)))


@dataclass(frozen=True)
class Cell:
    """What a policy pays, as a multiple of the lower bound, over all instances with so many arms."""

    arms: int
    delta: float
    threshold: str
    policy: str
    mean_ratio: float | None  # this and the next two are None for the bounded family, which has no lower bound
    se_ratio: float | None  # over instances
    worst_ratio: float | None  # exceeded by 1 % of the trajectories
    errors: int
    unfinished: int
    trajectories: int


@dataclass(frozen=True)
class Grid:
    """A table of cells; printed, one row per number of arms, delta and threshold, one column per policy."""

    family: str
    instances: int
    cells: list[Cell]

    def to_dicts(self) -> list[dict[str, Any]]:
        return [asdict(cell) for cell in self.cells]

    def to_frame(self) -> pd.DataFrame:
        """One row per cell."""
        return optional("pandas").DataFrame(self.to_dicts())

    def __repr__(self) -> str:
        policies = list(dict.fromkeys(cell.policy for cell in self.cells))
        rows = [["arms", "delta", "threshold", *policies]]
        places = dict.fromkeys((cell.arms, cell.delta, cell.threshold) for cell in self.cells)
        found = {(cell.arms, cell.delta, cell.threshold, cell.policy): cell for cell in self.cells}
        for place in places:
            cells = [found[(*place, policy)] for policy in policies]
            written = [
                "-"
                if cell.mean_ratio is None
                else f"{cell.mean_ratio:.2f} ± {cell.se_ratio:.2f} ({cell.worst_ratio:.1f})"
                for cell in cells
            ]
            rows.append([str(place[0]), f"{place[1]:g}", place[2], *written])
        wrong = sum(cell.errors for cell in self.cells)
        left = sum(cell.unfinished for cell in self.cells)
        heading = (
            f"{self.family}, {self.instances} random instances for each number of arms, "
            f"{self.cells[0].trajectories // self.instances} trajectories each\n"
            "mean cost over the lower bound"
            + (
                ", which this family does not have"
                if self.cells[0].mean_ratio is None
                else " ± its standard error (exceeded by 1 % of trajectories)"
            )
        )
        foot = f"errors: {wrong} of {sum(cell.trajectories for cell in self.cells)}, unfinished: {left}"
        return "\n".join([heading, table(rows, left=3), foot])


def grid(
    family: str = "gaussian",
    policies: Sequence[str | Policy] = ("top-two", "co", "ctas", "ctas(tracking=ratio, slack=0.5)"),
    *,
    thresholds: Sequence[str | Threshold | None] = (None,),
    deltas: Sequence[float] = (0.1, 0.01, 1e-6),
    arms: Sequence[int] = (3, 10, 50),
    instances: int = 10,
    trajectories: int = 100,
    seed: int = 0,
    workers: int | None = None,
    engine: EngineLike = None,
    address: str | None = None,
    max_pulls: int | None = 10_000_000,
    progress: Callable[[int], None] | None = None,
) -> Grid:
    """Run policies with thresholds at deltas on random instances: what each pays over the lower bound.

    All face the same instances, rewards and costs. The threshold None is the family's default. `workers`, `engine` and
    `address` are those of `simulate`. `progress` is called with the number of simulations done, of len(policies) *
    len(thresholds) * len(arms) * instances.

    >>> found = grid("bernoulli", ["co"], thresholds=["evalue"], deltas=[0.1], arms=[3], instances=2, trajectories=10)
    >>> found.cells[0].mean_ratio > 1
    True
    """
    chosen = [policy_of(policy) for policy in policies]
    rules = [threshold_of(threshold, family_of(family)) for threshold in thresholds]
    chances = [probability(delta) for delta in deltas]
    if not chosen or not rules or not chances or not arms:
        raise InvalidInput("a grid needs at least one policy, threshold, delta and number of arms.")
    if max(chances) >= 0.5:
        raise InvalidInput(f"a grid needs every delta below 0.5, where there is a lower bound, got {list(deltas)!r}.")
    whole(instances, "instances", 2)
    options: dict[str, Any] = {"trajectories": trajectories, "seed": seed, "max_pulls": max_pulls}
    cells, done = [], 0
    with opened(engine, workers=workers, address=address) as options["engine"]:
        for count in arms:
            whole(count, "arms", 2)
            drawn = [random_instance(family, count, whole(seed, "seed", 0), i) for i in range(instances)]
            bounds = [bound(instance) for instance in drawn] if family_of(family).has_bound else []
            found: dict[tuple[float, str, str], list[Runs]] = {}
            for rule in rules:
                for policy in chosen:
                    for instance in drawn:
                        for runs in at_each_delta(instance, policy, chances, threshold=rule, **options):
                            found.setdefault((runs.delta, str(rule), str(policy)), []).append(runs)
                        done += 1
                        if progress is not None:
                            progress(done)
            order = [(delta, str(rule), str(policy)) for delta in chances for rule in rules for policy in chosen]
            cells += [cell_of(count, place, found[place], [each.cost(place[0]) for each in bounds]) for place in order]
    return Grid(str(family_of(family)), instances, cells)


def at_each_delta(instance: Instance, policy: Policy, deltas: Sequence[float], **options: Any) -> list[Runs]:
    """One simulation for all deltas where the policy allows it."""
    if policy.depends_on_delta:
        return [simulate(instance, policy, delta=delta, **options) for delta in deltas]
    return simulate(instance, policy, delta=list(deltas), **options)


def cell_of(arms: int, place: tuple[float, str, str], runs: list[Runs], floors: list[float]) -> Cell:
    """One cell of the grid; without lower bounds (`floors`) it has no ratios."""
    mean = error = worst = None
    if floors:
        ratios = np.array([each.costs / floor for each, floor in zip(runs, floors, strict=True)])
        means = ratios.mean(axis=1)
        mean, error = float(means.mean()), float(means.std(ddof=1) / math.sqrt(len(means)))
        worst = float(np.quantile(ratios, 0.99))
    delta, threshold, policy = place
    return Cell(
        arms=arms,
        delta=delta,
        threshold=threshold,
        policy=policy,
        mean_ratio=mean,
        se_ratio=error,
        worst_ratio=worst,
        errors=sum(int(each.wrong.sum()) for each in runs),
        unfinished=sum(int((~each.finished).sum()) for each in runs),
        trajectories=sum(len(each) for each in runs),
    )
