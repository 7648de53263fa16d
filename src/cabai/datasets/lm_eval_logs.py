"""Sample logs of EleutherAI's lm-evaluation-harness: what `lm_eval --log_samples --output_path …` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabai.datasets.dataset import SampleScore, ScoreTable, chosen_score, table_of, without_copies
from cabai.datasets.sheets import number_in
from cabai.support.validation import InvalidInput, shown

FILE_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)")
OTHER_FIELDS = (
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash", "prompt_hash",
    "target_hash",
)  # fmt: skip
ADVICE = "Give the files that you mean instead of their folder."


@dataclass(frozen=True)
class SampleLog:
    path: Path
    arm: str
    task: str
    samples: list[dict[str, Any]]


def read_lm_eval(*paths: str | Path, metric: str | None = None) -> ScoreTable:
    """Read the scores in files `samples_*.jsonl` of lm-evaluation-harness, given as files or folders.

    An arm is a model: its name comes from the results file with the samples or, without one, from the folder. An item
    is a document of a task; if there are several tasks, its name begins with the task's.

    `metric` names the score to take if there are several, such as `acc` or `exact_match`; where a task has several
    filters, the filter follows a comma, as in the harness's own results: `exact_match,strict-match`.

    >>> import json, tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for model, scores in (("small", (1, 0, 0)), ("large", (1, 1, 0))):
    ...         file = Path(folder, model, "samples_riddles.jsonl")
    ...         file.parent.mkdir()
    ...         lines = [json.dumps({"doc_id": i, "acc": score}) for i, score in enumerate(scores)]
    ...         written = file.write_text("\\n".join(lines))
    ...     table = read_lm_eval(folder)
    >>> table.arms, table.scores.tolist()
    (('large', 'small'), [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    """
    logs = [load(path) for path in files_in(*paths)]
    chosen = the_metric(logs, metric)
    several = len({log.task for log in logs}) > 1
    found = [each for log in logs for each in evaluations(log, chosen, several)]
    return table_of(without_copies(found, ADVICE))


def files_in(*paths: str | Path) -> list[Path]:
    """The files to read: in a folder, all of them, at any depth."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(path.rglob("samples_*.jsonl"))
            if not inside:
                raise InvalidInput(f"the folder {path} has no files samples_*.jsonl of lm-evaluation-harness.")
            found += inside
        else:
            found.append(path)
    return found


def load(path: Path) -> SampleLog:
    samples = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        sample = json.loads(line)
                        sample["doc_id"]
                    except (ValueError, TypeError, KeyError, RecursionError) as error:
                        raise InvalidInput(
                            f"{path}, line {number}: it is not a sample of lm-evaluation-harness, with a doc_id."
                        ) from error
                    filtered, metrics = sample.get("filter"), sample.get("metrics") or []
                    if not isinstance(filtered, str | None):
                        raise InvalidInput(f"{path}, line {number}: filter must be a name, got {shown(filtered)}.")
                    if not isinstance(metrics, list) or not all(isinstance(each, str) for each in metrics):
                        raise InvalidInput(f"{path}, line {number}: metrics must be names, got {shown(metrics)}.")
                    samples.append(sample)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    if not samples:
        raise InvalidInput(f"{path} has no samples.")
    parts = FILE_NAME.fullmatch(path.stem)
    task, date = (parts["task"], parts["date"]) if parts else (path.stem.removeprefix("samples_"), None)
    return SampleLog(path, model_of(path, date) or path.resolve().parent.name, task, samples)


def model_of(path: Path, date: str | None) -> str | None:
    for results in [] if date is None else sorted(path.parent.glob(f"*_{date}.json")):
        try:
            name = json.loads(results.read_text(encoding="utf-8"))["model_name"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue
        if isinstance(name, str) and name:
            return name
    return None


def scores_in(sample: dict[str, Any]) -> dict[str, float]:
    names = sample.get("metrics") or [name for name in sample if name not in OTHER_FIELDS]
    found = {name: sample.get(name) for name in names}
    numbers = {name: number_in(value) for name, value in found.items() if not isinstance(value, (list, dict))}
    return {name: value for name, value in numbers.items() if value is not None}


def the_metric(logs: list[SampleLog], wanted: str | None) -> tuple[str, str | None]:
    """The metric to use and, if there are several filters, the filter."""
    filters = {sample.get("filter") for log in logs for sample in log.samples}
    if len(filters) == 1 and wanted is not None:
        wanted = wanted.removesuffix(f",{next(iter(filters))}")
    names = []
    for log in logs:
        pairs = dict.fromkeys((name, sample.get("filter")) for sample in log.samples for name in scores_in(sample))
        names.append((log.path, [f"{name},{each}" if len(filters) > 1 else name for name, each in pairs]))
        if not pairs:
            raise InvalidInput(f"{log.path} has no metric that is a number.")
    name, _, filtered = str(chosen_score(names, wanted, "metric", "metric")).partition(",")
    return name, filtered or None


def evaluations(log: SampleLog, metric: tuple[str, str | None], several_tasks: bool) -> Iterator[SampleScore]:
    name, filtered = metric
    for sample in log.samples:
        if filtered is None or sample.get("filter") == filtered:
            item = f"{log.task}/{sample['doc_id']}" if several_tasks else str(sample["doc_id"])
            yield SampleScore(log.arm, item, scores_in(sample).get(name, float("nan")), None, str(log.path))
