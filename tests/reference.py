"""A slow, plain reference of the policies, to compare the package with.

Written from the specification and from the papers' listings and their cost forms, without a look at the package's
source. Nothing is incremental but what the listings themselves keep from round to round (sums of shares, weights,
losses): every round computes all else again from (t, N, R, C) and each arm's first reward. Arms are numbered from 0,
logarithms are natural, and every tie goes to the lowest index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial

from mpmath import mp, mpf
from scipy.optimize import brentq, linprog, minimize_scalar
from scipy.special import zeta

BERNOULLI_LIKE = ("bernoulli", "bounded")


def x_minus_log1p(x: float) -> float:
    """x - log(1 + x), without cancellation near 0. With r = x/(2+x): log(1+x) = 2 (r + r^3/3 + r^5/5 + ...)."""
    if x <= -1.0:
        return math.inf
    if abs(x) > 0.25:
        return x - math.log1p(x)
    r = x / (2.0 + x)
    tail = sum(r ** (2 * k - 2) / (2 * k + 1) for k in range(1, 14))  # 1/3 + r^2/5 + ...
    return r * x - 2.0 * r**3 * tail


def relative_entropy(p: float, q: float, step: float) -> float:
    """p log(p/q) + q - p for p, q >= 0; `step` is q - p."""
    if p == 0.0:
        return q  # 0 log 0 = 0
    if q <= 0.0:
        return math.inf
    if abs(step) <= 0.25 * p:
        return p * x_minus_log1p(step / p)
    return p * math.log(p / q) + step


def divergence(
    family: str, p: float, q: float, variance: float = 1.0, step: float | None = None, rest: float | None = None
) -> float:
    """d(p, q) in nats, from mean p to mean q; `step` is q - p and `rest` 1 - q, if they are known more accurately."""
    if step is None:
        step = q - p
    if family == "gaussian":
        return step**2 / (2.0 * variance)
    if family in BERNOULLI_LIKE:
        # The two steps that a relative entropy adds are opposite.
        return relative_entropy(p, q, step) + relative_entropy(1.0 - p, 1.0 - q if rest is None else rest, -step)
    if family == "poisson":
        return relative_entropy(p, q, step)
    return math.inf if q <= 0.0 else x_minus_log1p(-step / q)


def to_mixture(family: str, best: float, other: float, x: float, variance: float = 1.0) -> tuple[float, float]:
    """(d(best, m), d(other, m)) at m = (best + x other)/(1 + x), accurate also when the two means are close."""
    gap, m = best - other, (best + x * other) / (1.0 + x)
    rest = ((1.0 - best) + x * (1.0 - other)) / (1.0 + x)
    return (
        divergence(family, best, m, variance, -gap * (x / (1.0 + x)), rest),
        divergence(family, other, m, variance, gap / (1.0 + x), rest),
    )


def g(family: str, best: float, other: float, x: float, variance: float = 1.0) -> float:
    """g(x) = d(best, m) + x d(other, m), increasing in x from 0 to d(best, other)."""
    from_best, from_other = to_mixture(family, best, other, x, variance)
    return from_best + x * from_other


def _root_of_increasing(f: Callable[[float], float], start: float, ceiling: float = math.inf) -> float:
    """The root of an increasing function of a real, looked for outwards from `start`, not beyond `ceiling`."""
    low, high, width = start, start, 1.0
    while f(high) < 0.0:
        if high >= ceiling:
            return high
        low, high, width = high, min(high + width, ceiling), 2.0 * width
    while f(low) > 0.0:
        low, high, width = low - width, low, 2.0 * width
    return brentq(f, low, high, xtol=1e-15, rtol=1e-15, maxiter=500)


def shares(family: str, means: Sequence[float], costs: Sequence[float], variance: float = 1.0) -> list[float]:
    """Optimal cost shares: proportional to c_a x_a or, of arms tied for the best, to sqrt(c_a).

    x_a are the pulls for each pull of the best arm: g_a(x_a) = y*, which solves
    sum_a c_a d(mu_1, m_a) / (c_1 d(mu_a, m_a)) = 1  with m_a = (mu_1 + x_a mu_a)/(1 + x_a).
    The search runs over u = log x of the runner-up, the arm whose g is the lowest at each x: y = g_runner-up(x), and
    every other x_a(y) lies in (0, x].
    """
    best = _leader(means)
    rivals = [a for a in range(len(means)) if a != best]
    runner_up = max(rivals, key=lambda a: (means[a], -a))

    def ratios(u: float) -> list[float]:
        y = g(family, means[best], means[runner_up], math.exp(u), variance)
        x = [1.0] * len(means)
        for a in rivals:
            if means[a] == means[runner_up]:
                x[a] = math.exp(u)
            else:

                def excess(v: float, a: int = a) -> float:
                    return g(family, means[best], means[a], math.exp(v), variance) / y - 1.0

                x[a] = math.exp(_root_of_increasing(excess, u, ceiling=u))
        return x

    def balance(u: float) -> float:
        total, x = 0.0, ratios(u)
        for a in rivals:
            from_best, from_other = to_mixture(family, means[best], means[a], x[a], variance)
            total += costs[a] * from_best / (costs[best] * from_other)
        return math.log(total)

    if means[runner_up] == means[best]:
        weights = [math.sqrt(c) if mean == means[best] else 0.0 for mean, c in zip(means, costs, strict=True)]
    else:
        x = ratios(_root_of_increasing(balance, 0.0))
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

    points = [0.5 + 0.5 * k / 2001 for k in range(1, 2001)]  # strictly inside (1/2, 1); both ends are infinite
    near = min(points, key=value)
    bounds = max(near - 1e-3, 0.5 + 1e-12), min(near + 1e-3, 1.0 - 1e-15)
    found = minimize_scalar(value, bounds=bounds, method="bounded", options={"xatol": 1e-12, "maxiter": 1000})
    return min(float(found.fun), value(near))


@cache
def mixture_constant(family: str, delta: float, arms: int) -> float:
    """The part without t: 2 C_G(L) for gaussian, else 2 T(L), with L = log((K-1)/delta)/2."""
    x = math.log((arms - 1) / delta) / 2.0
    return 2.0 * mixture_C_gaussian(x) if family == "gaussian" else 2.0 * mixture_T(x)


def beta(
    threshold: str, t: int, delta: float, arms: int, family: str, parameters: dict | None = None,
    pair: tuple[float, float] | None = None,
) -> float:  # fmt: skip
    """beta(t, delta) of a threshold that is a curve in t; for `paper`, log(B t^alpha / delta). The mixture also has a
    form for one pair, of the pulls of its two arms."""
    if threshold == "paper":
        given = {"alpha": 1.0, "B": 2.0 * arms} | (parameters or {})
        return math.log(given["B"]) + given["alpha"] * math.log(t) - math.log(delta)
    if threshold == "stylized":
        return math.log((1.0 + math.log(t)) / delta)
    if threshold == "kt":
        return math.log(2.0 * t * (arms - 1)) - math.log(delta)
    factor, start = (2.0, 4.0) if family == "gaussian" else (3.0, 1.0)
    of_pulls = sum(math.log(start + math.log(n)) for n in pair or (t / 2, t / 2))
    return mixture_constant(family, delta, arms) + factor * of_pulls


def interval_end(family: str, n: int, mean: float, level: float, variance: float = 1.0, *, upper: bool) -> float:
    """The largest or smallest q with N d(mean, q) <= beta: by bisection, down to neighbouring floats."""
    if family == "gaussian":
        return mean + (1 if upper else -1) * math.sqrt(2.0 * variance * level / n)

    def inside(q: float) -> bool:
        return n * divergence(family, mean, q, variance) <= level

    last, end = mean, (1.0 if family in BERNOULLI_LIKE else 2.0 * mean + 1.0) if upper else 0.0
    while inside(end):
        if not upper or family in BERNOULLI_LIKE:
            return end
        end *= 2.0
        if math.isinf(end):
            return end
    while (middle := last + (end - last) / 2.0) not in (last, end):
        last, end = (middle, end) if inside(middle) else (last, middle)
    return last


def _leader(means: Sequence[float], among: Sequence[int] | None = None) -> int:
    """The best mean, lowest index on ties."""
    return max(range(len(means)) if among is None else among, key=lambda a: (means[a], -a))


class Run:
    """What has been seen so far, and the rules that several policies share."""

    def __init__(
        self, family, variance, arms, threshold, delta, draw, parameters=None, max_pulls=math.inf, budget=math.inf,
        uniform=None, normal=None,
    ) -> None:  # fmt: skip
        self.family, self.variance, self.K, self.threshold, self.delta = family, variance, arms, threshold, delta
        self.draw, self.parameters, self.max_pulls, self.budget = draw, parameters or {}, max_pulls, budget
        self.uniform, self.normal, self.kept = uniform, normal, {}
        self.N, self.R, self.C, self.rewards = [0] * arms, [0.0] * arms, [0.0] * arms, [[] for _ in range(arms)]
        self.order: list[int] = []
        # For each pull: how far the chosen arm's score was from the next best one; infinite where none are compared.
        # Near 0 the choice hangs on rounding, and another correct implementation may choose otherwise.
        self.margins: list[float] = []
        self.decision: int | None = None  # None also if a limit came first
        for arm in range(arms):
            self.pull(arm)

    def pull(self, arm: int, margin: float = math.inf) -> None:
        reward, cost = self.draw(arm)
        self.rewards[arm].append(float(reward))
        self.N[arm] += 1
        self.R[arm] += float(reward)
        self.C[arm] += float(cost)
        self.order.append(arm)
        self.margins.append(margin)

    @property
    def t(self) -> int:
        return len(self.order)

    @property
    def F(self) -> list[float]:
        return [rewards[0] for rewards in self.rewards]

    @property
    def means(self) -> list[float]:
        return [r / n for r, n in zip(self.R, self.N, strict=True)]

    @property
    def costs(self) -> list[float]:
        return [c / n for c, n in zip(self.C, self.N, strict=True)]

    @property
    def best(self) -> int:
        return _leader(self.means)

    def rivals(self, b: int) -> list[int]:
        return [a for a in range(self.K) if a != b]

    def d(self, p: float, q: float) -> float:
        return divergence(self.family, p, q, self.variance)

    def z(self, b: int, a: int, n_b: float, n_a: float) -> float:
        means = self.means
        return evidence(self.family, n_b, n_b * means[b], n_a, n_a * means[a], self.variance)

    def parts(self, b: int, a: int, n_b: float, n_a: float) -> tuple[float, float, float]:
        """d(mean_b, x), d(mean_a, x) and x, the pooled mean."""
        x = (n_b * self.means[b] + n_a * self.means[a]) / (n_b + n_a)
        return self.d(self.means[b], x), self.d(self.means[a], x), x

    def upper(self, a: int, level: float) -> float:
        return interval_end(self.family, self.N[a], self.means[a], level, self.variance, upper=True)

    def lower(self, a: int, level: float) -> float:
        return interval_end(self.family, self.N[a], self.means[a], level, self.variance, upper=False)

    def log_evalue(self, b: int, a: int) -> float:
        N, R, F = self.N, self.R, self.F
        return log_evalue(self.family, N[b], R[b], F[b], N[a], R[a], F[a], self.variance)

    def evidence(self, b: int, a: int) -> float:
        return evidence(self.family, self.N[b], self.R[b], self.N[a], self.R[a], self.variance)

    def beta(self, b: int | None = None, a: int | None = None) -> float:
        """What evidence has to exceed: a level, or that of a threshold; with the pairwise mixture, that of one pair."""
        if isinstance(self.threshold, int):
            return self.threshold
        if b is not None and self.threshold == "mixture" and self.parameters.get("pairwise", True):
            return beta("mixture", self.t, self.delta, self.K, self.family, pair=(self.N[b], self.N[a]))
        return beta(self.threshold, self.t, self.delta, self.K, self.family, self.parameters)

    def beats(self, b: int, a: int) -> bool:
        """Whether b is shown better than a: mean_b > mean_a, and Z_{b,a} > beta or log E_{b,a} >= log((K-1)/delta)."""
        if not self.R[b] / self.N[b] > self.R[a] / self.N[a]:
            return False
        if self.threshold == "evalue":
            return self.log_evalue(b, a) >= math.log((self.K - 1) / self.delta)
        return self.evidence(b, a) > self.beta(b, a)

    def winner(self) -> int | None:
        """The empirical best, if it beats every other arm."""
        return self.best if all(self.beats(self.best, a) for a in self.rivals(self.best)) else None

    def survivor(self, cost_blind: bool = False) -> int | None:
        """The arm that is left when every arm that the leader beats is out."""
        in_play = self.kept.setdefault("in play", list(range(self.K)))
        leader = _leader(self.means, in_play)
        in_play[:] = [a for a in in_play if a == leader or not self.beats(leader, a)]
        return leader if in_play == [leader] else None

    def apart(self) -> int | None:
        """The empirical best, if its lower end is above every other upper end."""
        level, b = self.beta(), self.best
        return b if self.lower(b, level) > max(self.upper(a, level) for a in self.rivals(b)) else None


def _highest(scores: dict[int, float], size: float = 1.0) -> tuple[int, float]:
    """(arm, margin): the arm of the highest score, lowest index on ties, and its distance to the next, over size."""
    arm = max(scores, key=lambda a: (scores[a], -a))
    others = [score for a, score in scores.items() if a != arm]
    if not others or scores[arm] == math.inf:
        return arm, math.inf
    return arm, (scores[arm] - max(others)) / size


# What a policy pulls next: the arm, and the margin of the choice.


def uniform(run: Run) -> tuple[int, float]:
    return run.t % run.K, math.inf


def co(run: Run, cost_blind: bool = False) -> tuple[int, float]:
    # The smallest sqrt(cost_a) N_a is the smallest cost_a N_a^2 = C_a N_a.
    paid = run.N if cost_blind else run.C
    scores = {a: -paid[a] * run.N[a] for a in run.kept["in play"]}
    return _highest(scores, size=-max(scores.values()))


def track(run: Run, w: list[float], cost_blind: bool = False) -> tuple[int, float]:
    """C-tracking of shares of the money."""
    sums = run.kept.setdefault("sums", [1.0] * run.K)
    for a in range(run.K):
        sums[a] += w[a]
    paid = [float(n) for n in run.N] if cost_blind else run.C
    J = sum(paid)
    return _highest({a: J * sums[a] / sum(sums) - paid[a] for a in range(run.K)}, size=J)


def ctas(run: Run, tracking="deficit", exploration=1.0, slack=0.0, cost_blind=False, w=None) -> tuple[int, float]:
    """Of the optimal shares, or of those given. With sums, their projection on {w >= ε} in the largest norm, by
    bisection."""
    paid = [float(n) for n in run.N] if cost_blind else run.C
    if tracking != "sums" and min(run.N) < exploration * math.sqrt(run.t) - slack * run.K:
        return run.N.index(min(run.N)), math.inf
    w = w or shares(run.family, run.means, [c / n for c, n in zip(paid, run.N, strict=True)], run.variance)
    if tracking == "deficit":
        return _highest({a: sum(paid) * w[a] - paid[a] for a in range(run.K)}, sum(paid))
    if tracking == "ratio":
        scores = {a: w[a] / paid[a] for a in range(run.K)}
        return _highest(scores, max(scores.values()))
    low, high, least = 0.0, 1.0, 1 / (2 * math.sqrt(run.K**2 + run.t))
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(x - middle, least) for x in w) > 1 else (low, middle)
    return track(run, [max(x - low, least) for x in w], cost_blind)


def d_lucb(run: Run) -> list[tuple[int, float]]:
    """Each round the leader, then the rival with the highest upper end."""
    leader, level = run.best, run.beta()
    return [(leader, math.inf), _highest({a: run.upper(a, level) for a in run.rivals(leader)})]


def _short_of(run: Run, b: int, a: int) -> float:
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
        return -run.log_evalue(b, a)
    is_of_pair = run.threshold == "mixture" and run.parameters.get("pairwise", True)
    return (run.beta(b, a) if is_of_pair else 0.0) - run.evidence(b, a)


def _alike(run: Run, a: int, c: int, short: dict[int, float]) -> bool:
    """Whether two arms are equally far from being beaten by definition, not by chance."""
    same = (run.N[a], run.R[a], run.F[a]) == (run.N[c], run.R[c], run.F[c])
    return same or (short[a] == short[c] and (short[a] in (0.0, math.inf) or run.N[a] == run.N[c]))


def top_two(run: Run, randomized: bool = True) -> tuple[int, float]:
    """Cost-aware top-two. One coin is tossed a round, needed or not."""
    toss, means, N, costs = run.uniform(), run.means, run.N, run.costs

    # The leader: the largest upper end. Arms of the same end by definition tie exactly, and margins are of others.
    upper = {a: run.upper(a, math.log(run.t)) for a in range(run.K)}
    l, _ = _highest(upper)  # noqa: E741
    edge = run.family in BERNOULLI_LIKE and means[l] == 1.0
    others = {a: u for a, u in upper.items() if means[a] != means[l] or (N[a] != N[l] and not edge)}
    _, margin = _highest({**others, l: upper[l]}, size=max(1.0, abs(upper[l])))

    # The challenger: the arm that the leader is furthest from beating. Arms that are alike tie exactly.
    short = {a: _short_of(run, l, a) for a in run.rivals(l)}
    c, _ = _highest(short)
    others = {a: s for a, s in short.items() if a == c or not _alike(run, a, c, short)}
    margin = min(margin, _highest(others, size=max(1.0, abs(short[c])))[1])

    # The coin.
    h_l, h_c = halves(run, l, c)
    if randomized:
        chance = h_l / (h_l + h_c)
        pull_leader, distance = toss < chance, abs(toss - chance)
    else:  # d(mean, m)/cost is h/N
        for_l, for_c = h_l / N[l], h_c / N[c]
        pull_leader, distance = for_l > for_c, abs(for_l - for_c) / (for_l + for_c)
        if means[l] <= means[c] and N[c] ** 2 * costs[c] == N[l] ** 2 * costs[l]:
            distance = math.inf  # an exact tie, at the start and with equal costs
    return (l if pull_leader else c), min(margin, distance)


def halves(run: Run, leader: int, other: int) -> tuple[float, float]:
    """Of the evidence, what each arm's pulls add for their cost."""
    c, N = run.costs, run.N
    if run.means[leader] > run.means[other]:
        d_l, d_c, _ = run.parts(leader, other, N[leader], N[other])
        return N[leader] * d_l / c[leader], N[other] * d_c / c[other]
    return N[other] / c[leader], N[leader] / c[other]


