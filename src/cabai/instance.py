"""A problem instance: the true means and costs of a simulation, and how costs are drawn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.families import Family, UnknownVariance, family_of
from cabai.families.laws import LAWS, draw_sample
from cabai.support.lazy import lazy
from cabai.support.validation import InvalidInput, number, numbers, positive

# How to draw the cost of one pull, as a factor with mean 1 on the arm's mean cost.
COST_MODELS = {
    "fixed": "always the mean",
    "uniform": "uniform within 50 % of the mean",
    "two-point": "half or one and a half times the mean, equally likely",
    "beta": "bell-shaped within 50 % of the mean: 0.5 + Beta(2, 2)",
    "exponential": "long-tailed, at least a tenth of the mean: 0.1 + 0.9 Exponential(1)",
}
COST_RATIO = 1e12  # limit for the largest cost over the smallest


@dataclass(frozen=True, init=False, eq=False)
class Instance:
    """A simulated problem: K arms with known means and mean costs.

    `family` is a name or a `Family`; `variance` is for gaussian rewards. `cost_model` says how the cost of a pull
    varies around its mean: fixed, uniform, two-point, beta or exponential.

    With `variance="unknown"`, `sd` are the standard deviations of gaussian rewards, which the test does not know: one
    for all arms or one per arm, 1 by default. Bounded rewards can follow different distributions: `law` is uniform,
    two-point or beta, and `sd` is the standard deviation of the rewards, one for all arms or one per arm. The default
    `sd` is the largest possible for the law; the default without both is uniform. To draw from your own data, use
    `Instance.of_samples`.

    >>> Instance("gaussian", means=[1.5, 1.0, 0.5], costs=[1, 0.1, 0.01])
    Instance('gaussian', means=[1.5, 1.0, 0.5], costs=[1.0, 0.1, 0.01])
    >>> named = Instance("bernoulli", means=[0.9, 0.6], costs=[1, 2], names=["large", "small"])
    >>> named.best, named.best_name, named.best_arms
    (0, 'large', [0])
    """

    family: Family
    means: NDArray[np.float64]
    costs: NDArray[np.float64]
    names: tuple[str, ...]
    cost_model: str
    law: str | None
    sd: NDArray[np.float64] | None
    samples: tuple[tuple[float, ...], ...] | None

    def __init__(
        self,
        family: str | Family,
        means: Sequence[float] | NDArray[np.float64],
        costs: Sequence[float] | NDArray[np.float64],
        *,
        names: Sequence[str] | None = None,
        cost_model: str = "fixed",
        variance: float | str | None = None,
        law: str | None = None,
        sd: float | Sequence[float] | NDArray[np.float64] | None = None,
    ) -> None:
        kind = family_of(family, variance)
        mu, c = numbers(means, "means"), numbers(costs, "costs")
        if len(mu) != len(c):
            raise InvalidInput(f"means and costs must have the same length, got {len(mu)} means and {len(c)} costs.")
        if len(mu) < 2:
            raise InvalidInput("an instance needs at least 2 arms, got 1.")
        for a in range(len(mu)):
            kind.check_size(kind.check_mean(mu[a].item(), f"means[{a}]"), f"means[{a}]")
        check_costs(c)
        if not isinstance(cost_model, str) or cost_model not in COST_MODELS:
            raise InvalidInput(f"unknown cost model {cost_model!r}; known: {', '.join(COST_MODELS)}.")
        mu.flags.writeable = c.flags.writeable = False
        vars(self).update(family=kind, means=mu, costs=c, cost_model=cost_model, law=law, samples=None)
        vars(self)["names"] = arm_names(names, len(mu))
        has_sd = law is not None or sd is not None or isinstance(kind, UnknownVariance)
        vars(self)["sd"] = checked_sd(self, law, sd) if has_sd else None

    @classmethod
    def of_samples(
        cls,
        family: str | Family,
        samples: Sequence[Sequence[float]] | Sequence[NDArray[np.float64]],
        costs: Sequence[float] | NDArray[np.float64],
        *,
        names: Sequence[str] | None = None,
        cost_model: str = "fixed",
    ) -> Instance:
        """Make an instance whose rewards are drawn, with replacement, from a sample of bounded rewards per arm.

        >>> Instance.of_samples("bounded", [[0.9, 1.0, 0.8], [0.5, 0.6]], costs=[1, 2]).means
        array([0.9 , 0.55])
        """
        kind = family_of(family)
        check_is_bounded(kind, "samples")
        given = [numbers(sample, f"samples[{a}]") for a, sample in enumerate(samples)]
        for a, sample in enumerate(given):
            for i, reward in enumerate(sample.tolist()):
                kind.check_reward(reward, f"samples[{a}][{i}]")
        instance = cls(kind, [float(np.mean(sample)) for sample in given], costs, names=names, cost_model=cost_model)
        vars(instance)["samples"] = tuple(tuple(sample.tolist()) for sample in given)
        return instance

    @property
    def drawing(self) -> Any:
        """The function that draws rewards."""
        if self.samples is not None:
            return draw_sample
        return self.family.drawing(self.means) if self.law is None else LAWS[self.law].draw

    @property
    def spreads(self) -> list[float]:
        """One number per arm, which `drawing` reads from arm.spread."""
        if self.samples is not None:
            return [float(len(sample)) for sample in self.samples]
        means = [self.family.scaled(mean) for mean in self.means.tolist()]
        if self.law is None and self.sd is not None:
            return [float(each) for each in self.sd]
        if self.law is None or self.sd is None:
            return [self.family.spread(mean) for mean in means]
        return [LAWS[self.law].spread(mean, sd / self.family.unit) for mean, sd in zip(means, self.sd, strict=True)]

    def __len__(self) -> int:
        return len(self.means)

    @lazy
    def best_arms(self) -> list[int]:
        """The indices of the arms with the largest mean."""
        return [int(a) for a in np.flatnonzero(self.means == self.means.max())]

    @property
    def best(self) -> int:
        """The index of the arm with the largest mean; an error if several arms share it."""
        if len(self.best_arms) > 1:
            tied = ", ".join(self.names[a] for a in self.best_arms)
            raise InvalidInput(
                f"the best arm is not unique: {tied} share the largest mean {self.means.max():g}, so no test can tell "
                "them apart at any cost; change a mean."
            )
        return self.best_arms[0]

    @property
    def best_name(self) -> str:
        """The name of the arm with the largest mean."""
        return self.names[self.best]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instance) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        law = self.law, None if self.sd is None else tuple(self.sd), self.samples
        return self.family, tuple(self.means), tuple(self.costs), self.names, self.cost_model, law

    def __repr__(self) -> str:
        more = "" if self.cost_model == "fixed" else f", cost_model={self.cost_model!r}"
        if self.law is not None:
            more += f", law={self.law!r}"
        if self.sd is not None:
            more += f", sd={self.sd.tolist()}"
        if self.samples is not None:
            more += f", samples of {', '.join(str(len(sample)) for sample in self.samples)}"
        if self.names != arm_names(None, len(self)):
            more += f", names={list(self.names)}"
        return f"Instance({str(self.family)!r}, means={self.means.tolist()}, costs={self.costs.tolist()}{more})"


def check_is_bounded(family: Family, what: str) -> None:
    if family.key != "bounded":
        raise InvalidInput(f"{what} are only for bounded rewards, which can follow any law; got family {family}.")


def checked_sd(instance: Instance, law: Any, sd: Any) -> NDArray[np.float64]:
    """The standard deviation of each arm's rewards: as given, if possible for the law; else the largest."""
    is_gaussian = isinstance(instance.family, UnknownVariance) and law is None
    if is_gaussian:
        most, given = np.full(len(instance), np.inf), np.ones(len(instance))
    else:
        check_is_bounded(instance.family, "law and sd")
        if not isinstance(law, str) or law not in LAWS:
            raise InvalidInput(
                f"unknown law {law!r}; known: {', '.join(LAWS)}. For your own data, use Instance.of_samples."
            )
        unit, means = instance.family.unit, [instance.family.scaled(mean) for mean in instance.means.tolist()]
        given = most = np.array([LAWS[law].largest(mean) * unit for mean in means])
    if sd is not None:
        given = numbers(sd, "sd") if isinstance(sd, (Sequence, np.ndarray)) else np.full(len(most), number(sd, "sd"))
    if len(given) != len(most):
        raise InvalidInput(f"sd must be one number, or one for each of {len(most)} arms, got {len(given)}.")
    for a, each in enumerate(given.tolist()):
        if is_gaussian:
            positive(each, f"sd[{a}]")
        elif not 0 <= each <= most[a] * (1 + 1e-12) or (law == "beta" and each == 0):
            raise InvalidInput(
                f"sd[{a}] must be from 0 to {most[a]:.6g} for a {law} law with mean {instance.means[a]:g} in "
                f"[{instance.family.mean_range[0]:g}, {instance.family.mean_range[1]:g}], got {each:g}"
                + (" (a beta law needs a positive one)." if law == "beta" else ".")
            )
    found: NDArray[np.float64] = np.minimum(given, most)
    found.flags.writeable = False
    return found


def check_costs(costs: NDArray[np.float64]) -> None:
    """Check that costs are positive, and not so extreme or so far apart that sums lose the smaller ones."""
    for a, cost in enumerate(costs.tolist()):
        if not 1e-100 <= positive(cost, f"costs[{a}]") <= 1e100:
            raise InvalidInput(f"costs[{a}] must be from 1e-100 to 1e100, got {cost!r}.")
    if costs.max() > COST_RATIO * costs.min():
        raise InvalidInput(
            f"the largest cost must be at most {COST_RATIO:g} times the smallest, got {costs.min():g} and "
            f"{costs.max():g}: otherwise double precision loses the smaller one."
        )


def arm_names(names: Sequence[str] | None, arms: int) -> tuple[str, ...]:
    """The names of the arms: as given, or numbers from 1."""
    if names is None:
        return tuple(str(a + 1) for a in range(arms))
    given = names if isinstance(names, Collection) and not isinstance(names, str) else ()
    if len(given) != arms or not all(isinstance(name, str) and name for name in given):
        raise InvalidInput(f"names must be {arms} non-empty strings, one per arm, got {names!r}.")
    if len(set(names)) != arms:
        raise InvalidInput(f"names must differ from each other, got {list(names)!r}.")
    return tuple(names)
