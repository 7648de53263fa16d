"""How well progress and what is left to pay hold: over kinds of studies, against what they paid in the end.

    python benchmarks/bench_progress.py [--runs 40] [--seed 0] [--only KIND] [--others]

Each study is run to its end and looked at as it goes, at every 2 % of its results from the first where all arms are
pulled. At each look, p is its progress and x the true share of the final bill. Of each kind:

    error       mean of |p - x|, looks weighted by the bill that they stand for
    half        p at half of the bill: its mean, and the share of runs in 0.3 to 0.75
    low         the share of runs with p < 5 % after a fifth of the bill
    fall        the largest fall of p in a run, on average
    below/above of what was still paid: the share of looks at which it was below and above the range

The second line of a kind has standard errors over its runs. With --others, differences between the means of each kind
are other ones in each run: up to 1.6 times as large or as small. A limit that is missed is marked with an asterisk.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import random
import statistics
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import cabai

Test = Callable[..., float]
NUMBERS = itertools.count()


def bernoulli(means: dict[str, float], chance: random.Random) -> Test:
    return lambda arm, item=None: float(chance.random() < means[arm])


def gaussian(means: dict[str, float], chance: random.Random, sd: float = 1.0) -> Test:
    return lambda arm, item=None: chance.gauss(means[arm], sd)


def bounded(means: dict[str, float], chance: random.Random, sd: float = 0.15) -> Test:
    return lambda arm, item=None: min(max(chance.gauss(means[arm], sd), 0.0), 1.0)


def named(*values: float) -> dict[str, float]:
    return {f"arm {i}": value for i, value in enumerate(values)}


def random_means(chance: random.Random, spread: float, centre: float = 0.5) -> dict[str, float]:
    return named(*(min(max(chance.gauss(centre, spread), 0.02), 0.98) for _ in range(chance.randint(2, 5))))


def race_of(means: dict[str, float], items: int, chance: random.Random) -> Test:
    hard = [chance.random() for _ in range(items)]
    table = {
        arm: [float(chance.random() < min(max(mean + 0.6 * (0.5 - h), 0.02), 0.98)) for h in hard]
        for arm, mean in means.items()
    }
    return lambda arm, item: table[arm][item]


def with_other_gaps(means: dict[str, float], settings: dict[str, Any], chance: random.Random) -> dict[str, float]:
    """The best mean is the same, and how far the others are from it is not."""
    best = (min if settings.get("direction") == "minimize" else max)(means.values())
    found = {arm: best + (mean - best) * math.exp(chance.uniform(-0.5, 0.5)) for arm, mean in means.items()}
    if "gaussian" in str(settings.get("family")):
        return found
    return {arm: min(max(mean, 0.02), 0.98) for arm, mean in found.items()}


def kinds(chance: random.Random, *, others: bool = False) -> dict[str, tuple[dict[str, float], Test, dict[str, Any]]]:
    """Means, the test and the settings of each kind, drawn again for each run."""
    one = {"family": "gaussian(variance=1)"}
    wide, some, near = random_means(chance, 0.2), random_means(chance, 0.15), random_means(chance, 0.1)
    apart = [0.0, 0.0]
    while (best := sorted(apart, reverse=True))[0] - best[1] < 0.1:  # closer ones take minutes
        apart = [chance.gauss(0, 0.5) for _ in range(chance.randint(2, 5))]
    found = {
        "bernoulli": (named(0.9, 0.8, 0.6), bernoulli, {"costs": [3, 1, 0.2]}),
        "gaussian, costs 1/.1/.01": (named(1.5, 1.0, 0.5), gaussian, one | {"costs": [1, 0.1, 0.01]}),
        "bounded": (named(0.7, 0.6, 0.5), bounded, {"family": "bounded"}),
        "bounded, epsilon": (named(0.7, 0.68, 0.5), bounded, {"family": "bounded", "epsilon": 0.02}),
        "ten arms": (named(0.8, *(0.6 - 0.03 * i for i in range(9))), bernoulli, {}),
        "tie, epsilon": (named(0.6, 0.6), bernoulli, {"epsilon": 0.08}),
        "gaussian .2/0": (named(0.2, 0.0), gaussian, one),
        "unknown variance": (named(1.0, 0.7, 0.2), gaussian, {"family": "gaussian", "costs": [3, 1, 1]}),
        "unknown variance, epsilon": (named(0.5, 0.4), gaussian, {"family": "gaussian", "epsilon": 0.2}),
        "easy": (named(0.95, 0.3), bernoulli, {}),
        "minimize, epsilon": (named(0.3, 0.4, 0.5), bernoulli, {"direction": "minimize", "epsilon": 0.03}),
        "cheapest": (named(0.5, 0.8, 0.82), bernoulli, {"goal": "cheapest", "epsilon": 0.1, "costs": [1, 2, 3]}),
        "16 workers": (named(0.8, 0.65, 0.5), bernoulli, {"workers": 16}),
        "random gaussian": (named(*apart), gaussian, one),
        "random bernoulli, epsilon": (wide, bernoulli, {"epsilon": 0.05}),
        "random bounded, epsilon": (some, bounded, {"family": "bounded", "epsilon": 0.02}),
        "champion": (named(0.75, 0.65, 0.5), None, {"items": 1000}),
        "paired, epsilon": (named(0.7, 0.69, 0.5), None, {"items": 1000, "epsilon": 0.02}),
        "random race": (near, None, {"items": 500}),
        "race, cheapest": (named(0.5, 0.7, 0.72), None, {"items": 500, "goal": "cheapest", "epsilon": 0.08}),
        "race, 16 workers": (named(0.75, 0.65, 0.5), None, {"items": 1000, "workers": 16}),
    }
    if others:
        found = {name: (with_other_gaps(each[0], each[2], chance), *each[1:]) for name, each in found.items()}
    return {
        name: (means, race_of(means, settings["items"], chance) if test is None else test(means, chance), settings)
        for name, (means, test, settings) in found.items()
    }


def looks(means: dict[str, float], test: Test, settings: dict[str, Any], seed: int) -> Iterator[Any]:
    """The status of a study as it goes. With workers, results come back in another order than they were asked for."""
    about = {"family": None if "items" in settings else "bernoulli", "costs": [1.0] * len(means)} | settings
    workers, chance = about.pop("workers", 1), random.Random(seed)
    study = cabai.create_study(f"study {next(NUMBERS)}", arms=list(means), seed=seed, storage="memory", **about)
    under_way, clock, told, due = list[Any](), 0.0, 0, 0.0
    while not study.stopped:
        while len(under_way) < workers:
            try:
                pull = study.ask()
            except (cabai.errors.NoPull, cabai.errors.StudyStopped):
                break
            heapq.heappush(under_way, (clock + chance.expovariate(1.0), pull.number, pull))
        clock, _, pull = heapq.heappop(under_way)
        study.tell(pull, test(pull.arm) if pull.item is None else test(pull.arm, pull.item))
        told += 1
        if told >= due:
            due = max(told * 1.02, told + 1)
            yield look(study._current.writer.state)  # what `look` of a study shows, without a second fold of its log
    yield look(study._current.writer.state)


def look(state: Any) -> tuple[float, Any, float | None]:
    """The bill, what is left, and progress; None at the end."""
    left = state.remaining() if state.ended is None else None
    return state.bill, left, None if left is None else state.progress(left)


def measured(found: list[Any]) -> dict[str, float] | None:
    """What one run says of progress."""
    total = found[-1][0]
    seen = [(spent, left) for spent, left, _ in found if left is not None]
    if len(seen) < 8:
        return None
    shares = [spent / total for spent, _ in seen]
    weights = [after - before for before, after in zip(shares, [*shares[1:], 1.0], strict=True)]
    progress = [p for _, _, p in found if p is not None]
    error = sum(w * abs(p - x) for w, p, x in zip(weights, progress, shares, strict=True)) / sum(weights)
    half = min(range(len(shares)), key=lambda i: abs(shares[i] - 0.5))
    falls = [max(progress[: i + 1]) - p for i, p in enumerate(progress)]
    rest = [(w, total - spent, left) for w, (spent, left) in zip(weights, seen, strict=True)]
    return {
        "error": error, "half": progress[half], "inside": float(0.3 <= progress[half] <= 0.75),
        "low": float(any(p < 0.05 and x > 0.2 for p, x in zip(progress, shares, strict=True))), "fall": max(falls),
        "below": sum(w for w, paid, left in rest if paid < left.low) / sum(weights),
        "above": sum(w for w, paid, left in rest if paid > left.high) / sum(weights),
    }  # fmt: skip


LIMITS = {"error": (0, 0.15), "inside": (0.8, 1), "low": (0, 0.02), "fall": (0, 0.3), "below": (0.04, 0.16),
          "above": (0.04, 0.16)}  # fmt: skip


def main() -> None:
    warnings.simplefilter("ignore")
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--runs", type=int, default=40)
    read.add_argument("--seed", type=int, default=0)
    read.add_argument("--only", default="")
    read.add_argument("--others", action="store_true")
    given = read.parse_args()
    names = [name for name in kinds(random.Random(0)) if given.only in name]
    print(
        f"{'kind':27}" + "".join(f"{name:>9}" for name in ("error", "half", "inside", "low", "fall", "below", "above"))
    )
    everything = []
    for name in names:
        runs = []
        for seed in range(given.seed, given.seed + given.runs):
            means, test, settings = kinds(random.Random(f"{name} {seed}"), others=given.others)[name]
            found = measured(list(looks(means, test, settings, seed)))
            runs += [] if found is None else [found]
        if runs:
            everything.append({key: statistics.fmean(run[key] for run in runs) for key in runs[0]})
            print(line(name, everything[-1]), flush=True)
            spread = {key: statistics.pstdev(run[key] for run in runs) / math.sqrt(len(runs)) for key in runs[0]}
            print(f"{f'  of {len(runs)} runs':27}" + "".join(f"{each:>8.2f} " for each in spread.values()), flush=True)
    print(line("mean", {key: sum(each[key] for each in everything) / len(everything) for key in everything[0]}))


def line(name: str, found: dict[str, float]) -> str:
    def cell(key: str, value: float) -> str:
        low, high = LIMITS.get(key, (0, 1))
        return f"{value:>8.2f}{' ' if low <= value <= high else '*'}"

    return f"{name:27}" + "".join(cell(key, value) for key, value in found.items())


if __name__ == "__main__":
    main()
