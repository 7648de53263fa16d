"""What a simulation found: one row per trajectory, or sums over all of them; and its summary."""

from __future__ import annotations

import io
import json
import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cabai import plots, views
from cabai.bound import bound
from cabai.core.goal import BEST, CHEAPEST, Cheapest
from cabai.instance import Instance
from cabai.simulation.sums import Sums, right_arms
from cabai.support.files import write_whole
from cabai.support.tables import table
from cabai.support.validation import InvalidInput, optional
from cabai.thresholds import Threshold

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

QUANTILES = (0.05, 0.5, 0.95, 0.99)
TWO_SIDED_95 = 1.959963984540054
CUT = "ended at a limit of pulls or cost, so the mean cost is too low"


@dataclass(frozen=True)
class Summary:
    """A simulation in a few numbers; print it to see them.

    Where `unfinished` is not 0, the mean cost counts what was paid up to the limit.

    >>> import cabai
    >>> instance = cabai.Instance("gaussian", means=[2, 0], costs=[1, 0.1])
    >>> summary = cabai.simulate(instance, "uniform", trajectories=20).summary()
    >>> summary.errors, summary.unfinished, summary.ratio > 1, summary.allowed, summary.to_dict()["policy"]
    (0, 0, True, 'delta 0.05', 'uniform')
    """

    policy: str
    threshold: str
    delta: float
    trajectories: int
    mean_cost: float
    std_cost: float
    se_cost: float  # the standard error of mean_cost
    cost_quantiles: dict[str, float]
    mean_pulls: list[float]
    pull_shares: list[float]  # mean pulls of each arm over mean pulls of all
    cost_shares: list[float]  # the same in cost
    errors: int  # wrong decisions; an unfinished trajectory is not an error
    error_interval: tuple[float, float]  # 95 % confidence interval of the share of wrong decisions (Wilson)
    unfinished: int
    lower_bound: float | None  # None: tied best arms, an epsilon, delta of 1/2 and more, or the bounded family
    ratio: float | None  # mean_cost / lower_bound
    seconds: float
    steps: int  # pulls simulated in all
    proven: bool  # whether the threshold is proven to keep errors below delta for this family
    standing: str  # if not, what is known about it
    epsilon: float = 0.0  # an arm that is at most this much worse than the best is a right answer
    goal: str = BEST  # best or cheapest; with cheapest, cheaper arms must be worse by more than epsilon - slack
    slack: float | None = None
    budget: float | None = None  # if there is one, delta is not: the run ends with its leader, without a guarantee

    @property
    def allowed(self) -> str:
        """The delta, and the epsilon if it is not 0, in words."""
        if self.budget is not None:
            return f"budget {self.budget:g}"
        looked_for = f", the cheapest arm with slack {self.slack:g}" if self.slack is not None else ""
        return f"delta {self.delta:g}" + (f", epsilon {self.epsilon:g}" if self.epsilon else "") + looked_for

    def to_dict(self) -> dict[str, Any]:
        """The summary as a dictionary that JSON can hold."""
        return asdict(self)

    def _shown(self) -> tuple[str, list[list[str]]]:
        low, high = self.error_interval
        share = f"{self.errors / self.trajectories:.2%}, 95 % interval {low:.2%} to {high:.2%}"
        rate = f"delta {self.delta:g}" if self.budget is None else share
        rows = [
            ["mean cost", f"{self.mean_cost:.6g} ± {self.se_cost:.2g} (standard error)"],
            ["lower bound", "-" if self.lower_bound is None else f"{self.lower_bound:.6g}"],
            ["ratio", "-" if self.ratio is None else f"{self.ratio:.4g}"],
            ["cost quantiles", ", ".join(f"{q}: {value:.4g}" for q, value in self.cost_quantiles.items())],
            ["mean pulls", ", ".join(f"{pulls:.4g}" for pulls in self.mean_pulls)],
            ["errors", f"{self.errors} of {self.trajectories} ({rate})"],
            ["unfinished", f"{self.unfinished}{': ' + CUT if self.unfinished else ''}"],
        ]
        if self.budget is not None:
            rows = [row for row in rows if row[0] not in ("lower bound", "ratio")]
        threshold = "" if self.budget is not None else f", threshold {self.threshold}{in_brackets(self.standing)}"
        return f"{self.policy}{threshold}, {self.allowed}, {self.trajectories} trajectories", rows

    def __repr__(self) -> str:
        heading, rows = self._shown()
        return "\n".join([heading, table(rows, left=2)])

    def _repr_html_(self) -> str:
        return self._in_notebook([])

    def _in_notebook(self, charts: list[views.Chart]) -> str:
        heading, rows = self._shown()
        return views.table([["", ""], *rows], above=[heading], charts=charts)


