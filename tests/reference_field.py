"""A slow, plain version of the policies of the literature, to compare the package with: see reference.py.

Written from the papers' listings and their cost forms. Nothing is incremental but what the listings themselves keep
from round to round: sums of shares, weights, losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import linprog

from reference import Result, _highest, _Run, divergence, evidence, lower_end, shares, upper_end


class Field(_Run):
    """A run that also has a coin, normal numbers, and what a policy keeps."""

    def __init__(self, *given, coin=None, normal=None, **options):
        super().__init__(*given)
        self.coin, self.normal, self.options, self.kept = coin, normal, options, {}

    @property
    def costs(self) -> list[float]:
        return [c / n for c, n in zip(self.C, self.N, strict=True)]

    def d(self, p: float, q: float) -> float:
        return divergence(self.family, p, q, self.variance)

    def z(self, b: int, a: int, n_b: float, n_a: float) -> float:
        means = self.means
        return evidence(self.family, n_b, n_b * means[b], n_a, n_a * means[a], self.variance)

    def parts(self, b: int, a: int, n_b: float, n_a: float) -> tuple[float, float, float]:
        """d(mean_b, x), d(mean_a, x) and x, the pooled mean."""
        x = (n_b * self.means[b] + n_a * self.means[a]) / (n_b + n_a)
        return self.d(self.means[b], x), self.d(self.means[a], x), x

    @property
    def best(self) -> int:
        return max(range(self.K), key=lambda a: (self.means[a], -a))

    def rivals(self, b: int) -> list[int]:
        return [a for a in range(self.K) if a != b]


def track(run: Field, w: list[float]) -> tuple[int, float]:
    """C-tracking of shares of the money."""
    sums = run.kept.setdefault("sums", [1.0] * run.K)
    for a in range(run.K):
        sums[a] += w[a]
    paid = [float(n) for n in run.N] if run.options.get("cost_blind") else run.C
    J = sum(paid)
    return _highest({a: J * sums[a] / sum(sums) - paid[a] for a in range(run.K)}, size=J)


def rival(run: Field, leader: int, kind: str, epsilon: float = 0.0) -> tuple[int, float]:
    N, scores = run.N, {}
    for a in run.rivals(leader):
        if epsilon:
            gap = run.means[leader] - run.means[a] + epsilon
            scores[a] = -gap / math.sqrt(1 / N[leader] + 1 / N[a])
        else:
            scores[a] = -run.z(leader, a, N[leader], N[a]) - (math.log(N[a]) if kind == "tci" else 0.0)
    return _highest(scores, size=1.0)


def toss(run: Field, leader: int, other: int, kind: str) -> tuple[int, float]:
    c, N = run.costs, run.N
    if kind == "half":
        chance = c[other] / (c[other] + c[leader])
    elif run.means[leader] > run.means[other]:
        d_l, d_c, _ = run.parts(leader, other, N[leader], N[other])
        h_l, h_c = N[leader] * d_l / c[leader], N[other] * d_c / c[other]
        chance = h_l / (h_l + h_c)
    else:
        h_l, h_c = N[other] / c[leader], N[leader] / c[other]
        chance = h_l / (h_l + h_c)
    u = run.coin()
    return (leader if u < chance else other), abs(u - chance)


def eb_tci(run, coin="ids", challenger="tci", epsilon=0.0):
    other, margin = rival(run, run.best, challenger, epsilon)
    arm, distance = toss(run, run.best, other, coin)
    return arm, min(margin, distance)


def gamma(run: Field, shape: float) -> float:
    """Marsaglia and Tsang's method, written from their paper."""
    d = shape - 1 / 3
    while True:
        x = run.normal()
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(1 - run.coin()) < x**2 / 2 + d * (1 - v + math.log(v)):
            return d * v


def draw_mean(run: Field, a: int) -> float:
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
    leader, margin = _highest({a: draw_mean(run, a) for a in range(run.K)}, size=1.0)
    other = leader
    if challenger == "resample":
        for _ in range(100):
            other, near = _highest({a: draw_mean(run, a) for a in range(run.K)}, size=1.0)
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


