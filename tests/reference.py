"""A slow, plain reference of the policies, to compare the package with.

Written from the specification alone, without a look at the package's source. Nothing is incremental: every round
computes everything again from (t, N, R, C) and each arm's first reward. Arms are numbered from 0, logarithms are
natural, and every tie goes to the lowest index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from mpmath import mp, mpf
from scipy.optimize import brentq, minimize_scalar
from scipy.special import zeta

BERNOULLI_LIKE = ("bernoulli", "bounded")


@dataclass
class Result:
    """One run. `decision` is None if `max_pulls` came first."""

    pulls_in_order: list[int]
    decision: int | None
    N: list[int]
    R: list[float]
    C: list[float]
    first: list[float]
    total_cost: float
    # For each pull: how far the chosen arm's score was from the next best one; infinite where none are compared. Near 0
    # the choice hangs on rounding, and another correct implementation may choose otherwise.
    margins: list[float] = field(default_factory=list)


def x_minus_log1p(x: float) -> float:
    """x - log(1 + x), without cancellation near 0. With r = x/(2+x): log(1+x) = 2 (r + r^3/3 + r^5/5 + ...)."""
    if x <= -1.0:
        return math.inf
    if abs(x) > 0.25:
        return x - math.log1p(x)
    r = x / (2.0 + x)
    tail = sum(r ** (2 * k - 2) / (2 * k + 1) for k in range(1, 14))  # 1/3 + r^2/5 + ...
    return r * x - 2.0 * r**3 * tail


def relative_entropy(p: float, q: float, step: float | None = None) -> float:
    """p log(p/q) + q - p for p, q >= 0; `step` is q - p, where the caller knows it more accurately."""
    if step is None:
        step = q - p
    if p == 0.0:
        return q  # 0 log 0 = 0
    if q <= 0.0:
        return math.inf
    if abs(step) <= 0.25 * p:
        return p * x_minus_log1p(step / p)
    return p * math.log(p / q) + step


def divergence(family: str, p: float, q: float, variance: float = 1.0) -> float:
    """d(p, q) in nats, from mean p to mean q."""
    if family == "gaussian":
        return (p - q) ** 2 / (2.0 * variance)
    if family in BERNOULLI_LIKE:
        # The two "q - p" terms, q - p and (1-q) - (1-p), add up to 0.
        return relative_entropy(p, q, q - p) + relative_entropy(1.0 - p, 1.0 - q, p - q)
    if family == "poisson":
        return relative_entropy(p, q)
    return math.inf if q <= 0.0 else x_minus_log1p((p - q) / q)


def to_mixture(family: str, best: float, other: float, x: float, variance: float = 1.0) -> tuple[float, float]:
    """(d(best, m), d(other, m)) at m = (best + x other)/(1 + x), accurate also when the two means are close."""
    gap = best - other
    m = (best + x * other) / (1.0 + x)
    down = -gap * (x / (1.0 + x))  # m - best
    up = gap / (1.0 + x)  # m - other
    if family == "gaussian":
        return down**2 / (2.0 * variance), up**2 / (2.0 * variance)
    if family in BERNOULLI_LIKE:
        rest = ((1.0 - best) + x * (1.0 - other)) / (1.0 + x)  # 1 - m
        return (
            relative_entropy(best, m, down) + relative_entropy(1.0 - best, rest, -down),
            relative_entropy(other, m, up) + relative_entropy(1.0 - other, rest, -up),
        )
    if family == "poisson":
        return relative_entropy(best, m, down), relative_entropy(other, m, up)
    return x_minus_log1p(-down / m), x_minus_log1p(-up / m)


def g(family: str, best: float, other: float, x: float, variance: float = 1.0) -> float:
    """g(x) = d(best, m) + x d(other, m), increasing in x from 0 to d(best, other)."""
    from_best, from_other = to_mixture(family, best, other, x, variance)
    return from_best + x * from_other


def _root_of_increasing(f: Callable[[float], float], start: float, ceiling: float = math.inf) -> float:
    """The root of an increasing function of a real, looked for outwards from `start`, not beyond `ceiling`."""
    at_start = f(start)
    if at_start == 0.0 or (at_start < 0.0 and start >= ceiling):
        return start
    width = 1.0
    low = high = start
    if at_start < 0.0:
        while f(high) < 0.0:
            low, high, width = high, min(high + width, ceiling), 2.0 * width
            if low == high:
                return high
    else:
        while f(low) > 0.0:
            low, high, width = low - width, low, 2.0 * width
            if low < -700.0:
                raise ArithmeticError("no root found")
    return brentq(f, low, high, xtol=1e-15, rtol=1e-15, maxiter=500)


def optimum(
    family: str, means: Sequence[float], costs: Sequence[float], variance: float = 1.0
) -> tuple[list[float], float]:
    """(x, y*): pulls of each arm per pull of the best one (x_best = 1), and y*. The best mean must be unique.

    y* solves  sum_a c_a d(mu_1, m_a) / (c_1 d(mu_a, m_a)) = 1  with m_a = (mu_1 + x_a mu_a)/(1 + x_a), g_a(x_a) = y*.
    The search runs over u = log x of the runner-up, the arm whose g is the lowest at each x: y = g_runner-up(x), and
    every other x_a(y) lies in (0, x].
    """
    best = _leader(means)
    rivals = [a for a in range(len(means)) if a != best]
    runner_up = max(rivals, key=lambda a: (means[a], -a))
    if means[runner_up] == means[best]:
        raise ValueError("the best mean is tied: no unique optimum")

    def ratios(u: float) -> tuple[list[float], float]:
        y = g(family, means[best], means[runner_up], math.exp(u), variance)
        x = [1.0] * len(means)
        for a in rivals:
            if means[a] == means[runner_up]:
                x[a] = math.exp(u)
            else:

                def excess(v: float, a: int = a) -> float:
                    return g(family, means[best], means[a], math.exp(v), variance) / y - 1.0

                x[a] = math.exp(_root_of_increasing(excess, u, ceiling=u))
        return x, y

    def balance(u: float) -> float:
        x, _ = ratios(u)
        total = 0.0
        for a in rivals:
            from_best, from_other = to_mixture(family, means[best], means[a], x[a], variance)
            total += costs[a] * from_best / (costs[best] * from_other)
        return math.log(total)

    return ratios(_root_of_increasing(balance, 0.0))


def shares(family: str, means: Sequence[float], costs: Sequence[float], variance: float = 1.0) -> list[float]:
    """Optimal cost shares: proportional to c_a x_a or, of arms tied for the best, to sqrt(c_a)."""
    top = max(means)
    if sum(mean == top for mean in means) > 1:
        weights = [math.sqrt(c) if mean == top else 0.0 for mean, c in zip(means, costs, strict=True)]
    else:
        x, _ = optimum(family, means, costs, variance)
        weights = [c * x_a for c, x_a in zip(costs, x, strict=True)]
    total = math.fsum(weights)
    return [w / total for w in weights]


def evidence(family: str, n_a: int, r_a: float, n_b: int, r_b: float, variance: float = 1.0) -> float:
    """Z_{a,b} = N_a d(mean_a, m) + N_b d(mean_b, m), m the pooled mean; 0 unless mean_a > mean_b."""
    mean_a, mean_b = r_a / n_a, r_b / n_b
    if not mean_a > mean_b:
        return 0.0
    m = (r_a + r_b) / (n_a + n_b)
    return n_a * divergence(family, mean_a, m, variance) + n_b * divergence(family, mean_b, m, variance)


def _log(x):
    return mp.log(x) if isinstance(x, mpf) else math.log(x)


def _pi(x):
    return +mp.pi if isinstance(x, mpf) else math.pi


def _log_gamma(x):
    return mp.loggamma(x) if isinstance(x, mpf) else math.lgamma(x)


def _x_log(x: float, y: float) -> float:
    """x log y, with 0 log 0 = 0."""
    return 0.0 if x == 0.0 else x * _log(y)


def log_mixture(family: str, n: int, r: float, f: float, variance: float = 1.0) -> float:
    """M: log of the Jeffreys mixture likelihood of one arm (given its first reward f, but for bernoulli). This and the
    next two give as many digits as the numbers have that they are given: mpf, or floats."""
    if family in BERNOULLI_LIKE:
        return _log_gamma(r + 0.5) + _log_gamma(n - r + 0.5) - _log_gamma(n + 1) - _log(_pi(n))
    if family == "gaussian":
        return -_log(n) / 2 + (r**2 / n - f**2) / (2 * variance)
    if family == "poisson":
        return _log_gamma(r + 0.5) - (r + 0.5) * _log(n) - _log_gamma(f + 0.5)
    return _log_gamma(n) - n * _log(r) + _log(f)


def log_largest_likelihood(family: str, n: int, s: float, variance: float = 1.0) -> float:
    """L0 of n rewards of sum s under one mean: the largest log likelihood, without the terms that M leaves out."""
    if family in BERNOULLI_LIKE:
        return _x_log(s, s / n) + _x_log(n - s, (n - s) / n)
    if family == "gaussian":
        return s**2 / (2 * variance * n)
    if family == "poisson":
        return _x_log(s, s / n) - s
    return -n * _log(s / n) - n


def log_evalue(
    family: str, n_b: int, r_b: float, f_b: float, n_a: int, r_a: float, f_a: float, variance: float = 1.0
) -> float:
    """log E_{b,a} = M(b) + M(a) - L0, the evidence for mu_b > mu_a; -inf where the test is not defined yet (N < 2). L0
    is that of the pooled data if s_b/n_b > s_a/n_a, else the sum of both arms' own."""
    if family in BERNOULLI_LIKE:
        count_b, sum_b, count_a, sum_a = n_b, r_b, n_a, r_a
    else:
        if n_b < 2 or n_a < 2:
            return -math.inf
        count_b, sum_b, count_a, sum_a = n_b - 1, r_b - f_b, n_a - 1, r_a - f_a
    if sum_b / count_b > sum_a / count_a:
        l0 = log_largest_likelihood(family, count_b + count_a, sum_b + sum_a, variance)
    else:
        l0 = log_largest_likelihood(family, count_b, sum_b, variance)
        l0 += log_largest_likelihood(family, count_a, sum_a, variance)
    return log_mixture(family, n_b, r_b, f_b, variance) + log_mixture(family, n_a, r_a, f_a, variance) - l0


