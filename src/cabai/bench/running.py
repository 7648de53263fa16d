"""Run every policy on every case, keep what is done, and sum it up in one table."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cabai.bench import leaderboard
from cabai.bench.suites import SUITES, Case
from cabai.calibration.binomial import upper_limit
from cabai.policies import POLICIES, Policy, policy_of
from cabai.simulation import simulate
from cabai.simulation.engines import EngineLike, opened
from cabai.simulation.results import Runs
from cabai.support.files import write_whole
from cabai.support.validation import InvalidInput, optional, whole
from cabai.support.version import __version__

if TYPE_CHECKING:
    import pandas as pd

CONFIDENT = [name for name in POLICIES.names if not POLICIES.classes[name].spends_budget and name != "ocba"]
SPENDING = [
    "top-two", "eb-tci(coin=half)", "uniform", "successive-rejects", "sequential-halving",
    "sequential-halving(reuse=false)", "continuous-rejects", "ocba",
]  # fmt: skip
QUICK = {"kanarios24": 1, "cr23": 1}  # suites, and how many of their cases
LONGEST = 2_000_000  # pulls of a trajectory
MOST_WORK = 2 * 10**7  # pulls of a policy on a case, times arms
FEWEST = 10  # trajectories that are run however many pulls they take


@dataclass(frozen=True)
class Bench:
    """What a bench found: a row per case and policy; print it to see the leaderboard.

    >>> from cabai.bench import bench
    >>> found = bench(["menard19"], ["uniform"], trajectories=20)
    >>> found.rows[0]["suite"], found.rows[0]["policy"], found.rows[0]["trajectories"]
    ('menard19', 'uniform', 20)
    """

    rows: list[dict[str, Any]]
    command: str = ""

    def to_frame(self) -> pd.DataFrame:
        """One row per case and policy (extra `frames`)."""
        return optional("pandas").DataFrame(self.rows)

    def write(self, folder: str | Path) -> list[Path]:
        """Write bench.parquet, leaderboard.html and leaderboard.md to a folder; return their paths."""
        buffer = io.BytesIO()
        optional("pyarrow")
        self.to_frame().to_parquet(buffer, index=False)
        files = {
            "bench.parquet": buffer.getvalue(),
            "leaderboard.html": leaderboard.page(self.rows, self.command).encode(),
            "leaderboard.md": (repr(self) + "\n").encode(),
        }
        return [write_whole(Path(folder) / name, content) for name, content in files.items()]

    def __repr__(self) -> str:
        return leaderboard.markdown(self.rows, self.command)


def bench(
    suites: Sequence[str] = (),
    policies: Sequence[str | Policy] = (),
    *,
    delta: float | None = None,
    budget: float | None = None,
    threshold: str | None = None,
    trajectories: int = 1000,
    seed: int = 0,
    reference: str = "top-two",
    quick: bool = False,
    out: str | Path | None = None,
    workers: int | None = None,
    engine: EngineLike = None,
    address: str | None = None,
    command: str = "",
    progress: Callable[[int], None] | None = None,
) -> Bench:
    """Run policies on suites of instances; all suites and the policies that suit each case by default.

    Every policy of a case faces the same rewards, and the arms stand in another order in each trajectory, so that ties
    favour none. A policy that needs too many pulls gets fewer trajectories. `delta`, `budget` and `threshold` replace
    those of the cases. With `out`, what is done is kept there: a run that was stopped goes on, and ends with the same
    rows, but for `us_per_step`, which is measured. `progress` is called with the number of simulations done.
    """
    cases = chosen_cases(suites, seed, quick, delta, budget)
    work = [(case, policy) for case in cases for policy in chosen_policies(policies, case)]
    if not work:
        raise InvalidInput("no policy suits any of these suites: some policies need suites with a budget, or --budget.")
    count = 50 if quick and trajectories == 1000 else whole(trajectories, "trajectories", 2)
    found: dict[tuple[Case, str], tuple[dict[str, Any], Any]] = {}
    with opened(engine, workers=workers, address=address) as place:
        for done, (case, policy) in enumerate(work):
            rule = case.threshold if threshold is None else threshold
            kept = None if out is None else Path(out) / "parts" / f"{key_of(case, policy, rule, count, seed)}.npz"
            part = read_part(kept)
            if part is None:
                runs = simulated(case, policy, count, threshold=rule, seed=seed, shuffle=True, engine=place)
                part = row_of(case, runs), runs.wrong if case.budget is not None else runs.costs
                write_part(kept, *part)
            found[case, str(policy)] = part
            if progress is not None:
                progress(done + 1)
    return Bench([with_difference(found, *each, reference) for each in found], command)


def chosen_cases(
    suites: Sequence[str], seed: int, quick: bool, delta: float | None, budget: float | None
) -> list[Case]:
    unknown = [name for name in suites if name not in SUITES]
    if unknown:
        raise InvalidInput(f"unknown suite {unknown[0]!r}; known: {', '.join(SUITES)}.")
    cases = []
    for name in suites or (QUICK if quick else SUITES):
        cases += SUITES[name](whole(seed, "seed", 0))[: QUICK.get(name, 1) if quick else None]
    if budget is not None:
        return [case._replace(budget=budget, delta=None) for case in cases]
    return [case._replace(delta=delta) if delta is not None and case.budget is None else case for case in cases]


def chosen_policies(policies: Sequence[str | Policy], case: Case) -> list[Policy]:
    usual = SPENDING if case.budget is not None else CONFIDENT
    chosen = [policy_of(each) for each in policies or usual]
    return [each for each in chosen if case.budget is not None or not each.spends_budget]


def simulated(case: Case, policy: Policy, count: int, **options: Any) -> Runs:
    """All trajectories, or fewer if the first ones show that all would take more than MOST_WORK. That number depends on
    pulls, not on time: so it is the same everywhere."""
    ends = {"budget": case.budget} if case.budget is not None else {"delta": case.delta, "max_pulls": LONGEST}
    number = count
    if case.budget is None and count > FEWEST:
        first: Runs = simulate(case.instance, policy, trajectories=FEWEST, **ends, **options)
        number = min(count, MOST_WORK * FEWEST // (int(first.steps.sum()) * len(case.instance)))
        if number <= FEWEST:
            return first
    found: Runs = simulate(case.instance, policy, trajectories=number, **ends, **options)
    return found


def row_of(case: Case, runs: Runs) -> dict[str, Any]:
    summary, n = runs.summary(), len(runs)
    return {
        "version": __version__, "suite": case.suite, "instance": case.name, "family": str(case.instance.family),
        "arms": len(case.instance), "policy": summary.policy, "threshold": summary.threshold, "delta": case.delta,
        "budget": case.budget, "seed": runs.seed, "trajectories": n, "mean_cost": summary.mean_cost,
        "se_cost": summary.se_cost, "median_cost": summary.cost_quantiles["0.5"],
        "p99_cost": summary.cost_quantiles["0.99"], "errors": summary.errors,
        "error_low": 1 - upper_limit(n - summary.errors, n, 0.025) if summary.errors else 0.0,
        "error_high": upper_limit(summary.errors, n, 0.025), "unfinished": summary.unfinished,
        "lower_bound": summary.lower_bound, "ratio": summary.ratio,
        "us_per_step": 1e6 * summary.seconds / max(summary.steps, 1),
    }  # fmt: skip


def with_difference(found: dict[Any, Any], case: Case, policy: str, reference: str) -> dict[str, Any]:
    """A row, with the mean difference to the reference policy on the same rewards (of errors, with a budget)."""
    row, values = found[case, policy]
    mean = error = None
    if (case, reference) in found:
        both = min(len(values), len(found[case, reference][1]))
        apart = values[:both].astype(float) - found[case, reference][1][:both].astype(float)
        mean, error = float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart)))
    return {**row, "reference": reference, "difference": mean, "se_difference": error}


def key_of(case: Case, policy: Policy, threshold: str | None, trajectories: int, seed: int) -> str:
    """What a part depends on, in short."""
    settings = [__version__, case.suite, case.name, repr(case.instance), case.delta, case.budget, policy.key,
                str(policy), threshold, trajectories, seed]  # fmt: skip
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:20]


def write_part(path: Path | None, row: dict[str, Any], values: Any) -> None:
    if path is not None:
        buffer = io.BytesIO()
        np.savez(buffer, row=np.array(json.dumps(row)), values=values)
        write_whole(path, buffer.getvalue())


def read_part(path: Path | None) -> tuple[dict[str, Any], Any] | None:
    if path is None or not path.exists():
        return None
    with np.load(path, allow_pickle=False) as kept:
        return json.loads(str(kept["row"])), kept["values"]
