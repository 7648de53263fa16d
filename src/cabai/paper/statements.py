"""Every numbered statement of the paper: what it says, how it is checked here, the figure, the verdict.

docs/theory/errata.py writes the same table to a page.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np

from cabai.bound import bound
from cabai.families import family_of
from cabai.instance import Instance
from cabai.paper import experiments, plain
from cabai.paper.claims import UNLUCKY
from cabai.paper.errata import ERRATA, Erratum, equal_rivals
from cabai.paper.experiments import Found, distances, random_instances
from cabai.paper.lab import Lab, Numbers, mean_of
from cabai.paper.published import DELTA, NAMES, POLICIES, TABLE_1, TABLE_2, instance
from cabai.paper.report import Section


class Statement(NamedTuple):
    """A row of the table, less its figure."""

    name: str
    says: str
    how: str  # exact, numerical, experiment or erratum
    code: str  # a file of src/cabai
    verdict: str = "confirmed"
    test: str = "test_reproduce.py::test_every_statement_is_confirmed"  # a file of tests, and a test there

    @property
    def errata(self) -> list[Erratum]:
        return [each for each in ERRATA if re.search(rf"\b{self.name}\b", each.where)]


S = Statement
FALSE, PROOF, UNPROVEN = "false as printed", "confirmed; proof corrected", "not proven as printed"
DIRECT = "test_bound.py::test_random_hard_instances_agree_with_direct_optimisation"
ERRORS, SAME = "test_statistics.py::test_errors_stay_below_delta", "test_exactness.py::test_same_pulls_as_the_reference"
STATEMENTS = [
    S("Assumption 1", "rewards follow an exponential family", "exact", "families/base.py",
      "confirmed; examples corrected", "test_families.py::test_divergence_is_accurate_to_1e_12"),
    S("Assumption 2", "costs lie in [l, 1]", "experiment", "instance.py", "positive and bounded is enough"),
    S("Definition 1", "delta-PAC: errors at most delta, and runs end", "erratum", "paper/errata.py", "a definition",
      ERRORS),
    S("Theorem 1", "every policy pays at least T* log(1/delta)", "experiment", "bound.py", "confirmed below 1/2",
      "test_bound.py::test_the_least_cost_is_hardness_times_kl"),
    S("Corollary 1", "two Gaussian arms: T* = 2(sqrt c_1 + sqrt c_2)²/gap²", "exact", "bound.py",
      test="test_bound.py::test_equal_gaussian_rivals_have_the_corrected_corollary_2"),
    S("Equation 1", "optimal policies spend the shares w*", "experiment", "policies/ctas.py"),
    S("Algorithm 1", "CTAS", "experiment", "policies/ctas.py", "confirmed; completed", SAME),
    S("Remark 1", "Theorems 5 and 6 need only N_a to grow without end", "experiment", "policies/tracking.py"),
    S("Proposition 1", "CTAS is delta-PAC", "experiment", "thresholds/paper.py", UNPROVEN, ERRORS),
    S("Theorem 2", "CTAS: limsup E[J]/log(1/delta) <= alpha T*", "experiment", "policies/ctas.py",
      PROOF, "test_reproduce.py::test_cost_falls_towards_the_bound_as_delta_falls"),
    S("Figure 1", "a pull narrows the overlap of two intervals", "exact", "paper/experiments.py", "an illustration"),
    S("Proposition 2", "CO is delta-PAC", "experiment", "thresholds/paper.py", UNPROVEN, ERRORS),
    S("Theorem 3", "CO, two Gaussian arms: limsup J/log(1/delta) <= alpha T* almost surely",
      "experiment", "hardness.py", test="test_hardness.py::test_co_is_optimal_for_two_gaussian_arms"),
    S("Table 1", "shares of the pulls of TAS and CTAS", "experiment", "paper/tables.py", "confirmed to 0.01",
      "test_reproduce.py::test_table_1_agrees_with_the_closed_optimum_and_the_print"),
    S("Table 2", "seconds of CO, CTAS, TAS, d-LUCB", "experiment", "paper/tables.py", "depends on the solver",
      "test_reproduce.py::test_claims_have_a_verdict_each"),
    S("Algorithm 2", "CO", "experiment", "policies/co.py", "confirmed; completed", SAME),
    S("Figure 2", "pulls and total cost by policy", "experiment", "paper/tables.py", "confirmed; caption corrected",
      "test_reproduce.py::test_report_has_every_part_as_text_page_figures_and_data"),
    S("Lemma 1", "E[J] = sum of c_a E[N_a]", "experiment", "paper/statements.py", PROOF),
    S("Proposition 3", "the closest alternative changes two arms, to one mean", "numerical", "bound.py", test=DIRECT),
    S("Corollary 2", "T* with K - 1 equal Gaussian rivals", "exact", "bound.py", FALSE,
      "test_bound.py::test_equal_gaussian_rivals_have_the_corrected_corollary_2"),
    S("Lemma 2", "at w* the evidence over all rivals is equal", "numerical", "core/shares.py", test=DIRECT),
    S("Theorem 4", "w* from the root y* of F = 1", "numerical", "core/shares.py", test=DIRECT),
    S("Algorithm 3", "w* by nested root finding", "numerical", "paper/plain.py", "confirmed; completed",
      "test_bound.py::test_the_fallback_of_the_solver_agrees_with_its_usual_method"),
    S("Theorem 5", "CTAS's cost shares tend to w*", "experiment", "paper/experiments.py"),
    S("Lemma 3", "w* is continuous", "numerical", "core/shares.py", "confirmed for a unique best arm"),
    S("Lemma 4", "CTAS's plug-in shares tend to w*", "experiment", "paper/experiments.py", PROOF),
    S("Lemma 5", "plug-in shares within epsilon: then cost shares within 3(K-1) epsilon", "experiment",
      "paper/experiments.py"),
    S("Theorem 6", "CTAS: limsup J/log(1/delta) <= alpha T* almost surely", "experiment",
      "paper/experiments.py"),
    S("Lemma 6", "an x with c_1 x >= log(c_2 x^alpha)", "numerical", "paper/statements.py", FALSE),
    S("Lemma 7", "the bad event has chance at most B T exp(-C T^(1/8))", "experiment", "paper/experiments.py", PROOF),
    S("Lemma 8", "CO, two arms: cost shares tend to sqrt(c_a)/(sqrt c_1 + sqrt c_2)", "experiment",
      "paper/experiments.py", PROOF),
    S("Remark 2", "for alpha = 1, B = 2K is enough", "erratum", "thresholds/paper.py", UNPROVEN,
      "test_thresholds.py::test_a_threshold_is_proven_for"),
]  # fmt: skip


def statements(lab: Lab) -> Section:
    section = Section(lab, "statements", "Every numbered statement")
    found = exact(lab)
    for experiment in experiments.EXPERIMENTS:
        found |= experiment(lab, section)
    found |= promises(lab)
    rows = []
    for each in STATEMENTS:
        figure, holds = found[each.name]
        verdict = each.verdict if holds else "not confirmed"
        parts = [figure, *(in_a_row(lab, erratum) for erratum in each.errata)]
        rows.append([*each[:3], ". ".join(parts), verdict, f"src/cabai/{each.code}", f"tests/{each.test}"])
    caption = "Every numbered statement, in the order of the paper; ± is one standard error."
    header = ["statement", "says", "checked", "figure", "verdict", "code", "test"]
    section.add(caption, header, rows, save="statements")
    section.tables.insert(0, section.tables.pop())
    return section


def in_a_row(lab: Lab, each: Erratum) -> str:
    """What is printed, what is correct and, where a result changes, a counterexample."""
    if each.where.startswith("Proof"):
        return f"Proof: {each.says}. Correct: {each.right}"
    return f"Printed: {each.says}. Correct: {each.right}; {each.show(lab)}"


def exact(lab: Lab) -> dict[str, Found]:
    """What needs no trajectories: formulas against the solver, and against direct minimisation."""
    rng = np.random.default_rng(lab.seed)
    found = {}

    # d(p, q) = b(theta_q) - b(theta_p) - p (theta_q - theta_p), with the paper's theta and b
    listed: dict[str, tuple[Any, Any]] = {
        "bernoulli": (lambda m: math.log(m / (1 - m)), lambda theta: math.log1p(math.exp(theta))),
        "poisson": (math.log, math.exp),
        "gaussian": (lambda m: m, lambda theta: theta**2 / 2),
    }
    worst = max(
        abs(b(theta(q)) - b(theta(p)) - p * (theta(q) - theta(p)) - family_of(name).divergence(p, q))
        for name, (theta, b) in listed.items() for p, q in rng.uniform(0.05, 0.95, (100, 2)).tolist()
    )  # fmt: skip
    found["Assumption 1"] = f"d from theta and b: within {power(worst)} of cabai's", worst < 1e-12

    for name, sizes, corrected in (("Corollary 1", [2] * 20, ""), ("Corollary 2", range(2, 22), "corrected: ")):
        pairs = [equal_rivals(K, *rng.uniform(0.1, 1, 3).tolist()) for K in sizes]
        apart = [abs(solved / closed - 1) for closed, solved in pairs]
        found[name] = f"{corrected}within {power(max(apart))} of the solver", max(apart) < 1e-9

    problems = random_instances(12 if lab.quick else 60, lab.seed, 0.01)
    excess, spread, apart = [], [], []
    for problem in problems:
        solved = bound(problem)
        rates = rng.dirichlet(np.ones(len(problem))) / problem.costs  # w_a/c_a of any shares w
        excess.append(minimised(problem, rates) / evidence(problem, rates).min() - 1)
        values = evidence(problem, solved.pull_shares)
        spread.append(values.max() / values.min() - 1)
        nested = plain.cost_shares(problem.family.name, problem.means, problem.costs)
        apart.append(float(np.abs(nested - solved.cost_shares).max()))
    figure = f"minimum over 500 x 500 alternatives: at most {power(max(excess))} above the formula"
    found["Proposition 3"] = figure, min(excess) > -1e-12 and max(excess) < 1e-2
    count = f"{len(problems)} random instances (gap>0.01)"
    found["Lemma 2"] = f"{count}: equal within {power(max(spread))}", max(spread) < 1e-6
    figure = f"{count}: equal to the solver's within {power(max(apart))}"
    found["Theorem 4"] = found["Algorithm 3"] = figure, max(apart) < 1e-6

    # with L = log(c_2/c_1^alpha) and s = 1 + L + log L > 0: c_1 x - log(c_2 x^alpha) = alpha (s - log(alpha s)) - L
    L, alpha = np.meshgrid(np.geomspace(0.2785, 1e6, 2001), np.linspace(1, math.e / 2, 101))
    s = 1 + L + np.log(L)
    margin = float((alpha * (s - np.log(alpha * s)) - L).min())
    found["Lemma 6"] = f"corrected: c_1 x exceeds log(c_2 x^alpha) by at least {margin:.2f}", margin > 0
    return found


def evidence(problem: Instance, rates: Numbers) -> Numbers:
    """(w_1/c_1 + w_a/c_a) I(mu_1, mu_a) of each rival, where rates are w_a/c_a; with textbook divergences."""
    return np.delete(plain.evidence(problem.family.name, rates, problem.means, problem.best), problem.best)


def minimised(problem: Instance, rates: Numbers) -> float:
    """The least of (w_1/c_1) d(mu_1, x) + (w_a/c_a) d(mu_a, y) over rivals a and a grid of x <= y."""
    name, best, least = problem.family.name, problem.best, math.inf
    for a in np.delete(np.arange(len(problem)), best):
        x = np.linspace(problem.means[a], problem.means[best], 500)
        first, second = (rates[i] * plain.divergence(name, problem.means[i], x) for i in (best, a))
        least = min(least, float(np.where(x[:, None] <= x, first[:, None] + second, np.inf).min()))
    return least


def promises(lab: Lab) -> dict[str, Found]:
    """What the trajectories of other parts show: the bound, shares, and the paper's own experiments."""
    paper = {family: instance(name) for family, name in NAMES.items()}
    problem, found = paper["gaussian"], {}

    larger = Instance("gaussian", problem.means, 1024 * problem.costs)
    runs, scaled = lab.runs(problem, "co", DELTA), lab.runs(larger, "co", DELTA)
    same = int((runs.pulls == scaled.pulls).all(axis=1).sum())
    found["Assumption 2"] = f"costs 1024 times larger: the same pulls in {same} of {len(runs)} runs", same == len(runs)

    over = {
        (family, policy): mean_of(lab.runs(each, policy, DELTA).costs / bound(each).cost(DELTA))
        for family, each in paper.items() for policy in POLICIES
    }  # fmt: skip
    least = min(over.values())
    found["Theorem 1"] = f"smallest mean cost over the bound, {len(over)} cases: {least}", least.value > 1
    figure = "mean cost over the bound, Poisson: " + ", ".join(f"{p} {over['poisson', p]}" for p in POLICIES)
    found["Figure 2"] = figure, over["poisson", "co"] < over["poisson", "tas"]

    last = lab.several(problem, "ctas", experiments.DELTAS, share=5)[-1]
    apart = mean_of(distances(last.pulls * problem.costs, bound(problem).cost_shares))
    found["Equation 1"] = f"CTAS at delta 1e-30: shares {apart} from w*", apart.value < 0.01

    little = "ctas(exploration=0.1)"
    runs = lab.runs(UNLUCKY, little, 1e-250, grid=[1000, 10_000], max_pulls=10_000, share=0.4)
    early, late = (mean_of(distances(runs.path[:, j] * UNLUCKY.costs, bound(UNLUCKY).cost_shares)) for j in (0, 1))
    figure = f"exploring below 0.1 sqrt(t): distance {early} after 1000 pulls, {late} after 10000"
    found["Remark 1"] = figure, late.value < early.value / 2 + 4 * late.error

    found["Definition 1"] = "Propositions 1 and 2 bound errors only", True
    found["Remark 2"] = "the proof cited is for Bernoulli rewards", True

    off = {}
    for policy, printed in TABLE_1.items():
        runs = lab.runs(problem, policy, DELTA)
        for a, share in enumerate(printed):
            off[f"{policy}, arm {a + 1}"] = mean_of(runs.pulls[:, a] / runs.steps - share)
    worst = max(off, key=lambda each: abs(off[each].value))
    figure = f"simulated minus printed shares: at most {off[worst]} ({worst})"
    found["Table 1"] = figure, all(abs(value) < 0.01 + 5 * error for value, error in off.values())
    times = [row["ctas"] / row["co"] for row in TABLE_2.values()]
    figure = f"CTAS over CO: {min(times):.0f} to {max(times):.0f} printed; measured by part claims"
    found["Table 2"] = figure, True
    runs = lab.runs(instance("G3", "exponential"), "co", DELTA, share=40)
    surplus = mean_of(runs.costs - runs.pulls @ problem.costs)
    figure = f"CO, random costs: E[J] = {runs.costs.mean():.0f}, difference {surplus}"
    found["Lemma 1"] = figure, abs(surplus.value) < 5 * surplus.error
    return found


def power(value: float) -> str:
    """A small difference, rounded up to a power of ten: such digits depend on the machine."""
    return "1e-16" if value < 1e-16 else f"1e{math.ceil(math.log10(value))}"