def beta_paper(t: int, delta: float, arms: int, alpha: float = 1.0, B: float | None = None) -> float:
    """log(B t^alpha / delta), B = 2K at alpha = 1."""
    return math.log(2.0 * arms if B is None else B) + alpha * math.log(t) - math.log(delta)


def h(u: float) -> float:
    """u - log u."""
    return u - math.log(u)


def h_inverse(x: float) -> float:
    """The u >= 1 with u - log u = x, for x >= 1."""
    if x == 1.0:
        return 1.0
    return brentq(lambda u: h(u) - x, 1.0, 2.0 * x + 2.0, xtol=1e-15, rtol=1e-15)


def h_tilde(x: float, z: float = 1.5) -> float:
    """e^(1/u) u with u = h^-1(x) if x >= h(1/log z), else z (x - log log z)."""
    if x >= h(1.0 / math.log(z)):
        u = h_inverse(x)
        return math.exp(1.0 / u) * u
    return z * (x - math.log(math.log(z)))


def mixture_T(x: float) -> float:
    """T(x) = 2 htilde((h^-1(1+x) + log(2 zeta(2))) / 2), zeta(2) = pi^2/6."""
    return 2.0 * h_tilde((h_inverse(1.0 + x) + math.log(2.0 * math.pi**2 / 6.0)) / 2.0)