def rival(run: Run, leader: int, kind: str, epsilon: float = 0.0) -> tuple[int, float]:
    N, scores = run.N, {}
    for a in run.rivals(leader):
        if epsilon:
            gap = run.means[leader] - run.means[a] + epsilon
            scores[a] = -gap / math.sqrt(1 / N[leader] + 1 / N[a])
        else:
            scores[a] = -run.z(leader, a, N[leader], N[a]) - (math.log(N[a]) if kind == "tci" else 0.0)
    return _highest(scores)


def toss(run: Run, leader: int, other: int, kind: str) -> tuple[int, float]:
    h_l, h_c = (run.costs[other], run.costs[leader]) if kind == "half" else halves(run, leader, other)
    u, chance = run.uniform(), h_l / (h_l + h_c)
    return (leader if u < chance else other), abs(u - chance)


def eb_tci(run, coin="ids", challenger="tci", epsilon=0.0):
    other, margin = rival(run, run.best, challenger, epsilon)
    arm, distance = toss(run, run.best, other, coin)
    return arm, min(margin, distance)


def gamma(run: Run, shape: float) -> float:
    """Marsaglia and Tsang's method, written from their paper."""
    d = shape - 1 / 3
    while True:
        x = run.normal()
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(1 - run.uniform()) < x**2 / 2 + d * (1 - v + math.log(v)):
            return d * v


