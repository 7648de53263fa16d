"""Read a table of scores from files or Python values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.datasets.dataset import ScoreTable
from cabai.datasets.inspect_logs import is_zip, read_inspect
from cabai.datasets.lm_eval_logs import read_lm_eval
from cabai.datasets.sheets import Values, out_of_range, values_of
from cabai.support.validation import InvalidInput, number, shown

INSPECT, LM_EVAL = "Inspect", "lm-evaluation-harness"
OPTIONS = {"scorer": INSPECT, "epochs": INSPECT, "arm": INSPECT, "metric": LM_EVAL}


def read_table(
    source: Any, *, costs: Any = None, low: float = 0.0, high: float = 1.0, scorer: str | None = None,
    epochs: str | None = None, arm: str | None = None, metric: str | None = None,
) -> ScoreTable:  # fmt: skip
    """Read the scores of arms on items from a file, a DataFrame, logs or a mapping; NaN where a score is missing.

    `source` is one of these:

    - a path to a CSV or Parquet file, or a pandas DataFrame, long (columns arm, item, score and perhaps cost) or wide
      (a row per item, a column per arm, and perhaps a column item);
    - paths to logs of Inspect or of lm-evaluation-harness, or to a folder of them: `scorer`, `epochs` and `arm` are for
      `read_inspect`, `metric` is for `read_lm_eval`;
    - a mapping of each arm to its scores, a list or a mapping of items to scores;
    - a `ScoreTable`.

    `costs` are what evaluations cost: a mapping of each arm to its cost, or a table of costs like that of the scores,
    or with columns arm and cost. Without them, the costs that come with the scores; without those, all cost the same.

    >>> table = read_table({"small": [0, 1, 0], "large": [1, 1, None]}, costs={"small": 1, "large": 10})
    >>> table.arms, table.missing, table.whole().scores.tolist(), table.whole().costs.tolist()
    (('small', 'large'), 1, [[0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [10.0, 10.0]])
    """
    low, high = number(low, "low"), number(high, "high")
    if not low < high:
        raise InvalidInput(f"low must be below high, got {low:g} and {high:g}.")
    table = scores_of(source, low, high, {"scorer": scorer, "epochs": epochs, "arm": arm, "metric": metric})
    if costs is not None:
        table = ScoreTable(table.arms, table.items, table.scores, spread_costs(values_of(costs, "cost"), table))
    if table.costs is not None:
        check_costs(table, table.costs)
    return table


def scores_of(source: Any, low: float, high: float, of_logs: dict[str, Any]) -> ScoreTable:
    found = source if isinstance(source, ScoreTable) else read_logs(source, **of_logs)
    if found is None:
        grid = values_of(source, "score", low, high)
        return ScoreTable(tuple(grid.arms), tuple(grid.items or ()), grid.values, grid.costs)
    outside = np.argwhere((found.scores < low) | (found.scores > high))
    if len(outside):
        a, i = outside[0]
        wrong = out_of_range("score", float(found.scores[a, i]), low, high)
        raise InvalidInput(f"arm {shown(found.arms[a])} on item {shown(found.items[i])}: {wrong}")
    return found


def spread_costs(given: Values, table: ScoreTable) -> NDArray[np.float64]:
    rows = {arm: a for a, arm in enumerate(given.arms)}
    lacking = [arm for arm in table.arms if arm not in rows]
    if lacking:
        raise InvalidInput(
            f"there is no cost for arm {shown(lacking[0])}"
            + (f" and {len(lacking) - 1} more" if len(lacking) > 1 else "")
            + f": there are costs for {', '.join(given.arms[:10])}{', ...' if len(given.arms) > 10 else ''}."
        )
    values = given.values[[rows[arm] for arm in table.arms]]
    if given.items is None:
        return np.repeat(values, len(table.items), axis=1)
    columns, unknown = {item: i for i, item in enumerate(given.items)}, np.full((len(values), 1), np.nan)
    return np.take(np.hstack([values, unknown]), [columns.get(item, -1) for item in table.items], axis=1)


def check_costs(table: ScoreTable, costs: NDArray[np.float64]) -> None:
    """Each evaluation that has a score needs a cost, and together they cost something."""
    lacking = np.argwhere(np.isnan(costs) & ~np.isnan(table.scores))
    if len(lacking):
        a, i = lacking[0]
        raise InvalidInput(
            f"arm {shown(table.arms[a])} has a score but no cost on item {shown(table.items[i])}; evaluations like "
            f"this: {len(lacking)}."
        )
    if (costs < 0).any() or np.isinf(costs).any():
        raise InvalidInput("costs must be 0 or more, and finite.")
    if not np.nansum(costs) > 0:
        raise InvalidInput("at least one cost must be more than 0.")


def read_logs(source: Any, **options: Any) -> ScoreTable | None:
    """The scores in logs, given as a path, a folder or several of them; None if it is something else."""
    is_list = isinstance(source, Sequence) and not isinstance(source, (str, bytes))
    paths = [*source] if is_list else [source]
    given = {name: value for name, value in options.items() if value is not None}
    are_paths = all(isinstance(path, (str, Path)) for path in paths)
    kinds = {kind_of(Path(path)) for path in paths} if are_paths else {None}
    if is_list and (None in kinds or len(kinds) != 1):
        raise InvalidInput(
            "several paths must all be logs of Inspect (.eval, .json) or all of lm-evaluation-harness "
            "(samples_*.jsonl): other tables must be given one at a time."
        )
    kind = kinds.pop()
    for name in given:
        if OPTIONS[name] != kind:
            raise InvalidInput(f"{name} is only for logs of {OPTIONS[name]}, which this is not.")
    if kind is None:
        return None
    return read_inspect(*paths, **given) if kind == INSPECT else read_lm_eval(*paths, **given)


def kind_of(path: Path) -> str | None:
    """The tool that wrote a log or a folder of logs, by its name or its content; None if neither did."""
    if path.is_dir():
        has_samples, has_logs = any(path.rglob("samples_*.jsonl")), any(path.rglob("*.eval"))
        if has_samples and has_logs:
            raise InvalidInput(
                f"the folder {path} has logs of both Inspect and lm-evaluation-harness: give those of one tool."
            )
        if not (has_samples or has_logs or any(path.rglob("*.json"))):
            raise InvalidInput(
                f"the folder {path} has no logs: neither of Inspect (.eval, .json) nor of lm-evaluation-harness "
                "(samples_*.jsonl)."
            )
        return LM_EVAL if has_samples else INSPECT
    if path.suffix == ".jsonl":
        return LM_EVAL
    return INSPECT if path.suffix in (".eval", ".json") or (path.is_file() and is_zip(path)) else None
