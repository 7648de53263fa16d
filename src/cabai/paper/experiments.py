"""The paper's theorems and lemmas as experiments, Figure 1, and CO with many arms.

Each adds its table or figure to the section, and returns, for each statement, its figure in a few words and whether
what the paper says was seen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from cabai.bound import bound
from cabai.hardness import co_paid
from cabai.instance import Instance
from cabai.paper import lockstep
from cabai.paper.lab import Lab, Numbers, mean_of, quantile_of, share_of
from cabai.paper.published import MEANS, instance, random_instance
from cabai.paper.report import Section
from cabai.plots import STYLES, direct_labels, new_figure, title

Found = tuple[str, bool]
DELTAS = [10.0**-k for k in (2, 3, 4, 6, 8, 10, 15, 20, 25, 30)]
TWO = Instance("gaussian", [1.0, 0.5], [1.0, 0.1])
ERROR_RATES = Instance("bernoulli", [0.5, 0.4, 0.3], [1, 0.1, 0.01])  # with few enough pulls to make errors


def fewer(lab: Lab) -> int:
    """How many trajectories NumPy can afford."""
    return min(1000, max(20, lab.trajectories // 5))


def random_instances(count: int, seed: int, gap: float) -> list[Instance]:
    """Four arms, of the four families in turn."""
    rng = np.random.default_rng(seed)
    return [random_instance(rng, list(MEANS)[i % 4], 4, gap) for i in range(count)]


def distances(paid: Numbers, goal: Numbers) -> Numbers:
    """The largest distance of an arm's share of the cost from the goal, in each row."""
    largest: Numbers = np.abs(paid / paid.sum(axis=1, keepdims=True) - goal).max(axis=1)
    return largest


def falling_delta(lab: Lab, section: Section) -> dict[str, Found]:
    """Theorems 2, 3 and 6: J/(T* log(1/delta)) as delta falls, its mean and, trajectory by trajectory, quantiles."""
    figure, axes = new_figure(columns=2, height=2.8, sharey=True)
    records, rows = [], []
    found: dict[str, Found] = {}
    panels = {"Theorems 2 and 6: three arms": (instance("G3"), "ctas"), "Theorem 3: two arms": (TWO, "co")}
    for axis, (name, (problem, promised)) in zip(axes, panels.items(), strict=True):
        ends = {}
        for policy in ("ctas", "co"):
            results = lab.several(problem, policy, DELTAS, share=5 if policy == promised else 0.3)
            logs = np.log(1 / np.array(DELTAS))[:, None]
            scaled = np.array([runs.costs for runs in results]) / (bound(problem).hardness * logs)
            means, high = [mean_of(each) for each in scaled], [quantile_of(each, 0.999) for each in scaled]
            records += [{"instance": name, "policy": policy, "delta": delta, "over_hardness": each.value,
                         "standard_error": each.error} for delta, each in zip(DELTAS, means, strict=True)]  # fmt: skip
            axis.plot(-np.log10(DELTAS), [each.value for each in means], marker="o", markersize=3, **STYLES[policy])
            ends[policy] = (30.0, means[-1].value)
            if policy == promised:
                later = np.maximum.accumulate(scaled[::-1])[::-1]
                rows += [
                    [f"{policy}, {len(problem)} arms", f"{delta:.0e}", str(means[i]),
                     *(str(quantile_of(scaled[i], q)) for q in (0.5, 0.99, 0.999)), str(quantile_of(later[i], 0.999))]
                    for i, delta in enumerate(DELTAS)
                ]  # fmt: skip
                almost_surely = "Theorem 6" if policy == "ctas" else "Theorem 3"
                for theorem, what, values in (("Theorem 2", "mean", means), (almost_surely, "99.9 % quantile", high)):
                    first, last = values[0], values[-1]
                    text = f"{what} of J/(T* log(1/delta)): {first} at 1e-2, {last} at 1e-30"
                    found.setdefault(theorem, (text, 1 - 4 * last.error < last.value < first.value / 2))
        axis.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axis.set(ylim=(0.8, None), xlim=(1, 37), xlabel="x, where delta = 10⁻ˣ")
        direct_labels(axis, ends | {"T*": (30, 1.0)})
        title(axis, name)
    axes[0].set_ylabel("mean cost / (T* log(1/delta))")
    caption = (
        "Mean cost over its asymptotic floor T* log(1/delta) as delta falls, Gaussian arms. Left: the paper's "
        "instance; right: means 1, 0.5 and costs 1, 0.1. The dotted line is the lower bound's limit."
    )
    section.draw("theorems", caption, figure)
    section.data["theorem2"] = pd.DataFrame(records)
    caption = (
        f"Theorems 2, 3 and 6: J/(T* log(1/delta)), {round(5 * lab.trajectories)} trajectories that face the same "
        "rewards at every delta. Last column: the largest value at this delta and all smaller ones of the table."
    )
    header = ["policy", "delta", "mean", "median", "99 %", "99.9 %", "99.9 % of the largest from here on"]
    section.add(caption, header, rows)
    return found