@cache
def mixture_C_gaussian(x: float) -> float:
    """C_G(x) = min over l in (1/2, 1] of (g(l) + x)/l, g(l) = 2l - 2l log(4l) + log zeta(2l) - log(1-l)/2."""

    def value(l_: float) -> float:
        inner = 2.0 * l_ - 2.0 * l_ * math.log(4.0 * l_) + math.log(zeta(2.0 * l_)) - math.log1p(-l_) / 2.0
        return (inner + x) / l_

    points = [0.5 + 0.5 * (k + 1) / 2001 for k in range(2000)]  # strictly inside (1/2, 1); both ends are infinite
    k = min(range(len(points)), key=lambda k: value(points[k]))
    low = points[k - 1] if k > 0 else 0.5 + 1e-12
    high = points[k + 1] if k + 1 < len(points) else 1.0 - 1e-15
    found = minimize_scalar(value, bounds=(low, high), method="bounded", options={"xatol": 1e-12, "maxiter": 1000})
    return min(float(found.fun), value(points[k]))


@cache
def mixture_constant(family: str, delta: float, arms: int) -> float:
    """The part without t: 2 C_G(L) for gaussian, else 2 T(L), with L = log((K-1)/delta)/2."""
    x = math.log((arms - 1) / delta) / 2.0
    return 2.0 * mixture_C_gaussian(x) if family == "gaussian" else 2.0 * mixture_T(x)


