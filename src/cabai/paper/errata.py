"""Errors in the paper, each with a number that shows it. docs/theory/errata.py writes them to a page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cabai.bound import bound, kl
from cabai.core.evidence import pair_evidence
from cabai.instance import Instance
from cabai.paper.lab import Lab
from cabai.paper.lockstep import co, lockstep
from cabai.paper.published import DELTA, instance
from cabai.paper.report import Section
from cabai.policies import CO, policy
from cabai.policies.co import choose as co_choose
from cabai.policies.co import stop as co_stop
from cabai.policies.uniform import choose as uniform_choose
from cabai.thresholds.paper import smallest_log_B


@dataclass
class Erratum:
    """It decorates the function that computes the number that shows it."""

    where: str  # the numbered statement in whose row of statements.py it stands, if any, is part of it
    says: str
    right: str

    def __call__(self, show: Callable[[Lab], str]) -> Erratum:
        self.show = show
        ERRATA.append(self)
        return self


ERRATA: list[Erratum] = []


@Erratum("Corollary 2", "T* = 2(c_1+c_a+K sqrt(c_1 c_a)/sqrt(K-1))/gap²", "2(sqrt(c_1)+sqrt((K-1)c_a))²/gap²")
def corollary_2(lab: Lab) -> str:
    K, best, other, gap = 5, 1.0, 0.1, 0.5
    printed = 2 * (best + other + K * math.sqrt(best * other) / math.sqrt(K - 1)) / gap**2
    right, solved = equal_rivals(K, best, other, gap)
    return f"K = 5, costs 1 and 0.1, gap 0.5: printed {printed:.3f}, corrected {right:.3f}, solved {solved:.3f}"


def equal_rivals(K: int, best: float, other: float, gap: float) -> tuple[float, float]:
    """T* of K - 1 Gaussian arms of one mean and cost and a better one: in closed form, and by the solver."""
    closed = 2 * (math.sqrt(best) + math.sqrt((K - 1) * other)) ** 2 / gap**2
    return closed, bound(Instance("gaussian", [gap] + [0.0] * (K - 1), [best] + [other] * (K - 1))).hardness


def unsigned_stop(arms, run, rules):  # type: ignore[no-untyped-def]
    """The paper's Z(t) = max_a min_b Z_{a,b} > log(2 K t / delta), without checking which mean is larger."""
    largest = 0.0
    for a in range(len(arms)):
        least = np.inf
        for b in range(len(arms)):
            if b != a:
                least = min(least, pair_evidence(rules, arms[a].pulls, arms[a].mean, arms[b].pulls, arms[b].mean))
        largest = max(largest, least)
    return largest > rules.level + math.log(run.t)


@Erratum("Section 4 (Algorithm 1)", "Z(t) = max_a min_b Z_{a,b}",
         "Z_{a,b} counts only if mean_a > mean_b, or the worst arm can end the test")  # fmt: skip
def sign_of_z(lab: Lab) -> str:
    literal = policy(uniform_choose, stop=unsigned_stop, cost_blind=True)
    problem = Instance("gaussian", [1.0, 0.98, -4.0], [1.0, 1.0, 1.0])
    wrong, ours = (lab.runs(problem, p, 0.01, share=2, max_pulls=3000).wrong.mean() for p in (literal, "uniform"))
    return f"means 1, 0.98, -4, delta 0.01: {wrong:.1%} errors as printed, {ours:.1%} corrected"


@Erratum("Proposition 1, alpha = 1", "B >= 2K is enough", "proven for Bernoulli only")
def proven_b(lab: Lab) -> str:
    return f"for all families at K = 3, delta 0.1, alpha = 1.2 needs B = e^{smallest_log_B(1.2, 3, 0.1):.1f}"


@Erratum("Proposition 1, alpha > 1", "the condition on B has log²(B t^alpha)", "log²(B t^alpha/delta)")
def delta_in_b(lab: Lab) -> str:
    """The paper's own B solves the condition without delta (the same as delta = 1); put it into the right one."""
    printed = {alpha: smallest_log_B(alpha, 3, 1.0) for alpha in (1.1, 1.2, 1.35)}
    listed = ", ".join(f"{math.exp(log_error_sum(B, alpha, 3, 1e-6) - B):.1f}" for alpha, B in printed.items())
    return f"K = 3, delta 1e-6: it bounds errors by {listed} delta at alpha = 1.1, 1.2, 1.35"


