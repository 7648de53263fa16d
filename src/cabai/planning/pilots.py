"""What a pilot says about means and costs: its rewards, and draws from the posterior.

| family | what is drawn of an arm with n rewards of mean m |
|---|---|
| bernoulli | Beta(1/2 + successes, 1/2 + failures), Jeffreys' posterior |
| poisson | Gamma(1/2 + sum)/n, Jeffreys' posterior |
| gaussian(variance v) | Normal(m, v/n) |
| exponential | sum/Gamma(n) |
| bounded | m + sd t/sqrt(n), t of Student's law with n - 1 degrees of freedom, if that lies in the range; with it the \
standard deviation, by a chi-squared law. Where all rewards lie at the ends of the range, as bernoulli |
| others | Rubin's Bayesian bootstrap |

A mean cost is drawn as m exp(N(0, 1) sd/(m sqrt(n))). The pilot's own cost is not part of the bill.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.sheets import Sheet, column_for, numbered, numbers_in, open_sheet
from cabai.families import Exponential, Family, Gaussian
from cabai.planning.truths import Truths
from cabai.support.validation import InvalidInput, shown

Numbers = NDArray[np.float64]
PILOT = 3  # the stream of random numbers
LEAST = 2  # rewards of each arm
ADVICE = "A pilot's table has the columns arm, reward and perhaps cost, one row per pull."


@dataclass(frozen=True)
class Pilot:
    """The rewards of each arm, and what its pulls cost; no costs where the table has none."""

    arms: tuple[str, ...]
    rewards: tuple[Numbers, ...]
    costs: tuple[Numbers, ...] | None

    def of(self, arms: Sequence[str]) -> Pilot:
        """The same for these arms, in this order."""
        places = {arm: a for a, arm in enumerate(self.arms)}
        for arm in arms:
            if arm not in places:
                raise InvalidInput(f"the pilot has no reward for arm {shown(arm)}; it has {', '.join(self.arms)}.")
        order = [places[arm] for arm in arms]
        costs = None if self.costs is None else tuple(self.costs[a] for a in order)
        return Pilot(tuple(arms), tuple(self.rewards[a] for a in order), costs)

    def in_words(self, a: int) -> str:
        """The mean of an arm's rewards, and how many they are."""
        return f"{self.rewards[a].mean():.4g} in {len(self.rewards[a])}"


def pilot_in(sheet: Sheet) -> Pilot:
    """The pilot in a table."""
    arm, reward, cost = (column_for(sheet, role) for role in ("arm", "score", "cost"))
    if arm is None or reward is None:
        raise InvalidInput(f"{sheet.name} has no column {'arm' if arm is None else 'reward'}. {ADVICE}")
    names, rows = numbered(sheet, arm)
    most = sys.float_info.max
    rewards = numbers_in(sheet.columns[reward], "reward", -most, most, lambda row: sheet.place(row, reward))
    known = ~np.isnan(rewards)
    costs = None
    if cost is not None:
        paid = numbers_in(sheet.columns[cost], "cost", 0.0, most, lambda row: sheet.place(row, cost))
        costs = tuple(paid[(rows == a) & ~np.isnan(paid)] for a in range(len(names)))
    return Pilot(tuple(names), tuple(rewards[known & (rows == a)] for a in range(len(names))), costs)


def read_pilot(source: Any) -> Pilot:
    """The pilot in a CSV or Parquet file, a DataFrame, or a mapping of each arm to its rewards."""
    if isinstance(source, Pilot):
        return source
    if isinstance(source, Mapping):
        rewards = tuple(np.asarray(each, float) for each in source.values())
        return Pilot(tuple(str(arm) for arm in source), rewards, None)
    return pilot_in(open_sheet(source))


def pilot_of(observations: Sequence[Mapping[str, Any]]) -> Pilot:
    """What a study was told: every pull that returned a reward."""
    arms = tuple(dict.fromkeys(each["arm"] for each in observations))
    told = [each for each in observations if each["reward"] is not None]

    def values(name: str, arm: str) -> Numbers:
        return np.array([each[name] for each in told if each["arm"] == arm], float)

    return Pilot(arms, tuple(values("reward", arm) for arm in arms), tuple(values("cost", arm) for arm in arms))


