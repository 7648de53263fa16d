"""What finding the cheapest arm that is good enough costs, compared with finding the best arm.

    python benchmarks/bench_cheapest.py [--quick]

1. Sampled arms, delta 0.05, slack half of epsilon. Mean cost of the policy `cheapest`, and of other things over it:
   `uniform` pulls the arms that are not decided on in turn; `best` finds an arm within epsilon of the best by
   `top-two`, `exact` the best arm itself. `over bound`: the cost over a lower bound of any policy that is as often
   right, for gaussian rewards. `wrong` counts wrong answers of `cheapest`; `answer` is the mean of the arm chosen most
   often.
2. Datasets: right and wrong answers of models that get better with their price, and items that differ in difficulty.
   Shares of the full evaluation's cost: `cheapest` with prices learned and with running costs declared; the best arm
   within epsilon (`paired`), and the best arm itself (`champion`).
"""

from __future__ import annotations

import math
import sys

import numpy as np
from scipy.optimize import linprog

from cabai import Instance, replay, simulate
from cabai.support.tables import table

DELTA = 0.05
SAMPLED = {
    "gaussian, the middle one": (Instance("gaussian", [1, 0.95, 0.3], [1, 0.1, 0.01]), 0.2),
    "gaussian, the cheapest": (Instance("gaussian", [1, 0.98, 0.96], [1, 0.1, 0.01]), 0.2),
    "gaussian, only the best": (Instance("gaussian", [1, 0.5, 0.3], [1, 0.1, 0.01]), 0.2),
    "gaussian, seven": (
        Instance("gaussian", [1, 0.98, 0.95, 0.7, 0.5, 0.3, 0], [1, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05]), 0.2,
    ),
    "bernoulli, five models": (
        Instance("bernoulli", [0.85, 0.85, 0.84, 0.78, 0.6], [1, 0.3, 0.1, 0.03, 0.01]), 0.05,
    ),
    "bounded, five models": (
        Instance("bounded", [0.85, 0.85, 0.84, 0.78, 0.6], [1, 0.3, 0.1, 0.03, 0.01], law="beta", sd=0.1), 0.05,
    ),
    "poisson, three": (Instance("poisson", [4, 3.9, 2], [1, 0.1, 0.01]), 0.4),
}  # fmt: skip


def lower_bound(instance: Instance, epsilon: float, slack: float) -> float:
    """kl(delta, 1 - delta) over the most evidence that a unit of cost can gather, for gaussian rewards: by cutting
    planes.

    The answer a is wrong if it is worse than some j by more than epsilon, or if a cheaper b is within epsilon - slack
    of every arm. An allocation w of pulls per cost gathers, against the closest such truth, the least over j of
    w_a w_j/(w_a + w_j) (mu_a - mu_j + epsilon)²/2, and the least over b and m of w_b (m - margin - mu_b)²/2 + the sum
    over j with mu_j > m of w_j (mu_j - m)²/2. Each truth is linear in w: a linear program over those found so far is an
    upper bound of the best, so what is returned is a lower bound of the cost whenever it stops.
    """
    mu, cost, margin = instance.means, instance.costs, epsilon - slack
    order, arms = np.argsort(cost, kind="stable").tolist(), len(mu)
    rank = next(i for i, a in enumerate(order) if mu[a] >= mu.max() - epsilon)
    answer, cheaper = order[rank], order[:rank]

    def truths(w):
        for j in range(arms):
            if j != answer:
                q = (w[answer] * mu[answer] + w[j] * (mu[j] - epsilon)) / max(w[answer] + w[j], 1e-300)
                other = mu.copy()
                other[answer], other[j] = q, q + epsilon
                yield (mu - other) ** 2 / 2
        for b in cheaper:
            for m in np.linspace(mu[b] + margin, mu.max(), 400):
                other = np.minimum(mu, m)
                other[b] = max(mu[b], m - margin)
                yield (mu - other) ** 2 / 2

    w = 1 / cost / arms
    found: list[np.ndarray] = []
    best = math.inf
    for _ in range(200):
        new = min(truths(w), key=lambda each: float(each @ w))
        if float(new @ w) > 0.999 * best:
            break
        found.append(new)
        program = linprog([*np.zeros(arms), -1.0], A_ub=[[*-each, 1.0] for each in found], b_ub=np.zeros(len(found)),
                          A_eq=[[*cost, 0.0]], b_eq=[1.0])  # fmt: skip
        w, best = program.x[:-1], float(program.x[-1])
        w = 0.999 * w + 0.001 / cost / arms
    kl = (1 - 2 * DELTA) * math.log((1 - DELTA) / DELTA)
    return kl / best


