"""Which combinations of what tests are given belong to the default run; the slow run has the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from cabai.policies import POLICIES

#: Policies that can be used without a budget.
WITHOUT_BUDGET = [name for name in POLICIES.names if not POLICIES.classes[name].spends_budget]


def covering(*lists: Iterable[Any], times: int = 1) -> list[Any]:
    """Every combination of their values. The default run has those of a diagonal, on which each value of each list is
    met; with `times`, of several diagonals, each of which pairs the values differently."""
    lists = tuple(list(values) for values in lists)
    chosen = {
        tuple(values[(k + turn * place) % len(values)] for place, values in enumerate(lists))
        for k in range(max(map(len, lists)))
        for turn in range(times)
    }
    return [
        pytest.param(*each, id="-".join(map(str, each)), marks=() if each in chosen else pytest.mark.slow)
        for each in itertools.product(*lists)
    ]