def error_rates(lab: Lab, section: Section) -> dict[str, Found]:
    """Propositions 1 and 2: errors against delta, with the paper's threshold, a proven one and an unproven one."""
    rows, found = [], {}
    for threshold in ("paper", "evalue", "stylized"):
        for name, policy in (("Proposition 1", "ctas"), ("Proposition 2", "co")):
            row = [threshold, policy]
            for delta in (0.3, 0.1, 0.03):
                wrong = share_of(lab.runs(ERROR_RATES, policy, delta, threshold=threshold).wrong)
                row.append(str(wrong))
                if (threshold, delta) == ("paper", 0.1):
                    found[name] = f"Bernoulli, delta 0.1: {wrong} errors", wrong.value < 0.1
            rows.append(row)
    caption = "Propositions 1 and 2: share of wrong decisions, Bernoulli arms 0.5, 0.4, 0.3 (the proofs allow delta)."
    section.add(caption, ["threshold", "policy", "delta 0.3", "delta 0.1", "delta 0.03"], rows)
    return found


def lemma_3(lab: Lab, section: Section) -> dict[str, Found]:
    """How far w* moves when means and costs move by h: in random directions, on random instances and near ties."""
    rng, count = np.random.default_rng(lab.seed), 40 if lab.quick else 200
    problems, ways = random_instances(count, lab.seed, 0.05), rng.uniform(-1, 1, (count, 2, 4))
    cases = [(f"{count} random, four families, gap over 0.05", problems, h) for h in (1e-2, 1e-3, 1e-4, 1e-5)]
    for tied in (2, 3):
        for gap in (1e-1, 1e-2, 1e-3):
            near = Instance("gaussian", [gap] + [0.0] * (tied - 1) + [-1.0] * (4 - tied), [1, 0.5, 0.2, 0.1])
            cases.append((f"{tied} Gaussian arms within {gap:g}", [near] * count, gap / 100))
    rows, most = [], []
    for name, chosen, h in cases:
        slopes = []
        for problem, way in zip(chosen, ways, strict=True):
            other = Instance(problem.family, problem.means + h * way[0], problem.costs * (1 + h * way[1]))
            slopes.append(np.abs(bound(other).cost_shares - bound(problem).cost_shares).max() / h)
        most.append(max(slopes))
        rows.append([name, f"{h:g}", str(mean_of(np.array(slopes))), f"{most[-1]:.3g}"])
    caption = "Lemma 3: |change of w*| / h when every mean moves by up to h, and every cost by up to its share h."
    section.add(caption, ["instances", "h", "mean", "largest"], rows)
    figure = (
        f"|change|/h at most {most[0]:.2g}, {most[3]:.2g} at h = 1e-2, 1e-5; at a gap of 1e-3 {most[6]:.2g} with two "
        f"close arms, {most[9]:.3g} with three"
    )
    return {"Lemma 3": (figure, most[3] < 1.2 * most[1] and most[6] < 1.2 * most[4])}


