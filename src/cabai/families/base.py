"""The base class of families: the rewards and means a family allows, and the plain functions that kernels call.

The functions below are slots (see `cabai.support.specialise`): a family replaces them with its own functions of the
same names, listed in `functions`. The first argument, `rules`, is a record with the family's parameters, such as the
variance. `complement` is 1 - q and `difference` is p - q: callers know both exactly, and near p = q a divergence
computed from p and q alone would lose precision.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cabai.families.ends import newton_end
from cabai.families.slots import divergence, draw, edges
from cabai.support.lazy import lazy
from cabai.support.registry import Named
from cabai.support.specialise import Binding, binding, function_for, slot
from cabai.support.validation import InvalidInput, number


@slot
def upper_end(rules, mean, level):
    """The largest q with d(mean, q) <= level, for level >= 0."""
    _, high = edges(rules)
    if mean >= high:
        return high
    return newton_end(rules, mean, level, 1.0)


@slot
def lower_end(rules, mean, level):
    """The smallest q with d(mean, q) <= level, for level >= 0."""
    low, _ = edges(rules)
    if mean <= low:
        return low
    return newton_end(rules, mean, level, -1.0)


@dataclass(frozen=True)
class Family(Named):
    """What a reward is: a family of distributions with one parameter, the mean.

    The dataclass fields of a family are its other parameters, such as a variance. To write your own, see docs/own.md.

    >>> import cabai
    >>> poisson = cabai.families.family_of("poisson")
    >>> poisson.mean_range, poisson.allows_mean(2.5), poisson.allows_reward(2.5)
    ((0.0, inf), True, False)
    >>> poisson.check_mean(2), poisson.check_reward(3), poisson.check_epsilon(0.1)
    (2.0, 3.0, 0.1)
    >>> cabai.families.Bernoulli().check_mean(1.5)
    Traceback (most recent call last):
    cabai.errors.InvalidInput: mean must be in [0, 1] for the bernoulli family, got 1.5.
    >>> tenths = cabai.families.Bounded(low=0, high=10)
    >>> tenths.scaled(3), tenths.unscaled(0.5), tenths.mirror(0.25)
    (0.3, 5.0, 0.75)
    """

    kind = "family"
    functions: ClassVar[tuple[Any, ...]]
    means: ClassVar[str]  # in words, for error messages
    rewards: ClassVar[str]
    advice: ClassVar[str] = ""  # to those who have other rewards
    whole_rewards: ClassVar[bool] = False  # whether every reward, and so every sum of them, is a whole number
    sets_first_aside: ClassVar[bool] = True  # whether `evalue` needs an arm's first reward to make its mixture proper
    limits: ClassVar[Any] = (-1e100, 1e100)  # the means and rewards that double precision can sum and compare
    typical_means: ClassVar[tuple[float, ...]] = (1.0,)  # where `calibrate` searches, the hardest first
    has_bound: ClassVar[bool] = True  # whether the divergence is exact for these rewards, so that a bound exists
    shows_margins: ClassVar[bool] = False  # whether `contrast` can show that one mean exceeds another by a margin
    is_symmetric: ClassVar[bool] = False  # whether negated (mirrored) rewards belong to the same family
    usual_tilts: ClassVar[tuple[float, float]] = (0.8, 1.2)  # where `contrast` is cheapest: center, and width in log

    def allows_mean(self, mean: float) -> bool:
        """Whether arms of this family can have this mean."""
        low, high = self.mean_range
        return low <= mean <= high and math.isfinite(mean)

    def allows_reward(self, reward: float) -> bool:
        """Whether a pull can return this reward."""
        return self.allows_mean(reward) and (not self.whole_rewards or reward == int(reward))

    def check_mean(self, mean: Any, name: str = "mean") -> float:
        """Return a mean as a number, or raise an error that says which means are allowed."""
        value = number(mean, name)
        if not self.allows_mean(value):
            raise InvalidInput(f"{name} must be {self.means} for the {self.name} family, got {mean!r}.")
        return value

    def check_reward(self, reward: Any, name: str = "reward") -> float:
        """Return a reward as a number, or raise an error that says which rewards are allowed."""
        value = number(reward, name)
        if not self.allows_reward(value):
            raise InvalidInput(
                f"{name} must be {self.rewards} for the {self.name} family, got {reward!r}.{self.advice}"
            )
        return self.check_size(value, name)

    def check_size(self, value: float, name: str) -> float:
        """Refuse a mean or a reward that is too large or too small for double precision."""
        low, high = self.limits
        if not low <= value <= high:
            shift = " Subtract the same number from every reward." if low < 0 else ""
            raise InvalidInput(f"{name} must be from {low:.6g} to {high:.6g} for family {self}, got {value!r}.{shift}")
        return value

    def check_epsilon(self, epsilon: Any) -> float:
        """Return an epsilon as a number, or raise an error if it is negative or more than means can differ by."""
        value = number(epsilon, "epsilon")
        width = self.mean_range[1] - self.mean_range[0]
        if not 0 <= value < width:
            allowed = f"in [0, {width:g})" if math.isfinite(width) else "0 or positive"
            raise InvalidInput(f"epsilon must be {allowed} for the {self.name} family, got {epsilon!r}.")
        return value

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters that kernels find in `rules`."""
        return {field.name: float(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @lazy
    def binding(self) -> Binding:
        return binding(self.functions)

    def call(self, of: Any, *arguments: float) -> Any:
        """Call this family's version of a slot, in plain Python."""
        return function_for(of, self.binding)(SimpleNamespace(**self.parameters), *arguments)

    @lazy
    def mean_range(self) -> tuple[float, float]:
        """The smallest and the largest mean; infinite where there is no limit."""
        low, high = self.call(edges)
        return float(low), float(high)

    @property
    def tilt_ranges(self) -> tuple[tuple[float, float, float], ...]:
        """For `contrast`: ranges of means in increasing order, each with its usual tilt."""
        return ((*self.mean_range, self.usual_tilts[0]),)

    def drawing(self, means: Sequence[float] | NDArray[np.float64]) -> Any:
        """The function that draws rewards for arms with these means."""
        return dict(self.binding).get("draw", draw)

    def spread(self, mean: float) -> float:
        """A number, computed once, that `draw` reads from `arm.spread`."""
        return 0.0

    def tilt(self, tilt: float) -> tuple[float, float]:
        """Two numbers, computed once per tilt, that `tilted` receives."""
        return tilt, 0.0

    unit: ClassVar[float] = 1.0  # the reward that kernels see as 1

    @property
    def scale(self) -> float:
        """The unit of epsilon: for a scale-invariant family, only the ratio of epsilon to this matters."""
        return self.unit

    def scaled(self, value: float) -> float:
        """A reward or mean in the units of compiled code: for bounded rewards, a share of their range."""
        return value

    def unscaled(self, value: float) -> float:
        """The inverse of `scaled`."""
        return value

    def mirror(self, value: float) -> float:
        """A scaled reward or mean with its direction reversed, as compiled code sees it when you minimize."""
        return 0.0 - value  # never -0

    def divergence(self, p: float, q: float) -> float:
        """d(p, q): the Kullback-Leibler divergence from the distribution with mean p to the one with mean q, in nats.

        >>> from cabai.families import Bernoulli, Gaussian
        >>> Gaussian(variance=4).divergence(1, 3)
        0.5
        >>> Bernoulli().divergence(0, 0.5)   # -log(1 - 0.5)
        0.693147...
        >>> Bernoulli().divergence(0.5, 0)
        inf
        """
        p, q = self.scaled(self.check_mean(p, "p")), self.scaled(self.check_mean(q, "q"))
        return float(self.call(divergence, p, p - q, q, 1.0 - q))

    def interval(self, mean: float, level: float) -> tuple[float, float]:
        """The interval of means q with d(mean, q) <= level, where `level` is in nats.

        >>> from cabai.families import Bernoulli, Gaussian
        >>> Gaussian().interval(1, 0.5)
        (0.0, 2.0)
        >>> Bernoulli().interval(1, 0.7)   # (exp(-0.7), 1)
        (0.496585..., 1.0)
        """
        mean, level = self.scaled(self.check_mean(mean)), number(level, "level")
        if level < 0:
            raise InvalidInput(f"level must not be negative, got {level!r}.")
        low, high = (self.unscaled(float(self.call(end, mean, level))) for end in (lower_end, upper_end))
        return low, high