def in_brackets(remark: str) -> str:
    return f" ({remark})" if remark else ""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What `simulate` found, and with which settings."""

    instance: Instance
    policy: str
    threshold: Threshold
    delta: float
    seed: int
    seconds: float
    epsilon: float = 0.0  # a decision for an arm that is at most this much worse than the best is right
    own_stop: bool = False  # whether it stops by its own rule instead of the threshold
    goal: Cheapest | None = None  # its goal: the best arm, or the cheapest that is good enough
    budget: float | None = None  # what may be spent, if that ends a trajectory with a decision

    def _counted(self) -> tuple[list[float], NDArray[np.float64], dict[str, Any]]:
        """The quantiles of the cost, the mean pulls of each arm, and what a summary takes as it is."""
        raise NotImplementedError

    def summary(self) -> Summary:
        """What the trajectories cost, how often they were wrong, and what the lower bound is."""
        quantiles, pulls, counted = self._counted()
        family, paid, floor = self.instance.family, pulls * self.instance.costs, None
        is_promised = self.budget is None and not self.own_stop
        if self.delta < 0.5 and len(self.instance.best_arms) == 1 and self.goal is None and self.budget is None:
            with suppress(InvalidInput):  # there is none for this family, or with this epsilon
                floor = bound(self.instance, self.epsilon).cost(self.delta)
        standing = self.threshold.standing(family)
        if not is_promised:
            standing = "its stopping rule is not proven" if self.budget is None else "a budget promises no delta"
        return Summary(
            policy=self.policy,
            threshold=str(self.threshold),
            delta=self.delta,
            **counted,
            se_cost=counted["std_cost"] / math.sqrt(counted["trajectories"]),
            cost_quantiles={str(q): value for q, value in zip(QUANTILES, quantiles, strict=True)},
            mean_pulls=pulls.tolist(),
            pull_shares=(pulls / pulls.sum()).tolist(),
            cost_shares=(paid / paid.sum()).tolist(),
            error_interval=wilson(counted["errors"], counted["trajectories"]),
            lower_bound=floor,
            ratio=None if floor is None else counted["mean_cost"] / floor,
            seconds=self.seconds,
            proven=self.threshold.is_proven_for(family) and is_promised,
            standing=standing,
            epsilon=self.epsilon,
            goal=BEST if self.goal is None else CHEAPEST,
            slack=None if self.goal is None else self.goal.slack,
            budget=self.budget,
        )

    def __repr__(self) -> str:
        return repr(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


@dataclass(frozen=True, repr=False, kw_only=True)
class Runs(Simulated):
    """The trajectories of one policy on one instance, one entry each; print it to see the summary.

    Arm numbers count from 0. `decisions` is the arm returned, or -1 where a limit was hit first: such a trajectory is
    unfinished, never an answer. `path[i, j]` is the pulls of each arm after grid[j] pulls of trajectory i, or -1 where
    it had stopped before or not every arm had been pulled yet.

    >>> import cabai, os, tempfile
    >>> instance = cabai.Instance("gaussian", means=[2, 0], costs=[1, 0.1])
    >>> runs = cabai.simulate(instance, "uniform", trajectories=20)
    >>> len(runs), runs.pulls.shape, set(runs.decisions.tolist())
    (20, (20, 2), {0})
    >>> int(runs.finished.sum()), int(runs.wrong.sum()), runs.summary().trajectories, runs.to_frame().shape
    (20, 0, 20, (20, 8))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs.to_parquet(f"{folder}/runs.parquet")
    ...     os.listdir(folder)
    ['runs.parquet']
    >>> runs.plot()
    <Figure size ...>
    """

    decisions: NDArray[np.int64]
    costs: NDArray[np.float64]
    steps: NDArray[np.int64]
    pulls: NDArray[np.int64]
    grid: NDArray[np.int64]
    path: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.decisions)

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which trajectories ended with a decision."""
        return self.decisions >= 0

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Which trajectories decided for an arm that is neither the best nor within epsilon of it."""
        return self.finished & ~np.isin(self.decisions, right_arms(self.instance, self.epsilon, self.goal))

    def _counted(self) -> tuple[list[float], NDArray[np.float64], dict[str, Any]]:
        return np.quantile(self.costs, QUANTILES).tolist(), self.pulls.mean(axis=0), {
            "trajectories": len(self), "mean_cost": float(self.costs.mean()),
            "std_cost": float(self.costs.std(ddof=1)) if len(self) > 1 else 0.0, "errors": int(self.wrong.sum()),
            "unfinished": int((~self.finished).sum()), "steps": int(self.steps.sum()),
        }  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """A DataFrame with one row per trajectory: decision, cost, steps, pulls of each arm (extra `frames`).

        `decision` is missing where the trajectory is unfinished; `correct` says whether it is right.
        """
        pd = optional("pandas")
        names = pd.Categorical.from_codes(self.decisions.tolist(), list(self.instance.names))
        columns: dict[str, Any] = {
            "trajectory": np.arange(len(self)),
            "decision": names,
            "finished": self.finished,
            "correct": self.finished & ~self.wrong,
            "cost": self.costs,
            "steps": self.steps,
        }
        columns |= {f"pulls_{name}": self.pulls[:, a] for a, name in enumerate(self.instance.names)}
        return pd.DataFrame(columns)

    def to_parquet(self, path: str | Path) -> None:
        """Write `to_frame` to a Parquet file, with the settings in its metadata under the key `cabai` (extra
        `frames`)."""
        pa, pq = optional("pyarrow"), optional("pyarrow.parquet")
        made_by = {
            "instance": repr(self.instance),
            "policy": self.policy,
            "threshold": str(self.threshold),
            "delta": self.delta,
            "epsilon": self.epsilon,
            **({} if self.goal is None else {"goal": CHEAPEST, "slack": self.goal.slack}),
            **({} if self.budget is None else {"budget": self.budget}),
            "seed": self.seed,
        }
        rows = pa.Table.from_pandas(self.to_frame(), preserve_index=False)
        rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), b"cabai": json.dumps(made_by).encode()})
        buffer = io.BytesIO()
        pq.write_table(rows, buffer)
        write_whole(path, buffer.getvalue())

    def plot(self) -> Figure:
        """A figure of what the trajectories cost, and how they share their pulls among the arms (extra `plots`)."""
        optional("matplotlib")
        return plots.runs_figure(self)

    def _repr_html_(self) -> str:
        costs, n = np.sort(self.costs), len(self)
        places = np.unique(np.linspace(0, n - 1, min(n, 200)).astype(int))
        track = [(float(costs[i]), (int(i) + 1) / n) for i in places]
        drawn = views.chart(
            "Trajectories that have ended", f"half of them at a cost of {np.median(costs):.4g}",
            {("share of trajectories", "main"): [(float(costs[0]), 0.0), *track]}, "cost", "{:.4g}".format,
            "{:.0%}".format,
        )  # fmt: skip
        return self.summary()._in_notebook([] if drawn is None else [drawn])


@dataclass(frozen=True, repr=False, kw_only=True)
class Totals(Simulated):
    """What `simulate(..., keep="summary")` keeps of any number of trajectories: enough for their summary.

    Means, standard deviations and counts are exact; a quantile of the cost is within 0.05 % of the exact one.

    >>> import cabai
    >>> instance = cabai.Instance("gaussian", means=[2, 0], costs=[1, 0.1])
    >>> totals = cabai.simulate(instance, "uniform", trajectories=20, keep="summary")
    >>> len(totals), totals.summary().trajectories
    (20, 20)
    """

    sums: Sums

    def __len__(self) -> int:
        return self.sums.trajectories

    def _counted(self) -> tuple[list[float], NDArray[np.float64], dict[str, Any]]:
        sums = self.sums
        pulls = np.array([pulls / sums.trajectories for pulls in sums.pulls])
        return [sums.quantile(q) for q in QUANTILES], pulls, {
            "trajectories": sums.trajectories, "mean_cost": sums.mean, "std_cost": sums.std, "errors": sums.errors,
            "unfinished": sums.unfinished, "steps": sums.steps,
        }  # fmt: skip


Found = TypeVar("Found", bound=Runs | Totals)


@dataclass(frozen=True)
class Comparison(Generic[Found]):
    """Several policies on one instance, all facing the same rewards and costs; print it to see a table.

    `runs` has what `simulate` returned for each policy: trajectories or, with keep="summary", totals.

    >>> import cabai
    >>> instance = cabai.Instance("gaussian", means=[2, 0], costs=[1, 0.1])
    >>> found = cabai.compare(instance, ["co", "uniform"], trajectories=20)
    >>> [runs.policy for runs in found.runs], found.summaries[0].errors, found.to_dicts()[1]["policy"]
    (['co', 'uniform'], 0, 'uniform')
    >>> found.to_frame().index.tolist(), found.plot()
    (['co', 'uniform'], <Figure size ...>)
    """

    instance: Instance
    runs: list[Found]

    @property
    def summaries(self) -> list[Summary]:
        """The summary of each policy."""
        return [runs.summary() for runs in self.runs]

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per policy: its summary, and 95 % intervals of the mean cost and of its ratio to the bound."""
        rows = []
        for summary in self.summaries:
            half = TWO_SIDED_95 * summary.se_cost
            low, high = summary.mean_cost - half, summary.mean_cost + half
            floor = summary.lower_bound
            ratio = None if floor is None else (low / floor, high / floor)
            rows.append({**summary.to_dict(), "cost_interval": (low, high), "ratio_interval": ratio})
        return rows

    def to_frame(self) -> pd.DataFrame:
        """One row per policy (extra `frames`)."""
        return optional("pandas").DataFrame(self.to_dicts()).set_index("policy")

    def plot(self) -> Figure:
        """A figure of what each policy pays or, with a budget, of its share of errors (extra `plots`).

        Boxes hold the middle half of the trajectories, whiskers 5 % to 95 %; dots are means.
        """
        return Comparisons({"": self}).plot()

    def _shown(self) -> tuple[str, list[list[str]], list[str]]:
        header = ["policy", "mean cost", "±", "ratio", "median", "99 %", "mean pulls", "errors", "unfinished"]
        rows = [
            [
                row["policy"],
                f"{row['mean_cost']:.6g}",
                f"{row['se_cost']:.2g}",
                "-" if row["ratio"] is None else f"{row['ratio']:.3f}",
                f"{row['cost_quantiles']['0.5']:.5g}",
                f"{row['cost_quantiles']['0.99']:.5g}",
                f"{sum(row['mean_pulls']):.5g}",
                f"{row['errors']}/{row['trajectories']}",
                str(row["unfinished"]),
            ]
            for row in self.to_dicts()
        ]
        first = self.summaries[0]
        floor = "no lower bound" if first.lower_bound is None else f"lower bound {first.lower_bound:.6g}"
        standing = self.runs[0].threshold.standing(self.instance.family)
        threshold = f"threshold {first.threshold}{in_brackets(standing)}"
        if first.budget is not None:
            threshold, floor = "no threshold", "nothing is promised"
        heading = f"{first.allowed}, {threshold}, {first.trajectories} trajectories, {floor}, ± is a standard error"
        remarks = [f"{each.policy}: {each.unfinished} {CUT}." for each in self.summaries if each.unfinished]
        remarks += [
            f"{runs.policy} stops by its own rule, not by the threshold: nothing is proven about it, and the lower "
            "bound need not hold."
            for runs in self.runs
            if runs.own_stop
        ]
        return heading, [header, *rows], remarks

    def __repr__(self) -> str:
        heading, rows, remarks = self._shown()
        return "\n".join([heading, table(rows), *remarks])

    def _repr_html_(self) -> str:
        heading, rows, remarks = self._shown()
        means = [summary.mean_cost for summary in self.summaries]
        bars = ["mean cost", *(mean / max(means) for mean in means)]
        return views.table(rows, above=[heading], below=remarks, bars=bars)


