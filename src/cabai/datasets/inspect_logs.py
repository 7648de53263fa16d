"""Logs of Inspect (inspect.aisi.org.uk), in either of its formats: `.eval`, a zip file of JSON files, and `.json`."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cabai import prices
from cabai.datasets.dataset import ScoreTable
from cabai.datasets.logs import Evaluation, Log, Sample, evaluations, read_all, table_of
from cabai.support.files import reading
from cabai.support.validation import InvalidInput, optional, shown

if TYPE_CHECKING:
    from zipfile import ZipFile

GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # as in Inspect's own metrics
WORDS = {"yes": 1.0, "no": 0.0}
ZSTANDARD = 93  # the compression that Inspect's zip files use now; Python reads it since 3.14
ADVICE = "Leave one of the files out, or name arms by a field that differs, such as arm='task_args.prompt' (--arm)."
Parts = tuple[Path, dict[str, Any], list[dict[str, Any]]]  # a file, its section `eval` and its samples


def read_inspect(*paths: str | Path, scorer: str | None = None, epochs: str = "mean", arm: str = "model") -> ScoreTable:
    """Read the scores in logs of Inspect, given as files or folders.

    An arm is a model, or the value of another field of the logs' section `eval`: `arm="task_args.prompt"`. An item is a
    sample; if there are several tasks, its name begins with the task's. Grades become numbers as in Inspect's own
    metrics: C is 1, P is 0.5, I and N are 0. A sample without a score, for example because it failed, is missing.

    `scorer` names the score to take if there are several; `scorer="name.key"` is for one that has keys. With several
    epochs, an item's score is their mean, or each epoch is an item of its own (`epochs="items"`). If the logs record
    what samples cost (`total_cost`), the table has costs; else if `cabai.prices` knows all their models, it has what
    their tokens cost.

    >>> import json, tempfile
    >>> from pathlib import Path
    >>> def log(model, grades):
    ...     samples = [{"id": i, "scores": {"match": {"value": grade}}} for i, grade in enumerate(grades)]
    ...     return json.dumps({"eval": {"model": model, "task": "riddles"}, "samples": samples})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for model, grades in (("small", "CII"), ("large", "CCP")):
    ...         written = Path(folder, f"{model}.json").write_text(log(model, grades))
    ...     table = read_inspect(folder)
    >>> table.arms, table.scores.tolist()
    (('large', 'small'), [[1.0, 1.0, 0.5], [1.0, 0.0, 0.0]])
    """
    if epochs not in ("mean", "items"):
        raise InvalidInput(f"epochs must be one of mean, items, got {shown(epochs)}.")
    bill = Bill()
    logs = [log_of(parts, arm, bill) for parts in read_all(paths, ("*.eval", "*.json"), "Inspect", load)]
    found = evaluations(logs, scorer, "score", "scorer", ADVICE)
    if epochs == "mean":
        found = means(found, {log.arm: max(each.epochs for each in logs if each.arm == log.arm) for log in logs})
    elif any(log.epochs > 1 for log in logs):
        found = [each._replace(item=f"{each.item}#{each.epoch}") for each in found]
    return table_of(found, bill.how)


def load(path: Path) -> Parts:
    with reading(path):
        try:
            if is_zip(path):
                about, samples = from_zip(path)
            else:
                log = json.loads(path.read_text(encoding="utf-8"))
                about, samples = log["eval"], log.get("samples") or []
            last = {(str(each["id"]), str(each.get("epoch", 1))): each for each in samples}  # the last entry of each
            if not isinstance(about["model"], str):
                raise ValueError
        except (OSError, ModuleNotFoundError, MemoryError):
            raise
        except Exception as error:  # each compression has its own, and so has what is encrypted or nested too deep
            raise InvalidInput(f"{path} is not a log of Inspect, or is damaged.") from error
    return path, about, [*last.values()]


def log_of(parts: Parts, arm: str, bill: Bill) -> Log:
    """What the log says, where its values are of the right kind."""
    path, about, samples = parts

    def expect(is_right: bool, where: str, what: str, got: Any) -> None:
        if not is_right:
            raise InvalidInput(f"{path}{where}: {what}, got {shown(got)}.")

    raced = (about.get("metadata") or {}).get("cabai_study")
    if raced is not None:
        raise InvalidInput(
            f"{path} is the log of a race ({shown(raced)}): it has only the samples that the race needed, so what a "
            "race would save cannot be seen from it."
        )
    task, config = about.get("task"), about.get("config") or {}
    expect(task is None or isinstance(task, str), "", "the task must be a name", task)
    expect(isinstance(config, dict), "", "config must be a table", config)
    declared, found = config.get("epochs"), []
    expect(declared is None or is_count(declared), "", "config.epochs must be a whole number, 1 or more", declared)
    for sample in samples:
        where = f", sample {shown(sample['id'])}"
        epoch, scores, usage = sample.get("epoch", 1), sample.get("scores") or {}, sample.get("model_usage") or {}
        expect(is_count(epoch), where, "epoch must be a whole number, 1 or more", epoch)
        are_scores = isinstance(scores, dict) and all(
            not isinstance(score, dict) or "value" in score for score in scores.values()
        )
        expect(are_scores, where, "scores must have a name and a value each", scores)
        are_costs = isinstance(usage, dict) and all(
            isinstance(each, dict) and is_cost(each.get("total_cost")) for each in usage.values()
        )
        expect(are_costs, where, "each model's usage must have a number as its total_cost, or none", usage)
        found.append(Sample(str(sample["id"]), by_name(scores), bill.cost_of(usage), epoch, sample.get("uuid")))
    count = max(declared or 1, *(each.epoch for each in found), 1)
    return Log(path, field(path, about, arm), None if arm == "task" else task, found, count)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_cost(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and 0 <= value < math.inf)


def is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def from_zip(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header of a log, and summaries of its samples, or the full samples if it has no summaries."""
    from zipfile import ZipFile

    with ZipFile(path) as file:
        names = file.namelist()

        def read(name: str) -> Any:
            return json.loads(member(path, file, name))

        start = next(name for name in ("header.json", "_journal/start.json", "start.json") if name in names)
        for whole in ("summaries.json", "summary.json"):
            if whole in names:
                return read(start)["eval"], read(whole)
        for folder in ("_journal/summaries/", "summaries/"):  # of a run that has not ended
            parts = sorted((name for name in names if name.startswith(folder)), key=lambda name: (len(name), name))
            if parts:
                return read(start)["eval"], [sample for part in parts for sample in read(part)]
        return read(start)["eval"], [read(name) for name in names if name.startswith("samples/")]


