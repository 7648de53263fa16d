"""Any rewards in a known range. The bernoulli divergence is safe for testing them: the exponential is convex."""

from __future__ import annotations

from dataclasses import dataclass

from cabai.families import bernoulli
from cabai.support.streams import uniform
from cabai.support.validation import InvalidInput, number


def draw(arm):
    """Uniform on the widest interval around the mean that fits in [0, 1]. See `laws` for other distributions."""
    return arm.mean + (2.0 * uniform(arm) - 1.0) * min(arm.mean, 1.0 - arm.mean)


@dataclass(frozen=True)
class Bounded(bernoulli.Bernoulli):
    """Any rewards from `low` to `high`, such as accuracies.

    Compiled code sees them scaled to [0, 1]. Of all distributions on [0, 1] with given means, Bernoulli distributions
    are the hardest to tell apart. So their divergence is safe for testing any other; but other distributions may need
    fewer pulls, so there is no lower bound.

    >>> Bounded(low=-1, high=3).scaled(0)
    0.25
    """

    low: float = 0.0
    high: float = 1.0
    name = "bounded"
    advice = " For another range: family='bounded(low=1, high=5)'."
    whole_rewards = False
    has_bound = False
    functions = (*bernoulli.Bernoulli.functions, draw)

    def __post_init__(self) -> None:
        low, high = number(self.low, "low"), number(self.high, "high")
        if not (low < high and high - low < 1e300 and (high - low) >= 1e-12 * max(abs(low), abs(high))):
            raise InvalidInput(f"low must be less than high, by more than rounding errors, got {low:g} and {high:g}.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def means(self) -> str:  # type: ignore[override]
        return f"in [{self.low:g}, {self.high:g}]"

    rewards = means

    @property
    def limits(self) -> tuple[float, float]:  # type: ignore[override]
        return self.low, self.high

    mean_range = limits

    @property
    def unit(self) -> float:  # type: ignore[override]
        return self.high - self.low

    @property
    def parameters(self) -> dict[str, float]:
        """No parameters: kernels see rewards scaled to [0, 1]."""
        return {}

    def scaled(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)

    def unscaled(self, value: float) -> float:
        return min(self.low + value * (self.high - self.low), self.high)

    def allows_reward(self, reward: float) -> bool:
        return self.low <= reward <= self.high
