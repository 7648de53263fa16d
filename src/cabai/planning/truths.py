"""Truths drawn from what is known: the means and costs of each simulated study. From a pilot, they are drawn from the
posterior:

| family | what is drawn of an arm with n rewards of mean m |
|---|---|
| bernoulli | Beta(1/2 + successes, 1/2 + failures), Jeffreys' posterior |
| poisson | Gamma(1/2 + sum)/n, Jeffreys' posterior |
| gaussian(variance v) | Normal(m, v/n) |
| gaussian(variance unknown) | as bounded, without a range |
| exponential | sum/Gamma(n) |
| bounded | m + sd t/sqrt(n), t of Student's law with n - 1 degrees of freedom, if that lies in the range; with it the \
standard deviation, by a chi-squared law. Where all rewards lie at the ends of the range, as bernoulli |
| others | Rubin's Bayesian bootstrap |

A mean cost is drawn as m exp(N(0, 1) sd/(m sqrt(n))).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cabai.datasets.sheets import Numbers, column_for, numbered, open_sheet
from cabai.families import Exponential, Family, Gaussian
from cabai.families.laws import LAWS
from cabai.instance import Instance
from cabai.support.validation import InvalidInput, shown

PILOT = 3  # the stream of random numbers
LEAST = 2  # rewards of each arm


@dataclass(frozen=True)
class Truths:
    """One row per draw, one column per arm. Rewards are as a user tells them: `minimize` says that the smallest mean is
    the best."""

    family: Family
    minimize: bool
    means: Numbers
    costs: Numbers
    cost_model: str = "fixed"
    law: str | None = None  # of bounded rewards
    sds: Numbers | None = None  # where the law, or the study, does not say; None: the largest of the law

    @property
    def goodness(self) -> Numbers:
        return -self.means if self.minimize else self.means

    @property
    def next_best(self) -> Numbers:
        """By draw, how good the second best arm is."""
        return np.sort(self.goodness, axis=1)[:, -2]

    def part(self, draws: int | None, without: int | Sequence[int] = ()) -> Truths:
        """The first draws, without some arms."""

        def kept(columns: Numbers) -> Numbers:
            return np.delete(columns[:draws], without, axis=1)

        sds = None if self.sds is None else kept(self.sds)
        return replace(self, means=kept(self.means), costs=kept(self.costs), sds=sds)

    def with_gap(self, gap: float) -> Truths:
        """The same truths, with the best arm of each moved so that it is ahead of the next by this much."""
        goodness = self.goodness.copy()
        goodness[np.arange(len(goodness)), goodness.argmax(axis=1)] = self.next_best + gap
        return replace(self, means=-goodness if self.minimize else goodness)

    @property
    def largest_gap(self) -> float:
        """The largest gap with which all of these truths are still of the family."""
        (low, high), (least, most) = self.family.mean_range, self.family.limits
        return 0.999 * float((-max(low, least) if self.minimize else min(high, most)) - self.next_best.max())

    @property
    def negated(self) -> bool:
        """Whether drawn rewards must be negated, because the mirrored family is another one."""
        return self.minimize and not self.family.is_symmetric

    def instances(self) -> list[Instance]:
        """What a simulation draws from: with the means as a study's kernels see them, or to be negated."""
        family, means = self.family, self.means
        if self.minimize and family.is_symmetric:
            means = np.vectorize(lambda mean: family.unscaled(family.mirror(family.scaled(mean))))(means)
        sds = [None] * len(means) if self.sds is None else self.sds
        if self.sds is not None and self.law is not None:  # no more than the law can have with these means
            law = LAWS[self.law]
            sds = np.minimum(self.sds, np.vectorize(lambda mean: law.largest(family.scaled(mean)) * family.unit)(means))
        return [
            Instance(family, mean, cost, cost_model=self.cost_model, law=self.law, sd=sd)
            for mean, cost, sd in zip(means, self.costs, sds, strict=True)
        ]


class Pilot(NamedTuple):
    """By arm, its rewards and what its pulls cost; no costs where the table has none."""

    rewards: dict[str, Numbers]
    costs: dict[str, Numbers] | None


def pilot_in(data: Any) -> Any:
    """A pilot of rewards, if that is what a table or a mapping of each arm to its rewards holds; a table of scores on
    items is left as it is."""
    if isinstance(data, Mapping):
        return Pilot({str(arm): rewards_of(arm, given) for arm, given in data.items()}, None)
    if not isinstance(data, (str, Path)) and not hasattr(data, "columns"):
        return data
    sheet = open_sheet(data)
    arm, item, reward, cost = (column_for(sheet, role) for role in ("arm", "item", "score", "cost"))
    if arm is None or reward is None or item is not None:
        return data
    names, rows = numbered(sheet, sheet.columns[arm], "arm")

    def by_arm(column: int, what: str, least: float = 0.0) -> dict[str, Numbers]:
        found = sheet.numbers(column, what, least)
        return {name: found[(rows == a) & ~np.isnan(found)] for a, name in enumerate(names)}

    rewards = by_arm(reward, "reward", -sys.float_info.max)
    return Pilot(rewards, None if cost is None else by_arm(cost, "cost"))


