"""The lower bound from its definition, in 80 digits, sharing no code and no equation with cabai.

T* is the least cost of evidence 1 against every rival:

    minimise  sum_b c_b n_b   subject to   n_1 d(mu_1, m_a) + n_a d(mu_a, m_a) >= 1  for every rival a,

m_a the pooled mean of the two arms. `reference` optimises over the pulls themselves: for n_1 given, each rival needs
the least n_a that meets its constraint; what is left is a convex cost of n_1 alone, minimised by comparing values,
without any derivative of it and without the optimality equations that cabai solves.
The divergences are the textbook ones: 80 digits leave 50 after their cancellation at gaps of 1e-12 of the mean.

`certificate` proves a claimed optimum by weak duality of the game between pulls and alternatives.
"""

from __future__ import annotations

from collections import Counter

from mpmath import inf, log, mp, mpf, sqrt

DIGITS = 80
CERTIFIED = mpf(10) ** -18


def divergence(family, p, q, variance=1):
    """d(p, q) as in the textbook; p and q are mpf."""
    if family == "gaussian":
        return (p - q) ** 2 / (2 * mpf(variance))
    if family in ("bernoulli", "bounded"):
        return _times_log(p, q) + _times_log(1 - p, 1 - q)
    if family == "poisson":
        return _times_log(p, q) + q - p
    return p / q - 1 - log(p / q)


def _times_log(p, q):
    """p log(p/q), 0 for p = 0."""
    if p == 0:
        return mpf(0)
    return p * log(p / q) if q > 0 else inf


def evidence(family, best, rival, n_best, n_rival, variance=1):
    """The least of n_best d(best, m) + n_rival d(rival, m) over m, which the pooled mean attains; and d(rival, m)."""
    m = (n_best * best + n_rival * rival) / (n_best + n_rival)
    back = divergence(family, rival, m, variance)
    return n_best * divergence(family, best, m, variance) + n_rival * back, back


def best_of(means, smallest):
    return (min if smallest else max)(range(len(means)), key=means.__getitem__)


def reference(family, means, costs, variance=1, smallest=False):
    """T*, cost shares and pull shares; equal arms are computed once. An error unless duality proves it to 1e-18."""
    with mp.workdps(DIGITS):
        means, costs = [mpf(mean) for mean in means], [mpf(cost) for cost in costs]
        leader = best_of(means, smallest)
        best, price = means[leader], costs[leader]
        kinds = Counter((means[a], costs[a]) for a in range(len(means)) if a != leader)
        least = max(1 / divergence(family, best, mean, variance) for mean, _ in kinds)
        latest = {kind: 1 / divergence(family, kind[0], (kind[0] + best) / 2, variance) for kind in kinds}

        def total(s):
            """The cost where the leader has e^s pulls more than the `least` that leaves any rival a chance."""
            n_best = least + mp.exp(s)
            for kind in kinds:
                latest[kind] = _pulls_needed(family, best, kind[0], n_best, latest[kind], variance)
            return price * n_best + sum(kinds[kind] * kind[1] * latest[kind] for kind in kinds)

        hardness, s = _minimum(total, log(max(latest.values())))
        total(s)  # leaves the pulls of the optimum in `latest`
        pulls = [latest[means[a], costs[a]] if a != leader else least + mp.exp(s) for a in range(len(means))]
        spent = [cost * n for cost, n in zip(costs, pulls, strict=True)]
        spent_in_all, pulls_in_all = sum(spent), sum(pulls)
        low, high = certificate(family, means, costs, spent, variance, smallest)
        if not (low * (1 - CERTIFIED) <= hardness <= high * (1 + CERTIFIED) and high <= low * (1 + CERTIFIED)):
            raise ArithmeticError(f"the reference is only known to be between {low} and {high}")
        return hardness, [part / spent_in_all for part in spent], [n / pulls_in_all for n in pulls]


def _pulls_needed(family, best, rival, n_best, start, variance):
    """The least n_rival with evidence 1. Evidence is concave in n_rival, so Newton's method from below only climbs."""
    n = start
    value, slope = evidence(family, best, rival, n_best, n, variance)
    while value >= 1:
        n /= 2
        value, slope = evidence(family, best, rival, n_best, n, variance)
    for _ in range(400):
        step = (1 - value) / slope
        n += step
        if abs(step) <= mpf(10) ** -25 * n:  # quadratic: the next step would be below the last digit
            return n
        value, slope = evidence(family, best, rival, n_best, n, variance)
    raise ArithmeticError("no pulls of the rival give evidence 1")


def _minimum(function, start):
    """The minimum of a unimodal function and where it is, by values alone.

    A bracket by steps of 1, then the lowest points of parabolas, or golden sections where those do not close in.
    """
    golden = (3 - sqrt(mpf(5))) / 2
    low, middle, high = start - 1, start, start + 1
    f_low, f_middle, f_high = function(low), function(middle), function(high)
    while not f_low >= f_middle <= f_high:
        if f_low < f_middle:
            low, middle, high = low - 1, low, middle
            f_low, f_middle, f_high = function(low), f_low, f_middle
        else:
            low, middle, high = middle, high, high + 1
            f_low, f_middle, f_high = f_middle, f_high, function(high)
    last = before = high - low
    for _ in range(400):
        left, right = (middle - low) * (f_middle - f_high), (middle - high) * (f_middle - f_low)
        step = ((middle - low) * left - (middle - high) * right) / (2 * (left - right)) if left != right else inf
        if not (low < middle - step < high and abs(step) < before / 2):
            step = golden * (middle - high if high - middle > middle - low else middle - low)
        if abs(step) < mpf(10) ** -22:
            return f_middle, middle
        before, last = last, abs(step)
        new = middle - step
        f_new = function(new)
        if f_new <= f_middle:
            new, middle, f_new, f_middle = middle, new, f_middle, f_new
        if new > middle:
            high, f_high = new, f_new
        else:
            low, f_low = new, f_new
    raise ArithmeticError("the minimum was not found")


def certificate(family, means, costs, cost_shares, variance=1, smallest=False):
    """Bounds T_low <= T* <= T_high that the given cost shares prove: above, their cost over the least evidence that
    they give; below, by its average over alternatives, with weights that make all rivals' terms equal."""
    with mp.workdps(DIGITS):
        means, costs = [mpf(mean) for mean in means], [mpf(cost) for cost in costs]
        pulls = [mpf(share) / cost for share, cost in zip(cost_shares, costs, strict=True)]
        leader = best_of(means, smallest)
        weakest, forth, weight = inf, mpf(0), mpf(0)
        for a in range(len(means)):
            if a != leader:
                value, back = evidence(family, means[leader], means[a], pulls[leader], pulls[a], variance)
                weakest = min(weakest, value)
                weight += costs[a] / back
                forth += costs[a] / back * (value - pulls[a] * back) / pulls[leader]
        spent = sum(cost * n for cost, n in zip(costs, pulls, strict=True))
        return weight / max(forth / costs[leader], mpf(1)), spent / weakest
