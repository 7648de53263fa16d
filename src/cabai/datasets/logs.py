"""Logs of other tools as evaluations: what the readers of Inspect's and of lm-evaluation-harness's have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cabai.datasets.dataset import ScoreTable
from cabai.datasets.sheets import number_in
from cabai.support.validation import InvalidInput, shown


class Sample(NamedTuple):
    """A sample in a log. Samples with the same id are copies."""

    item: str
    scores: Mapping[str, Any]  # by name
    cost: float | None = None
    epoch: int = 1
    id: str | None = None


class Log(NamedTuple):
    """What one file says: the samples of an arm on a task."""

    path: Path
    arm: str
    task: str | None
    samples: Sequence[Sample]
    epochs: int = 1  # how often each sample is run


class Evaluation(NamedTuple):
    arm: str
    item: str
    score: float  # nan: there is none
    cost: float | None
    epoch: int
    file: str
    id: str | None


def read_all(paths: Iterable[str | Path], patterns: Sequence[str], tool: str, read: Callable[[Path], Any]) -> list[Any]:
    """What these files hold, and in a folder all files with these patterns, at any depth; JSON files in it that are no
    logs are ignored."""
    found: list[Any] = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(read(path))
            continue
        before = len(found)
        for each in sorted(each for pattern in patterns for each in path.rglob(pattern)):
            try:
                found.append(read(each))
            except InvalidInput:
                if each.suffix != ".json":
                    raise
        if len(found) == before:
            raise InvalidInput(f"the folder {path} has no logs of {tool}.")
    return found


def evaluations(logs: Sequence[Log], wanted: str | None, what: str, option: str, advice: str) -> list[Evaluation]:
    """The evaluations in these logs, by the score that is `wanted` or the only one. With several tasks, an item's name
    begins with the task's."""
    name, several, found = chosen_score(logs, wanted, what, option), len({log.task for log in logs}) > 1, []
    for log in logs:
        for each in log.samples:
            value, item = each.scores.get(name), f"{log.task}/{each.item}" if several else each.item
            score = number_in(value)
            if score is None:
                raise InvalidInput(
                    f"{log.path}, sample {shown(each.item)}: {what} {name!r} must be a number or one of C, P, I, N, "
                    f"got {shown(value)}."
                )
            found.append(Evaluation(log.arm, item, score, each.cost, each.epoch, str(log.path), each.id))
    return without_copies(found, advice)


def chosen_score(logs: Sequence[Log], wanted: str | None, what: str, option: str) -> str:
    """The score to take, which every log that has any must have: the one wanted, or the only one."""
    for log in logs:
        names = [*dict.fromkeys(name for sample in log.samples for name in sample.scores)]
        if not names:
            continue
        listed, first = "; ".join(each[:80] for each in names[:10]), names[0][:80]
        if wanted is None and len(names) > 1:
            raise InvalidInput(
                f"{log.path} has several {what}s: {listed}. Choose one: {option}={first!r} (--{option} {first})."
            )
        if wanted is not None and wanted not in names:
            raise InvalidInput(f"{log.path} has no {what} {shown(wanted)}; it has {listed}.")
        wanted = wanted or names[0]
    if wanted is None:
        raise InvalidInput(f"these logs have no {what}s.")
    return wanted


def without_copies(evaluations: Iterable[Evaluation], advice: str) -> list[Evaluation]:
    """One of each arm, item and epoch. Others are dropped if they are copies or have no score, as after a second try;
    two that differ are an error, which ends with `advice`."""
    found: dict[tuple[str, str, int], Evaluation] = {}
    for each in evaluations:
        key = each.arm, each.item, each.epoch
        other = found.get(key)
        if other is None or math.isnan(other.score):
            found[key] = each
        elif not math.isnan(each.score) and (each.id is None or each.id != other.id):
            where = f"{other.file} and {each.file}" if other.file != each.file else f"{each.file}, twice"
            raise InvalidInput(
                f"arm {shown(each.arm)} has a score on item {shown(each.item)} in {where}: which one counts? {advice}"
            )
    return [*found.values()]


def table_of(evaluations: Sequence[Evaluation], billed: str | None = None) -> ScoreTable:
    """A table of evaluations, one of each arm and item. It has costs if every score has one."""
    arms = {arm: a for a, arm in enumerate(dict.fromkeys(each.arm for each in evaluations))}
    items = {item: i for i, item in enumerate(dict.fromkeys(each.item for each in evaluations))}
    scores = np.full((len(arms), len(items)), np.nan)
    costs = scores.copy()
    for each in evaluations:
        at = arms[each.arm], items[each.item]
        scores[at], costs[at] = each.score, math.nan if each.cost is None else each.cost
    is_told = not (np.isnan(costs) & ~np.isnan(scores)).any()
    return ScoreTable(tuple(arms), tuple(items), scores, *((costs, billed) if is_told else ()))
