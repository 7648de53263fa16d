"""log(c (1 + log t) / delta), with a constant certified by simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cabai.families import Family, family_of
from cabai.support.registry import Named
from cabai.support.validation import InvalidInput, number, positive, probability, whole
from cabai.thresholds.base import Threshold


def written(policy: Named) -> str:
    """A policy as written in a certificate: with its parameters and, for a user's own, where it is defined."""
    return str(policy).replace(policy.name, policy.key, 1) if policy.is_own else str(policy)


@dataclass(frozen=True)
class Calibrated(Threshold):
    """log(c (1 + log t) / delta), with a constant c certified by simulation; `cabai.calibrate` finds it.

    Nothing is proven. The certificate says: on each of the instances searched, and within `max_pulls` pulls, this
    policy errs with probability at most delta. This statement itself is wrong with probability at most 1 %, unless the
    certificate says otherwise. It holds for one policy, family, number of arms, delta and epsilon, which are stored
    here with c; any other use is refused. With c alone, `calibrated(c=3.2)`, nothing is claimed and nothing is refused.

    >>> threshold = Calibrated(c=1.4, policy="co", family="gaussian", arms=3, delta=0.05, max_pulls=10_000)
    >>> print(threshold)
    calibrated(c=1.4, policy=co, family=gaussian, arms=3, delta=0.05, max_pulls=10000)
    >>> threshold.standing("gaussian")
    'certified by simulation, up to 10000 pulls'
    >>> threshold.parameters(family_of("gaussian"), 4, 0.05)
    Traceback (most recent call last):
    cabai.errors.InvalidInput: the threshold is certified for 3 arms, got 4; ...
    """

    c: float | None = None
    policy: str | None = None
    family: str | None = None
    arms: int | None = None
    delta: float | None = None
    max_pulls: int | None = None
    epsilon: float = 0.0  # gaussian: in standard deviations; bounded: as a share of the range
    name = "calibrated"
    proof = "none; certified by simulation"

    def __post_init__(self) -> None:
        if self.c is None:
            raise InvalidInput("threshold calibrated needs its constant, as in calibrated(c=3.2): see cabai calibrate.")
        positive(self.c, "c")
        if self.policy is not None and not isinstance(self.policy, str):
            raise InvalidInput(f"policy must be the name of a policy, got {self.policy!r}.")
        if self.family is not None and ":" not in self.family and family_of(self.family).name != self.family:
            raise InvalidInput(f"family must be a name without parameters, got {self.family!r}.")
        for field, least in (("arms", 2), ("max_pulls", 1)):
            if getattr(self, field) is not None:
                whole(getattr(self, field), field, least)
        if self.delta is not None:
            probability(self.delta)
        if number(self.epsilon, "epsilon") < 0:
            raise InvalidInput(f"epsilon must not be negative, got {self.epsilon!r}.")

    @property
    def is_certified(self) -> bool:
        return None not in (self.policy, self.family, self.arms, self.delta, self.max_pulls)

    def standing(self, family: str | Family) -> str:
        if self.is_certified and family_of(family).key == self.family:
            return f"certified by simulation, up to {self.max_pulls} pulls"
        return super().standing(family)

    def check_use(self, policy: Named, epsilon: float, family: Family) -> None:
        self._check("policy", self.policy, written(policy))
        if not self.is_certified or epsilon / family.scale == self.epsilon:
            return
        if self.epsilon == 0:
            raise InvalidInput(
                f"the threshold is certified without an epsilon, got epsilon={epsilon!r}; cabai calibrate --epsilon "
                "finds one for it."
            )
        raise InvalidInput(
            f"the threshold is certified for epsilon {self.epsilon * family.scale:g} of {family} rewards, got "
            f"{epsilon!r}; cabai calibrate finds one for that."
        )

    def _check(self, what: str, certified: object, given: object) -> None:
        if certified not in (None, given):
            both = f"{certified} arms, got {given}" if what == "arms" else f"{what} {certified}, got {given}"
            raise InvalidInput(f"the threshold is certified for {both}; cabai calibrate finds one for those.")

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        if self.is_certified and family.key == "symmetric":
            raise InvalidInput(
                f"the threshold is certified for family {self.family}, got {family}: name a variance, as in "
                "family='gaussian(variance=2)', or leave out the threshold: the default needs none."
            )
        self._check("family", self.family, family.key)
        self._check("arms", self.arms, arms)
        self._check("delta", self.delta, delta)
        assert self.c is not None
        return {"level": math.log(self.c / delta), "loglog": 1.0, "offset": 1.0}