def tas(run, tracking="sums", cost_blind=True):
    """C-tracking: the projection of w on {w >= ε} in the largest norm, by bisection."""
    run.options["cost_blind"] = cost_blind
    costs = [1.0] * run.K if cost_blind else run.costs
    w, least = shares(run.family, run.means, costs, run.variance), 1 / (2 * math.sqrt(run.K**2 + run.t))
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(x - middle, least) for x in w) > 1 else (low, middle)
    return track(run, [max(x - low, least) for x in w])


def ctas(run, tracking="sums"):
    return tas(run, tracking, cost_blind=False)


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
    return _highest({a: math.log(sums[a] / run.C[a]) for a in range(K)}, size=1.0)


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
        ends = [end(run.family, 1, run.means[a], level, run.variance) for end in (upper_end, lower_end)]
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
    U = [upper_end(run.family, N[a], run.means[a], level, run.variance) for a in range(run.K)]
    low = [lower_end(run.family, N[a], run.means[a], level, run.variance) for a in range(run.K)]
    gaps = {a: low[a] - max(U[e] for e in run.rivals(a)) for a in range(run.K)}
    J, margin = _highest(gaps, size=1.0)
    other, near = _highest({e: U[e] for e in run.rivals(J)}, size=1.0)
    paid = {J: run.C[J] * N[J], other: run.C[other] * N[other]}
    apart = abs(paid[J] - paid[other]) / paid[J]
    return (J if paid[J] <= paid[other] else other), min(margin, near, apart)


def no_overlap(run) -> int | None:
    """UGapE stops when the leader's lower end is above every other upper end."""
    level, b = run.beta(), run.best
    low = lower_end(run.family, run.N[b], run.means[b], level, run.variance)
    high = max(upper_end(run.family, run.N[a], run.means[a], level, run.variance) for a in run.rivals(b))
    return b if low > high else None


def spread(family: str, n: int, mean: float, variance: float) -> float:
    """The largest variance at means q with N d(mean, q) <= 1."""
    ends = [end(family, n, mean, 1.0, variance) for end in (lower_end, upper_end)]
    of = {"gaussian": lambda q: variance, "poisson": lambda q: q, "exponential": lambda q: q * q}
    return max(map(of.get(family, lambda q: q * (1 - q)), ends))


def ocba(run):
    if min(run.N) < 5:
        return run.N.index(min(run.N)), math.inf
    b, c, means = run.best, run.costs, run.means
    V = [spread(run.family, run.N[a], means[a], run.variance) for a in range(run.K)]
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
    "ocba": ocba, "successive-rejects": successive_rejects, "sequential-halving": sequential_halving,
    "continuous-rejects": continuous_rejects,
    "eb-tci": eb_tci, "thompson": thompson, "at2": at2, "tas": tas, "ctas": ctas, "fws": fws, "lma": lma, "dkm": dkm,
    "ugape": ugape,
}  # fmt: skip


def run(
    policy, *, family, variance=1.0, arms, threshold, delta, draw, uniform, normal, max_pulls,
    threshold_parameters=None, budget=math.inf, **options,
) -> Result:  # fmt: skip
    """Run one policy to its end; see reference.run."""
    state = Field(
        family, variance, arms, threshold, delta, draw, max_pulls, threshold_parameters, coin=uniform, normal=normal
    )
    state.budget, state.rewards = budget, {a: [r] for a, r in enumerate(state.F)}
    while budget < math.inf:
        arm, margin = POLICIES[policy](state, **options)
        if len(state.kept.get("in play", ())) == 1:
            return state.result(state.kept["in play"][0])
        before = state.R[arm]
        if sum(state.C) + state.costs[arm] > budget * (1 + 1e-12):  # costs are fixed
            S = state.kept.get("in play", range(arms))
            return state.result(max(S, key=lambda a: (state.means[a], -a)))
        state.pull(arm, margin)
        state.rewards[arm].append(state.R[arm] - before)
    return state.followed(Rule(state, policy, options))


class Rule:
    def __init__(self, state, policy, options) -> None:
        self.decision = (lambda: no_overlap(state)) if policy == "ugape" else state.winner
        self.pulls = lambda: [POLICIES[policy](state, **options)]
