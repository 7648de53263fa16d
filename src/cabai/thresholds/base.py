"""The base classes of thresholds: when one arm beats another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import BEST
from cabai.core.setup import Setup
from cabai.core.state import Fields, Record, Records
from cabai.core.statistics import Statistics
from cabai.core.stopping import beats, leader_beats_every_rival, required
from cabai.families import Family, family_of
from cabai.support.registry import Named
from cabai.support.validation import InvalidInput, whole
from cabai.thresholds import curve

#: The names of the families that a threshold can be proven for, as in `proven_for`.
ALL_FAMILIES = ("gaussian", "bernoulli", "poisson", "exponential", "bounded")


@dataclass(frozen=True)
class Threshold(Named):
    """The test that says when one arm beats another.

    A run stops when the leader beats every rival. `proof` says what is proven and by whom; `proven_for` names the
    families. To write your own, see docs/own.md. If the evidence required only depends on the number of pulls,
    `parameters` is enough: it returns the numbers of a curve (`cabai.thresholds.curve`). Otherwise, write plain
    functions named after the slots of `cabai.core.stopping` and `cabai.core.observe`. `required` is always needed: a
    status shows it next to the evidence. Add `beats` if the test is not Z > required + price_b + price_a; then also add
    `surplus`, by how much b beats a, so that a status can show it.

    >>> import cabai
    >>> from cabai.families import Gaussian
    >>> paper, data = cabai.thresholds.Paper(), Statistics("gaussian", pulls=[100, 100], rewards=[150, 80])
    >>> round(paper.required(data, 0, 1, delta=0.05), 2)   # log(2 K t / delta)
    9.68
    >>> paper.beats(data, 0, 1, delta=0.05), paper.beats(data, 1, 0, delta=0.05), paper.stops(data, delta=0.05)
    (True, False, True)
    >>> paper.is_proven_for("gaussian"), paper.standing("gaussian")
    (False, 'not proven for this family')
    >>> paper.parameters(Gaussian(), arms=3, delta=1.0), str(paper.of_pairs)
    ({'level': 1.791..., 'slope': 1.0}, 'paper')
    >>> cabai.thresholds.Champion().for_family(cabai.families.Bounded())
    ChampionBets()
    """

    kind = "threshold"
    proof: ClassVar[str] = "none"
    proven_for: ClassVar[tuple[str, ...]] = ()
    functions: ClassVar[tuple[Any, ...]] = (curve.required, curve.weigh, curve.has_prices)
    within: ClassVar[tuple[Any, ...]] = ()  # functions that replace the slots of these names if epsilon is not 0
    choosing: ClassVar[tuple[Any, ...]] = ()  # replacements for slots of policies, if the divergence would mislead them
    rule_fields: ClassVar[Fields] = curve.FIELDS  # what its functions read from the rules, besides the level
    arm_fields: ClassVar[Fields] = {}  # what it keeps per arm, with initial values
    arm_scratch: ClassVar[Fields] = {}  # what `weigh` computes per arm; a study does not store it

    def parameters(self, family: Family, arms: int, delta: float) -> dict[str, Any]:
        """The level, which depends on delta, and the other parameters; those left out are 0."""
        raise NotImplementedError

    def is_proven_for(self, family: str | Family) -> bool:
        """Whether the error probability is proven to be at most delta for this family, whatever the policy samples."""
        return family_of(family).key in self.proven_for

    def standing(self, family: str | Family) -> str:
        """Why the guarantee is not proven for a family, in words; empty if it is proven."""
        return "" if self.is_proven_for(family) else "not proven for this family"

    def check_use(self, policy: Named, epsilon: float, family: Family) -> None:
        """Refuse a policy or an epsilon for which this threshold is not valid. A proven threshold is valid for all."""

    def for_family(self, family: Family) -> Threshold:
        """The form of this test that is made for a family."""
        return self

    @property
    def of_pairs(self) -> Threshold:
        """The test of pairs of arms: whether one is better than the other, whatever the rest."""
        return self

    def pull_equally(self, b: Any, a: Any, arms: int) -> float:
        """Set what the records of b and a keep of each other as if both had been pulled in turn: for estimates.

        Returns how much evidence is lost before it is clear which of the arms leads.
        """
        return 0.0

    def recall(self, arms: NDArray[Any], statistics: Statistics) -> None:
        """Set the threshold's `arm_fields` from summary statistics."""
        raise InvalidInput(f"threshold {self} needs more data per arm than its pulls and the sum of its rewards.")

    def needs_first(self, family: Family) -> bool:
        """Whether the test uses each arm's first reward."""
        return False

    def required(self, statistics: Statistics, b: int, a: int, *, delta: float) -> float:
        """The evidence that arm b needs to beat arm a, in nats; infinite while more data are needed first."""
        bound, rules, arms, run = self._after(statistics, delta, b=b, a=a)
        return float(bound(required)(run.t, rules) + arms[b].price + arms[a].price)

    def beats(self, statistics: Statistics, b: int, a: int, *, delta: float) -> bool:
        """Whether arm b beats arm a now, at this delta."""
        bound, rules, arms, run = self._after(statistics, delta, b=b, a=a)
        with np.errstate(all="ignore"):
            return bool(bound(beats)(rules, run.t, arms[b], arms[a]))

    def stops(self, statistics: Statistics, *, delta: float) -> bool:
        """Whether the leader beats every rival now, at this delta."""
        bound, rules, arms, run = self._after(statistics, delta)
        with np.errstate(all="ignore"):
            return bool(bound(leader_beats_every_rival)(arms, run, rules))

    def _after(self, statistics: Statistics, delta: float, **named: int) -> tuple[Any, Record, Any, Record]:
        """What binds a kernel to this test, and the records after these data; `named` are numbers of arms to check."""
        for name, arm in named.items():
            if whole(arm, name, 0) >= len(statistics):
                raise InvalidInput(f"{name} must be the number of an arm, below {len(statistics)}, got {arm!r}.")
        setup = Setup(statistics.family, self, arms=len(statistics), delta=delta)
        arms, run = statistics.state(setup)
        return setup.bound, Record(setup.rules), Records(arms), Record(run)


class InOrder:
    """What a threshold is too if it tests the best arm, by pulls in the order of asking: it extends a test of pairs."""

    name: ClassVar[str]
    pair_test: ClassVar[str] = "contrast"  # the name of the test of pairs
    is_pair_test: ClassVar[bool] = False  # whether it is that test, on the same records

    @property
    def of_pairs(self) -> Any:
        kind: Any = type(self)
        return self if self.is_pair_test else pair_form(kind)(**vars(self))

    def check_use(self, policy: Any, epsilon: float, family: Family) -> None:
        if policy.goal != BEST:
            raise InvalidInput(
                f"threshold {self.name} looks for the best arm: with goal {policy.goal!r}, leave out the threshold or "
                f"use {self.pair_test}."
            )

    def recall(self, arms: Any, statistics: Statistics) -> None:
        raise InvalidInput(
            f"threshold {self.name} depends on the order of the pulls, which statistics do not have: "
            f"use {self.pair_test}."
        )


@cache
def pair_form(kind: Any) -> Any:
    """The test of pairs on the records of another one: for statements about pairs, and where the order is not known."""
    return type(f"{kind.__name__}OfPairs", (kind,), {"is_pair_test": True, "__module__": kind.__module__})