def beta_mixture_pairwise(n_a: int, n_b: int, delta: float, arms: int, family: str) -> float:
    """The form for one pair, in place of t the pulls of its two arms."""
    factor, start = (2.0, 4.0) if family == "gaussian" else (3.0, 1.0)
    of_pulls = sum(math.log(start + math.log(n)) for n in (n_a, n_b))
    return mixture_constant(family, delta, arms) + factor * of_pulls


def beta(threshold: str, t: int, delta: float, arms: int, family: str, parameters: dict | None = None) -> float:
    """beta(t, delta) of a threshold that is a curve in t."""
    if threshold == "paper":
        return beta_paper(t, delta, arms, **(parameters or {}))
    if threshold == "stylized":
        return math.log((1.0 + math.log(t)) / delta)
    if threshold == "kt":
        return math.log(2.0 * t * (arms - 1)) - math.log(delta)
    factor, start = (4.0, 4.0) if family == "gaussian" else (6.0, 1.0)
    return mixture_constant(family, delta, arms) + factor * math.log(start + math.log(t / 2.0))


def _last_within(inside: Callable[[float], bool], start: float, end: float) -> float:
    """Bisection down to neighbouring floats: where `inside` (true at start) stops being true on the way to `end`."""
    if inside(end):
        return end
    while True:
        middle = start + (end - start) / 2.0
        if middle in (start, end):
            return start
        if inside(middle):
            start = middle
        else:
            end = middle


def upper_end(family: str, n: int, mean: float, level: float, variance: float = 1.0) -> float:
    """The largest q with N d(mean, q) <= beta."""
    if family == "gaussian":
        return mean + math.sqrt(2.0 * variance * level / n)

    def inside(q: float) -> bool:
        return n * divergence(family, mean, q, variance) <= level

    if family in BERNOULLI_LIKE:
        return _last_within(inside, mean, 1.0)
    far = 2.0 * mean + 1.0
    while inside(far):
        far *= 2.0
        if math.isinf(far):
            return math.inf
    return _last_within(inside, mean, far)


def lower_end(family: str, n: int, mean: float, level: float, variance: float = 1.0) -> float:
    """The smallest q with N d(mean, q) <= beta."""
    if family == "gaussian":
        return mean - math.sqrt(2.0 * variance * level / n)
    return _last_within(lambda q: n * divergence(family, mean, q, variance) <= level, mean, 0.0)


def _leader(means: Sequence[float], among: Sequence[int] | None = None) -> int:
    """The best mean, lowest index on ties."""
    return max(range(len(means)) if among is None else among, key=lambda a: (means[a], -a))


class _Run:
    """What has been seen so far, and the rules that several policies share."""

    def __init__(self, family, variance, arms, threshold, delta, draw, max_pulls, parameters):
        self.family, self.variance, self.K, self.threshold, self.delta = family, variance, arms, threshold, delta
        self.draw, self.max_pulls, self.parameters = draw, max_pulls, dict(parameters or {})
        self.N, self.R, self.C, self.F = [0] * arms, [0.0] * arms, [0.0] * arms, [0.0] * arms
        self.order: list[int] = []
        self.margins: list[float] = []
        for arm in range(arms):
            self.pull(arm)

    def pull(self, arm: int, margin: float = math.inf) -> None:
        reward, cost = self.draw(arm)
        if self.N[arm] == 0:
            self.F[arm] = float(reward)
        self.N[arm] += 1
        self.R[arm] += float(reward)
        self.C[arm] += float(cost)
        self.order.append(arm)
        self.margins.append(margin)

    @property
    def t(self) -> int:
        return len(self.order)

    @property
    def means(self) -> list[float]:
        return [r / n for r, n in zip(self.R, self.N, strict=True)]

    @property
    def exhausted(self) -> bool:
        return self.max_pulls is not None and self.t >= self.max_pulls

    def beats(self, b: int, a: int) -> bool:
        """Whether b is shown better than a: mean_b > mean_a, and Z_{b,a} > beta or log E_{b,a} >= log((K-1)/delta)."""
        if not self.R[b] / self.N[b] > self.R[a] / self.N[a]:
            return False
        if self.threshold == "evalue":
            log_e = log_evalue(
                self.family, self.N[b], self.R[b], self.F[b], self.N[a], self.R[a], self.F[a], self.variance
            )
            return log_e >= math.log((self.K - 1) / self.delta)
        if self.threshold == "mixture" and self.parameters.get("pairwise", True):
            level = beta_mixture_pairwise(self.N[b], self.N[a], self.delta, self.K, self.family)
        else:
            level = self.beta()
        return evidence(self.family, self.N[b], self.R[b], self.N[a], self.R[a], self.variance) > level

    def beta(self) -> float:
        return beta(self.threshold, self.t, self.delta, self.K, self.family, self.parameters)

    def winner(self) -> int | None:
        """The empirical best, if it beats every other arm."""
        leader = _leader(self.means)
        return leader if all(self.beats(leader, a) for a in range(self.K) if a != leader) else None

    def followed(self, rule) -> Result:
        """Of a rule, to its decision or the limit."""
        while True:
            decision = rule.decision()
            if decision is not None or self.exhausted:
                return self.result(decision)
            for pulled in rule.pulls():
                if self.exhausted:
                    return self.result(None)
                self.pull(*pulled)

    def result(self, decision: int | None) -> Result:
        return Result(self.order, decision, self.N, self.R, self.C, self.F, sum(self.C), self.margins)


