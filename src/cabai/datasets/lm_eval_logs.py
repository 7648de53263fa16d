"""Sample logs of EleutherAI's lm-evaluation-harness: what `lm_eval --log_samples --output_path …` writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cabai.datasets.dataset import ScoreTable
from cabai.datasets.logs import Log, Sample, evaluations, read_all, table_of
from cabai.datasets.sheets import number_in
from cabai.support.files import reading
from cabai.support.validation import InvalidInput, shown

FILE_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)")
OTHER_FIELDS = (
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash", "prompt_hash",
    "target_hash",
)  # fmt: skip
ADVICE = "Give the files that you mean instead of their folder."


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
    files = read_all(paths, ("samples_*.jsonl",), "lm-evaluation-harness", load)
    filters = {sample.get("filter") for _, samples in files for sample in samples}
    if len(filters) == 1 and metric is not None:
        metric = metric.removesuffix(f",{next(iter(filters))}")
    logs = [log_of(*each, has_filters=len(filters) > 1) for each in files]
    return table_of(
        evaluations(logs, metric, "metric", "metric", "Give the files that you mean instead of their folder.")
    )


def load(path: Path) -> tuple[Path, list[dict[str, Any]]]:
    samples = []
    with reading(path), path.open(encoding="utf-8") as file:
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
    if not samples:
        raise InvalidInput(f"{path} has no samples.")
    return path, samples


def log_of(path: Path, samples: list[dict[str, Any]], *, has_filters: bool) -> Log:
    parts = FILE_NAME.fullmatch(path.stem)
    task, date = (parts["task"], parts["date"]) if parts else (path.stem.removeprefix("samples_"), None)
    found = [Sample(str(each["doc_id"]), scores_in(each, has_filters)) for each in samples]
    if not any(each.scores for each in found):
        raise InvalidInput(f"{path} has no metric that is a number.")
    return Log(path, model_of(path, date) or path.resolve().parent.name, task, found)


def model_of(path: Path, date: str | None) -> str | None:
    for results in [] if date is None else sorted(path.parent.glob(f"*_{date}.json")):
        try:
            name = json.loads(results.read_text(encoding="utf-8"))["model_name"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue
        if isinstance(name, str) and name:
            return name
    return None


def scores_in(sample: dict[str, Any], has_filters: bool) -> dict[str, float]:
    names = sample.get("metrics") or [name for name in sample if name not in OTHER_FIELDS]
    found = {name: sample.get(name) for name in names}
    numbers = {name: number_in(value) for name, value in found.items() if not isinstance(value, (list, dict))}
    suffix = f",{sample.get('filter')}" if has_filters else ""
    return {f"{name}{suffix}": value for name, value in numbers.items() if value is not None}
