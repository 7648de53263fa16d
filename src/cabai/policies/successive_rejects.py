"""Successive Rejects (Audibert, Bubeck, Munos 2010), its phases measured in money."""

from dataclasses import dataclass

from cabai.policies.base import Policy
from cabai.policies.co import choose
from cabai.policies.rejecting import drop, harmonic, worst


def stop(arms, run, rules):
    """Phase k ends, and the worst arm is dropped, once the share (1/K + ... + 1/(K+2-k) + 1)/L of the budget is spent,
    L = 1/2 + 1/2 + 1/3 + ... + 1/K; k is K + 1 minus the number of arms in play."""
    K = len(arms)
    while run.left > 1:
        share = (1.0 + harmonic(run.left + 1, K)) / (0.5 + harmonic(2, K))
        if run.spent < rules.budget * share:
            return False
        drop(arms, run, worst(arms))
    return False


@dataclass(frozen=True)
class SuccessiveRejects(Policy):
    """Successive Rejects: K - 1 phases, after each of which the arm with the worst mean is dropped.

    Within a phase it pulls the arm in play with the smallest sqrt(cost) N: equally often if costs are equal. Needs a
    budget.
    """

    name = "successive-rejects"
    spends_budget = True
    choose = staticmethod(choose)
    stop = staticmethod(stop)
