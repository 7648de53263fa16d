"""What a reward is: the families of distributions, which means and rewards each allows, and its divergence.

| family | means | rewards | divergence d(p, q), in nats |
|---|---|---|---|
| gaussian(variance v) | all reals | all reals | (p-q)² / (2v) |
| bernoulli | [0, 1] | 0 or 1 | p log(p/q) + (1-p) log((1-p)/(1-q)) |
| poisson | [0, inf) | 0, 1, 2, ... | p log(p/q) + q - p |
| exponential | (0, inf) | (0, inf) | p/q - 1 - log(p/q) |
| bounded | [0, 1] | [0, 1] | bernoulli's, the least that any law on [0, 1] has |

`limits` are narrower: the means of an instance, and rewards, that double precision can sum and compare.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from cabai.checks import InvalidInput, number, positive
from cabai.kernels.divergence import divergence, lower_end, upper_end
from cabai.named import Named, Registry
from cabai.state import BERNOULLI, EXPONENTIAL, GAUSSIAN, MIRRORED_EXPONENTIAL, MIRRORED_POISSON, POISSON


@dataclass(frozen=True)
class Family(Named):
    """A one-parameter exponential family, known by its mean."""

    kind = "family"
    code: ClassVar[int]
    variance: ClassVar[float] = 1.0  # a parameter of the gaussian family; no other looks at it
    means: ClassVar[str]  # in words, for error messages
    rewards: ClassVar[str]
    mean_range: ClassVar[tuple[float, float]]
    mirror_code: ClassVar[int]  # the number of the family as kernels see it where the smallest mean is wanted
    limits: ClassVar[Any] = (0.0, 1.0)  # the means and rewards that double precision can sum and compare
    has_bound: ClassVar[bool] = True  # rewards follow this very law, so no test can do with less than its divergence

    def allows_mean(self, mean: float) -> bool:
        raise NotImplementedError

    def allows_reward(self, reward: float) -> bool:
        return self.allows_mean(reward)

    def check_mean(self, mean: Any, name: str = "mean") -> float:
        value = number(mean, name)
        if not self.allows_mean(value):
            raise InvalidInput(f"{name} must be {self.means} for the {self.name} family, got {mean!r}.")
        return value

    def check_reward(self, reward: Any, name: str = "reward") -> float:
        value = number(reward, name)
        if not self.allows_reward(value):
            raise InvalidInput(f"{name} must be {self.rewards} for the {self.name} family, got {reward!r}.")
        return self.check_size(value, name)

    def check_size(self, value: float, name: str) -> float:
        """Refuse a mean or a reward with which double precision would go wrong."""
        low, high = self.limits
        if not low <= value <= high:
            shift = " Subtract the same number from every reward." if self.code == GAUSSIAN else ""
            raise InvalidInput(f"{name} must be from {low:.6g} to {high:.6g} for family {self}, got {value!r}.{shift}")
        return value

    def check_epsilon(self, epsilon: Any) -> float:
        """How much worse than the best an arm may be: a number that is not negative, and means that differ by it."""
        value = number(epsilon, "epsilon")
        if value < 0 or (self.code == BERNOULLI and value >= 1):
            allowed = "in [0, 1)" if self.code == BERNOULLI else "0 or positive"
            raise InvalidInput(f"epsilon must be {allowed} for the {self.name} family, got {epsilon!r}.")
        return value

    def mirror(self, value: float) -> float:
        """A reward or mean as kernels see it where the smallest mean is wanted; and back."""
        return 0.0 - value  # never -0

    def divergence(self, p: float, q: float) -> float:
        """d(p, q): the Kullback-Leibler divergence from the distribution with mean p to the one with mean q, in nats.

        >>> Gaussian(variance=4).divergence(1, 3)
        0.5
        >>> Bernoulli().divergence(0, 0.5)   # -log(1 - 0.5)
        0.693147...
        >>> Bernoulli().divergence(0.5, 0)
        inf
        """
        p, q = self.check_mean(p, "p"), self.check_mean(q, "q")
        return float(divergence(self.code, self.variance, p, p - q, q, 1.0 - q))

    def interval(self, mean: float, level: float) -> tuple[float, float]:
        """The means q with d(mean, q) <= level: what `mean` leaves possible when `level` nats are allowed.

        >>> Gaussian().interval(1, 0.5)
        (0.0, 2.0)
        >>> Bernoulli().interval(1, 0.7)   # (exp(-0.7), 1)
        (0.496585..., 1.0)
        """
        mean, level = self.check_mean(mean), number(level, "level")
        if level < 0:
            raise InvalidInput(f"level must not be negative, got {level!r}.")
        arguments = self.code, self.variance, mean, level
        return float(lower_end(*arguments)), float(upper_end(*arguments))


@dataclass(frozen=True)
class Gaussian(Family):
    """Real rewards with a known variance, or sub-Gaussian ones with that variance proxy."""

    variance: float = 1.0  # type: ignore[misc]
    name = "gaussian"
    code = mirror_code = GAUSSIAN
    means = rewards = "a real number"
    mean_range = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", positive(self.variance, "variance"))

    def allows_mean(self, mean: float) -> bool:
        return math.isfinite(mean)

    @property
    def limits(self) -> tuple[float, float]:
        """1e9 standard deviations: from there the sum of a million rewards is rounded by 3 % of its own noise."""
        farthest = 1e9 * math.sqrt(self.variance)
        return -farthest, farthest


@dataclass(frozen=True)
class Bernoulli(Family):
    """Success or failure: rewards 1 and 0."""

    name = "bernoulli"
    code = mirror_code = BERNOULLI
    means, rewards = "in [0, 1]", "0 or 1"
    mean_range = (0.0, 1.0)

    def allows_mean(self, mean: float) -> bool:
        return 0 <= mean <= 1

    def allows_reward(self, reward: float) -> bool:
        return reward in (0, 1)

    def mirror(self, value: float) -> float:
        return 1 - value


@dataclass(frozen=True)
class Poisson(Family):
    """Counts: rewards 0, 1, 2, ..."""

    name = "poisson"
    code, mirror_code = POISSON, MIRRORED_POISSON
    means, rewards = "0 or positive", "a whole number, 0 or more,"
    limits = (0.0, 2.0**53)  # beyond, a double does not tell a count from the next
    mean_range = (0.0, math.inf)

    def allows_mean(self, mean: float) -> bool:
        return 0 <= mean < math.inf

    def allows_reward(self, reward: float) -> bool:
        return self.allows_mean(reward) and reward == int(reward)


@dataclass(frozen=True)
class Exponential(Family):
    """Waiting times: positive rewards, exponentially distributed."""

    name = "exponential"
    code, mirror_code = EXPONENTIAL, MIRRORED_EXPONENTIAL
    means = rewards = "positive"
    limits = (1e-100, 1e100)  # of which sums and squares can be taken
    mean_range = (0.0, math.inf)

    def allows_mean(self, mean: float) -> bool:
        return 0 < mean < math.inf


@dataclass(frozen=True)
class Bounded(Bernoulli):
    """Any rewards in [0, 1], such as accuracies.

    Of all laws on [0, 1] with given means, bernoulli's are the hardest to tell apart. So its divergence is safe for a
    test of the others; but what they cost at least can be less, so there is no lower bound.
    """

    name = "bounded"
    rewards = "in [0, 1]"
    has_bound = False

    def allows_reward(self, reward: float) -> bool:
        return 0 <= reward <= 1


FAMILIES: Registry[Family] = Registry("family", Gaussian, Bernoulli, Poisson, Exponential, Bounded)


def family_of(given: str | Family, variance: float | None = None) -> Family:
    """The family of that name, or the family itself; `variance` sets a gaussian's.

    >>> print(family_of("gaussian(variance=2)"), family_of("poisson"))
    gaussian(variance=2) poisson
    """
    family = FAMILIES.get(given)
    if variance is None:
        return family
    if not isinstance(family, Gaussian):
        raise InvalidInput(f"variance belongs to the gaussian family only, got variance={variance!r} for {family}.")
    return dataclasses.replace(family, variance=variance)