def draw_mean(run: Run, a: int) -> float:
    N, R = run.N[a], run.R[a]
    if run.family == "gaussian":
        return R / N + math.sqrt(run.variance / N) * run.normal()
    if run.family == "poisson":
        return gamma(run, R + 1) / N
    if run.family == "exponential":
        return R / gamma(run, N)
    x, y = gamma(run, 1 + R), gamma(run, 1 + N - R)
    return x / (x + y)


def thompson(run, challenger="tc", coin="half"):
    leader, margin = _highest({a: draw_mean(run, a) for a in range(run.K)})
    other = leader
    if challenger == "resample":
        for _ in range(100):
            other, near = _highest({a: draw_mean(run, a) for a in range(run.K)})
            margin = min(margin, near)
            if other != leader:
                break
    if other == leader:
        other, near = rival(run, leader, "tc")
        margin = min(margin, near)
    arm, distance = toss(run, leader, other, coin)
    return arm, min(margin, distance)


def at2(run, challenger="tc", exploration=1.0, slack=0.5):
    if min(run.N) < exploration * math.sqrt(run.t) - slack * run.K:
        return run.N.index(min(run.N)), math.inf
    b, c, g = run.best, run.costs, -1.0
    for a in run.rivals(b):
        ratio = (run.N[a] / run.N[b]) ** 2
        if run.means[b] > run.means[a]:
            d_b, d_a, _ = run.parts(b, a, run.N[b], run.N[a])
            ratio = d_b / d_a
        g += c[a] / c[b] * ratio
    if g > 0:
        return b, g
    other, margin = rival(run, b, challenger)
    return other, min(margin, -g)


