"""One table of scores from evaluations that several files tell of."""

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


def gather(evaluations: Iterable[Evaluation], advice: str) -> ScoreTable:
    """A table of them. An arm may have an item in two files if only one of them has a score, as after a second try; if
    both have, that is an error, which ends with `advice`. Costs are told if every score has one."""
    found: dict[tuple[str, str], Evaluation] = {}
    for each in evaluations:
        other = found.setdefault((each.arm, each.item), each)
        if math.isnan(other.score):
            found[each.arm, each.item] = each
        elif other is not each and not math.isnan(each.score):
            where = f"{other.file} and {each.file}" if other.file != each.file else f"{each.file}, twice"
            raise InvalidInput(
                f"arm {shown(each.arm)} has a score on item {shown(each.item)} in {where}: which one counts? {advice}"
            )
    arms = {arm: a for a, arm in enumerate(dict.fromkeys(arm for arm, _ in found))}
    items = {item: i for i, item in enumerate(dict.fromkeys(item for _, item in found))}
    scores = np.full((len(arms), len(items)), np.nan)
    costs = scores.copy()
    for (arm, item), each in found.items():
        scores[arms[arm], items[item]] = each.score
        costs[arms[arm], items[item]] = math.nan if each.cost is None else each.cost
    is_told = not (np.isnan(costs) & ~np.isnan(scores)).any()
    return ScoreTable(tuple(arms), tuple(items), scores, costs if is_told else None)
