"""Any rewards in [0, 1]: bernoulli's divergence is safe for testing them, because the exponential is convex."""

from __future__ import annotations

from dataclasses import dataclass

from cabai.families import bernoulli
from cabai.support.streams import uniform


def draw(arm):
    """Uniform on the widest interval around the mean that fits in [0, 1]."""
    return arm.mean + (2.0 * uniform(arm) - 1.0) * min(arm.mean, 1.0 - arm.mean)


@dataclass(frozen=True)
class Bounded(bernoulli.Bernoulli):
    """Any rewards in [0, 1], such as accuracies.

    Of all laws on [0, 1] with given means, bernoulli's are the hardest to tell apart. So its divergence is safe for a
    test of the others; but what they cost at least can be less, so there is no lower bound.
    """

    name = "bounded"
    rewards = "in [0, 1]"
    whole_rewards = False
    has_bound = False
    functions = (*bernoulli.Bernoulli.functions, draw)

    def allows_reward(self, reward: float) -> bool:
        return 0 <= reward <= 1
