"""Real rewards of unknown variance, another one for each arm: any law that is symmetric about its mean."""

from __future__ import annotations

from dataclasses import dataclass

from cabai.families.base import Family
from cabai.families.gaussian import draw, edges
from cabai.support.validation import InvalidInput

UNKNOWN = "unknown"


@dataclass(frozen=True)
class UnknownVariance(Family):
    """Real rewards of unknown variance, perhaps another one for each arm, as in `gaussian(variance=unknown)`.

    Nothing is assumed but that the rewards of an arm are symmetric about their mean. In a simulation they are gaussian,
    with the standard deviations of the instance. Without a variance there is no divergence, so there is no lower bound.

    >>> from cabai.families import family_of
    >>> print(family_of("gaussian(variance=unknown)"))
    gaussian(variance=unknown)
    """

    variance: str = ""
    name = "gaussian"
    means = rewards = "a real number"
    is_symmetric = shows_margins = True
    has_bound = sets_first_aside = False
    typical_means = (0.0,)
    functions = draw, edges

    def __post_init__(self) -> None:
        if self.variance not in ("", UNKNOWN):
            raise InvalidInput(f"variance must be positive or unknown, got {self.variance!r}.")
        object.__setattr__(self, "variance", UNKNOWN)

    @property
    def key(self) -> str:
        return "symmetric" if not self.is_own else super().key

    @property
    def parameters(self) -> dict[str, float]:
        """None: kernels know no variance."""
        return {}
