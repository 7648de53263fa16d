"""The paper's lemmas and Theorem 6 as experiments, Figure 1, and CO with many arms.

Each adds its table to the section, and returns its figure in a few words and whether what the paper says was seen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.bound import bound
from cabai.hardness import evidence, split
from cabai.instance import Instance
from cabai.paper import lockstep
from cabai.paper.lab import Lab, command
from cabai.paper.published import instance
from cabai.paper.section import Figure, Section, Table, pm
from cabai.paper.theorems import DELTAS, TWO
from cabai.plots import new_figure, title

Numbers = NDArray[Any]
Found = tuple[str, bool]
MEANS = {"gaussian": (0.0, 1.0), "bernoulli": (0.1, 0.9), "poisson": (0.5, 2.5), "exponential": (0.5, 2.5)}


def here(lab: Lab) -> list[str]:
    options = "--quick" if lab.quick else f"--trajectories {lab.trajectories}"
    return [f"cabai reproduce statements {options} --seed {lab.seed}"]


def fewer(lab: Lab) -> int:
    """How many trajectories NumPy can afford."""
    return min(1000, max(20, lab.trajectories // 5))


def mean_and_error(values: Numbers) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def quantile_and_error(values: Numbers, q: float) -> tuple[float, float]:
    """A quantile; half the distance of the order statistics that are one standard error of the rank around it."""
    ranks = q + np.array([-1, 1]) * math.sqrt(q * (1 - q) / len(values))
    low, high = np.quantile(values, np.clip(ranks, 0, 1))
    return float(np.quantile(values, q)), float(high - low) / 2


def random_instances(count: int, seed: int, arms: int = 4) -> list[Instance]:
    """Instances of the four families in turn, costs up to a hundredfold apart."""
    rng = np.random.default_rng(seed)
    families = [list(MEANS)[i % 4] for i in range(count)]
    return [Instance(f, rng.uniform(*MEANS[f], arms), 10 ** rng.uniform(-2, 0, arms)) for f in families]


def theorem_6(lab: Lab, section: Section) -> Found:
    """Quantiles of cost / (T* log(1/delta)) along the same trajectories, and of its largest value from a delta on."""
    problem = instance("G3")
    results = lab.several(problem, "ctas", DELTAS, share=5)
    logs = np.log(1 / np.array(DELTAS))[:, None]
    scaled = np.array([runs.costs for runs in results]) / (bound(problem).hardness * logs)
    later = np.maximum.accumulate(scaled[::-1])[::-1]
    rows = [
        [f"{delta:.0e}", pm(*mean_and_error(now)), *(pm(*quantile_and_error(now, q)) for q in (0.5, 0.99, 0.999)),
         pm(*quantile_and_error(rest, 0.999))]
        for delta, now, rest in zip(DELTAS, scaled, later, strict=True)
    ]  # fmt: skip
    caption = (
        f"Theorem 6: J/(T* log(1/delta)) of CTAS on the paper's Gaussian instance, {len(results[0])} trajectories, "
        "followed through all deltas. Last column: the largest value at this delta and all smaller ones of the table."
    )
    header = ["delta", "mean", "median", "99 %", "99.9 %", "99.9 % of the largest from here on"]
    section.tables.append(Table(caption, header, rows, [command(runs) for runs in results]))
    first, last = (quantile_and_error(values, 0.999) for values in (scaled[0], scaled[-1]))
    return f"99.9 % quantile of J/(T* log(1/delta)): {pm(*first)} at 1e-2, {pm(*last)} at 1e-30", last[0] < first[0] / 2


def lemma_3(lab: Lab, section: Section) -> Found:
    """How far w* moves when means and costs move by h: in random directions, on random instances and near ties."""
    rng = np.random.default_rng(lab.seed)
    count = 40 if lab.quick else 200
    rows, most = [], []

    def move(name: str, problems: list[Instance], ways: Numbers, h: float) -> None:
        slopes = []
        for problem, way in zip(problems, ways, strict=True):
            other = Instance(problem.family, problem.means + h * way[0], problem.costs * (1 + h * way[1]))
            slopes.append(np.abs(bound(other).cost_shares - bound(problem).cost_shares).max() / h)
        most.append(max(slopes))
        rows.append([name, f"{h:g}", pm(*mean_and_error(np.array(slopes))), f"{most[-1]:.3g}"])

    problems = [each for each in random_instances(2 * count, lab.seed) if np.diff(np.sort(each.means))[-1] > 0.05]
    problems = problems[:count]
    ways = rng.uniform(-1, 1, (len(problems), 2, 4))
    for h in (1e-2, 1e-3, 1e-4, 1e-5):
        move(f"{len(problems)} random, four families, gap over 0.05", problems, ways, h)
    for tied in (2, 3):
        for gap in (1e-1, 1e-2, 1e-3):
            near = Instance("gaussian", [gap] + [0.0] * (tied - 1) + [-1.0] * (4 - tied), [1, 0.5, 0.2, 0.1])
            move(f"{tied} Gaussian arms within {gap:g}", [near] * len(problems), ways, gap / 100)
    caption = "Lemma 3: |change of w*| / h when every mean moves by up to h, and every cost by up to its share h."
    section.tables.append(Table(caption, ["instances", "h", "mean", "largest"], rows, here(lab)))
    figure = (
        f"|change|/h at most {most[0]:.2g}, {most[3]:.2g} at h = 1e-2, 1e-5; at a gap of 1e-3 {most[6]:.2g} with two "
        f"close arms, {most[9]:.3g} with three"
    )
    return figure, most[3] < 1.2 * most[1] and most[6] < 1.2 * most[4]


def tracking(lab: Lab, section: Section) -> dict[str, Found]:
    """CTAS with random costs: the plug-in shares and the cost shares, both against w*; and its pulls in the engine."""
    problem = instance("G3")
    goal, count, last = bound(problem).cost_shares, fewer(lab), 2000 if lab.quick else 10_000
    lab.progress(f"CTAS in NumPy, {count} trajectories of {last} pulls")
    plugged, tracked = np.full((2, last + 1, count), np.inf)
    for seen in lockstep.lockstep(
        lockstep.ctas, problem.means, problem.costs, trajectories=count, pulls=last, seed=lab.seed
    ):
        shares = lockstep.optimal_shares(seen.means, seen.costs / seen.pulls)
        plugged[seen.t] = np.abs(shares - goal).max(axis=1)
        tracked[seen.t] = np.abs(seen.costs / seen.costs.sum(axis=1, keepdims=True) - goal).max(axis=1)
        if seen.t == 1000:
            pulls = seen.pulls.copy()
    marks = [t for t in (30, 100, 300, 1000, 3000, 10_000) if t <= last]
    rows = [
        [str(t), *(pm(*mean_and_error(each[t])) for each in (plugged, tracked)),
         *(pm(*quantile_and_error(each[t], 0.95)) for each in (plugged, tracked))]
        for t in marks
    ]  # fmt: skip
    caption = (
        f"Lemma 4 and Theorem 5: largest distance of CTAS's plug-in shares, and of its cost shares, from w* after t "
        f"pulls; random costs, {count} trajectories."
    )
    header = ["pulls t", "plug-in, mean", "cost shares, mean", "plug-in, 95 %", "cost shares, 95 %"]
    section.tables.append(Table(caption, header, rows, here(lab)))
    found = {}
    for name, what, each in (("Lemma 4", "plug-in", plugged), ("Theorem 5", "cost", tracked)):
        early, late = mean_and_error(each[100]), mean_and_error(each[last])
        figure = f"distance of {what} shares {pm(*early)} after 100 pulls, {pm(*late)} after {last}"
        found[name] = figure, late[0] < early[0] / 3
    found["Algorithm 1"] = same_pulls(lab, instance("G3", "uniform"), "ctas", pulls)

    rows, K, held = [], len(problem), True
    for epsilon in (0.1, 0.03, 0.01):
        start, reached = after(plugged < epsilon), after(tracked <= 3 * (K - 1) * epsilon)
        reached = np.maximum(reached, start)
        held &= bool((reached < last // 2).all())  # so that to stay near w* from there on means something
        worst = np.array([tracked[first:, i].max() for i, first in enumerate(start)]) / epsilon
        times = [pm(*quantile_and_error(each, q)) for each in (start, reached) for q in (0.5, 0.95)]
        rows.append([f"{epsilon:g}", *times, str((reached > start).sum()), pm(*mean_and_error(worst)),
                     f"{worst.max():.2f}"])  # fmt: skip
    caption = (
        "Lemma 5, the same trajectories: t_0, after which plug-in shares stay within epsilon of w*; t_e, from t_0 on, "
        f"after which cost shares stay within 3(K-1) epsilon = {3 * (K - 1)} epsilon; in how many t_e is later; and "
        "the largest distance of cost shares from t_0 on, over epsilon."
    )
    header = ["epsilon", "t_0, median", "t_0, 95 %", "t_e, median", "t_e, 95 %", "later", "distance, mean", "largest"]
    section.tables.append(Table(caption, header, rows, here(lab)))
    figure = (
        f"epsilon 0.01: plug-in shares stay from pull {rows[-1][1]} on (median), cost shares within {3 * (K - 1)} "
        f"epsilon at once in {count - int(rows[-1][5])} of {count} runs, by pull {reached.max()} in all"
    )
    return found | {"Lemma 5": (figure, held)}


def same_pulls(lab: Lab, problem: Instance, policy: str, pulls: Numbers) -> Found:
    """Mean pulls of each arm after 1000 pulls: the engine's, and those of the version in NumPy."""
    runs = lab.runs(problem, policy, 1e-250, grid=[1000], max_pulls=1000)
    ours, theirs = ([mean_and_error(each[:, a]) for a in range(len(problem))] for each in (runs.path[:, 0], pulls))
    apart = max(abs(x - y) / math.hypot(e, f) for (x, e), (y, f) in zip(ours, theirs, strict=True))
    figure = f"mean pulls {apart:.1f} standard errors from a version in NumPy"
    return figure, apart < 5