def log_error_sum(log_B: float, alpha: float, arms: int, delta: float) -> float:
    """log of the sum over t of e^(K+1)/K^K (log²(B t^alpha/delta) log t)^K / t^alpha, over a fine grid of log t."""
    x = np.linspace(0.0, (3 * arms + 60 * math.sqrt(3 * arms)) / (alpha - 1), 2_000_001)[1:]
    log_terms = arms * (2 * np.log(log_B - math.log(delta) + alpha * x) + np.log(x)) + (1 - alpha) * x
    return arms + 1 - arms * math.log(arms) + float(np.logaddexp.reduce(log_terms)) + math.log(x[1] - x[0])


@Erratum("Captions of Table 2, Fig. 2", "Bernoulli means 1.5, 1, 0.5", "0.9, 0.6, 0.3")
def captions(lab: Lab) -> str:
    try:
        Instance("bernoulli", [1.5, 1.0, 0.5], [1, 0.1, 0.01])
    except ValueError as error:
        return f"cabai says: {str(error).rstrip('.')}"
    raise AssertionError("a Bernoulli mean of 1.5 was accepted")


@Erratum("Theorem 1", "delta in (0, 1)", "delta < 1/2")
def large_delta(lab: Lab) -> str:
    return f"at 0.9 the bound is {kl(0.9):.2f} T*, yet guessing one of two arms is enough"


@Erratum("Proof of Lemma 1", "costs are independent of the stopping time", "they are not; use Wald's identity")
def costs_and_stopping(lab: Lab) -> str:
    problem = instance("G3", "exponential")
    runs = lab.runs(problem, "co", DELTA, share=40)
    correlation = np.corrcoef(runs.costs - runs.pulls @ problem.costs, runs.steps)[0, 1]
    return f"CO, random costs: J - sum c_a N_a has a correlation of {correlation:.2f} with the stopping time"


@Erratum("Lemma 3", "w* is continuous at every mu", "at a unique best arm")
def ties_of_three(lab: Lab) -> str:
    ahead, behind = (
        bound(Instance("gaussian", means, [1.0, 1.0, 1.0])).cost_shares[0] for means in ([1e-9, 0, 0], [0, 1e-9, 0])
    )
    return f"three equal arms: w_1 is {ahead:.3f} if arm 1 is 1e-9 better, {behind:.3f} if arm 2 is"


@Erratum("Algorithm 3", "g_a(x) = y* is solved for every arm", "x_1 = 1 for the best arm")
def best_arm_has_no_root(lab: Lab) -> str:
    found = bound(instance("G3"))
    y = float(1 / (found.hardness * found.cost_shares[0] / found.instance.costs[0]))
    return f"g_1 = 0 < y* = {y:.3f} on the paper's instance"


@Erratum("Proof of Lemma 7", "B contains T", "B without T")
def constant_with_T(lab: Lab) -> str:
    T, C = 1e34, 0.08**2
    right = 4 * 3 * math.exp(3 * C) / (1 - math.exp(-C)) * T * math.exp(-C * T**0.125)
    return f"K = 3, beta 0.08, T = 1e34: the bound on costs is {right:.0e}, with the printed B {right * T:.0e}"


@Erratum("Proof of Lemma 4", "N_a(t) >= sqrt(t)-1", "not in the first K² rounds")
def early_exploration(lab: Lab) -> str:
    grid = np.arange(50, 2700)
    path = lab.runs(instance("G50"), "ctas", DELTA, share=0, max_pulls=2700, grid=grid.tolist()).path[0]
    least = path.min(axis=1)
    forced = int(np.argmax(least >= np.sqrt(grid)))
    lag = np.max(np.sqrt(grid) - 1 - least)
    return f"K = 50: the least-pulled arm falls short by up to {lag:.1f}, and the first {forced} rounds are all forced"


@Erratum("Proof of Lemma 8", "c(t)N_2-c(t) <= N_1 <= c(t)N_2+1", "not with random costs; its limit holds")
def co_lemma(lab: Lab) -> str:
    outside = []
    for now in lockstep(lab, co, Instance("gaussian", [1.0, 0.5], [1.0, 0.1]), trajectories=100, pulls=1000):
        (N_1, N_2), (c_1, c_2) = now.pulls.T, (now.costs / now.pulls).T
        c = np.sqrt(c_2 / c_1)
        outside.append((c * N_2 - c > N_1) | (c * N_2 + 1 < N_1))
    return f"costs uniform around 1 and 0.1: it fails in {np.mean(outside):.0%} of 100 times 1000 rounds"


@Erratum("Proposition 2 (and 1)", "CTAS and CO are delta-PAC", "proven for errors, not that runs end")
def only_half(lab: Lab) -> str:
    runs = lab.runs(Instance("bernoulli", [0.5, 0.5], [1.0, 1.0]), "co", 0.05, share=0.5, max_pulls=5000)
    return f"two equal arms: {np.mean(runs.decisions < 0):.0%} of CO's runs exceed 5000 pulls"


