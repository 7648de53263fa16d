"""One table of scores from evaluations in several files."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cabai.datasets.tables import ScoreTable
from cabai.support.validation import InvalidInput, shown


class Evaluation(NamedTuple):
    arm: str
    item: str
    score: float  # nan: there is none
    cost: float | None
    file: str
    epoch: int = 1
    id: str | None = None  # evaluations with the same id are copies


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


def table_of(evaluations: Iterable[Evaluation]) -> ScoreTable:
    """A table of evaluations, one of each arm and item. It has costs if every score has one."""
    found = {(each.arm, each.item): each for each in evaluations}
    arms = {arm: a for a, arm in enumerate(dict.fromkeys(arm for arm, _ in found))}
    items = {item: i for i, item in enumerate(dict.fromkeys(item for _, item in found))}
    scores = np.full((len(arms), len(items)), np.nan)
    costs = scores.copy()
    for (arm, item), each in found.items():
        scores[arms[arm], items[item]] = each.score
        costs[arms[arm], items[item]] = math.nan if each.cost is None else each.cost
    is_told = not (np.isnan(costs) & ~np.isnan(scores)).any()
    return ScoreTable(tuple(arms), tuple(items), scores, costs if is_told else None)
