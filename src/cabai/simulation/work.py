"""What a worker does: compile a policy and run a chunk of its trajectories, all on one truth or each on its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.core.setup import Setup
from cabai.core.stopping import leader_beats_every_rival
from cabai.instance import Instance
from cabai.simulation.sums import Sums, right_arms
from cabai.simulation.truth import DRAWS, more_as_it_grows, negated, truth_of
from cabai.support.specialise import binding, specialised
from cabai.support.validation import InvalidInput

Rows = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # results, pulls and path of some trajectories
BLOCK_BYTES = 2**20  # of rows that are there at a time, where only their sums are kept
NO_GRID: NDArray[np.int64] = np.zeros(0, np.int64)


class Part(NamedTuple):
    """The results of a chunk of trajectories."""

    first: int
    done: int  # trajectories: fewer than were asked for only if it was told to stop
    seconds: float
    rows: tuple[NDArray[Any], ...]  # results, pulls and path
    sums: list[Sums]  # or, of each level, what is kept instead of rows


class Work:
    """All that a worker needs to run a chunk of trajectories; it can be sent to another process.

    Without `numbers`, all trajectories are on the first instance. With them, there is one trajectory on each instance,
    with the number it has there; all instances have the same family, number of arms and ways to draw.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        setups: list[Setup],
        seed: int,
        max_pulls: int,
        max_cost: float,
        *,
        grid: NDArray[np.int64] = NO_GRID,
        keeps_rows: bool = True,
        numbers: NDArray[np.int64] | None = None,
        negated: bool = False,
        in_steps: bool = False,
    ) -> None:
        self.instance, self.setup, self.seed, self.keeps_rows = instances[0], setups[0], seed, keeps_rows
        self.levels = np.array([float(setup.rules["level"]) for setup in setups])
        self.max_pulls, self.max_cost, self.grid, self.numbers = max_pulls, max_cost, grid, numbers
        kinds = {(each.family, len(each), each.cost_model, each.law) for each in instances}
        if len(kinds) > 1 or (
            numbers is not None and (self.instance.samples is not None or len(numbers) < len(instances))
        ):
            raise InvalidInput("instances that are simulated together must be of one kind, and have a number each.")
        self.truths, self.start = np.stack([truth_of(each) for each in instances]), self.setup.start()
        self.largest = max(instances, key=lambda each: float(each.means.max()))
        self.negated, self.in_steps = negated, in_steps

    def shuffle(self, trajectories: int) -> NDArray[np.int64]:
        """Let the arms stand in a random order in each trajectory, which depends on the seed and its number alone;
        return the orders. To rotate them would not do: neighbours, often the nearest rivals, would stay neighbours."""
        random = np.random.Generator(np.random.PCG64([self.seed, len(self.instance)]))
        orders = random.random((trajectories, len(self.instance))).argsort(axis=1)
        self.numbers, self.truths = np.arange(trajectories), self.truths[0][orders]
        return orders

    @property
    def drawing(self) -> list[tuple[str, Any]]:
        """The functions for the slots that draw: what draws large means also draws small ones."""
        draw = self.largest.drawing
        found = [("draw", negated(draw) if self.negated else draw), ("draw_cost", DRAWS[self.instance.cost_model])]
        return [*found, ("pulls_of_a_choice", more_as_it_grows)] if self.in_steps else found

    def compiled(self) -> tuple[Any, Any, Any]:
        """The loop and the policy's two functions, compiled or loaded when first asked for."""
        from cabai.core.blame import compiled_rule, explained
        from cabai.core.compiling import choosing, stopping
        from cabai.simulation.loop import run_chunk, signature

        setup, layout = self.setup, self.setup.layout
        test = [pair for pair in setup.test_binding if pair[0] != "draw"]
        whole = specialised(run_chunk, binding([*test, *self.drawing]))
        loop = explained(setup, whole, whole, signature(layout, self.truths.dtype))
        choose = compiled_rule(setup, setup.choose, choosing(layout))
        if setup.policy.stop is leader_beats_every_rival:
            return loop, choose, explained(setup, setup.stop, setup.stop, stopping(layout))
        return loop, choose, compiled_rule(setup, setup.stop, stopping(layout))

    @property
    def row_bytes(self) -> int:
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
        right = right_arms(self.instance, self.setup.epsilon, self.setup.goal)
        return [Sums.of(results[:, j], pulls[:, j], right) for j in range(len(self.levels))]

    def inputs(self, first: int, count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """What trajectories from `first` on start from, as words: truths, and numbers; or one truth and the first."""
        if self.numbers is None:
            return self.truths[:1].view(np.uint64), np.array([first], np.uint64)
        these = slice(first, first + count)
        return self.truths[these].view(np.uint64), self.numbers[these].astype(np.uint64)

    def rows(self, first: int, count: int, signals: NDArray[np.int64]) -> tuple[int, tuple[NDArray[Any], ...]]:
        """How many of these trajectories were run; their results, pulls and paths."""
        from cabai.simulation.loop import NO_SUCH_ARM, RESULT, Chunk, State

        arm_kind, run_kind, rules_kind = self.setup.layout.shared
        arms, run = self.start
        first_arms, first_run = arms.view(arm_kind), np.array([run]).view(run_kind)
        rules = np.array([self.setup.rules]).view(rules_kind)[0]
        state = State(first_arms.copy(), first_run.copy(), rules, first_arms, first_run)
        loop, choose, stop = self.compiled()
        K, shape, done = len(arms), (count, len(self.levels)), 0
        results: Rows = (
            np.empty(shape, RESULT), np.empty((*shape, K), np.int64), np.full((count, len(self.grid), K), -1, np.int64)
        )  # fmt: skip
        while done < count:
            number, truth, rows = first, self.truths[0], slice(0, count)  # all at once, on one truth
            if self.numbers is not None:
                number, truth, rows = self.numbers[first + done], self.truths[first + done], slice(done, done + 1)
            found, pulls, path = (each[rows] for each in results)
            chunk = Chunk(
                np.uint64(self.seed), np.uint64(number), truth.copy(), self.levels, self.max_pulls, self.max_cost,
                self.grid, found, pulls, path, signals,
            )  # fmt: skip
            made = int(loop(choose, stop, state, chunk))
            if signals[NO_SUCH_ARM]:
                raise InvalidInput(f"policy {self.setup.policy} chose an arm that does not exist.")
            done += made
            if made < rows.stop - rows.start:  # it was told to stop
                break
        return done, tuple(each[:done] for each in results)