def rewards_of(arm: Any, given: Any) -> Numbers:
    with suppress(TypeError, ValueError):
        found: Numbers = np.asarray(given, float)
        if found.ndim == 1:
            return found
    raise InvalidInput(f"the rewards of arm {shown(arm)} must be a list of numbers, got {shown(given)}.")


def pilot_of(observations: Sequence[Mapping[str, Any]]) -> Pilot:
    """What a study was told: every pull that returned a reward."""
    rewards, costs = ({each["arm"]: list[float]() for each in observations} for _ in range(2))
    for each in observations:
        if each["reward"] is not None:
            rewards[each["arm"]].append(each["reward"])
            costs[each["arm"]].append(each["cost"])
    return Pilot(*({arm: np.array(told, float) for arm, told in by_arm.items()} for by_arm in (rewards, costs)))


def posterior(
    pilot: Pilot, names: Sequence[str], family: Family, *, draws: int, seed: int
) -> tuple[dict[str, Numbers], dict[str, list[str]], str | None]:
    """Drawn from the pilot's posterior, by name: means, costs if the pilot has any, and standard deviations where the
    family does not say; the same in words; and the law of bounded rewards."""
    drawn: dict[str, list[Numbers]] = {"means": [], "costs": [], "sd": []}
    words: dict[str, list[str]] = {"means": [], "costs": []}
    law = "two-point" if family.key == "bounded" else None
    for a, arm in enumerate(names):
        if arm not in pilot.rewards:
            raise InvalidInput(f"the pilot has no reward for arm {shown(arm)}; it has {', '.join(pilot.rewards)}.")
        rewards = pilot.rewards[arm]
        if len(rewards) < LEAST:
            raise InvalidInput(
                f"the pilot needs at least {LEAST} rewards of each arm, got {len(rewards)} of arm {shown(arm)}."
            )
        for reward in np.unique(rewards).tolist():
            family.check_reward(reward, f"a reward of arm {shown(arm)}")
        random = np.random.default_rng([seed, PILOT, a])
        mean, sd = drawn_means(family, rewards, draws, random)
        drawn["means"].append(mean)
        drawn["sd"].append(sd)
        words["means"].append(f"{rewards.mean():.4g} in {len(rewards)}")
        if law is not None and not np.isin(rewards, family.mean_range).all():
            law = "beta"
        if pilot.costs is not None:
            paid = pilot.costs[arm]
            if not paid.sum() > 0:
                raise InvalidInput(f"the pilot has no positive cost for arm {shown(arm)}: give costs= (--costs).")
            cost, spread = float(paid.mean()), float(paid.std(ddof=1)) if len(paid) > 1 else 0.0
            error = spread / (cost * math.sqrt(len(paid)))
            drawn["costs"].append(cost * np.exp(error * random.normal(size=draws)))
            words["costs"].append(f"{cost:.4g}")
    if law != "beta" and family.key != "symmetric":
        del drawn["sd"]
    return {name: np.column_stack(columns) for name, columns in drawn.items() if columns}, words, law


def drawn_means(family: Family, rewards: Numbers, draws: int, random: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Draws of the mean, given rewards, and, where the family does not say, of the standard deviation."""
    n, total, mean = len(rewards), float(rewards.sum()), float(rewards.mean())
    low, high = family.mean_range
    none = np.zeros(draws)
    if family.key == "bernoulli" or (family.key == "bounded" and np.isin(rewards, (low, high)).all()):
        good = float((rewards == high).sum())
        shares = random.beta(0.5 + good, 0.5 + n - good, draws)
        return low + (high - low) * shares, (high - low) * np.sqrt(shares * (1 - shares))
    if family.key in ("bounded", "symmetric"):
        return drawn_by_student(family, rewards, draws, random)
    if family.key == "poisson":
        return random.gamma(0.5 + total, 1 / n, draws), none
    if isinstance(family, Gaussian):
        return random.normal(mean, math.sqrt(family.variance / n), draws), none
    if isinstance(family, Exponential):
        return total / random.gamma(n, 1.0, draws), none
    weights = random.exponential(size=(draws, n))
    return weights @ rewards / weights.sum(axis=1), none


def drawn_by_student(
    family: Family, rewards: Numbers, draws: int, random: np.random.Generator
) -> tuple[Numbers, Numbers]:
    """From Student's distribution, cut to the range if there is one: values outside are drawn again. The standard
    deviation of a draw is then at least a thousandth of the range, and at most what the mean allows."""
    low, high = family.mean_range
    n, least = len(rewards), 1e-3 * (high - low) if math.isfinite(high - low) else 0.0
    sd = max(float(rewards.std(ddof=1)), least, 1e-12)
    means, sds = np.empty(0), np.empty(0)
    while len(means) < draws:
        some = sd * np.sqrt((n - 1) / random.chisquare(n - 1, draws))
        drawn = rewards.mean() + some / math.sqrt(n) * random.normal(size=draws)
        good = (drawn > low) & (drawn < high)
        means, sds = np.append(means, drawn[good]), np.append(sds, some[good])
    return means[:draws], np.maximum(sds[:draws], least)
