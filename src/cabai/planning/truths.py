"""Truths drawn from what is known: the means and costs of each simulated study."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cabai.families import Family
from cabai.families.laws import LAWS
from cabai.instance import Instance

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Truths:
    """One row per draw, one column per arm. Rewards are as a user tells them: `minimize` says that the smallest mean is
    the best."""

    family: Family
    minimize: bool
    means: Numbers
    costs: Numbers
    cost_model: str = "fixed"
    law: str | None = None  # of bounded rewards
    sds: Numbers | None = None  # of bounded rewards; None: the largest of the law

    def __len__(self) -> int:
        return len(self.means)

    @property
    def goodness(self) -> Numbers:
        """Larger is better."""
        return -self.means if self.minimize else self.means

    @property
    def best(self) -> NDArray[np.int64]:
        """By draw, the number of the best arm."""
        best: NDArray[np.int64] = np.argmax(self.goodness, axis=1)
        return best

    @property
    def gaps(self) -> Numbers:
        """By draw, how far the best arm is ahead of the next."""
        ordered = np.sort(self.goodness, axis=1)
        return ordered[:, -1] - ordered[:, -2]

    def first(self, count: int) -> Truths:
        """The first draws."""
        sds = None if self.sds is None else self.sds[:count]
        return replace(self, means=self.means[:count], costs=self.costs[:count], sds=sds)

    def without(self, arm: int) -> Truths:
        """The same truths without an arm."""
        less = [None if each is None else np.delete(each, arm, axis=1) for each in (self.means, self.costs, self.sds)]
        return replace(self, means=less[0], costs=less[1], sds=less[2])  # type: ignore[arg-type]

    def with_gap(self, gap: float) -> Truths:
        """The same truths, with the best arm of each moved so that it is ahead of the next by this much."""
        rows, best, goodness = np.arange(len(self)), self.best, self.goodness.copy()
        goodness[rows, best] = np.sort(goodness, axis=1)[:, -2] + gap
        return replace(self, means=-goodness if self.minimize else goodness)

    @property
    def largest_gap(self) -> float:
        """The largest gap with which all of these truths are still of the family."""
        low, high = self.family.mean_range
        least, most = self.family.limits
        end = -max(low, least) if self.minimize else min(high, most)
        return 0.999 * float(end - np.sort(self.goodness, axis=1)[:, -2].max())

    @property
    def negated(self) -> bool:
        """Whether drawn rewards must be negated, because the mirrored family is another one."""
        return self.minimize and not self.family.is_symmetric

    def instances(self) -> list[Instance]:
        """What a simulation draws from: with the means as a study's kernels see them, or to be negated."""
        family, means = self.family, self.means
        if self.minimize and family.is_symmetric:
            means = np.vectorize(lambda mean: family.unscaled(family.mirror(family.scaled(mean))))(means)
        return [
            Instance(
                family, mean, cost, cost_model=self.cost_model, law=self.law,
                sd=None if self.sds is None or self.law is None else allowed_sd(family, self.law, mean, sd),
            )
            for mean, cost, sd in zip(means, self.costs, self.sds if self.sds is not None else means, strict=True)
        ]  # fmt: skip


def allowed_sd(family: Family, law: str, means: Numbers, sds: Numbers) -> Numbers:
    """Standard deviations that a law can have with these means."""
    most = np.array([LAWS[law].largest(family.scaled(mean)) * family.unit for mean in means.tolist()])
    smaller: Numbers = np.minimum(sds, most)
    return smaller
