"""The loop of every simulated trajectory: pull, observe, ask the policy whether to stop and what to pull next."""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from cabai.compiling import CHOOSE, STOP, Arms, Rules, Run
from cabai.kernels.evidence import begin, observe
from cabai.simulation.sampling import GOLDEN, ONE, TRUTH, draw_cost, draw_reward, mix, open_streams, unit

UNFINISHED = np.int64(-1)  # of the type of an arm's number: else `write` would be compiled twice
STOP_EARLY, NO_SUCH_ARM = 0, 1
RESULT = np.dtype([("decision", "i8"), ("cost", "f8"), ("steps", "i8")])
RUN_CHUNK = types.int64(
    types.FunctionType(CHOOSE),
    types.FunctionType(STOP),
    Arms,
    Run,
    Rules,
    types.float64[::1],  # levels
    numba.from_dtype(TRUTH)[::1],  # truth
    types.int64,  # family, as sampled
    types.int64,  # cost_model
    types.uint64,  # seed
    types.uint64,  # first trajectory
    types.int64,  # max_pulls
    types.float64,  # max_cost
    types.int64[::1],  # grid
    numba.from_dtype(RESULT)[:, ::1],  # results
    types.int64[:, :, ::1],  # pulls
    types.int64[:, :, ::1],  # path
    types.int64[::1],  # signals
)


def write(arms, run, decision, result, pulls):
    result.decision = decision
    result.cost = run.paid
    result.steps = run.t
    for a in range(len(arms)):
        pulls[a] = arms[a].pulls


def run_chunk(
    choose, stop, arms, run, rules, levels, truth, family, cost_model, seed, first, max_pulls, max_cost, grid,
    results, pulls, path, signals,
):  # fmt: skip
    """Run trajectories first, first + 1, ...: one for each row of `results`, one column for each of `levels`.

    `levels` are the threshold's levels for the deltas asked for, the largest delta first; a trajectory goes on until
    the last is reached. `path[i, j]` receives the pulls of each arm after grid[j] pulls, or stays as it is if the
    trajectory was over. signals[STOP_EARLY] is set from outside; signals[NO_SUCH_ARM] says that the policy chose an
    arm that does not exist. Returns how many trajectories were run.
    """
    K = len(arms)
    trajectory = first
    for i in range(len(results)):
        begin(arms, run)
        coins = open_streams(truth, seed, trajectory)
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
                            path[i, mark, a] = arms[a].pulls
                    mark += 1
                while stop(arms, run, rules):
                    write(arms, run, run.leader, results[i, reached], pulls[i, reached])
                    reached += 1
                    if reached == len(levels):
                        break
                    rules.level = levels[reached]
                if reached == len(levels):
                    break
                if run.t >= max_pulls or run.paid >= max_cost:
                    for j in range(reached, len(levels)):
                        write(arms, run, UNFINISHED, results[i, j], pulls[i, j])
                    break
                coins += GOLDEN
                run.uniform = unit(mix(coins))
                a = choose(arms, run, rules)
                if a < 0 or a >= K:
                    signals[NO_SUCH_ARM] = 1
                    return i
            observe(arms, run, rules, a, draw_reward(truth[a], family), draw_cost(truth[a], cost_model))
            if run.t % 1024 == 0 and signals[STOP_EARLY]:
                return i
        if signals[STOP_EARLY]:
            return i + 1
    return len(results)