def member(path: Path, file: ZipFile, name: str) -> bytes:
    """A file in a zip file, even if Python's own module does not know its compression."""
    info = file.getinfo(name)
    if info.compress_type != ZSTANDARD or sys.version_info >= (3, 14):
        return file.read(name)
    arrow = optional("pyarrow")
    with path.open("rb") as raw:
        raw.seek(info.header_offset + 26)  # where the lengths of two names are, after which the data begin
        lengths = struct.unpack("<HH", raw.read(4))
        raw.seek(sum(lengths), 1)
        data = raw.read(info.compress_size)
    return bytes(arrow.CompressedInputStream(arrow.BufferReader(data), "zstd").read())


def by_name(scores: dict[str, Any]) -> dict[str, Any]:
    """A sample's scores by name; those that have keys, by name and key. Grades are numbers."""
    found: dict[str, Any] = {}
    for name, score in scores.items():
        value = score["value"] if isinstance(score, dict) else score
        found |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return {
        name: GRADES.get(value, WORDS.get(value.lower(), value)) if isinstance(value, str) else value
        for name, value in found.items()
    }


def means(found: Sequence[Evaluation], epochs: dict[str, int]) -> list[Evaluation]:
    """The mean of each arm's epochs on each item, and what they cost together; where one is missing, so is the mean."""
    together: dict[tuple[str, str], list[Evaluation]] = {}
    for each in found:
        together.setdefault((each.arm, each.item), []).append(each)
    result = []
    for (arm, _), several in together.items():
        mean = math.fsum(each.score for each in several) / len(several) if len(several) == epochs[arm] else math.nan
        costs = [each.cost for each in several if each.cost is not None]
        paid = math.fsum(costs) if len(costs) == len(several) else None
        result.append(several[0]._replace(score=mean, cost=paid))
    return result


def field(path: Path, about: dict[str, Any], name: str) -> str:
    """The value of a field such as `model` or `task_args.prompt`."""
    found: Any = about
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if found is None:
        raise InvalidInput(f"{path} has no field {shown(name)} in its section 'eval' to name the arm by.")
    return found if isinstance(found, str) else json.dumps(found)


class Bill:
    """What samples cost, all models together: according to the log, or else by their tokens."""

    def __init__(self) -> None:
        self.unknown: set[str] = set()  # models without a price
        self.how: str | None = None  # what to say of costs that the logs do not tell

    def cost_of(self, usage: dict[str, Any]) -> float | None:
        found = []
        for model, each in usage.items():
            is_told = each.get("total_cost") is not None
            if model in self.unknown and not is_told:
                return None
            try:
                found.append(prices.usage_cost(model, each))
            except (InvalidInput, ModuleNotFoundError):
                self.unknown.add(model)
                return None
            if not is_told:
                self.how = "Costs are dollars, computed by cabai.prices from the tokens in the logs."
        return math.fsum(found) if found else None