def _highest(scores: dict[int, float], size: float) -> tuple[int, float]:
    """(arm, margin): the arm of the highest score, lowest index on ties, and its distance to the next, over size."""
    arm = max(scores, key=lambda a: (scores[a], -a))
    others = [score for a, score in scores.items() if a != arm]
    if not others or scores[arm] == math.inf:
        return arm, math.inf
    return arm, (scores[arm] - max(others)) / size


Round = list[tuple[int, float]]  # the arms that are pulled in a round, each with its margin


class _Rule:
    """When a policy decides, and what it pulls in each round; here, by turns, until the best arm beats every other."""

    def __init__(self, run: _Run, **options) -> None:
        self.run, self.options = run, options

    def decision(self) -> int | None:
        return self.run.winner()

    def pulls(self) -> Round:
        return [(self.run.t % self.run.K, math.inf)]


class _Eliminate(_Rule):
    """CO; racing if cost_blind."""

    def decision(self) -> int | None:
        run, in_play = self.run, self.options.setdefault("in_play", list(range(self.run.K)))
        leader = _leader(run.means, in_play)
        in_play[:] = [a for a in in_play if a == leader or not run.beats(leader, a)]
        return leader if in_play == [leader] else None

    def pulls(self) -> Round:
        # The smallest sqrt(cost_a) N_a is the smallest cost_a N_a^2 = C_a N_a.
        paid = self.run.N if self.options["cost_blind"] else self.run.C
        scores = {a: -paid[a] * self.run.N[a] for a in self.options["in_play"]}
        return [_highest(scores, size=-max(scores.values()))]


class _Track(_Rule):
    """CTAS; TAS if cost_blind."""

    def pulls(self) -> Round:
        run, cost_blind = self.run, self.options["cost_blind"]
        exploration, slack = self.options.get("exploration", 1.0), self.options.get("slack", 0.5 if cost_blind else 0.0)
        if min(run.N) < exploration * math.sqrt(run.t) - slack * run.K:
            return [(run.N.index(min(run.N)), math.inf)]
        paid = [float(n) for n in run.N] if cost_blind else run.C
        w = shares(run.family, run.means, [c / n for c, n in zip(paid, run.N, strict=True)], run.variance)
        if self.options.get("tracking", "deficit") == "deficit":
            return [_highest({a: sum(paid) * w[a] - paid[a] for a in range(run.K)}, sum(paid))]
        scores = {a: w[a] / paid[a] for a in range(run.K)}
        return [_highest(scores, max(scores.values()))]


class _LUCB(_Rule):
    """d-LUCB: each round the leader, then the rival with the highest upper end."""

    def upper(self) -> dict[int, float]:
        run, level, leader = self.run, self.run.beta(), _leader(self.run.means)
        ends = {a: upper_end(run.family, run.N[a], run.means[a], level, run.variance) for a in range(run.K)}
        return {a: end for a, end in ends.items() if a != leader}

    def decision(self) -> int | None:
        run, leader = self.run, _leader(self.run.means)
        low = lower_end(run.family, run.N[leader], run.means[leader], run.beta(), run.variance)
        return leader if low > max(self.upper().values()) else None

    def pulls(self) -> Round:
        return [(_leader(self.run.means), math.inf), _highest(self.upper(), size=1.0)]


