"""What races on shared items cost, and how long they take.

    python benchmarks/bench_datasets.py [--quick]

1. Tables of right and wrong answers in which items differ in difficulty: the scores of two arms have the correlation 0,
   0.3 or 0.6 (for arms that are right half of the time). Shares of the full evaluation's cost, which is 1, at delta
   0.05: paired and champion races for the best arm, paired ones with epsilon 0.01 and 0.02. `sample` is how often as
   many items as the cheaper of both races pays for, taken at random for all arms, have another arm in front than all
   items. `study` is the bill of a bernoulli study with cabai's defaults, which draws items independently (> if one did
   not end). `errors` counts races that chose another arm than the best, or one not within epsilon. Prices differ by the
   factor `spread`.
2. Time per pull with 100 arms on 10,000 items: live, and compiled.
3. 200 races of 20 arms on 1000 items against the plain version that the tests compare with.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from pathlib import Path

import numpy as np

from cabai import Instance, simulate
from cabai.datasets.dataset import ScoreTable, permutation
from cabai.datasets.race import Race
from cabai.datasets.replaying import Replay, replay
from cabai.support.tables import table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from plain_race import PlainRace

DELTA = 0.05
RACES = [("paired", 0.0), ("champion", 0.0), ("paired", 0.01), ("paired", 0.02)]


def some_scores(arms: int, items: int, correlation: float, seed: int) -> np.ndarray:
    """Right (1) and wrong (0) answers; one arm is the best."""
    rng = np.random.default_rng([seed, arms, items, round(10 * correlation)])
    common = math.sin(math.pi / 2 * correlation)  # of the normal numbers whose signs have that correlation
    while True:
        ability = rng.normal(0.4, 0.4, arms)[:, None]
        noise = math.sqrt(common) * rng.normal(size=items) + math.sqrt(1 - common) * rng.normal(size=(arms, items))
        scores: np.ndarray = (ability + noise > 0).astype(float)
        sums = np.sort(scores.sum(axis=1))
        if sums[-1] > sums[-2]:
            return scores


def named(scores: np.ndarray, prices: np.ndarray) -> ScoreTable:
    arms, items = scores.shape
    costs = np.repeat(prices[:, None], items, axis=1)
    return ScoreTable(tuple(map(str, range(arms))), tuple(map(str, range(items))), scores, costs)


def sample_errors(scores: np.ndarray, share: float, repeats: int) -> float:
    """How often the best arm on a sample of this size is not the best; a tie counts as the share of it that is
    wrong."""
    items, wrong = scores.shape[1], 0.0
    best = scores.sum(axis=1).argmax()
    for r in range(repeats):
        sums = scores[:, permutation(items, 99, r)[: max(1, round(share * items))]].sum(axis=1)
        first = sums == sums.max()
        wrong += 1 - first[best] / first.sum()
    return wrong / repeats


def study_bill(scores: np.ndarray, prices: np.ndarray, trajectories: int, limit: float) -> tuple[float, bool]:
    """Of the full cost, and whether all trajectories ended within `limit` of it."""
    full = prices.sum() * scores.shape[1]
    instance = Instance("bernoulli", scores.mean(axis=1).clip(0.001, 0.999).tolist(), prices.tolist())
    runs = simulate(instance, delta=DELTA, trajectories=trajectories, max_cost=limit * full)
    return float(runs.costs.mean() / full), bool(runs.summary().unfinished == 0)


def compare_costs(quick: bool) -> None:
    sizes = itertools.product((5, 20) if quick else (5, 20, 100), (100, 1000) if quick else (100, 1000, 10_000))
    header = ["K", "n", "corr", "spread", "paired", "champion", "eps .01", "eps .02"]
    rows = [[*header, "errors", "sample", "study"]]
    paid: dict[str, list[float]] = {"paired": [], "champion": [], "study": []}
    by_arms: dict[int, list[float]] = {}
    races, wrong = 0, dict.fromkeys(RACES, 0)
    for arms, items in sizes:
        cells = arms * items
        tables, repeats = (1, 20) if quick else (10, 20) if cells <= 20_000 else (4, 5) if cells < 10**6 else (2, 2)
        for correlation, spread in itertools.product((0.3,) if quick else (0.0, 0.3, 0.6), (1, 100)):
            shares: dict[str, list[float]] = {}
            errors, ended = 0, True
            for seed in range(tables):
                scores = some_scores(arms, items, correlation, seed)
                prices = np.random.default_rng(seed).permutation(np.geomspace(1 / spread, 1, arms))
                for race, epsilon in RACES:
                    found = replay(named(scores, prices), delta=DELTA, epsilon=epsilon, race=race, repeats=repeats)
                    key = race if epsilon == 0 else f"eps {epsilon}"
                    shares.setdefault(key, []).append(float(found.shares.mean()))
                    failed = round((1 - found.within_epsilon) * repeats)
                    wrong[race, epsilon] += failed
                    errors += failed
                races += repeats
                least = min(shares["paired"][-1], shares["champion"][-1])
                shares.setdefault("sample", []).append(sample_errors(scores, least, 40 if cells > 10**5 else 200))
                bill, all_ended = study_bill(scores, prices, 2, 2 if cells >= 10**5 else 20)
                shares.setdefault("study", []).append(bill)
                ended = ended and all_ended
            for race in paid:
                paid[race] += shares[race]
            by_arms.setdefault(arms, []).append(float(np.mean(shares["champion"]) / np.mean(shares["paired"])))
            cost = {key: f"{np.mean(values):.3f}" for key, values in shares.items()}
            start = [str(arms), str(items), f"{correlation:g}", str(spread)]
            middle = [cost[key] for key in ("paired", "champion", "eps 0.01", "eps 0.02")]
            middle += [str(errors), cost["sample"]]
            rows.append([*start, *middle, f"{'' if ended else '> '}{np.mean(shares['study']):.2f}"])
            print(f"{arms} arms, {items} items, correlation {correlation}, spread {spread}", file=sys.stderr)
    print(table(rows, left=0))
    for race, epsilon in RACES:
        print(f"{race} epsilon {epsilon:g}: {wrong[race, epsilon]} of {races} races wrong")
    study = np.array(paid["study"])
    more, most = np.mean(study > paid["champion"]), np.mean(study > 1)
    print(
        f"a study pays more than a champion race on {more:.0%} of tables, and more than a full evaluation on {most:.0%}"
    )
    both = np.array([paid["paired"], paid["champion"]])
    low, ratio = both.mean(axis=1), both[1] / both[0]
    print(f"paired pays {low[0]:.3f}, champion {low[1]:.3f}; champion pays less on {np.mean(ratio < 1):.0%} of tables,")
    print(
        f"{np.quantile(ratio, 0.05):.2f} to {np.quantile(ratio, 0.95):.2f} times as much on nine of ten of them; by K:"
    )
    print("  " + ", ".join(f"{arms} arms {np.mean(values):.3f}" for arms, values in by_arms.items()))


def time_per_pull(quick: bool) -> None:
    arms, items, pulls = 100, 10_000, 500 if quick else 3000
    scores = some_scores(arms, items, 0.3, 0)
    costs = [1.0] * arms
    rows = [["100 arms, 10,000 items", "µs per pull live", "compiled"]]
    for name, epsilon in RACES[:3]:
        race = Race(arms, items, delta=DELTA, epsilon=epsilon, race=name)
        nothing: list[list[int]] = [[] for _ in range(arms)]
        begun = time.process_time()
        for _ in range(pulls):
            race.winner(costs)
            pull = race.next(costs, nothing)
            assert pull is not None
            race.tell(*pull, scores[pull])
        live = (time.process_time() - begun) / pulls
        one = named(scores, np.ones(arms))
        begun = time.process_time()
        found = replay(one, delta=DELTA, epsilon=epsilon, race=name, repeats=2, workers=1)
        compiled = (time.process_time() - begun) / found.pulls.sum()
        rows.append([f"{name} epsilon {epsilon:g}", f"{1e6 * live:.0f}", f"{1e6 * compiled:.2f}"])
    print("\n" + table(rows))


def against_plain(quick: bool) -> None:
    arms, items = 20, 1000
    one = named(some_scores(arms, items, 0.3, 0), np.ones(arms))
    rows = [["200 races, 20 arms, 1000 items, one core", "seconds", "plain, 1 race", "ratio"]]
    for name in ("paired", "champion"):
        replay(one, race=name, repeats=1)
        begun = time.process_time()
        found = replay(one, race=name, delta=DELTA, repeats=200, workers=1)
        seconds = time.process_time() - begun
        begun, repeats = time.process_time(), 1 if quick else 3
        for r in range(repeats):
            check_plain(one.scores[:, permutation(items, 0, r)], name, found, r)
        plain = (time.process_time() - begun) / repeats
        rows.append([name, f"{seconds:.2f}", f"{plain:.2f}", f"{200 * plain / seconds:.0f}"])
    print("\n" + table(rows))


def check_plain(scores: np.ndarray, name: str, found: Replay, r: int) -> None:
    """Run the plain version once, and check that the result is the same."""
    arms, items = scores.shape
    race = PlainRace(arms, items, delta=DELTA, race=name, number=float)
    costs, nothing = [1.0] * arms, [set[int]() for _ in range(arms)]
    while race.winner(costs) is None:
        arm, position = race.next(costs, nothing)
        race.tell(arm, position, scores[arm, position])
    assert race.prefix == found.pulls[r].tolist()
    assert race.winner(costs) == found.decisions[r]


def main(quick: bool) -> None:
    compare_costs(quick)
    time_per_pull(quick)
    against_plain(quick)


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
