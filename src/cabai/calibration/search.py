"""Count errors, and descend to the smallest constant that is certified."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabai.calibration.binomial import most_errors
from cabai.calibration.instances import Hard
from cabai.policies import CO, POLICIES, Policy
from cabai.policies.co import stop as co_stop
from cabai.simulation import simulate
from cabai.simulation.engines import Engine
from cabai.thresholds import Stylized

STEP = 1.07  # between constants tried: a fifteenth of a nat
ADDED = 3  # of the instances that were looked for: how many are searched with the rest

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Search:
    """Counts errors: on which instances, of which policy, at which delta and up to how many pulls."""

    instances: list[Hard]
    policy: Policy
    delta: float
    max_pulls: int
    engine: Engine | None
    progress: Progress
    epsilon: float = 0.0  # in the units of the instances' family

    @property
    def at_once(self) -> int:
        """How many constants one trajectory can answer for: several if c does not change what is pulled."""
        return 1 if self.policy.depends_on_delta or self.policy.name not in POLICIES.names else 8

    def errors(self, which: int, constants: list[float], trajectories: int, seed: int) -> list[int]:
        """Wrong trajectories for each constant c: log(c (1 + log t)/delta) is `stylized` at delta/c."""
        each = self.instances[which]
        self.progress(f"c = {constants[0]:.3g}: {each.what}, {trajectories} trajectories")
        runs = simulate(
            each.instance, watched(self.policy), threshold=Stylized(), delta=[self.delta / c for c in constants],
            trajectories=trajectories, max_pulls=self.max_pulls, keep="summary", seed=seed, engine=self.engine,
            epsilon=self.epsilon,
        )  # fmt: skip
        return [run.sums.errors for run in runs]


def pilot(
    search: Search, trajectories: int, least: int, alpha: float, seed: int, c: float = 1.0
) -> tuple[float, list[int], list[int]]:
    """A c at which the hardest instance would just be certified; the instances, hardest first; and how many
    trajectories to spend on each: all on those that may decide, a quarter on the others.

    Errors fall roughly as a power of c: from the c given, steps of the secant method on the logarithms of both, on the
    three worst instances.
    """
    size = max(trajectories // 4, least)
    aim = max(most_errors(trajectories, search.delta, alpha / 2), 0.5) / trajectories  # few of them allow no error
    rates = dict.fromkeys(range(len(search.instances)), 1.0)
    order: list[int] = []
    sizes: list[int] = []
    power, last = 1.0, (0.0, 0.0)
    for step in range(6):
        for j in rates:
            rates[j] = (search.errors(j, [c], size, seed)[0] + 0.5) / (size + 1)
        worst = max(rates.values())
        if step == 0:
            order = sorted(rates, key=lambda j: -rates[j])
            sizes = [trajectories if rates[j] > 0.4 * worst else size for j in order]
            rates = {j: rates[j] for j in order[:3]}
        elif math.log(c) != last[0]:
            power = min(max((last[1] - math.log(worst)) / (math.log(c) - last[0]), 0.3), 3.0)
        last = math.log(c), math.log(worst)
        factor = min(max((worst / aim) ** (1 / power), 1 / 8), 8.0)
        c = max(c * factor, 1.01 * search.delta)
        if abs(math.log(factor)) < 0.15:
            break
    return c, order, sizes


def hardest(search: Search, c: float, size: int, seed: int) -> list[int]:
    """The ADDED instances with the most errors: all are tried with few trajectories, then the worst with more."""
    tried = list(range(len(search.instances)))
    for keep, more in ((2 * ADDED, 1), (ADDED, 4)):
        errors = {j: search.errors(j, [c], more * size, seed)[0] for j in tried}
        tried = sorted(errors, key=lambda j: -errors[j])[:keep]
    return tried


def descend(
    search: Search, guess: float, sizes: list[int], alpha: float, seed: int, tried: list[float]
) -> tuple[float, list[int]] | None:
    """The last constant certified on the way down from above the guess, and the errors seen there; None if none was."""
    allowed = [most_errors(size, search.delta, alpha) for size in sizes]
    start, found, count = guess * STEP, None, 0
    while True:
        below = (float(f"{start / STEP ** (count + i):.3g}") for i in range(search.at_once))
        constants = [c for c in below if c > search.delta]  # at delta itself, no evidence would be asked for
        seen: list[list[int]] = []
        certified = len(constants)
        for j in range(len(sizes)) if certified else ():
            seen.append(search.errors(j, constants[:certified], sizes[j], seed))
            passes = [errors <= allowed[j] for errors in seen[-1]]
            certified = passes.index(False) if False in passes else certified
            if not certified:
                break
        tried += constants[: certified + 1]
        if certified:
            found = constants[certified - 1], [errors[certified - 1] for errors in seen]
        if certified < search.at_once:
            return found
        count += search.at_once


def best_is_lost(arms, run, rules):  # type: ignore[no-untyped-def]
    """The stopping rule of co and racing, and over as soon as the best arm, the last, has been dropped."""
    return co_stop(arms, run, rules) or arms[len(arms) - 1].in_play == 0


def watched(policy: Policy) -> Policy:
    """The same policy; one that eliminates ends, wrongly, when it drops the last arm, whatever it does afterwards."""
    if not isinstance(policy, CO):
        return policy
    own: Any = type(type(policy).__name__, (type(policy),), {"stop": staticmethod(best_is_lost)})
    return own()  # type: ignore[no-any-return]


def seed_of(seed: int, part: int) -> int:
    """Separate random numbers for each part of the search; `simulate` with a small seed does not draw the same."""
    return int(np.random.SeedSequence((seed, part)).generate_state(1, np.uint64)[0])