def fws(run):
    """The linear program by a solver."""
    K, t, b, c = run.K, run.t, run.best, run.costs
    sums = run.kept.setdefault("sums", [1.0] * K)
    y, z = [s / sum(sums) for s in sums], [1 / K] * K
    tied = sum(mean == run.means[b] for mean in run.means) > 1
    if not tied and math.isqrt(t // K) ** 2 != t // K:
        f = {a: run.z(b, a, y[b] / c[b], y[a] / c[a]) for a in run.rivals(b)}
        near = [a for a in f if f[a] < min(f.values()) + t**-0.9 / K]
        rows, limits, parts = [], [], {a: run.parts(b, a, y[b] / c[b], y[a] / c[a]) for a in near}
        size = 1 / max(max(d_b / c[b], d_a / c[a]) for a, (d_b, d_a, _) in parts.items())  # tolerances are absolute
        for a, (d_b, d_a, _) in parts.items():
            row = [0.0] * (K + 1)
            row[b], row[a], row[K] = -d_b / c[b] * size, -d_a / c[a] * size, 1.0  # v <= z_b to_b + z_a to_a - f_a
            rows.append(row)
            limits.append(-f[a] * size)
        solved = linprog([0.0] * K + [-1.0], A_ub=rows, b_ub=limits, A_eq=[[1.0] * K + [0.0]], b_eq=[1.0],
                         bounds=[(0, 1)] * K + [(None, None)], method="highs-ds")  # fmt: skip
        z = solved.x[:K]
    for a in range(K):
        sums[a] += z[a]
    return _highest({a: math.log(sums[a] / run.C[a]) for a in range(K)})


def lma(run):
    K, b, c = run.K, run.best, run.costs
    kept = run.kept
    w, n = kept.setdefault("w", [1 / K] * K), kept.get("n", 0) + 1
    chosen = track(run, w)
    z = {a: run.z(b, a, w[b] / c[b], w[a] / c[a]) for a in run.rivals(b)}
    j = min(z, key=lambda a: (z[a], a))
    g = [0.0] * K
    if run.means[b] > run.means[j]:
        d_b, d_j, _ = run.parts(b, j, w[b] / c[b], w[j] / c[j])
        g[b], g[j] = d_b / c[b], d_j / c[j]
        kept["S"] = (kept["S"] + max(g)) / 2 if "S" in kept else max(g)
        w = [w[a] * math.exp(math.sqrt(math.log(K) / n) / kept["S"] * g[a]) for a in range(K)]
    mixing = 1 / (4 * math.sqrt(n))
    kept["w"], kept["n"] = [(1 - mixing) * x / sum(w) + mixing / K for x in w], n
    return chosen


def dkm(run):
    K, b, c, kept = run.K, run.best, run.costs, run.kept
    if kept.get("b") != b:
        kept |= {"b": b, "L": [0.0] * K, "gap": 0.01}
    L, eta = kept["L"], math.log(K) / kept["gap"]
    u = [max(math.exp(-eta * (x - min(L))), 1e-300) for x in L]
    u = [x / sum(u) for x in u]
    chosen = track(run, u)
    z = {a: run.z(b, a, u[b] / c[b], u[a] / c[a]) for a in run.rivals(b)}
    j = min(z, key=lambda a: (z[a], a))
    _, _, x = run.parts(b, j, u[b] / c[b], u[j] / c[j])
    gains = []
    for a in range(K):
        level, at = math.log(run.t) / run.N[a], x if a in (b, j) else run.means[a]
        ends = [end(a, math.log(run.t)) for end in (run.upper, run.lower)]
        found = [d for d in (run.d(q, at) for q in ends) if d < math.inf]
        gains.append(max([level, *found]) / c[a])
    # M(L - g) - M(L) with the largest exponent taken out
    top = max(gains)
    mixed = sum(u[a] * math.exp(eta * (gains[a] - top)) for a in range(K))
    kept["gap"] += max(top + math.log(max(mixed, 1e-300)) / eta - sum(map(lambda p, g: p * g, u, gains)), 0.0)
    kept["L"] = [L[a] - gains[a] for a in range(K)]
    return chosen


def ugape(run):
    level, N = run.beta(), run.N
    U = [run.upper(a, level) for a in range(run.K)]
    gaps = {a: run.lower(a, level) - max(U[e] for e in run.rivals(a)) for a in range(run.K)}
    J, margin = _highest(gaps)
    other, near = _highest({e: U[e] for e in run.rivals(J)})
    paid = {J: run.C[J] * N[J], other: run.C[other] * N[other]}
    apart = abs(paid[J] - paid[other]) / paid[J]
    return (J if paid[J] <= paid[other] else other), min(margin, near, apart)


def ocba(run):
    if min(run.N) < 5:
        return run.N.index(min(run.N)), math.inf
    b, c, means = run.best, run.costs, run.means
    of = {"gaussian": lambda q: run.variance, "poisson": lambda q: q, "exponential": lambda q: q * q}
    variance = of.get(run.family, lambda q: q * (1 - q))
    V = [max(variance(end(a, 1.0)) for end in (run.lower, run.upper)) for a in range(run.K)]  # where N d <= 1
    r = {a: V[a] / max((means[b] - means[a]) ** 2, 1e-9 * V[a]) for a in run.rivals(b)}
    r[b] = math.sqrt(V[b] * sum(c[a] / c[b] * r[a] ** 2 / V[a] for a in run.rivals(b)))
    return _highest({a: run.t * r[a] / sum(r.values()) - run.N[a] for a in range(run.K)}, size=run.t)


def worst(run, score) -> int:
    return min(run.kept["in play"], key=lambda a: (score(a), -a))


def successive_rejects(run):
    """Phases of T pulls, n_k = T/(L (K + 1 - k)), turned into shares of the budget."""
    S, K = run.kept.setdefault("in play", list(range(run.K))), run.K
    L = 0.5 + sum(1 / i for i in range(2, K + 1))
    n = [0.0] + [1 / (L * (K + 1 - k)) for k in range(1, K)]  # per unit of T
    while len(S) > 1:
        k = K + 1 - len(S)
        if sum(run.C) < run.budget * (sum(n[1:k]) + (K + 1 - k) * n[k]):
            break
        S.remove(worst(run, lambda a: run.means[a]))
    return _highest({a: -run.C[a] * run.N[a] for a in S}, size=min(run.C[a] * run.N[a] for a in S))


def sequential_halving(run, reuse=True):
    S = run.kept.setdefault("in play", list(range(run.K)))
    base = run.kept.setdefault("base", [(0, 0.0)] * run.K)
    while len(S) > 1:
        following = min(S, key=lambda a: (run.N[a], a))
        part = run.budget / math.ceil(math.log2(run.K)) * run.kept.setdefault("phase", 1)
        if sum(run.C) + run.costs[following] <= part * (1 + 1e-12):
            break
        fewest = run.N[following]

        def score(a):
            if reuse == "equal":
                return sum(run.rewards[a][:fewest]) / fewest  # noqa: B023
            if not reuse:
                n, r = run.N[a] - base[a][0], run.R[a] - base[a][1]  # noqa: B023
                return r / n if n else -math.inf
            return run.means[a]

        for _ in range(len(S) // 2):
            S.remove(worst(run, score))
        run.kept["phase"] += 1
        base = run.kept["base"] = list(zip(run.N, run.R, strict=True))
    return min(S, key=lambda a: (run.N[a], a)), math.inf


def continuous_rejects(run, gap="mean"):
    S, means = run.kept.setdefault("in play", list(range(run.K))), run.means
    l, out = worst(run, lambda a: means[a]), [a for a in range(run.K) if a not in S]  # noqa: E741
    if len(S) > 2 and run.N[l] > max((run.N[a] for a in out), default=0):
        L = 0.5 + sum(1 / i for i in range(2, len(S) + 1))
        beta = L * sum(run.C[a] for a in S) / (run.budget - sum(run.C[a] for a in out))
        others = [means[a] for a in S if a != l]
        apart = (sum(others) / len(others) if gap == "mean" else min(others)) - means[l]
        unit = {"gaussian": 2 * math.sqrt(run.variance), "poisson": math.sqrt(2), "exponential": 1.0}
        if apart / unit.get(run.family, 1.0) > 1 / math.sqrt(beta) - 1:
            S.remove(l)
    return min(S, key=lambda a: (run.N[a], a)), math.inf


POLICIES: dict[str, Callable] = {
    "uniform": uniform, "co": co, "racing": partial(co, cost_blind=True), "ctas": ctas,
    "tas": partial(ctas, slack=0.5, cost_blind=True), "d-lucb": d_lucb, "top-two": top_two, "eb-tci": eb_tci,
    "thompson": thompson, "at2": at2, "fws": fws, "lma": lma, "dkm": dkm, "ugape": ugape, "ocba": ocba,
    "successive-rejects": successive_rejects, "sequential-halving": sequential_halving,
    "continuous-rejects": continuous_rejects,
}  # fmt: skip
DECISIONS = {"co": Run.survivor, "racing": Run.survivor, "d-lucb": Run.apart, "ugape": Run.apart}


def run(policy: str, *given, options: dict | None = None, **more) -> Run:
    """One policy with its options to its end, on `Run(*given, **more)`: `draw(arm)` returns that arm's next (reward,
    cost), `uniform()` and `normal()` the next such numbers. Every arm is pulled once, in order; then the policy stops,
    or is cut at `max_pulls`, or pulls on. With a budget, it ends when one arm is left or the next pull is too
    expensive; costs are then fixed."""
    state = Run(*given, **more)
    while state.budget == math.inf:
        state.decision = DECISIONS.get(policy, Run.winner)(state)
        if state.decision is not None:
            return state
        chosen = POLICIES[policy](state, **options or {})
        for arm, margin in chosen if isinstance(chosen, list) else [chosen]:
            if state.t >= state.max_pulls:
                return state
            state.pull(arm, margin)
    while True:
        arm, margin = POLICIES[policy](state, **options or {})
        left = state.kept.get("in play", range(state.K))
        if len(left) == 1 or sum(state.C) + state.costs[arm] > state.budget * (1 + 1e-12):
            state.decision = _leader(state.means, left)
            return state
        state.pull(arm, margin)