def sampled(trajectories: int) -> None:
    rows = [["instance", "epsilon", "cheapest", "uniform", "best", "exact", "over bound", "wrong", "answer"]]
    for name, (instance, epsilon) in SAMPLED.items():
        options = {"delta": DELTA, "trajectories": trajectories, "max_pulls": 3_000_000}
        looked_for = {"goal": "cheapest", "epsilon": epsilon}
        runs = simulate(instance, **looked_for, **options)
        mean = runs.summary().mean_cost
        others = [
            simulate(instance, "cheapest(uniform=true)", **looked_for, **options),
            simulate(instance, epsilon=epsilon, **options),
        ]
        ratios = [f"{each.summary().mean_cost / mean:.2f}" for each in others]
        exact = "-"
        if len(instance.best_arms) == 1:
            exact = f"{simulate(instance, **options).summary().mean_cost / mean:.2f}"
        bound = "-"
        if instance.family.name == "gaussian":
            bound = f"{mean / lower_bound(instance, epsilon, epsilon / 2):.2f}"
        answer = instance.means[np.bincount(runs.decisions[runs.finished]).argmax()]
        rows.append([name, f"{epsilon:g}", f"{mean:.4g}", *ratios, exact, bound, f"{int(runs.wrong.sum())}/{len(runs)}",
                     f"{answer:g}"])  # fmt: skip
        print(f"{name}: done", file=sys.stderr)
    print(table(rows), flush=True)


def some_models(arms: int, items: int, correlation: float, step: float, seed: int) -> np.ndarray:
    """Right and wrong answers of models, the cheapest first: the second is better by about `step`, the third by half of
    that more, and so on."""
    rng = np.random.default_rng([seed, arms, items])
    common = math.sin(math.pi / 2 * correlation)
    ability = np.cumsum([0.3, *(2.5 * step * 0.5**i for i in range(arms - 1))])[:, None]
    noise = math.sqrt(common) * rng.normal(size=items) + math.sqrt(1 - common) * rng.normal(size=(arms, items))
    found: np.ndarray = (ability + noise > 0).astype(float)
    return found


def datasets(repeats: int) -> None:
    rows = [["arms", "items", "correlation", "step", "epsilon", "cheapest", "declared", "paired", "champion", "wrong"]]
    for arms, items, correlation, step, epsilon in (
        (2, 1000, 0.6, 0.00, 0.02), (2, 1000, 0.6, 0.05, 0.02), (3, 1000, 0.6, 0.10, 0.02), (5, 1000, 0.6, 0.10, 0.02),
        (3, 10_000, 0.6, 0.10, 0.02), (5, 10_000, 0.6, 0.10, 0.02), (5, 10_000, 0.3, 0.10, 0.02),
        (5, 10_000, 0.6, 0.20, 0.05),
    ):  # fmt: skip
        scores = some_models(arms, items, correlation, step, seed=1)
        names = [f"model {a}" for a in range(arms)]
        given, costs = dict(zip(names, scores, strict=True)), dict(zip(names, 4.0 ** np.arange(arms), strict=True))
        options = {"costs": costs, "repeats": repeats, "delta": DELTA}
        learned = replay(given, goal="cheapest", epsilon=epsilon, **options)
        declared = replay(given, goal="cheapest", epsilon=epsilon, running_costs=list(costs.values()), **options)
        others = replay(given, epsilon=epsilon, **options), replay(given, **options)
        shares = [f"{float(each.shares.mean()):.3f}" for each in (learned, declared, *others)]
        wrong = round((1 - learned.right) * repeats) + round((1 - declared.right) * repeats)
        rows.append([str(arms), str(items), f"{correlation:g}", f"{step:g}", f"{epsilon:g}", *shares,
                     f"{wrong}/{2 * repeats}"])  # fmt: skip
    print(table(rows))


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    sampled(100 if quick else 500)
    print()
    datasets(20 if quick else 200)