def after(holds: Numbers) -> Any:
    """For each column, the first row from which on it holds to the end; one past the last if never."""
    return len(holds) - np.logical_and.accumulate(holds[::-1]).sum(axis=0)


def lemma_7(lab: Lab, section: Section) -> Found:
    """The chance that some estimate leaves its box between T^(1/4) and T pulls, and the bound that the proof gives."""
    means, costs, sd = np.array([1.5, 1.0, 0.5]), np.array([0.6, 0.5, 0.4]), 0.1
    alpha, beta, K, last, count = 0.06, 0.08, len(means), 1000, 25 * fewer(lab)
    lab.progress(f"CTAS in NumPy, {count} trajectories of {last} pulls")
    out = np.zeros((last + 1, count), bool)
    for seen in lockstep.lockstep(
        lockstep.ctas, means, costs, sd=sd, trajectories=count, pulls=last, seed=lab.seed + 1
    ):
        far = (np.abs(seen.means - means) > alpha) | (np.abs(seen.costs / seen.pulls - costs) > beta)
        out[seen.t] = far.any(axis=1)
    # One arm after s pulls is outside with chance at most 2 exp(-s C), for its mean and for its cost (Hoeffding's
    # inequality, and its like for Gaussian rewards); a sum over s >= sqrt(t) - K, and over all arms and t <= T.
    C = min(alpha**2 / (2 * sd**2), beta**2)
    B = 4 * K * math.exp(K * C) / (1 - math.exp(-C))
    rows, chances, below = [], [], True
    for power in (2, 4, 6, 8, 10):
        T = 10**power
        bad = out[math.ceil(T**0.25) : T + 1].any(axis=0)
        chance = bad.mean()
        log_bound = math.log(B * T) - C * T**0.125
        below &= bool(math.log(max(chance, 1e-300)) <= log_bound)
        chances.append(chance)
        rows.append([f"1e{power}", f"{T**0.125:.1f}", f"{T**0.25:.0f}",
                     pm(chance, math.sqrt(max(chance * (1 - chance), 1 / count) / count)),
                     f"{math.exp(log_bound):.2g}"])  # fmt: skip
    void = next(x for x in np.arange(1, 1e5) if math.log(B) + 8 * math.log(x) < C * x)
    caption = (
        f"Lemma 7: the chance of the bad event, {count} trajectories of CTAS; Gaussian means 1.5, 1, 0.5 with standard "
        f"deviation {sd}, random costs 0.6, 0.5, 0.4; boxes of ±{alpha} and ±{beta}. B = {B:.4g} and C = {C:.4g} are "
        f"the proof's, without its second T. Simulated to pull {last}; none was outside after pull "
        f"{np.flatnonzero(out.any(axis=1)).max()}."
    )
    header = ["T", "T^(1/8)", "from pull", "chance", "B T exp(-C T^(1/8))"]
    section.tables.append(Table(caption, header, rows, here(lab)))
    figure = (
        f"chance {', '.join(row[3] for row in rows[::2])} at T = 1e2, 1e6, 1e10; the proof's bound is below 1 only "
        f"from T = 1e{8 * math.log10(void):.0f} on"
    )
    return figure, below and chances == sorted(chances, reverse=True)


