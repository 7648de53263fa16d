"""What each policy pays in the limit: its mean cost grows like its own hardness T times log(1/delta), and T >= T*.

As delta falls, every threshold here requires log(1/delta) nats plus a part that becomes negligible. The means and costs
are then known, and a run moves like a fluid: arm a has N_a pulls, the best arm 1 has the evidence

    Z_{1,a} = N_1 g_a(N_a / N_1),   g_a(x) = d(mu_1, m) + x d(mu_a, m),   m = (mu_1 + x mu_a)/(1 + x),

over a, and the cost is that of the pulls until each Z_{1,a} is log(1/delta) =: L.

    co       keeps sqrt(c_a) N_a = s for all arms in play, so Z_{1,a} = s G_a with G_a = g_a(sqrt(c_1/c_a))/sqrt(c_1):
             a leaves at s = L/G_a.        T = sum over a of sqrt(c_a)/G_a + sqrt(c_1) max over a of 1/G_a
    racing   keeps N_a = n for all arms in play, so Z_{1,a} = n g_a(1): a leaves at n = L/g_a(1).
                                           T = sum over a of c_a/g_a(1) + c_1 max over a of 1/g_a(1)
    uniform  keeps N_a = n for all arms.   T = (sum of all costs) max over a of 1/g_a(1)
    ctas     follows the optimal shares.   T = T*
    tas      follows the shares p that are optimal at unit costs, where t pulls give every Z_{1,a} = t/T*(1).
                                           T = T*(1) (sum over all arms of p_a c_a)
    d-lucb   keeps the rivals' upper ends equal, N_a = L/d(mu_a, u), and N_1 their sum, until the leader's lower end
             meets theirs, N_1 = L/d(mu_1, u), so 1/d(mu_1, u) = sum over a of 1/d(mu_a, u).
                                           T = c_1/d(mu_1, u) + sum over a of c_a/d(mu_a, u)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cabai.core.evidence import pair_evidence
from cabai.core.shares import solve
from cabai.families.slots import divergence
from cabai.instance import Instance

if TYPE_CHECKING:
    from cabai.bound import Bound

Numbers = NDArray[np.float64]


def co(bound: Bound) -> float:
    return float(co_paid(bound.instance).sum())


def co_paid(instance: Instance) -> Numbers:
    """What CO pays for each arm, over log(1/delta)."""
    best, rivals = split(instance)
    roots = np.sqrt(instance.costs)
    needed = roots[best] / evidence(instance, roots[best] / roots[rivals])  # 1/G_a
    return np.asarray(roots * np.insert(needed, best, needed.max()))


def racing(bound: Bound) -> float:
    best, rivals = split(bound.instance)
    costs = bound.instance.costs
    needed = 1 / evidence(bound.instance, np.ones(len(rivals)))
    return float(costs[rivals] @ needed + costs[best] * needed.max())


def uniform(bound: Bound) -> float:
    needed = 1 / evidence(bound.instance, np.ones(len(bound.instance) - 1))
    return float(bound.instance.costs.sum() * needed.max())


def ctas(bound: Bound) -> float:
    return bound.hardness


def tas(bound: Bound) -> float:
    instance = bound.instance
    blind, shares = solve(instance.family, instance.means, np.ones(len(instance)), instance.best)
    return float(blind * (shares @ instance.costs))


def d_lucb(bound: Bound) -> float:
    """Solve for u = mu_1 - s gap, where gap is the distance to the second mean. 1/d(mu_1, u) rises from a finite value
    at s = 1 to infinity at s = 0, and the sum of the 1/d(mu_a, u) falls, so bisection finds s."""
    instance = bound.instance
    family, (best, rivals) = instance.family, split(instance)
    means = instance.means
    top, second = means[best], means[rivals].max()

    def per_nat(s: float) -> tuple[float, Numbers]:
        """Pulls of the best arm, and of each rival, per nat."""
        u = top - s * (top - second)
        distances = [s * (top - second), *((means[a] - second) - (1 - s) * (top - second) for a in rivals)]
        pulls = [
            1 / family.call(divergence, mean, distance, u, 1 - u)
            for mean, distance in zip([top, *means[rivals]], distances, strict=True)
        ]
        return pulls[0], np.array(pulls[1:])

    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        mine, theirs = per_nat(middle)
        low, high = (middle, high) if mine > theirs.sum() else (low, middle)
    mine, theirs = per_nat(middle)
    return float(instance.costs[best] * mine + instance.costs[rivals] @ theirs)


#: What each policy pays in the limit, by its name.
HARDNESS = {"co": co, "ctas": ctas, "tas": tas, "d-lucb": d_lucb, "uniform": uniform, "racing": racing}


def split(instance: Instance) -> tuple[int, NDArray[np.int64]]:
    """The best arm, and all other arms."""
    return instance.best, np.delete(np.arange(len(instance)), instance.best)


def evidence(instance: Instance, pulls: Numbers) -> Numbers:
    """g_a(x) for each rival a: the evidence of one pull of the best arm and x pulls of the rival, in nats."""
    best, rivals = split(instance)
    family, means = instance.family, instance.means
    return np.array(
        [family.call(pair_evidence, 1, means[best], x, means[a]) for a, x in zip(rivals, pulls, strict=True)]
    )
