"""What evaluations cost on tables of scores that nothing here was tuned on.

    python benchmarks/bench_evaluations.py [--quick] [--save tables.npz]

Real tables: eight classifiers, trained here on a part of scikit-learn's digits or breast cancer data, on the other
items; scores are right or wrong, or the probability of the right class. Others look like those of language models:
items that differ in difficulty, models that differ in skill. Shares are of the full evaluation's cost, at delta 0.05.

1. Races of eight: shares at epsilon 0 and 0.02, errors, and the bill with batches of 32 over that without (1000 items).
2. Next month's model: the newcomer's own calls as a share of the bill of the race that it joins.
3. Goal cheapest: shares, and how often the answer is that of all scores, by slack.
4. A cheap judge of all items as a control variate for two arms: items needed, over those needed without it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np

import cabai
from cabai.datasets.capital import BETS, first_bets
from cabai.support.tables import table

DELTA = 0.05
Scores = dict[str, np.ndarray]


def real_tables(splits: int) -> Iterator[tuple[str, Scores]]:
    from sklearn import datasets, discriminant_analysis, ensemble, linear_model, naive_bayes, neighbors, svm, tree
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    for name, load, train in (("digits", datasets.load_digits, 300), ("cancer", datasets.load_breast_cancer, 150)):
        x, y = load(return_X_y=True)
        for split in range(splits):
            seen, asked, answers, truth = train_test_split(x, y, train_size=train, random_state=split, stratify=y)
            models = {
                "logistic": linear_model.LogisticRegression(max_iter=300),
                "weak logistic": linear_model.LogisticRegression(C=1e-3, max_iter=300),
                "neighbours": neighbors.KNeighborsClassifier(3),
                "bayes": naive_bayes.GaussianNB(),
                "tree": tree.DecisionTreeClassifier(random_state=split),
                "forest": ensemble.RandomForestClassifier(50, random_state=split),
                "discriminant": discriminant_analysis.LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
                "vectors": svm.SVC(random_state=split),
            }
            right, chances = {}, {}
            for model, classifier in models.items():
                fitted = make_pipeline(StandardScaler(), classifier).fit(seen, answers)
                right[model] = (fitted.predict(asked) == truth).astype(float)
                if model != "vectors":
                    chances[model] = np.clip(fitted.predict_proba(asked)[np.arange(len(truth)), truth], 0, 1)
            chances["always unsure"] = np.full(len(truth), 0.5)
            yield f"{name}, right or wrong", right
            yield f"{name}, probabilities", chances


def made_table(items: int, seed: int, skills: np.ndarray) -> Scores:
    """Right and wrong answers: an item's difficulty is common to all models."""
    rng = np.random.default_rng([77, seed, items])
    hard = 1.2 * rng.normal(size=items)
    right = skills[:, None] - hard + rng.logistic(size=(len(skills), items)) > 0
    return {f"model {a}": each.astype(float) for a, each in enumerate(right)}


def made_tables(count: int) -> Iterator[tuple[str, Scores]]:
    for seed in range(count):
        items = (400, 1200)[seed % 2]
        skills = np.random.default_rng([78, seed]).normal(1.0, 0.5, 8)
        yield f"like language models, {items} items", made_table(items, seed, skills)


def evaluated(arms: list[str], scores: Scores, calls: Counter[str], **given: object) -> cabai.Evaluation:
    def score(arm: str, item: object) -> object:
        many = isinstance(item, list)
        calls[arm] += len(item) if many else 1
        return scores[arm][item].tolist() if many else float(scores[arm][item])

    return cabai.evaluate(arms, range(len(scores[arms[0]])), score, delta=DELTA, progress=False, **given)


def races(found: list[tuple[str, Scores]], repeats: int) -> None:
    rows = [["tables", "number", "items", "epsilon 0", "0.02", "errors", "batch 32, over that"]]
    for kind in dict.fromkeys(name for name, _ in found):
        own = [scores for name, scores in found if name == kind]
        items, shares, errors, ratios = len(next(iter(own[0].values()))), [], 0, []
        for seed, scores in enumerate(own):
            replays = [cabai.replay(scores, delta=DELTA, epsilon=e, repeats=repeats) for e in (0.0, 0.02)]
            shares.append([float(each.shares.mean()) for each in replays])
            errors += sum(round((1 - each.within_epsilon) * repeats) for each in replays)
            if items >= 1000:
                single = cabai.replay(scores, delta=DELTA, epsilon=0.02, repeats=1, seed=seed).costs[0]
                ratios.append(
                    evaluated(list(scores), scores, Counter(), epsilon=0.02, seed=seed, batch=32).spent / single
                )
        zero, two = np.mean(shares, axis=0)
        batch = f"{np.mean(ratios):.2f} ({max(ratios):.2f})" if ratios else "-"
        rows.append([kind, str(len(own)), str(items), f"{zero:.3f}", f"{two:.3f}",
                     f"{errors}/{2 * repeats * len(own)}", batch])  # fmt: skip
    print(table(rows), flush=True)


