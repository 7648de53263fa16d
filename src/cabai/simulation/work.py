"""What a worker does: compile a policy and run a chunk of its trajectories."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.core.setup import Setup
from cabai.core.stopping import leader_beats_every_rival
from cabai.instance import Instance
from cabai.simulation.costs import DRAWS
from cabai.simulation.sums import Sums, right_arms
from cabai.simulation.truth import truth_of
from cabai.support.specialise import binding, specialised
from cabai.support.validation import InvalidInput

Rows = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # results, pulls and path of some trajectories
BLOCK_BYTES = 2**20  # of rows that are there at a time, where only their sums are kept


class Part(NamedTuple):
    """The results of a chunk of trajectories."""

    first: int
    done: int  # trajectories: fewer than were asked for only if it was told to stop
    seconds: float
    rows: tuple[NDArray[Any], ...]  # results, pulls and path
    sums: list[Sums]  # or, of each level, what is kept instead of rows


class Work:
    """All that a worker needs to run a chunk of trajectories; it can be sent to another process."""

    def __init__(
        self,
        instance: Instance,
        setups: list[Setup],
        seed: int,
        max_pulls: int,
        max_cost: float,
        grid: NDArray[np.int64],
        keeps_rows: bool = True,
    ) -> None:
        self.instance, self.setup, self.seed, self.keeps_rows = instance, setups[0], seed, keeps_rows
        self.levels = np.array([float(setup.rules["level"]) for setup in setups])
        self.max_pulls, self.max_cost, self.grid = max_pulls, max_cost, grid
        self.truth, self.start = truth_of(instance), self.setup.start()

    def compiled(self) -> tuple[Any, Any, Any]:
        """The loop and the policy's two functions, compiled or loaded when first asked for."""
        from cabai.core.blame import compiled_rule, explained
        from cabai.core.compiling import choosing, stopping
        from cabai.simulation.loop import run_chunk, signature

        layout, policy = self.setup.layout, self.setup.policy
        test = [pair for pair in self.setup.test_binding if pair[0] != "draw"]
        whole = specialised(run_chunk, binding([*test, *self.drawing]))
        loop = explained(self.setup, whole, whole, signature(layout, self.truth.dtype))
        choose = compiled_rule(self.setup, self.setup.choose, choosing(layout))
        if policy.stop is leader_beats_every_rival:
            return loop, choose, explained(self.setup, self.setup.stop, self.setup.stop, stopping(layout))
        return loop, choose, compiled_rule(self.setup, self.setup.stop, stopping(layout))

    @property
    def drawing(self) -> list[tuple[str, Any]]:
        """The functions for the slots that draw rewards and costs."""
        return [("draw", self.instance.drawing), ("draw_cost", DRAWS[self.instance.cost_model])]

    @property
    def row_bytes(self) -> int:
        """The bytes that the results of one trajectory take."""
        return 8 * (len(self.levels) * (3 + len(self.instance)) + len(self.grid) * len(self.instance))

    def run(self, first: int, count: int, signals: NDArray[np.int64]) -> Part:
        """Trajectories first ... first + count - 1, unless `signals` say to stop."""
        self.compiled()
        started = time.perf_counter()
        if self.keeps_rows:
            done, rows = self.rows(first, count, signals)
            return Part(first, done, time.perf_counter() - started, rows, [])
        sums: list[Sums] = []
        done, block = 0, max(1, BLOCK_BYTES // self.row_bytes)
        while done < count:
            size = min(block, count - done)
            made, more = self.rows(first + done, size, signals)
            done += made
            if made < size:  # it was told to stop
                break
            sums = [a + b for a, b in zip(sums, self.sums(*more), strict=True)] if sums else self.sums(*more)
        return Part(first, done, time.perf_counter() - started, (), sums)

    def sums(self, results: NDArray[Any], pulls: NDArray[Any], _: NDArray[Any]) -> list[Sums]:
        """What is kept of rows, for each level."""
        right = right_arms(self.instance, self.setup.epsilon, self.setup.goal)
        return [Sums.of(results[:, j], pulls[:, j], right) for j in range(len(self.levels))]

    def rows(self, first: int, count: int, signals: NDArray[np.int64]) -> tuple[int, tuple[NDArray[Any], ...]]:
        """How many of these trajectories were run; their results, pulls and paths."""
        from cabai.simulation.loop import RESULT

        K, shape = len(self.instance), (count, len(self.levels))
        results = (
            np.empty(shape, RESULT),
            np.empty((*shape, K), np.int64),
            np.full((count, len(self.grid), K), -1, np.int64),
        )
        done = self.fill(first, results, signals)
        return done, tuple(each[:done] for each in results)

    def inputs(self, first: int, count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """What trajectories from `first` on start from, as words: their truths, or one for all; their numbers, or that
        of the first."""
        return self.truth[None].view(np.uint64), np.array([first], np.uint64)

    def fill(self, first: int, results: Rows, signals: NDArray[np.int64]) -> int:
        """Run trajectories from `first` on, one for each row of `results`; how many were run."""
        return self.run_on(self.truth, first, results, signals)

    def run_on(self, truth: NDArray[Any], first: int, results: Rows, signals: NDArray[np.int64]) -> int:
        """The same, on a truth."""
        from cabai.simulation.loop import NO_SUCH_ARM, Chunk, State

        arm_kind, run_kind, rules_kind = self.setup.layout.shared
        arms, run = self.start
        first_arms, first_run = arms.view(arm_kind), np.array([run]).view(run_kind)
        rules = np.array([self.setup.rules]).view(rules_kind)[0]
        state = State(first_arms.copy(), first_run.copy(), rules, first_arms, first_run)
        chunk = Chunk(
            np.uint64(self.seed), np.uint64(first), truth.copy(), self.levels, self.max_pulls,
            self.max_cost, self.grid, *results, signals,
        )  # fmt: skip
        loop, choose, stop = self.compiled()
        done = loop(choose, stop, state, chunk)
        if signals[NO_SUCH_ARM]:
            raise InvalidInput(f"policy {self.setup.policy} chose an arm that does not exist.")
        return int(done)