def _short_of(run: _Run, b: int, a: int) -> float:
    """How far b is from beating a, up to a term that is the same for every a: what is required less the evidence. With
    evalue and before b has a second reward, that is what the mixture over a's data loses against their best fit."""
    N, R, F = run.N, run.R, run.F
    if run.threshold == "evalue":
        if run.family not in BERNOULLI_LIKE:
            if N[a] < 2:
                return math.inf
            if N[b] < 2:
                fit = log_largest_likelihood(run.family, N[a] - 1, R[a] - F[a], run.variance)
                return fit - log_mixture(run.family, N[a], R[a], F[a], run.variance)
        return -log_evalue(run.family, N[b], R[b], F[b], N[a], R[a], F[a], run.variance)
    z = evidence(run.family, N[b], R[b], N[a], R[a], run.variance)
    if run.threshold == "mixture" and run.parameters.get("pairwise", True):
        return beta_mixture_pairwise(N[a], N[b], run.delta, run.K, run.family) - z
    return -z


def _alike(run: _Run, a: int, c: int, short: dict[int, float]) -> bool:
    """Whether two arms are equally far from being beaten by definition, not by chance."""
    same = (run.N[a], run.R[a], run.F[a]) == (run.N[c], run.R[c], run.F[c])
    return same or (short[a] == short[c] and (short[a] in (0.0, math.inf) or run.N[a] == run.N[c]))


class _TopTwo(_Rule):
    """Cost-aware top-two. `coin()` is the next random number in [0, 1); one is drawn a round, needed or not."""

    def pulls(self) -> Round:
        run, toss, means, N = self.run, self.options["coin"](), self.run.means, self.run.N
        costs = [c / n for c, n in zip(run.C, N, strict=True)]

        # The leader: the largest upper end. Arms of the same end by definition tie exactly, and margins are of others.
        upper = {a: upper_end(run.family, N[a], means[a], math.log(run.t), run.variance) for a in range(run.K)}
        l, _ = _highest(upper, size=1.0)  # noqa: E741
        edge = run.family in BERNOULLI_LIKE and means[l] == 1.0
        others = {a: u for a, u in upper.items() if means[a] != means[l] or (N[a] != N[l] and not edge)}
        _, margin = _highest({**others, l: upper[l]}, size=max(1.0, abs(upper[l])))

        # The challenger: the arm that the leader is furthest from beating. Arms that are alike tie exactly.
        short = {a: _short_of(run, l, a) for a in range(run.K) if a != l}
        c, _ = _highest(short, size=1.0)
        others = {a: s for a, s in short.items() if a == c or not _alike(run, a, c, short)}
        margin = min(margin, _highest(others, size=max(1.0, abs(short[c])))[1])

        # The coin.
        m = (run.R[l] + run.R[c]) / (N[l] + N[c])
        if means[l] > means[c]:
            h_l = N[l] * divergence(run.family, means[l], m, run.variance) / costs[l]
            h_c = N[c] * divergence(run.family, means[c], m, run.variance) / costs[c]
        else:
            h_l, h_c = N[c] / costs[l], N[l] / costs[c]
        if self.options.get("randomized", True):
            chance = h_l / (h_l + h_c)
            pull_leader, distance = toss < chance, abs(toss - chance)
        else:  # d(mean, m)/cost is h/N
            for_l, for_c = h_l / N[l], h_c / N[c]
            pull_leader, distance = for_l > for_c, abs(for_l - for_c) / (for_l + for_c)
            if means[l] <= means[c] and N[c] ** 2 * costs[c] == N[l] ** 2 * costs[l]:
                distance = math.inf  # an exact tie, at the start and with equal costs
        return [(l if pull_leader else c, min(margin, distance))]


RULES = {
    "co": (_Eliminate, {"cost_blind": False}), "racing": (_Eliminate, {"cost_blind": True}),
    "ctas": (_Track, {"cost_blind": False}), "tas": (_Track, {"cost_blind": True}),
    "uniform": (_Rule, {}), "d-lucb": (_LUCB, {}), "top-two": (_TopTwo, {}),
}  # fmt: skip


def run(
    policy: str, *, family: str, variance: float = 1.0, arms: int, threshold: str, delta: float,
    draw: Callable[[int], tuple[float, float]], max_pulls: int | None = None, threshold_parameters: dict | None = None,
    **options,
) -> Result:  # fmt: skip
    """Run one policy to its end. `draw(arm)` returns that arm's next (reward, cost), the option `coin()` the next coin.
    Every arm is pulled once, in order; then the policy stops, or is cut at `max_pulls`, or pulls on."""
    state = _Run(family, variance, arms, threshold, delta, draw, max_pulls, threshold_parameters)
    kind, usual = RULES[policy]
    return state.followed(kind(state, **usual | options))
