"""T3C (Shang, de Heide, Kaufmann, Ménard, Valko 2020) and TTTS (Russo 2016): Thompson sampling finds the leader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cabai.families.slots import draw_mean
from cabai.policies.base import Policy
from cabai.policies.pairs import COINS, challenger, closest, toss

REDRAWS = 100  # of TTTS, near the end of a run nearly all redraws return the leader again


def choose(arms, run, rules):
    """The leader is the best of a draw from the posterior of every arm."""
    l = best_of_a_draw(arms, run, rules)  # noqa: E741
    return toss(arms, run, rules, l, challenger(arms, run, rules, l))


def best_of_a_draw(arms, run, rules):
    chosen, largest = -1, -np.inf
    for a in range(len(arms)):
        if arms[a].in_play:
            drawn = draw_mean(rules, run, arms[a].pulls, arms[a].rewards)
            if chosen < 0 or drawn > largest:
                chosen, largest = a, drawn
    return chosen


def resample(arms, run, rules, l):  # noqa: E741
    """TTTS: draw again until another arm is the best."""
    for _ in range(REDRAWS):
        a = best_of_a_draw(arms, run, rules)
        if a != l:
            return a
    return closest(arms, rules, l)


CHALLENGERS = {"tc": None, "resample": resample}


@dataclass(frozen=True)
class Thompson(Policy):
    """T3C: toss a coin between the best arm of a posterior draw and the arm hardest to tell from it.

    `challenger=resample` is TTTS: draw from the posteriors again until another arm is the best (after 100 draws, take
    T3C's challenger). `coin=half` is the papers' and spends half of the money on the leader; `ids` balances evidence.
    Priors are flat: beta posteriors for bernoulli and bounded rewards, normal for gaussian, gamma for poisson rewards
    and for the rate of exponential ones.
    """

    challenger: str = "tc"
    coin: str = "half"
    name = "thompson"
    choose = staticmethod(choose)
    choices: ClassVar[Any] = {"challenger": ("challenger", CHALLENGERS), "coin": ("weights", COINS)}
