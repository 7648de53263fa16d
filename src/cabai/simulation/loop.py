"""The loop that every simulated trajectory runs in: pull, observe, ask the policy whether to stop and what to pull next."""

from __future__ import annotations

from numba import types

from cabai.compiled import CHOOSE, STOP, Arms, Rules, Run, kernel
from cabai.compiled.evidence import begin, observe
from cabai.simulation.sampling import GOLDEN, Truth, draw_cost, draw_reward, mix, open_stream, open_streams, unit

UNFINISHED = -1
RUN_CHUNK = types.int64(
    types.FunctionType(CHOOSE),
    types.FunctionType(STOP),
    Arms,
    Run,
    Rules,
    types.float64[::1],  # levels
    Truth,
    types.int64,  # family, as sampled
    types.int64,  # cost_model
    types.uint64,  # seed
    types.int64,  # first trajectory
    types.int64,  # max_pulls
    types.float64,  # max_cost
    types.int64[::1],  # grid
    types.int64[:, ::1],  # decisions
    types.float64[:, ::1],  # costs
    types.int64[:, ::1],  # steps
    types.int64[:, :, ::1],  # pulls
    types.int64[:, :, ::1],  # path
    types.int64[::1],  # signals
)


@kernel
def write(arms, run, decision, i, j, decisions, costs, steps, pulls):
    decisions[i, j] = decision
    costs[i, j] = run.paid
    steps[i, j] = run.t
    for a in range(len(arms)):
        pulls[i, j, a] = arms[a].pulls


@kernel(signature=RUN_CHUNK)
def run_chunk(
    choose, stop, arms, run, rules, levels, truth, family, cost_model, seed, first, max_pulls, max_cost, grid,
    decisions, costs, steps, pulls, path, signals,
):  # fmt: skip
    """Run trajectories first, first + 1, ...: one for each row of `decisions`, one column for each of `levels`.

    `levels` are the threshold's levels for the deltas asked for, the largest delta first; a trajectory goes on until the last is
    reached. `path[i, j]` receives the pulls of each arm after grid[j] pulls, or stays as it is if the trajectory was over.
    signals[0] counts the trajectories done, for whoever watches; signals[1] is set from outside to stop early; signals[2] says
    that the policy chose an arm that does not exist.
    Returns how many trajectories were run.
    """
    K = len(arms)
    for i in range(len(decisions)):
        begin(arms, run)
        open_streams(truth, seed, first + i)
        coins = open_stream(seed, first + i, 0)
        for a in range(K):
            observe(arms, run, rules, a, draw_reward(truth[a], family), draw_cost(truth[a], cost_model))
        reached, mark = 0, 0
        while True:
            while mark < len(grid) and grid[mark] <= run.t:
                if grid[mark] == run.t:
                    for a in range(K):
                        path[i, mark, a] = arms[a].pulls
                mark += 1
            rules.level = levels[reached]
            while stop(arms, run, rules):
                write(arms, run, run.leader, i, reached, decisions, costs, steps, pulls)
                reached += 1
                if reached == len(levels):
                    break
                rules.level = levels[reached]
            if reached == len(levels):
                break
            if run.t >= max_pulls or run.paid >= max_cost:
                for j in range(reached, len(levels)):
                    write(arms, run, UNFINISHED, i, j, decisions, costs, steps, pulls)
                break
            coins += GOLDEN
            run.uniform = unit(mix(coins))
            a = choose(arms, run, rules)
            if a < 0 or a >= K:
                signals[2] = 1
                return i
            observe(arms, run, rules, a, draw_reward(truth[a], family), draw_cost(truth[a], cost_model))
            if run.t & 1023 == 0 and signals[1] != 0:
                return i
        signals[0] += 1
        if signals[1] != 0:
            return i + 1
    return len(decisions)