@Erratum("Algorithm 2", "CO pulls the survivor once more", "stop when one arm is left")
def one_more_pull(lab: Lab) -> str:
    runs = lab.runs(instance("G3"), "co", DELTA)
    return f"on the paper's instance it would add 1 to a mean cost of {runs.costs.mean():.0f}"


@Erratum("Lemma 6", "any c_1, c_2 > 0", "log(c_2/c_1^alpha) > 0.278")
def technical_lemma(lab: Lab) -> str:
    x = math.log(1.2 * math.e) + math.log(math.log(1.2))
    right = f"log(c_2 x) = {math.log(1.2 * x):.2f}" if x > 0 else "log(c_2 x) does not exist"
    return f"c_1 = alpha = 1, c_2 = 1.2: x = {x:.2f} and {right}"


@Erratum("Proof of Theorem 2", "liminf; C_eps tends to T*", "limsup; to 1/T*")
def inverse_constant(lab: Lab) -> str:
    hardness = bound(instance("G3")).hardness
    return f"on the paper's instance T* = {hardness:.2f}, and C_eps tends to 1/T* = {1 / hardness:.4f}"


@Erratum("Assumption 1, Poisson", "h(x) = e^-x/x!", "1/x!")
def poisson_base(lab: Lab) -> str:
    total = sum(math.exp(-x) * 1.5**x / math.factorial(x) * math.exp(-1.5) for x in range(100))
    return f"for mean 1.5 the printed probabilities add up to {total:.3f}"


@Erratum("Assumption 1, Gaussian", "h(x) = exp(-x²/(2sigma²))/sqrt(2pi)", "divide by sigma")
def gaussian_base(lab: Lab) -> str:
    x = np.linspace(-40, 40, 400_001)
    total = np.sum(np.exp(-(x**2) / 8) / math.sqrt(2 * math.pi)) * (x[1] - x[0])
    return f"for sigma = 2 the printed density integrates to {total:.3f}"


@Erratum("Algorithm 1", "no shares for ties and boundary means", "define them; both are common")
def early_ties(lab: Lab) -> str:
    """CTAS first computes shares after three pulls of each of three arms: enumerate what it may see."""
    means, n = (0.9, 0.6, 0.3), 3
    tied = edge = 0.0
    for counts in itertools.product(range(n + 1), repeat=len(means)):
        chance = math.prod(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k, p in zip(counts, means, strict=True))
        tied += chance * (counts.count(max(counts)) > 1)
        edge += chance * (0 in counts or n in counts)
    return f"Bernoulli instance, first shares: the best is tied in {tied:.0%}, a mean is 0 or 1 in {edge:.0%}"


def best_is_out(arms, run, rules):  # type: ignore[no-untyped-def]
    co_stop(arms, run, rules)
    return arms[0].in_play == 0


@Erratum("Literature, threshold of many experiments", "log((1+log t)/delta) keeps delta", "not with elimination")
def stylized_elimination(lab: Lab) -> str:
    racing = policy(co_choose, stop=best_is_out, cost_blind=True, run_memory=CO.run_memory)
    shares = []
    for K in (3, 10):
        tied = Instance("gaussian", [1e-9] + [0.0] * (K - 1), [1.0] * K)
        wrong = lab.runs(tied, racing, 0.1, threshold="stylized", share=2, max_pulls=10_000).wrong
        shares.append(f"{wrong.mean():.0%} at K = {K}")
    return "delta 0.1, near ties: racing drops the best arm in " + ", ".join(shares)


SLIPS = [
    "Assumption 1 has means in [0, 1], experiments use 1.5; costs need only be positive and bounded.",
    "Algorithm 2's c_a must be the estimate.",
    "Proposition 3's proof has w_a/c_1 for w_a/c_a; Lemma 2 swaps its sets; C(t) and J(t) both mean total cost.",
    "Theorem 1's proof has P(E) <= 1-delta for <= delta; Theorems 2 and 6 allow delta = 0; Theorem 3 omits alpha = 1.",
]


def errata(lab: Lab) -> Section:
    rows = [[each.where, each.says, each.right, each.show(lab)] for each in ERRATA]
    section = Section(lab, "errata", "Errata", ["Slips of notation: " + " ".join(SLIPS)])
    caption = "Each row: where, what is stated there, what is correct, and a number that shows it."
    section.add(caption, ["where", "stated", "correct", "check"], rows)
    return section
