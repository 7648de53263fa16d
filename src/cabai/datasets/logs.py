"""Which kind of logs a path holds, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cabai.datasets.inspect_logs import is_zip, read_inspect
from cabai.datasets.lm_eval_logs import read_lm_eval
from cabai.datasets.tables import ScoreTable
from cabai.support.validation import InvalidInput

INSPECT, LM_EVAL = "Inspect", "lm-evaluation-harness"
OPTIONS = {"scorer": INSPECT, "epochs": INSPECT, "arm": INSPECT, "metric": LM_EVAL}


def read_logs(source: Any, **options: Any) -> ScoreTable | None:
    """The scores in logs, given as a path, a folder or several of them; None if it is something else."""
    is_list = isinstance(source, Sequence) and not isinstance(source, (str, bytes))
    paths = [*source] if is_list else [source]
    given = {name: value for name, value in options.items() if value is not None}
    kinds: set[str | None] = set()
    if paths and all(isinstance(path, (str, Path)) for path in paths):
        kinds = {kind_of(Path(path)) for path in paths}
    if is_list and (None in kinds or len(kinds) != 1):
        raise InvalidInput(
            "several paths must all be logs of Inspect (.eval, .json) or all of lm-evaluation-harness "
            "(samples_*.jsonl): other tables must be given one at a time."
        )
    kind = kinds.pop() if kinds else None
    for name in given:
        if OPTIONS[name] != kind:
            raise InvalidInput(f"{name} is only for logs of {OPTIONS[name]}, which this is not.")
    if kind is None:
        return None
    return read_inspect(*paths, **given) if kind == INSPECT else read_lm_eval(*paths, **given)


def kind_of(path: Path) -> str | None:
    """The tool that wrote a log or a folder of logs, by its name or its content; None if neither did."""
    if path.is_dir():
        return kind_of_folder(path)
    if path.suffix in (".eval", ".json"):
        return INSPECT
    if path.suffix == ".jsonl":
        return LM_EVAL
    return INSPECT if path.is_file() and is_zip(path) else None


def kind_of_folder(path: Path) -> str:
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
