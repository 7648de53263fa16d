"""Continue a run many times from its current state, each time with another truth.

The loop, the policy and the test are those of every simulation. So each continuation is what a study would do if that
were the truth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.core.setup import Setup
from cabai.simulation.costs import fixed
from cabai.simulation.truth import TRUTH
from cabai.simulation.work import NO_GRID, compiled_loop, drawing_of


class Truths(NamedTuple):
    """A row for each continuation, a column for each arm; as kernels see them, or before they are negated."""

    means: NDArray[np.float64]
    spreads: NDArray[np.float64]
    costs: NDArray[np.float64]
    variances: NDArray[np.float64]  # of a reward
    draw: Any  # the function that draws rewards
    negated: bool = False


class Continuations:
    """Runs that began in one state: how far each has come."""

    def __init__(
        self, setup: Setup, arms: NDArray[Any], run: Any, truths: Truths, seed: int, level: float | None = None
    ) -> None:
        """`level` is the threshold's, if it differs from that in the rules."""
        self.setup, self.truths, self.seed, self.count = setup, truths, seed, len(truths.means)
        arm_kind, run_kind, rules_kind = setup.layout.shared
        self.arms = np.tile(np.ascontiguousarray(arms), (self.count, 1)).view(arm_kind)
        self.runs = np.array([run] * self.count).view(run_kind)
        self.rules = np.array([setup.rules]).view(rules_kind)[0]
        self.levels = np.array([float(setup.rules["level"]) if level is None else level])
        self.begun = float(run["spent"])
        self.over = np.zeros(self.count, np.bool_)  # decided
        self.stretch = 0

    @property
    def paid(self) -> NDArray[np.float64]:
        """What each has paid since it began."""
        paid: NDArray[np.float64] = self.runs["spent"] - self.begun
        return paid

    def compiled(self) -> tuple[Any, Any, Any]:
        """The loop and the policy's two functions."""
        return compiled_loop(self.setup, drawing_of(self.truths.draw, fixed, negated=self.truths.negated), TRUTH)

    def carry_on(self, which: NDArray[np.int64], pulls: int, max_pulls: int, max_cost: float) -> int:
        """Let some of them go on for so many pulls, until they are decided or a limit is reached; returns how many
        pulls were made. The random numbers of each stretch are new ones."""
        from cabai.simulation.loop import NO_SUCH_ARM, RESULT, Chunk, State

        loop, choose, stop = self.compiled()
        arms, results = len(self.truths.costs[0]), np.empty((1, 1), RESULT)
        counts, path, signals = (
            np.empty((1, 1, arms), np.int64),
            np.empty((1, 0, arms), np.int64),
            np.zeros(2, np.int64),
        )
        truth, made = np.zeros(arms, TRUTH), 0
        for i in which.tolist():
            truth["mean"], truth["spread"], truth["cost"] = (each[i] for each in self.truths[:3])
            first_arms, first_run = self.arms[i].copy(), self.runs[i : i + 1].copy()
            begun = int(first_run["t"][0])
            state = State(self.arms[i], self.runs[i : i + 1], self.rules, first_arms, first_run)
            number = np.uint64(self.stretch * self.count + i)
            until = min(begun + pulls, max_pulls)
            loop(choose, stop, state, Chunk(
                np.uint64(self.seed), number, truth, self.levels, until, max_cost, NO_GRID, results, counts, path,
                signals,
            ))  # fmt: skip
            if signals[NO_SUCH_ARM]:
                raise ValueError("the policy chose an arm that does not exist")
            self.over[i] = results["decision"][0, 0] >= 0
            made += int(self.runs["t"][i]) - begun
        self.stretch += 1
        return made