@dataclass(frozen=True)
class Comparisons(Generic[Found]):
    """Several policies on several instances: the `Comparison` of each, by name; print it to see their tables.

    >>> import cabai
    >>> easy, hard = (cabai.Instance("gaussian", means=[gap, 0], costs=[1, 0.1]) for gap in (2, 1))
    >>> found = cabai.compare({"easy": easy, "hard": hard}, ["co", "uniform"], trajectories=20)
    >>> list(found.parts), [runs.policy for runs in found.parts["hard"].runs]
    (['easy', 'hard'], ['co', 'uniform'])
    >>> [(row["instance"], row["policy"]) for row in found.to_dicts()][:2], found.to_frame().shape[0]
    ([('easy', 'co'), ('easy', 'uniform')], 4)
    >>> found.plot()
    <Figure size 700x280 with 2 Axes>
    """

    parts: dict[str, Comparison[Found]]

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per instance and policy: that of `Comparison.to_dicts`, and the name of the instance."""
        return [{"instance": name, **row} for name, part in self.parts.items() for row in part.to_dicts()]

    def to_frame(self) -> pd.DataFrame:
        """One row per instance and policy (extra `frames`)."""
        return optional("pandas").DataFrame(self.to_dicts()).set_index(["instance", "policy"])

    def plot(self) -> Figure:
        """A figure with a panel per instance: what each policy pays or, with a budget, its errors (extra `plots`)."""
        optional("matplotlib")
        if not all(isinstance(runs, Runs) for part in self.parts.values() for runs in part.runs):
            raise InvalidInput('a picture needs the trajectories: compare without keep="summary".')
        return plots.comparison_figure(self.parts)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return "\n\n".join(f"{name}: {part.instance}\n{part}" for name, part in self.parts.items())

    def _repr_html_(self) -> str:
        return "".join(f"<h4>{escape(name)}</h4>{part._repr_html_()}" for name, part in self.parts.items())


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % confidence interval for a share."""
    z2 = TWO_SIDED_95**2
    centre, spread = hits + z2 / 2, TWO_SIDED_95 * math.sqrt(hits * (n - hits) / n + z2 / 4)
    return max(0.0, (centre - spread) / (n + z2)), min(1.0, (centre + spread) / (n + z2))
