"""The formulas at the heart of cabai, as plain functions of plain records, which `cabai.compiling` compiles.

They are Python that Numba can compile: numbers, loops, the functions of `math`, the records of `cabai.state`. Where a
call is made once (a bound, a live study) they run as they stand, and nothing needs to be compiled or loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def only_for(*features: str) -> Callable[[Any], Any]:
    """Mark a function that is called only for one of these features; its caller sees to that. Features are the family,
    the threshold `evalue`, an `epsilon`, and what an instance draws; what is only for `mirrored` families is never
    compiled.

    Where none of them applies it is not compiled, which spares a first run half of its waiting.
    """

    def mark(function: Any) -> Any:
        function.only_for = frozenset(features)
        return function

    return mark


def apart(function: Any) -> Any:
    """Mark a function that is large, or seldom called: compiled code calls it, and has no copy of it at each call."""
    function.apart = True
    return function
