"""What is known about a mean or a cost before anything is paid: a number, a range, or a distribution."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import in_order
from cabai.support.registry import split_outside_brackets
from cabai.support.validation import InvalidInput, number, shown

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
Check = Callable[[float, str], float]  # returns an allowed number, or raises an error with its name
ROUNDS = 200  # of redrawing values that are not allowed, before a prior is refused


@dataclass(frozen=True)
class Prior:
    """What a number may be. `ends` are its smallest and largest value, if they are given."""

    text: str
    draw: Draw
    ends: tuple[float, float] | None = None


# By name: the names of two parameters, positive unless it is a mean, and how to draw.
KINDS: dict[str, tuple[tuple[str, str], Callable[[float, float], Draw]]] = {
    "beta": (("a", "b"), lambda a, b: lambda random, n: random.beta(a, b, n)),
    "gamma": (("shape", "scale"), lambda a, b: lambda random, n: random.gamma(a, b, n)),
    "lognormal": (("median", "sigma"), lambda a, b: lambda random, n: a * random.lognormal(0, b, n)),
    "normal": (("mean", "sd"), lambda a, b: lambda random, n: random.normal(a, b, n)),
}
HOW = (
    "a number, a range such as 0.02..0.03, or one of "
    f"{', '.join(f'{name}({first}, {second})' for name, ((first, second), _) in KINDS.items())}"
)


def priors_of(given: Any, name: str, arms: Sequence[str] | None = None, *, one_for_all: bool = False) -> list[Prior]:
    """A prior per arm: from a list, a string with commas, or a mapping by name; or, if allowed, one for all."""
    if isinstance(given, Mapping):
        ordered = in_order(given, arms or (), name)
        return [prior_of(each, f"{name} of {arm}") for arm, each in zip(arms or (), ordered, strict=True)]
    several = isinstance(given, (list, np.ndarray)) or (isinstance(given, str) and "," in given)
    if one_for_all and not several:
        given = [given]
    if isinstance(given, str):
        given = [part.strip() for part in split_outside_brackets(given) if part.strip()]
    if not isinstance(given, (Sequence, np.ndarray)) or isinstance(given, bytes):
        raise InvalidInput(f"{name} must be a list, with {HOW} for each arm, got {shown(given)}.")
    found = [prior_of(each, f"{name}[{i}]") for i, each in enumerate(given)]
    found = found * len(arms or [1]) if one_for_all and len(found) == 1 else found
    if arms is not None and len(found) != len(arms):
        advice = "one for all, or one for each arm" if one_for_all else "one for each arm"
        raise InvalidInput(f"there are {len(arms)} arms, got {len(found)} {name}: give {advice}.")
    return found


def prior_of(given: Any, name: str) -> Prior:
    """The prior that a user has written.

    >>> prior_of("0.02..0.03", "mean").ends
    (0.02, 0.03)
    >>> prior_of("beta(3, 97)", "mean").draw(np.random.default_rng(0), 2).round(3)
    array([0.027, 0.017])
    """
    if isinstance(given, str):
        return prior_in(given.strip(), name)
    if hasattr(given, "rvs"):  # a distribution of SciPy
        kind, numbers = getattr(getattr(given, "dist", None), "name", ""), getattr(given, "args", ())
        text = f"{kind}({', '.join(f'{each:g}' for each in numbers)})" if kind else type(given).__name__
        return Prior(text, lambda random, n: np.asarray(given.rvs(size=n, random_state=random), float))
    ends = given if isinstance(given, (tuple, list)) else (given, given)
    if len(ends) != 2:
        raise InvalidInput(f"{name} must be {HOW}; in Python a range is (low, high), got {shown(given)}.")
    low, high = (number(end, name) for end in ends)
    if low > high:
        raise InvalidInput(f"{name}: a range goes from low to high, got {low:g}..{high:g}; write {high:g}..{low:g}.")
    if low == high:
        return Prior(f"{low:g}", lambda random, n: np.full(n, low), (low, low))
    return Prior(f"{low:g}..{high:g}", lambda random, n: random.uniform(low, high, n), (low, high))


def prior_in(text: str, name: str) -> Prior:
    kind = re.fullmatch(rf"({'|'.join(KINDS)})\((.*)\)", text)
    parts = text.split("..") if kind is None else kind[2].split(",")
    try:
        values = [float(each.partition("=")[2] or each if kind else each) for each in parts]
    except ValueError:
        raise InvalidInput(f"{name} must be {HOW}, got {text!r}.") from None
    if kind is None:
        return prior_of(values if len(values) > 1 else values[0], name)
    names, draw = KINDS[kind[1]]
    needed = [each for each in names if each != "mean"]
    is_good = len(values) == 2 and all(map(math.isfinite, values))
    if not is_good or any(value <= 0 for value in values[-len(needed) :]):
        raise InvalidInput(
            f"{name}: {kind[1]}({', '.join(names)}) takes two numbers, {' and '.join(needed)} positive, got {text!r}."
        )
    return Prior(text, draw(*values))


def drawn(prior: Prior, draws: int, stream: list[int], check: Check, name: str) -> NDArray[np.float64]:
    """Numbers from a prior. The ends of a range must be allowed; other values that are not are drawn again."""
    random = np.random.default_rng(stream)
    if prior.ends is not None:
        for end in prior.ends:
            check(end, name)
        return prior.draw(random, draws)

    def is_good(value: float) -> bool:
        try:
            check(value, name)
        except InvalidInput:
            return False
        return True

    found = prior.draw(random, draws)
    for _ in range(ROUNDS):
        bad = np.flatnonzero([not is_good(value) for value in found.tolist()])
        if not len(bad):
            return found
        found[bad] = prior.draw(random, len(bad))
    check(float(found[bad[0]]), f"{name}, almost always: {prior.text}")
    return found


def all_drawn(priors: Sequence[Prior], name: str, check: Check, draws: int, stream: list[int]) -> NDArray[np.float64]:
    """A column for each arm, which does not depend on what is known about the others."""
    columns = [drawn(prior, draws, [*stream, a], check, f"{name}[{a}]") for a, prior in enumerate(priors)]
    return np.column_stack(columns)
