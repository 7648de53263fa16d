"""Studies simulated on drawn truths, with the study's own rules and a limited number of pulls."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cabai.planning.bills import Bills
from cabai.planning.truths import Truths
from cabai.simulation.engines import Engine
from cabai.simulation.parallel import simulate_each
from cabai.study.settings import Settings

FIRST = 10_000  # pulls after which a study is first cut
GROWTH = 8  # the factor by which those that were cut are extended
Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Lab:
    """Where studies are simulated, from which seed, and how many pulls may be simulated for one answer."""

    engine: Engine
    seed: int
    effort: int

    def bills(
        self, settings: Settings, truths: Truths, *, max_cost: float = math.inf, effort: int | None = None,
        deltas: Sequence[float] | None = None,
    ) -> list[Bills]:  # fmt: skip
        """What studies with these settings pay on each of the truths, for each delta (the settings' own unless given;
        the largest first).

        Each is cut once it has paid `max_cost`, or after a number of pulls that grows for those that are left as long
        as no more than `effort` pulls are simulated in all. So a truth that is nearly tied does not delay the others,
        and the result depends only on the seed.
        """
        setups = [settings.setup(delta) for delta in (deltas or [settings.delta])]
        limits = [each for each in (settings.max_pulls, settings.certified_pulls) if each is not None]
        last = max(min(limits), len(settings.arms)) if limits else 2**62
        allowed = self.effort if effort is None else effort
        instances, best = truths.instances(), truths.goodness.max(axis=1)
        good = truths.goodness >= best[:, None] - settings.epsilon - 1e-12 * np.maximum(1, abs(best))[:, None]
        shape = (len(truths), len(setups))
        costs, decisions, is_cut = np.empty(shape), np.empty(shape, np.int64), np.zeros(shape, bool)
        left, most, used = np.arange(len(truths)), min(max(FIRST, len(settings.arms)), last), 0
        while True:
            found = simulate_each(
                [instances[i] for i in left], setups, numbers=left, seed=self.seed, max_pulls=most,
                max_cost=max_cost, engine=self.engine, negated=truths.negated,
            )  # fmt: skip
            costs[left], decisions[left] = found.costs, found.decisions
            unfinished = found.decisions < 0
            is_cut[left] = unfinished & (most < last)
            used += int(found.steps[:, -1].sum())
            paid_all = found.costs[:, -1] >= max_cost
            is_cut[left[paid_all]] = unfinished[paid_all]
            left = left[unfinished[:, -1] & ~paid_all]
            more = min(GROWTH * most, (allowed - used) // max(1, len(left)), last)
            if not len(left) or most >= last or more < 2 * most:
                break
            most = more
        decided = decisions >= 0
        wrong = decided & ~np.take_along_axis(good, np.maximum(decisions, 0), axis=1)
        return [Bills(costs[:, j], decided[:, j], wrong[:, j], is_cut[:, j]) for j in range(len(setups))]

    def bill(self, settings: Settings, truths: Truths, **options: Any) -> Bills:
        """The same for one delta."""
        return self.bills(settings, truths, **options)[0]


def with_epsilon(settings: Settings, epsilon: float) -> Settings:
    return dataclasses.replace(settings, epsilon=settings.family.check_epsilon(epsilon))


def without_arm(settings: Settings, arm: int) -> Settings:
    """The same study without an arm."""
    arms = settings.arms[:arm] + settings.arms[arm + 1 :]
    return dataclasses.replace(settings, arms=arms, costs=None, metadata={})