def newcomers(tables: int) -> None:
    """A race of six, and a seventh model that is clearly better or worse than its winner, or about as good."""
    rows = [["next month's model", "own calls", "least", "bill, over that with reuse", "right"]]
    for kind, step in (("clearly better", 0.8), ("clearly worse", -0.8), ("about as good", 0.0)):
        own, bills, right = [], [], 0
        for seed in range(tables):
            skills = np.random.default_rng([79, seed]).normal(1.0, 0.4, 6)
            scores = made_table(600, seed, np.append(skills, skills.max() + step))
            *arms, new = scores
            first, calls = evaluated(arms, scores, Counter(), seed=seed, batch=8), Counter[str]()
            joined = evaluated([new], scores, calls, join=first, batch=8)
            again = evaluated(list(scores), scores, Counter(), reuse=first, batch=8, seed=seed + 1000)
            own.append(calls[new] / joined.spent)
            bills.append(joined.spent / again.spent)
            best = max(each.mean() for each in scores.values())
            right += scores[joined.decision].mean() == best
        rows.append([kind, f"{np.mean(own):.2f}", f"{min(own):.2f}", f"{np.mean(bills):.2f}", f"{right}/{tables}"])
    print("\n" + table(rows), flush=True)


def slacks(found: list[tuple[str, Scores]], repeats: int) -> None:
    rows = [["goal cheapest, slack", "epsilon 0.02", "exact", "epsilon 0.05", "exact"]]
    for name, part in (("epsilon / 4", 0.25), ("epsilon / 2", 0.5), ("epsilon", 1.0)):
        row = [name]
        for epsilon in (0.02, 0.05):
            shares, same = [], []
            for _, scores in found:
                costs = dict(zip(scores, np.geomspace(1, 30, len(scores)).tolist(), strict=True))
                one = cabai.replay(scores, goal="cheapest", epsilon=epsilon, slack=part * epsilon, costs=costs,
                                   delta=DELTA, repeats=repeats)  # fmt: skip
                shares.append(float(one.shares.mean()))
                same.append(one.same_winner)
            row += [f"{np.mean(shares):.3f}", f"{np.mean(same):.2f}"]
        rows.append(row)
    print("\n" + table(rows), flush=True)


def items_needed(d: np.ndarray, p: np.ndarray | None) -> int:
    """How many items until d, whose mean is positive, has a capital of 1/delta. With a proxy p of d, known of all
    items, c (p - mean of the p that are left) is taken from d: that has mean 0, whatever c, chosen before the item.
    What is left of d lies within 1 + 2c of 0 and is scaled by that."""
    n, capital = len(d), np.full(BETS, 1 / BETS)
    bets, left_p = first_bets(n, np.log(1 / DELTA)), 0.0 if p is None else p.sum()
    sums = products = squares = total = 0.0
    for j in range(n):
        m, left = -sums / (n - j), n - j
        if m <= -1:
            return j
        c, centre = 0.0, 0.0
        if p is not None:
            c, centre = (max(0.0, min(1.0, products / squares)) if squares else 0.0), left_p / left
        scale = 1 + 2 * c
        low = m / scale
        x = np.minimum(bets * (n / left * (1 + low)), np.maximum(bets, 0.9))
        proxy = 0.0 if p is None else p[j] - centre
        capital *= (1 - x) + x * (1 + (d[j] - c * proxy) / scale) / (1 + low)
        if capital.sum() >= 1 / DELTA:
            return j + 1
        total += d[j]
        products, squares = products + proxy * (d[j] - total / (j + 1)), squares + proxy**2
        sums, left_p = sums + d[j], left_p - (0.0 if p is None else p[j])
    return n


def cheap_judge(repeats: int) -> None:
    rows = [["cheap judge, correlation", "items over those without it"]]
    for correlation in (0.3, 0.6, 0.9):
        with_it = without = 0
        for seed in range(repeats):
            rng = np.random.default_rng([80, seed])
            right = np.array(list(made_table(1000, seed, np.array([1.0, 1.45])).values()))
            knows = rng.random(right.shape) < correlation  # else it draws an answer that is right as often
            judged = np.where(knows, right, rng.random(right.shape) < right.mean(axis=1, keepdims=True))
            d, order = right[1] - right[0], rng.permutation(1000)
            if d.mean() <= 0:
                continue
            without += items_needed(d[order], None)
            with_it += items_needed(d[order], (judged[1] - judged[0])[order])
        rows.append([f"{correlation:g}", f"{with_it / without:.2f}"])
    print("\n" + table(rows), flush=True)


def main(quick: bool, save: str | None) -> None:
    found = [*real_tables(1 if quick else 5), *made_tables(2 if quick else 16)]
    if save:
        np.savez(save, *[np.array(list(scores.values())) for _, scores in found])
    races(found, 20 if quick else 200)
    newcomers(3 if quick else 20)
    slacks(found, 10 if quick else 50)
    cheap_judge(10 if quick else 200)


if __name__ == "__main__":
    main("--quick" in sys.argv, sys.argv[sys.argv.index("--save") + 1] if "--save" in sys.argv else None)
