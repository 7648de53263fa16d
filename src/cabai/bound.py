"""The lower bound on the cost of any policy with a guarantee, and the allocation that reaches it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cabai.core.shares import solve
from cabai.families import Bounded, Gaussian
from cabai.hardness import HARDNESS
from cabai.instance import Instance
from cabai.policies import POLICIES, Policy, policy_of
from cabai.support.tables import table
from cabai.support.validation import InvalidInput, positive, probability


@dataclass(frozen=True)
class Bound:
    """The result of `cabai.bound`: the least that finding an instance's best arm costs.

    `hardness` is T*: every policy that is wrong with probability at most delta pays at least T* kl(delta, 1 - delta) on
    average. `cost_shares` is w*, each arm's share of the total cost when this bound is reached; `pull_shares` is the
    same in pulls.

    >>> found = bound(Instance("gaussian", means=[1, 0], costs=[1, 4]))
    >>> found.hardness, found.cost_shares.round(3), found.pull_shares.round(3)
    (18.0, array([0.333, 0.667]), array([0.667, 0.333]))
    """

    instance: Instance
    hardness: float
    cost_shares: NDArray[np.float64]
    pull_shares: NDArray[np.float64]
    epsilon: float = 0.0

    def cost(self, delta: float) -> float:
        """The least mean cost of any policy that is wrong with probability at most delta: T* kl(delta, 1 - delta).

        For small delta, this is close to T* log(1/delta). For delta >= 1/2 there is no such bound: with two arms, a
        guess without data is then good enough.

        >>> round(bound(Instance("gaussian", means=[1.5, 1.0, 0.5], costs=[1, 0.1, 0.01])).cost(0.05), 2)
        36.79
        """
        chance = probability(delta)
        if chance >= 0.5:
            raise InvalidInput(f"the lower bound holds for delta below 0.5 only, got {delta!r}.")
        return self.hardness * kl(chance)

    def error(self, budget: float) -> float:
        """With a fixed budget instead of a delta, for two gaussian arms: the least error, Phi(-sqrt(2 budget/T*)).

        With fixed costs, no policy is wrong less often both here and where the same gap is the other way round; pulls
        in the ratio of `pull_shares` reach it. It falls like exp(-budget/T*). For other families, or more arms, no
        such number is known.

        >>> round(bound(Instance("gaussian", means=[1, 0], costs=[1, 4])).error(36), 4)
        0.0228
        """
        if len(self.instance) != 2 or not isinstance(self.instance.family, Gaussian) or self.epsilon:
            raise InvalidInput(
                "the least error of a budget is known for two gaussian arms without an epsilon only, got "
                f"{len(self.instance)} arms of family {self.instance.family} and epsilon {self.epsilon:g}."
            )
        return 0.5 * math.erfc(math.sqrt(positive(budget, "budget") / self.hardness))

    def hardness_of(self, policy: str | Policy) -> float:
        """What a policy itself pays in the limit: its mean cost grows like this number times log(1/delta).

        It is T* for `ctas`, and at least T* for the others; `cabai.hardness` derives each formula. It
        holds for every threshold that requires log(1/delta) nats plus terms that matter less as delta falls, as all
        thresholds here do. It is a limit: at a practical delta, what the threshold adds matters more.

        >>> paper = bound(Instance("gaussian", means=[1.5, 1.0, 0.5], costs=[1, 0.1, 0.01]))
        >>> for policy in ("ctas", "co", "tas", "racing", "uniform", "d-lucb"):
        ...     print(f"{policy:8} {paper.hardness_of(policy):6.3f}")
        ctas     13.884
        co       14.080
        tas      17.697
        racing   17.640
        uniform  17.760
        d-lucb   36.885
        """
        chosen = policy_of(policy)
        if self.epsilon:
            raise InvalidInput("the hardness of a policy is only known without an epsilon.")
        if chosen.name not in HARDNESS or type(chosen) is not POLICIES.classes[chosen.name]:
            raise InvalidInput(f"no hardness is known for policy {chosen}; known: {', '.join(HARDNESS)}.")
        if getattr(chosen, "exploration", 1) == 0:
            raise InvalidInput(f"{chosen} may never recover from an unlucky start, so it has no hardness.")
        with np.errstate(all="ignore"):
            hardness = HARDNESS[chosen.name](self)
        if not 0 < hardness < math.inf:
            raise InvalidInput(f"the means or costs are too extreme for the hardness of {chosen}: {self.instance}.")
        return hardness

    def _shown(self) -> tuple[list[list[str]], str]:
        rows = [["arm", "mean", "cost", "cost share", "pull share"]]
        for a, name in enumerate(self.instance.names):
            values = self.instance.means[a], self.instance.costs[a], self.cost_shares[a], self.pull_shares[a]
            rows.append([name, *(f"{value:.{digits}g}" for value, digits in zip(values, (6, 6, 4, 4), strict=True))])
        within = f" (epsilon {self.epsilon:g})" if self.epsilon else ""
        return rows, f"hardness T* = {self.hardness:.6g}{within}"

    def __repr__(self) -> str:
        rows, below = self._shown()
        return f"{table(rows)}\n{below}"

    def _repr_html_(self) -> str:
        from cabai import views

        rows, below = self._shown()
        return views.table(rows, below=[below], bars=["cost share", *self.cost_shares.tolist()])


def kl(delta: float) -> float:
    """kl(delta, 1 - delta) = (1 - 2 delta) log((1 - delta)/delta), the divergence of two Bernoulli laws."""
    return (1 - 2 * delta) * (math.log1p(-delta) - math.log(delta))


def bound(instance: Instance, epsilon: float = 0.0) -> Bound:
    """Compute the lower bound for an instance: its hardness T*, and the cost and pull shares that reach it.

    There is no bound for the `bounded` family: with the same means, arms whose rewards lie between 0 and 1 can be told
    apart at a lower cost than arms whose rewards are 0 or 1.

    T* and w* solve  1/T* = max over w of min over a of (w_1/c_1) g_a(w_a c_1 / (w_1 c_a)),  where g_a(x) is the
    evidence per pull of the best arm if arm a has x times as many pulls.

    With an `epsilon` (gaussian rewards only), it is T* with every gap wider by epsilon: the best arm must be told from
    arms that are better than it by epsilon. It holds at every delta if only the best arm is within epsilon of the best;
    if several arms are, a policy may return any of them, and there is no such bound.

    >>> bound(Instance("gaussian", means=[1.5, 1.0, 0.5], costs=[1, 0.1, 0.01]))
    arm  mean  cost  cost share  pull share
    1     1.5     1      0.7584      0.2275
    2       1   0.1      0.2398      0.7192
    3     0.5  0.01    0.001778     0.05333
    hardness T* = 13.8843
    >>> bound(Instance("gaussian", means=[1, 0], costs=[1, 4])).hardness   # 2 (sqrt 1 + sqrt 4)² / gap²
    18.0
    >>> bound(Instance("gaussian", means=[1, 0], costs=[1, 4]), epsilon=0.5).hardness   # the same, with a gap of 1.5
    8.0
    """
    if not isinstance(instance, Instance):
        raise InvalidInput(f"bound takes a cabai.Instance, got {instance!r}.")
    slack = instance.family.check_epsilon(epsilon)
    if not instance.family.has_bound:
        if not isinstance(instance.family, Bounded):
            raise InvalidInput(f"there is no lower bound for the {instance.family} family.")
        raise InvalidInput(
            f"there is no lower bound for the {instance.family} family: the bound holds for rewards of 0 and 1, and "
            "for other laws on [0, 1] less may suffice. If every reward is 0 or 1, give the family as bernoulli."
        )
    means, most = instance.means, instance.costs.max()
    if slack > 0:
        if not isinstance(instance.family, Gaussian):
            raise InvalidInput(
                f"with an epsilon, a lower bound is known for the gaussian family only, got {instance.family}."
            )
        close = [name for name, mean in zip(instance.names, means, strict=True) if mean >= means.max() - slack]
        if len(close) > 1:
            raise InvalidInput(
                f"there is no lower bound: the arms {', '.join(close)} are all within epsilon = {slack:g} of the best, "
                "and any of them may be the answer."
            )
        means = np.where(np.arange(len(means)) == instance.best, means, means - slack)
    hardness, shares = solve(instance.family, means, instance.costs / most, instance.best)
    hardness, pulls = float(hardness * most), shares / instance.costs * most
    if not (math.isfinite(hardness) and np.isfinite(pulls).all()):
        raise InvalidInput(
            f"the means or costs are too extreme to tell the arms apart in double precision: {instance}."
        )
    return Bound(instance, hardness, shares, pulls / pulls.sum(), slack)