def posterior(
    pilot: Pilot, family: Family, *, draws: int, seed: int, minimize: bool, cost_model: str, costs: Numbers | None
) -> Truths:
    """Truths drawn from the pilot's posterior; `costs` if they are known from elsewhere."""
    at_ends = True
    for arm, rewards in zip(pilot.arms, pilot.rewards, strict=True):
        if len(rewards) < LEAST:
            raise InvalidInput(
                f"the pilot has {len(rewards)} rewards for arm {shown(arm)}: it needs at least {LEAST} for each arm."
            )
        for reward in np.unique(rewards).tolist():
            family.check_reward(reward, f"a reward of arm {shown(arm)}")
        at_ends = at_ends and bool(np.isin(rewards, family.mean_range).all())
    streams = [np.random.default_rng([seed, PILOT, a]) for a in range(len(pilot.arms))]
    pairs = [
        drawn_means(family, rewards, draws, random) for rewards, random in zip(pilot.rewards, streams, strict=True)
    ]
    means = np.column_stack([mean for mean, _ in pairs])
    is_bounded = family.key == "bounded"
    if costs is None:
        costs = np.ones_like(means)
        if pilot.costs is not None:
            columns = zip(pilot.arms, pilot.costs, streams, strict=True)
            costs = np.column_stack([drawn_costs(arm, paid, draws, random) for arm, paid, random in columns])
    return Truths(
        family=family,
        minimize=minimize,
        means=means,
        costs=costs,
        cost_model=cost_model,
        law=("two-point" if at_ends else "beta") if is_bounded else None,
        sds=np.column_stack([sd for _, sd in pairs]) if is_bounded and not at_ends else None,
    )


def drawn_means(family: Family, rewards: Numbers, draws: int, random: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Draws of the mean, given rewards, and, for bounded rewards, of the standard deviation."""
    n, total, mean = len(rewards), float(rewards.sum()), float(rewards.mean())
    low, high = family.mean_range
    none = np.zeros(draws)
    if family.key == "bernoulli" or (family.key == "bounded" and np.isin(rewards, (low, high)).all()):
        good = float((rewards == high).sum())
        shares = random.beta(0.5 + good, 0.5 + n - good, draws)
        return low + (high - low) * shares, (high - low) * np.sqrt(shares * (1 - shares))
    if family.key == "bounded":
        return drawn_bounded(family, rewards, draws, random)
    if family.key == "poisson":
        return random.gamma(0.5 + total, 1 / n, draws), none
    if isinstance(family, Gaussian):
        return random.normal(mean, math.sqrt(family.variance / n), draws), none
    if isinstance(family, Exponential):
        return total / random.gamma(n, 1.0, draws), none
    weights = random.exponential(size=(draws, n))
    return weights @ rewards / weights.sum(axis=1), none


def drawn_bounded(family: Family, rewards: Numbers, draws: int, random: np.random.Generator) -> tuple[Numbers, Numbers]:
    """From Student's distribution, cut to the range: values outside are drawn again. The standard deviation of a draw
    is at least a thousandth of the range, and at most what the mean allows."""
    low, high = family.mean_range
    n, width = len(rewards), high - low
    sd = max(float(rewards.std(ddof=1)), 1e-3 * width)
    means, sds = np.empty(0), np.empty(0)
    while len(means) < draws:
        some = sd * np.sqrt((n - 1) / random.chisquare(n - 1, draws))
        drawn = rewards.mean() + some / math.sqrt(n) * random.normal(size=draws)
        good = (drawn > low) & (drawn < high)
        means, sds = np.append(means, drawn[good]), np.append(sds, some[good])
    return means[:draws], np.maximum(sds[:draws], 1e-3 * width)


def drawn_costs(arm: str, paid: Numbers, draws: int, random: np.random.Generator) -> Numbers:
    """Draws of the mean cost, given costs."""
    mean = float(paid.mean()) if len(paid) else 0.0
    if not mean > 0:
        raise InvalidInput(f"the pilot has no positive cost for arm {shown(arm)}: give costs= (--costs).")
    error = float(paid.std(ddof=1)) / (mean * math.sqrt(len(paid))) if len(paid) > 1 else 0.0
    return mean * np.exp(error * random.normal(size=draws))
