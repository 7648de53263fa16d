"""The loop of every simulated trajectory: pull, observe, ask the policy whether to stop and what to pull next."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from cabai.core.compiling import choosing, stopping, types_of
from cabai.core.state import Layout
from cabai.simulation.truth import open_streams, pull, pulls_of_a_choice
from cabai.support.streams import ONE

UNFINISHED = np.int64(-1)  # of the type of an arm's number: otherwise `write` would be compiled twice
STOP_EARLY, NO_SUCH_ARM = 0, 1
RESULT = np.dtype([("decision", "i8"), ("cost", "f8"), ("steps", "i8")], align=True)


class State(NamedTuple):
    """The records of one trajectory, and their values before the first pull."""

    arms: Any
    run: Any
    rules: Any
    first_arms: Any
    first_run: Any


class Chunk(NamedTuple):
    """Some trajectories: which, from what, until when, and where their results go."""

    seed: Any
    first: Any  # the number of the first
    truth: Any
    levels: Any  # the threshold's levels for the deltas asked for, the largest delta first
    max_pulls: Any
    max_cost: Any
    grid: Any  # numbers of pulls after which to record each arm's pulls
    results: Any  # a row per trajectory, a column per level
    pulls: Any  # the same, of each arm
    path: Any  # the pulls of each arm after grid[j] pulls; left unchanged where the trajectory had ended
    signals: Any  # [STOP_EARLY] is set from outside; [NO_SUCH_ARM]: the policy chose an arm that does not exist


@cache
def signature(layout: Layout, truth: np.dtype[np.void]) -> Any:
    arms, run, rules = types_of(*layout.shared)
    runs, counts = types.Array(run, 1, "C"), types.int64[:, :, ::1]
    chunk = (
        types.uint64, types.uint64, numba.from_dtype(truth)[::1], types.float64[::1], types.int64, types.float64,
        types.int64[::1], numba.from_dtype(RESULT)[:, ::1], counts, counts, types.int64[::1],
    )  # fmt: skip
    return types.int64(
        types.FunctionType(choosing(layout)),
        types.FunctionType(stopping(layout)),
        types.NamedTuple((arms, runs, rules, arms, runs), State),
        types.NamedTuple(chunk, Chunk),
    )


def run_chunk(choose, stop, state, chunk):
    """Run a chunk of trajectories, each until the last of `chunk.levels` is reached; return how many were run."""
    arms, run, rules = state.arms, state.run[0], state.rules
    truth, levels, grid, signals = chunk.truth, chunk.levels, chunk.grid, chunk.signals
    max_pulls, max_cost = chunk.max_pulls, chunk.max_cost
    K, trajectory = len(arms), chunk.first
    for i in range(len(chunk.results)):
        for a in range(K):
            arms[a] = state.first_arms[a]
        state.run[0] = state.first_run[0]
        run.stream = open_streams(truth, chunk.seed, trajectory)
        trajectory += ONE
        reached, mark = 0, 0
        rules.level = levels[0]
        while True:
            if run.t < K:
                a = run.t  # every arm once
            else:
                while mark < len(grid) and grid[mark] <= run.t:
                    if grid[mark] == run.t:
                        for a in range(K):
                            chunk.path[i, mark, a] = arms[a].pulls
                    mark += 1
                while stop(arms, run, rules):
                    write(arms, run, run.leader, chunk.results[i, reached], chunk.pulls[i, reached])
                    reached += 1
                    if reached == len(levels):
                        break
                    rules.level = levels[reached]
                if reached == len(levels):
                    break
                if run.t >= max_pulls or run.spent >= max_cost:
                    for j in range(reached, len(levels)):
                        write(arms, run, UNFINISHED, chunk.results[i, j], chunk.pulls[i, j])
                    break
                a = choose(arms, run, rules)
                if a < 0 or a >= K:
                    signals[NO_SUCH_ARM] = 1
                    return i
            is_spent = False
            for _ in range(pulls_of_a_choice(run)):
                is_spent = is_spent or pull(arms, run, rules, a, truth[a])
                if run.t % 1024 == 0 and signals[STOP_EARLY]:
                    return i
            if is_spent:
                for j in range(reached, len(levels)):
                    write(arms, run, run.leader, chunk.results[i, j], chunk.pulls[i, j])
                break
        if signals[STOP_EARLY]:
            return i + 1
    return len(chunk.results)


def write(arms, run, decision, result, pulls):
    result.decision = decision
    result.cost = run.spent
    result.steps = run.t
    for a in range(len(arms)):
        pulls[a] = arms[a].pulls