def square_root_rule(lab: Lab, section: Section) -> dict[str, Found]:
    """CO on two arms with random costs: its cost shares tend to sqrt(c_a)/(sqrt(c_1) + sqrt(c_2))."""
    count, last = fewer(lab), 10_000
    lab.progress(f"CO in NumPy, {count} trajectories of {last} pulls")
    roots = np.sqrt(TWO.costs)
    goal = roots[0] / roots.sum()
    marks, rows, distances = (30, 100, 300, 1000, 3000, last), [], []
    for seen in lockstep.lockstep(lockstep.co, TWO.means, TWO.costs, trajectories=count, pulls=last, seed=lab.seed + 2):
        if seen.t == 1000:
            pulls = seen.pulls.copy()
        if seen.t in marks:
            share = seen.costs[:, 0] / seen.costs.sum(axis=1)
            distances.append(mean_and_error(np.abs(share - goal)))
            rows.append([str(seen.t), pm(*mean_and_error(share)), pm(*distances[-1])])
    caption = (
        f"Lemma 8: CO's cost share of arm 1 after t pulls, mean costs 1 and 0.1, {count} trajectories; the limit is "
        f"sqrt(c_1)/(sqrt(c_1) + sqrt(c_2)) = {goal:.4f}."
    )
    section.tables.append(Table(caption, ["pulls t", "share", "distance from the limit"], rows, here(lab)))
    figure = f"distance {pm(*distances[1])} after 100 pulls, {pm(*distances[-1])} after {last}"
    random = Instance("gaussian", TWO.means, TWO.costs, cost_model="uniform")
    return {
        "Lemma 8": (figure, distances[-1][0] < distances[1][0] / 5),
        "Algorithm 2": same_pulls(lab, random, "co", pulls),
    }


