"""One trajectory on each of many instances: what a policy pays where the truth itself is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.core.setup import Setup
from cabai.instance import Instance
from cabai.simulation.costs import DRAWS
from cabai.simulation.engines import Engine
from cabai.simulation.parallel import Progress, rows_of
from cabai.simulation.steps import more_as_it_grows
from cabai.simulation.truth import negated_draw, truth_of
from cabai.simulation.work import Rows, Work
from cabai.support.validation import InvalidInput


class Each(NamedTuple):
    """The results; a row per trajectory, a column per setup."""

    decisions: NDArray[np.int64]  # the arm, or -1 where a limit was hit first
    costs: NDArray[np.float64]
    steps: NDArray[np.int64]
    pulls: NDArray[np.int64]  # by arm, on a third axis


class EachWork(Work):
    """Trajectory numbers[i] on the i-th instance. All have the same family, number of arms and ways to draw."""

    def __init__(
        self,
        instances: Sequence[Instance],
        numbers: NDArray[np.int64],
        setups: list[Setup],
        seed: int,
        max_pulls: int,
        max_cost: float,
        negated: bool,
        in_steps: bool,
    ) -> None:
        super().__init__(instances[0], setups, seed, max_pulls, max_cost, np.zeros(0, np.int64))
        kinds = {(each.family, len(each), each.cost_model, each.law) for each in instances}
        if len(kinds) > 1 or instances[0].samples is not None or len(numbers) != len(instances):
            raise InvalidInput("instances that are simulated together must be of one kind, and have a number each.")
        self.truths, self.numbers, self.negated = [truth_of(each) for each in instances], numbers, negated
        self.in_steps = in_steps
        largest = max(instances, key=lambda each: float(each.means.max()))
        self.draw = largest.drawing  # a family may draw large means with a function that also works for small ones

    @property
    def drawing(self) -> list[tuple[str, Any]]:
        drawing: list[tuple[str, Any]] = [("draw_cost", DRAWS[self.instance.cost_model])]
        if self.in_steps:
            drawing.append(("pulls_of_a_choice", more_as_it_grows))
        if self.negated:
            return [("draw", negated_draw), ("draw_to_be_negated", self.draw), *drawing]
        return [("draw", self.draw), *drawing]

    def inputs(self, first: int, count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        truths = np.stack(self.truths[first : first + count])
        return truths.view(np.uint64), self.numbers[first : first + count].astype(np.uint64)

    def fill(self, first: int, results: Rows, signals: NDArray[np.int64]) -> int:
        for row in range(len(results[0])):
            found, pulls, path = (each[row : row + 1] for each in results)
            if not self.run_on(self.truths[first + row], int(self.numbers[first + row]), (found, pulls, path), signals):
                return row
        return len(results[0])


def simulate_each(
    instances: Sequence[Instance],
    setups: list[Setup],
    *,
    numbers: NDArray[np.int64],
    seed: int,
    max_pulls: int,
    max_cost: float,
    engine: Engine,
    negated: bool = False,
    in_steps: bool = True,
    progress: Progress | None = None,
) -> Each:
    """One trajectory on each instance, with the number it has in `numbers`.

    Trajectory i on an instance is trajectory i of `cabai.simulate` there, with the same seed: so setups that are
    compared face the same rewards wherever their truths are the same. Several setups, the largest delta first, are
    levels of one test: they may differ in delta only, and the policy's choices must not depend on it. `negated` negates
    the rewards drawn, for a setup of a mirrored family. With `in_steps` a policy is asked less often as a trajectory
    grows long: what it pays differs by less than 1 %, and is the same to the bit up to `steps.EXACT` pulls.
    """
    work = EachWork(instances, numbers, setups, seed, max_pulls, max_cost, negated, in_steps)
    engine.prepare(work)
    results, pulls, _ = rows_of(work, len(instances), engine, progress)
    return Each(results["decision"].copy(), results["cost"].copy(), results["steps"].copy(), pulls)
