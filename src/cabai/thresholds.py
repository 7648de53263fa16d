"""How much evidence is enough: when one arm beats another.

Each threshold answers one question: given what has been observed, does arm b beat arm a at this delta? A stopping
rule is then: the leader beats every rival. Every threshold here asks, after t pulls,

    Z_{b,a} > level + slope log t + loglog log(offset + log t) + price_b + price_a,

and `rules` gives those numbers for a family, a number of arms and a delta; compiled code needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cabai.checks import InvalidInput, number, positive, probability, whole
from cabai.evidence import Statistics
from cabai.families import Family, Gaussian, family_of
from cabai.kernels.evidence import evidence, leader_beats_every_rival, required
from cabai.named import Named, Registry
from cabai.state import BERNOULLI, RULES, Record, Records, record

ALL_FAMILIES = ("gaussian", "bernoulli", "poisson", "exponential", "bounded")


@dataclass(frozen=True)
class Threshold(Named):
    """When one arm beats another. `proof` says what is proven and by whom; `proven_for` names the families."""

    kind = "threshold"
    proof: ClassVar[str]
    proven_for: ClassVar[tuple[str, ...]] = ()

    def numbers(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        """The numbers of this threshold; those left out are 0."""
        raise NotImplementedError

    def rules(self, family: str | Family, *, arms: int, delta: float) -> np.void:
        """A RULES record with the family and this threshold filled in."""
        kind = family_of(family)
        values = self.numbers(kind, whole(arms, "arms", 2), probability(delta))
        rules = record(RULES)
        rules["family"], rules["variance"] = kind.code, kind.variance
        for name, value in values.items():
            rules[name] = value
        return rules

    def is_proven_for(self, family: str | Family) -> bool:
        """Whether errors are proven to stay below delta in this family, whatever the policy samples."""
        return family_of(family).name in self.proven_for

    def standing(self, family: str | Family) -> str:
        """In words, what speaks against taking the guarantee as given; nothing where it is proven."""
        return "" if self.is_proven_for(family) else "not proven for this family"

    def check_use(self, policy: str, epsilon: float) -> None:
        """Refuse a policy that this threshold does not speak of; a proven one speaks of all."""

    def required(self, statistics: Statistics, b: int, a: int, *, delta: float) -> float:
        """The evidence that b needs over a, in nats (inf: more data are needed first)."""
        for name, arm in (("b", b), ("a", a)):
            if whole(arm, name, 0) >= len(statistics.arms):
                raise InvalidInput(f"{name} must be the number of an arm, below {len(statistics.arms)}, got {arm!r}.")
        rules = self.rules(statistics.family, arms=len(statistics.arms), delta=delta)
        arms = statistics.weighed(rules)
        price = arms[b]["price"] + arms[a]["price"]
        return float(required(int(statistics.run["t"]), Record(rules)) + price)

    def beats(self, statistics: Statistics, b: int, a: int, *, delta: float) -> bool:
        """Does arm b beat arm a now, at this delta?

        >>> data = Statistics("gaussian", pulls=[100, 100], rewards=[150, 80])
        >>> Paper().beats(data, 0, 1, delta=0.05), Paper().beats(data, 1, 0, delta=0.05)
        (True, False)
        """
        least = self.required(statistics, b, a, delta=delta)
        rules = self.rules(statistics.family, arms=len(statistics.arms), delta=delta)
        arms = statistics.weighed(rules)
        return bool(evidence(Record(rules), Record(arms[b]), Record(arms[a])) > least)

    def stops(self, statistics: Statistics, *, delta: float) -> bool:
        """Does the leader beat every rival now, at this delta?"""
        rules = self.rules(statistics.family, arms=len(statistics.arms), delta=delta)
        arms = Records(statistics.weighed(rules))
        return bool(leader_beats_every_rival(arms, Record(statistics.run.copy()), Record(rules)))


@dataclass(frozen=True)
class Paper(Threshold):
    """log(B t^alpha / delta), the threshold the paper runs: alpha = 1 and B = 2K unless told otherwise.

    With alpha = 1, errors below delta are proven for bernoulli (Garivier and Kaufmann 2016, Theorem 10, asks for
    B = 2(K - 1)) and, because `evalue` already beats at that level, for bounded. For the other families nothing is
    proven. With alpha > 1 and the smallest valid B, which is the default there, it is proven for every exponential
    family (Magureanu, Combes and Proutiere 2014, Theorem 2, as used in the paper's Proposition 1): but that B is so
    large that the guarantee costs a lot. The paper's own condition on B forgets delta inside the squared logarithm;
    `smallest_log_B` has it. alpha above e/2 voids the paper's theorem on cost, not the guarantee.
    """

    alpha: float = 1.0
    B: float | None = None
    name = "paper"
    proof = "Garivier and Kaufmann (2016), Theorem 10, for alpha = 1; with Magureanu et al. (2014) for alpha > 1"
    proven_for = ("bernoulli", "bounded")

    def __post_init__(self) -> None:
        if number(self.alpha, "alpha") < 1:
            raise InvalidInput(f"alpha must be at least 1, got {self.alpha!r}.")
        if self.B is not None:
            positive(self.B, "B")

    def is_proven_for(self, family: str | Family) -> bool:
        if self.B is not None:
            return False  # whether a B of one's own is large enough depends on K and delta
        return self.alpha > 1 or super().is_proven_for(family)

    def log_B(self, arms: int, delta: float) -> float:
        if self.B is not None:
            return math.log(self.B)
        return math.log(2 * arms) if self.alpha == 1 else smallest_log_B(self.alpha, arms, delta)

    def numbers(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        return {"level": self.log_B(arms, delta) - math.log(delta), "slope": self.alpha}


@dataclass(frozen=True)
class Stylized(Threshold):
    """log((1 + log t) / delta): what the literature's experiments use. Nothing is proven.

    With policies that eliminate arms (co, racing) it breaks its promise: 10 % to 13 % errors at K = 3 and delta = 0.1
    where all arms are nearly tied.
    """

    name = "stylized"
    proof = "none"

    def numbers(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        return {"level": -math.log(delta), "loglog": 1.0, "offset": 1.0}


@dataclass(frozen=True)
class KT(Threshold):
    """log(2 t (K - 1) / delta), for bernoulli and bounded rewards only (Garivier and Kaufmann 2016, Theorem 10).

    Its proof bounds the loss of a Krichevsky-Trofimov mixture by its worst case; `evalue` uses the loss itself and is
    never later to stop.
    """

    name = "kt"
    proof = "Garivier and Kaufmann (2016), Theorem 10"
    proven_for = ("bernoulli", "bounded")

    def numbers(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        if family.code != BERNOULLI:
            raise InvalidInput(f"threshold kt holds for bernoulli and bounded rewards only, got family {family}.")
        return {"level": math.log(2 * (arms - 1) / delta), "slope": 1.0}


@dataclass(frozen=True)
class Mixture(Threshold):
    """The mixture-martingale threshold of Kaufmann and Koolen (JMLR 22(246), 2021): proven for all families, and loose.

    With L = log((K - 1)/delta)/2 it asks for 2 T(L) + 3 log(1 + log N_a) + 3 log(1 + log N_b), and for gaussian rewards
    2 C_G(L) + 2 log(4 + log N_a) + 2 log(4 + log N_b). `pairwise=False` gives the weaker form in t alone.
    """

    pairwise: bool = True
    name = "mixture"
    proof = "Kaufmann and Koolen (2021)"
    proven_for = ALL_FAMILIES

    def __post_init__(self) -> None:
        if not isinstance(self.pairwise, bool):
            raise InvalidInput(f"pairwise must be true or false, got {self.pairwise!r}.")

    def numbers(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        half = math.log((arms - 1) / delta) / 2
        if isinstance(family, Gaussian):
            level, weight, offset = 2 * gaussian_calibration(half), 2.0, 4.0
        else:
            level, weight, offset = 2 * calibration(half), 3.0, 1.0
        if self.pairwise:
            return {"level": level, "pair_loglog": weight, "pair_offset": offset}
        return {"level": level, "loglog": 2 * weight, "offset": offset - math.log(2)}


@dataclass(frozen=True)
class EValue(Threshold):
    """b beats a when an e-value against "mu_b <= mu_a" reaches (K - 1)/delta: proven for all families, and the
    cheapest proven one at practical numbers of pulls.

    The e-value is the likelihood of both arms' data under a mixture (Jeffreys' prior), over the largest likelihood
    under "mu_b <= mu_a". Mixture over truth is a martingale with mean 1 under any sampling, so by Ville's inequality
    it ever reaches (K - 1)/delta with probability at most delta/(K - 1); a union over the K - 1 wrong arms gives delta.
    For bounded rewards it is a supermartingale, because the exponential is convex on [0, 1].

    In the form of the other thresholds: Z_{b,a} > log((K - 1)/delta) + price_b + price_a, where an arm's price, about
    log(N)/2, is what its mixture loses against the best fit. Outside bernoulli and bounded, the first reward of each
    arm is not part of Z: it makes the mixture proper.
    """

    name = "evalue"
    proof = "Ville's inequality for the mixture likelihood ratio"
    proven_for = ALL_FAMILIES

    def numbers(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        return {"level": math.log((arms - 1) / delta), "evalue": 1, "skip": int(family.code != BERNOULLI)}


@dataclass(frozen=True)
class Calibrated(Threshold):
    """log(c (1 + log t) / delta), with a constant c that simulation has certified: `cabai.calibrate` finds it.

    Nothing is proven. The certificate says: on each of the instances searched, and within `max_pulls` pulls, this
    policy errs with probability at most delta; that statement itself is wrong with probability 1 % at most, unless the
    certificate says otherwise. So it is true of one policy, family, number of arms and delta, which are written here
    with c; other uses of it are refused. With c alone, `calibrated(c=3.2)`, nothing is claimed and nothing refused.

    >>> threshold = Calibrated(c=1.4, policy="co", family="gaussian", arms=3, delta=0.05, max_pulls=10_000)
    >>> print(threshold)
    calibrated(c=1.4, policy=co, family=gaussian, arms=3, delta=0.05, max_pulls=10000)
    >>> threshold.standing("gaussian")
    'certified by simulation, up to 10000 pulls'
    >>> threshold.rules("gaussian", arms=4, delta=0.05)
    Traceback (most recent call last):
    cabai.checks.InvalidInput: the threshold is certified for 3 arms, got 4; cabai calibrate finds one for those.
    """

    c: float | None = None
    policy: str | None = None
    family: str | None = None
    arms: int | None = None
    delta: float | None = None
    max_pulls: int | None = None
    name = "calibrated"
    proof = "none; certified by simulation"

    def __post_init__(self) -> None:
        if self.c is None:
            raise InvalidInput("threshold calibrated needs its constant, as in calibrated(c=3.2): see cabai calibrate.")
        positive(self.c, "c")
        if self.policy is not None and not isinstance(self.policy, str):
            raise InvalidInput(f"policy must be the name of a policy, got {self.policy!r}.")
        if self.family is not None and family_of(self.family).name != self.family:
            raise InvalidInput(f"family must be a name without parameters, got {self.family!r}.")
        for field, least in (("arms", 2), ("max_pulls", 1)):
            if getattr(self, field) is not None:
                whole(getattr(self, field), field, least)
        if self.delta is not None:
            probability(self.delta)

    @property
    def is_certified(self) -> bool:
        return None not in (self.policy, self.family, self.arms, self.delta, self.max_pulls)

    def standing(self, family: str | Family) -> str:
        if self.is_certified and family_of(family).name == self.family:
            return f"certified by simulation, up to {self.max_pulls} pulls"
        return super().standing(family)

    def check_use(self, policy: str, epsilon: float) -> None:
        self._check("policy", self.policy, policy)
        if self.is_certified and epsilon != 0:
            raise InvalidInput(f"the threshold is certified without an epsilon, got epsilon={epsilon!r}.")

    def _check(self, what: str, certified: object, given: object) -> None:
        if certified not in (None, given):
            both = f"{certified} arms, got {given}" if what == "arms" else f"{what} {certified}, got {given}"
            raise InvalidInput(f"the threshold is certified for {both}; cabai calibrate finds one for those.")

    def numbers(self, family: Family, arms: int, delta: float) -> dict[str, float]:
        self._check("family", self.family, family.name)
        self._check("arms", self.arms, arms)
        self._check("delta", self.delta, delta)
        assert self.c is not None
        return {"level": math.log(self.c / delta), "loglog": 1.0, "offset": 1.0}


THRESHOLDS: Registry[Threshold] = Registry("threshold", Paper, Stylized, KT, Mixture, EValue, Calibrated)


def threshold_of(given: str | Threshold) -> Threshold:
    """The threshold of that name, or the threshold itself.

    >>> print(threshold_of("paper(alpha=1.2)"))
    paper(alpha=1.2)
    """
    return THRESHOLDS.get(given)


def smallest_log_B(alpha: float, arms: int, delta: float) -> float:
    """log of the smallest B with  sum_t e^(K+1)/K^K (log²(B t^alpha / delta) log t)^K / t^alpha <= B,  for alpha > 1.

    That sum, times delta/B, bounds the probability of ever crossing log(B t^alpha / delta). Its terms rise until t is
    about e^(3K/(alpha-1)), so all but the first are summed as an integral over log t.
    """
    head = np.log(np.arange(2, 20_001))
    peak, width = 3 * arms / (alpha - 1), math.sqrt(3 * arms) / (alpha - 1)
    start = math.log(20_000.5)
    edges = np.linspace(start, max(start, peak) + 40 * width, 401)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    middle, half = (edges[1:] + edges[:-1])[:, None] / 2, (edges[1:] - edges[:-1])[:, None] / 2
    tail, log_weights = (middle + half * nodes).ravel(), np.log(half * weights).ravel()
    constant = arms + 1 - arms * math.log(arms)

    def log_sum(log_B: float) -> float:
        def terms(log_t: NDArray[np.float64]) -> NDArray[np.float64]:
            squared = 2 * np.log(np.abs(log_B - math.log(delta) + alpha * log_t))
            return constant + arms * (squared + np.log(log_t)) - alpha * log_t

        return float(np.logaddexp.reduce(np.concatenate([terms(head), terms(tail) + tail + log_weights])))

    # The sum grows more slowly than B: iterating from below climbs to the smallest solution.
    log_B = 0.0
    for _ in range(10_000):
        new = log_sum(log_B)
        if new - log_B <= 1e-13 * new:
            return new + 1e-12 * abs(new)
        log_B = new
    raise InvalidInput(f"no B could be computed for alpha={alpha!r}, {arms} arms; take a larger alpha.")


def h_inverse(x: float) -> float:
    """The u >= 1 with u - log u = x."""
    u = x + math.sqrt(2 * (x - 1)) if x > 1 else 1.0
    for _ in range(100):
        if u <= 1:
            return 1.0
        step = (u - math.log(u) - x) * u / (u - 1)
        u -= step
        if abs(step) <= 1e-15 * u:
            break
    return u


def calibration(x: float) -> float:
    """Kaufmann and Koolen's T(x) = 2 htilde((h^-1(1 + x) + log(2 zeta(2))) / 2)."""
    z = 1.5
    y = (h_inverse(1 + x) + math.log(math.pi**2 / 3)) / 2
    turn = 1 / math.log(z)
    if y >= turn - math.log(turn):
        u = h_inverse(y)
        return 2 * math.exp(1 / u) * u
    return 2 * z * (y - math.log(math.log(z)))


@lru_cache(maxsize=1024)
def gaussian_calibration(x: float) -> float:
    """Kaufmann and Koolen's C_G(x) = min over l in (1/2, 1] of (g(l) + x)/l."""

    def value(l: float) -> float:  # noqa: E741
        g = 2 * l - 2 * l * math.log(4 * l) + math.log(zeta(2 * l)) - math.log(1 - l) / 2
        return (g + x) / l

    return minimum(value, 0.5 + 1e-12, 1 - 1e-12)


def minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """The least value of a unimodal function, by golden-section search."""
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(80):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(right)
    return min(at_left, at_right)


def zeta(s: float) -> float:
    """Riemann's zeta for s > 1, by Euler-Maclaurin summation."""
    n = 40
    head: float = sum(k**-s for k in range(1, n))
    last: float = n**-s
    third, fifth = s * (s + 1) * (s + 2), s * (s + 1) * (s + 2) * (s + 3) * (s + 4)
    tail = n / (s - 1) + 1 / 2 + s / (12 * n) - third / (720 * n**3) + fifth / (30240 * n**5)
    return head + last * tail