def co_limit(problem: Instance) -> Numbers:
    """CO's cost shares as delta goes to 0: arm a gets sqrt(c_a)/G_a, the best sqrt(c_1) max 1/G_a (see hardness.py)."""
    best, rivals = split(problem)
    roots = np.sqrt(problem.costs)
    needed = roots[best] / evidence(problem, roots[best] / roots[rivals])
    paid = roots.copy()
    paid[rivals] *= needed
    paid[best] *= needed.max()
    paid /= paid.sum()
    return paid


def co_with_many_arms(lab: Lab, section: Section) -> None:
    """Where the paper is silent: CO's cost shares with three and ten arms, next to w*."""
    rows, commands, words = [], [], []
    for name, share in (("G3", 1.0), ("G10", 0.1)):
        problem = instance(name)
        runs = lab.runs(problem, "co", 1e-30, share=share)
        paid = runs.pulls * problem.costs / runs.costs[:, None]
        limit, optimal = co_limit(problem), bound(problem).cost_shares
        start = np.sqrt(problem.costs) / np.sqrt(problem.costs).sum()
        for a in range(len(problem)):
            cells = (f"{x:.4f}" for x in (start[a], limit[a]))
            rows.append([f"{name}, arm {a + 1}", *cells, pm(*mean_and_error(paid[:, a])), f"{optimal[a]:.4f}"])
        words.append(f"{np.abs(limit - optimal).max():.3f} with {len(problem)} arms")
        commands.append(command(runs))
    caption = (
        "The paper does not say what CO's cost shares tend to with three and more arms. While all are in play, they "
        "are proportional to sqrt(c_a). In the limit arm a gets sqrt(c_a)/G_a, and the best arm sqrt(c_1) max 1/G_a, "
        "over their sum, where G_a = g_a(sqrt(c_1/c_a))/sqrt(c_1). That is not w*: the largest difference is "
        f"{' and '.join(words)}. Simulated: at delta 1e-30."
    )
    header = ["arm", "all in play", "limit", "simulated", "w*"]
    section.tables.append(Table(caption, header, rows, commands))