def shares(lab: Lab, section: Section) -> dict[str, Found]:
    """Random costs: CTAS's plug-in shares and cost shares against w*, CO's cost shares against the square-root rule."""
    problem, two = instance("G3", "uniform"), Instance("gaussian", TWO.means, TWO.costs, cost_model="uniform")
    roots = np.sqrt(two.costs)
    plugged, tracked, ctas = followed(lab, lockstep.ctas, problem, bound(problem).cost_shares)
    _, rooted, co = followed(lab, lockstep.co, two, roots / roots.sum())
    last, count = len(plugged) - 1, plugged.shape[1]
    followed_by = {"plug-in shares": plugged, "cost shares": tracked, "CO's cost shares": rooted}
    rows = [
        [str(t), *(str(quantile_of(each[t], 0.95) if high else mean_of(each[t])) for each in followed_by.values()
                   for high in (False, True))]
        for t in (30, 100, 300, 1000, 3000, 10_000) if t <= last
    ]  # fmt: skip
    caption = (
        "Lemmas 4 and 8, Theorem 5: after t pulls, the largest distance of CTAS's plug-in and cost shares from w*, and "
        f"of CO's cost shares on two arms from sqrt(c_a)/(sqrt(c_1) + sqrt(c_2)); {count} trajectories."
    )
    header = ["pulls t", *(f"{name}, {what}" for name in followed_by for what in ("mean", "95 %"))]
    section.add(caption, header, rows)
    found = {"Algorithm 1": ctas, "Algorithm 2": co}
    for statement, (name, each) in zip(("Lemma 4", "Theorem 5", "Lemma 8"), followed_by.items(), strict=True):
        early, late = mean_of(each[100]), mean_of(each[last])
        figure = f"distance of {name} {early} after 100 pulls, {late} after {last}"
        found[statement] = figure, late.value < early.value / 3

    rows, held, most = [], True, 3 * (len(problem) - 1)
    for epsilon in (0.1, 0.03, 0.01):
        start = after(plugged < epsilon)
        reached = np.maximum(after(tracked <= most * epsilon), start)
        held &= bool((reached < last // 2).all())  # so that to stay near w* from there on means something
        worst = np.array([tracked[first:, i].max() for i, first in enumerate(start)]) / epsilon
        times = [str(quantile_of(each, q)) for each in (start, reached) for q in (0.5, 0.95)]
        rows.append([f"{epsilon:g}", *times, str((reached > start).sum()), str(mean_of(worst)), f"{worst.max():.2f}"])
    caption = (
        "Lemma 5, the same trajectories: t_0, after which plug-in shares stay within epsilon of w*; t_e, from t_0 on, "
        f"after which cost shares stay within 3(K-1) epsilon = {most} epsilon; in how many t_e is later; and the "
        "largest distance of cost shares from t_0 on, over epsilon."
    )
    header = ["epsilon", "t_0, median", "t_0, 95 %", "t_e, median", "t_e, 95 %", "later", "distance, mean", "largest"]
    section.add(caption, header, rows)
    figure = (
        f"epsilon 0.01: plug-in shares stay from pull {rows[-1][1]} on (median), cost shares within {most} "
        f"epsilon at once in {count - int(rows[-1][5])} of {count} runs, by pull {reached.max()} in all"
    )
    return found | {"Lemma 5": (figure, held)}


def followed(lab: Lab, rule: Any, problem: Instance, goal: Numbers) -> tuple[Numbers, Numbers, Found]:
    """A row for every t: how far the plug-in shares, and the cost shares, of each trajectory are from the goal.

    And the mean pulls of each arm after 1000 pulls next to the engine's.
    """
    count, last = fewer(lab), 2000 if lab.quick else 10_000
    plugged, tracked = np.full((2, last + 1, count), np.inf)
    for now in lockstep.lockstep(lab, rule, problem, trajectories=count, pulls=last):
        plugged[now.t] = distances(lockstep.optimal_shares(now.means, now.costs / now.pulls), goal)
        tracked[now.t] = distances(now.costs, goal)
        if now.t == 1000:
            pulls = now.pulls.copy()
    path = lab.runs(problem, rule.__name__, 1e-250, grid=[1000], max_pulls=1000).path[:, 0]
    pairs = [(mean_of(path[:, a]), mean_of(pulls[:, a])) for a in range(len(problem))]
    apart = max(abs(x.value - y.value) / math.hypot(x.error, y.error) for x, y in pairs)
    return plugged, tracked, (f"mean pulls {apart:.1f} standard errors from a version in NumPy", apart < 5)


def after(holds: Numbers) -> Any:
    """For each column, the first row from which on it holds to the end; one past the last if never."""
    return len(holds) - np.logical_and.accumulate(holds[::-1]).sum(axis=0)


def lemma_7(lab: Lab, section: Section) -> dict[str, Found]:
    """The chance that some estimate leaves its box between T^(1/4) and T pulls, and the bound that the proof gives."""
    problem, sd = Instance("gaussian", [1.5, 1.0, 0.5], [0.6, 0.5, 0.4]), 0.1
    alpha, beta, K, last, count = 0.06, 0.08, len(problem), 1000, 25 * fewer(lab)
    out = np.zeros((last + 1, count), bool)
    for now in lockstep.lockstep(lab, lockstep.ctas, problem, sd=sd, trajectories=count, pulls=last):
        far = (np.abs(now.means - problem.means) > alpha) | (np.abs(now.costs / now.pulls - problem.costs) > beta)
        out[now.t] = far.any(axis=1)
    # One arm after s pulls is outside with chance at most 2 exp(-s C), for its mean and for its cost (Hoeffding's
    # inequality, and its like for Gaussian rewards); a sum over s >= sqrt(t) - K, and over all arms and t <= T.
    C = min(alpha**2 / (2 * sd**2), beta**2)
    B = 4 * K * math.exp(K * C) / (1 - math.exp(-C))
    rows, chances, below = [], [], True
    for power in (2, 4, 6, 8, 10):
        T, eighth, quarter = 10**power, 10 ** (power / 8), 10 ** (power / 4)
        chance, most = share_of(np.any(out[math.ceil(quarter) : T + 1], axis=0)), B * T * math.exp(-C * eighth)
        rows.append([f"1e{power}", f"{eighth:.1f}", f"{quarter:.0f}", str(chance), f"{most:.2g}"])
        chances.append(chance)
        below &= chance.value <= most
    void = next(x for x in np.arange(1, 1e5) if math.log(B) + 8 * math.log(x) < C * x)
    caption = (
        f"Lemma 7: the chance of the bad event, {count} trajectories of CTAS; Gaussian means 1.5, 1, 0.5 with standard "
        f"deviation {sd}, random costs 0.6, 0.5, 0.4; boxes of ±{alpha} and ±{beta}. B = {B:.4g} and C = {C:.4g} are "
        f"the proof's, without its second T. Simulated to pull {last}; none was outside after pull "
        f"{np.flatnonzero(out.any(axis=1)).max()}."
    )
    section.add(caption, ["T", "T^(1/8)", "from pull", "chance", "B T exp(-C T^(1/8))"], rows)
    figure = (
        f"chance {', '.join(map(str, chances[::2]))} at T = 1e2, 1e6, 1e10; the proof's bound is below 1 only "
        f"from T = 1e{8 * math.log10(void):.0f} on"
    )
    return {"Lemma 7": (figure, below and chances == sorted(chances, reverse=True))}


def co_with_many_arms(lab: Lab, section: Section) -> dict[str, Found]:
    """Where the paper is silent: CO's cost shares with three and ten arms, next to w*."""
    rows, words = [], []
    for name, some in (("G3", 1.0), ("G10", 0.1)):
        problem = instance(name)
        runs = lab.runs(problem, "co", 1e-30, share=some)
        paid = runs.pulls * problem.costs / runs.costs[:, None]
        limit, optimal = co_paid(problem) / co_paid(problem).sum(), bound(problem).cost_shares
        start = np.sqrt(problem.costs) / np.sqrt(problem.costs).sum()
        rows += [
            [f"{name}, arm {a + 1}", f"{start[a]:.4f}", f"{limit[a]:.4f}", str(mean_of(paid[:, a])), f"{best:.4f}"]
            for a, best in enumerate(optimal)
        ]
        words.append(f"{np.abs(limit - optimal).max():.3f} with {len(problem)} arms")
    caption = (
        "The paper does not say what CO's cost shares tend to with three and more arms. While all are in play, they "
        "are proportional to sqrt(c_a). In the limit arm a gets sqrt(c_a)/G_a, and the best arm sqrt(c_1) max 1/G_a, "
        "over their sum, where G_a = g_a(sqrt(c_1/c_a))/sqrt(c_1). That is not w*: the largest difference is "
        f"{' and '.join(words)}. Simulated: at delta 1e-30."
    )
    section.add(caption, ["arm", "all in play", "limit", "simulated", "w*"], rows)
    return {}


def figure_1(lab: Lab, section: Section) -> dict[str, Found]:
    """Intervals before and after pulling arm 2, as the paper draws them; and cost against reward on its instance."""
    figure, (left, right) = new_figure(columns=2, height=2.6)
    bar: dict[str, Any] = {"linewidth": 4, "solid_capstyle": "butt"}
    overlaps = []
    for height, second in ((1, 2.5), (0, 2.0)):  # half-widths of the paper's ellipses, around -1.5 and 1.5
        left.plot([-4, 1], [height + 0.08] * 2, color="black", **bar)
        left.plot([1.5 - second, 1.5 + second], [height - 0.08] * 2, color="0.6", **bar)
        overlaps.append(second - 0.5)
        left.annotate(f"overlap {overlaps[-1]:g}", (0.25, height + 0.2), ha="center", fontsize=8)
    left.set_yticks([1, 0], ["before", "after a pull\nof arm 2"])
    left.set_ylim(-0.5, 1.5)
    title(left, "confidence intervals of the means, as drawn")
    problem, t = instance("G3"), 200
    pulls = t / np.sqrt(problem.costs) / (1 / np.sqrt(problem.costs)).sum()
    for a, (reward, cost) in enumerate(zip(problem.means, problem.costs, strict=True)):
        half = math.sqrt(2 * math.log(2 * len(problem) * t / 1e-6) / pulls[a])
        right.plot([reward - half, reward + half], [cost, cost], color="0.6", **bar)
        right.plot([reward], [cost], "o", color="black", markersize=4)
        right.annotate(f"arm {a + 1}: {pulls[a]:.0f} pulls", (reward, cost), xytext=(0, 6),
                       textcoords="offset points", ha="center", fontsize=8)  # fmt: skip
    right.set(yscale="log", ylim=(0.005, 3), xlabel="reward", ylabel="cost of a pull")
    title(right, f"the paper's instance after {t} pulls of CO")
    caption = (
        "Figure 1. Left: the paper's two intervals before and after a pull of arm 2. Right: cost against reward on its "
        f"Gaussian instance, with the intervals N d <= log(2 K t/delta) after {t} pulls by the square-root rule."
    )
    section.draw("figure1", caption, figure)
    # One more pull of an arm narrows an overlap by half/(2N), half ~ N^(-1/2): per cost N^(-3/2)/c, so N ~ c^(-2/3).
    third = np.cbrt(TWO.costs)
    extra = (third.sum() * (third**2).sum()) / np.sqrt(TWO.costs).sum() ** 2 - 1
    text = (
        f"overlap {overlaps[0]:g}, then {overlaps[1]:g}; narrowing it most per cost gives N ~ c^(-2/3), "
        f"{extra:.1%} more expensive at costs 1 and 0.1 than the square-root rule"
    )
    return {"Figure 1": (text, overlaps[1] < overlaps[0])}


EXPERIMENTS = (falling_delta, error_rates, lemma_3, shares, lemma_7, figure_1, co_with_many_arms)
