"""Which combinations of what tests are given belong to the default run; the slow run has the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import pytest

from cabai.policies import POLICIES

#: Policies that can be used without a budget.
WITHOUT_BUDGET = [name for name in POLICIES.names if not POLICIES.classes[name].spends_budget]


def covering(*lists: Iterable[Any], times: int = 1, most: int | None = None) -> list[Any]:
    """Every combination of their values. The default run has those of a diagonal, on which each value of each list is
    met; with `times`, of several diagonals, each of which pairs the values differently. With `most`, about that many of
    a diagonal, at equal distances."""
    lists = tuple(list(values) for values in lists)
    longest = max(map(len, lists))
    chosen = {
        tuple(values[(k + turn * place) % len(values)] for place, values in enumerate(lists))
        for k in range(0, longest, 1 if most is None else math.ceil(longest / most))
        for turn in range(times)
    }
    return [
        pytest.param(*each, id="-".join(map(str, each)), marks=() if each in chosen else pytest.mark.slow)
        for each in itertools.product(*lists)
    ]