def figure_1(lab: Lab, section: Section) -> Found:
    """Intervals before and after pulling arm 2, as the paper draws them; and cost against reward on its instance."""
    figure, (left, right) = new_figure(columns=2, height=2.6)
    bar: dict[str, Any] = {"linewidth": 4, "solid_capstyle": "butt"}
    halves = {"before": (2.5, 2.5), "after": (2.5, 2.0)}  # of the paper's ellipses, around -1.5 and 1.5
    overlaps = {name: sum(each) - 3 for name, each in halves.items()}
    for height, (name, (first, second)) in zip((1, 0), halves.items(), strict=True):
        left.plot([-1.5 - first, -1.5 + first], [height + 0.08] * 2, color="black", **bar)
        left.plot([1.5 - second, 1.5 + second], [height - 0.08] * 2, color="0.6", **bar)
        left.annotate(f"overlap {overlaps[name]:g}", (0.25, height + 0.2), ha="center", fontsize=8)
    left.set_yticks([1, 0], ["before", "after a pull\nof arm 2"])
    left.set_ylim(-0.5, 1.5)
    title(left, "confidence intervals of the means, as drawn")
    problem, t = instance("G3"), 200
    roots = np.sqrt(problem.costs)
    pulls = t / roots / (1 / roots).sum()
    for a, (mean, cost) in enumerate(zip(problem.means, problem.costs, strict=True)):
        half = math.sqrt(2 * math.log(2 * len(problem) * t / 1e-6) / pulls[a])
        right.plot([mean - half, mean + half], [cost, cost], color="0.6", **bar)
        right.plot([mean], [cost], "o", color="black", markersize=4)
        right.annotate(f"arm {a + 1}: {pulls[a]:.0f} pulls", (mean, cost), xytext=(0, 6),
                       textcoords="offset points", ha="center", fontsize=8)  # fmt: skip
    right.set_yscale("log")
    right.set_ylim(0.005, 3)
    right.set_xlabel("reward")
    right.set_ylabel("cost of a pull")
    title(right, f"the paper's instance after {t} pulls of CO")
    caption = (
        "Figure 1. Left: the paper's two intervals before and after a pull of arm 2. Right: cost against reward on its "
        f"Gaussian instance, with the intervals N d <= log(2 K t/delta) after {t} pulls by the square-root rule."
    )
    section.figures.append(Figure("figure1", caption, figure, here(lab)))
    # One more pull of an arm narrows an overlap by half/(2N), half ~ N^(-1/2): per cost N^(-3/2)/c, so N ~ c^(-2/3).
    third = np.cbrt(TWO.costs)
    extra = (third.sum() * (third**2).sum()) / np.sqrt(TWO.costs).sum() ** 2 - 1
    return (
        f"overlap {overlaps['before']:g}, then {overlaps['after']:g}; narrowing it most per cost gives N ~ c^(-2/3), "
        f"{extra:.1%} more expensive at costs 1 and 0.1 than the square-root rule",
        overlaps["after"] < overlaps["before"],
    )
