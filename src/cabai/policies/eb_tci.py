"""EB-TCI (Jourdan, Degenne, Baudry, de Heide, Kaufmann 2022) and its relatives EB-TC and EB-TCε."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from cabai.policies.base import Policy
from cabai.policies.pairs import COINS, SEPARATIONS, challenger, toss
from cabai.support.validation import InvalidInput, number


def choose(arms, run, rules):
    """The leader is the empirical best."""
    return toss(arms, run, rules, run.leader, challenger(arms, run, rules, run.leader))


def with_allowance(rules, l, a):  # noqa: E741
    """EB-TCε: (mean_l - mean_a + ε) / sqrt(1/N_l + 1/N_a)."""
    return (l.mean - a.mean + rules.allowance) / math.sqrt(1.0 / l.pulls + 1.0 / a.pulls)


@dataclass(frozen=True)
class EBTCI(Policy):
    """EB-TCI: toss a coin between the arm with the best mean and the arm hardest to tell from it.

    The challenger is argmin Z + log N (`challenger=tci`) or argmin Z (`tc`, which starves an unlucky arm now and then);
    with `epsilon` (and tc), that of EB-TCε. The coin is `ids`, which divides money as the lower bound does, or `half`.
    """

    coin: str = "ids"
    challenger: str = "tci"
    epsilon: float = 0.0
    name = "eb-tci"
    choose = staticmethod(choose)

    choices: ClassVar[Any] = {"coin": ("weights", COINS), "challenger": ("separation", SEPARATIONS)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if number(self.epsilon, "epsilon") < 0 or (self.epsilon > 0 and self.challenger != "tc"):
            raise InvalidInput(
                f"epsilon must not be negative, and needs challenger=tc, got {self.epsilon!r} with {self.challenger}."
            )

    @property
    def functions(self) -> tuple[Any, ...]:
        return *super().functions, *((("separation", with_allowance),) if self.epsilon > 0 else ())

    def parameters(self, arms: int) -> dict[str, float]:
        return {"allowance": float(self.epsilon)}
