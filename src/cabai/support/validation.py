"""Check user input. Errors say what was given and what is allowed."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.errors import InvalidInput as InvalidInput


def shown(value: Any) -> str:
    """A value as text for an error message: shortened, and safe even if `repr` fails, as for a number of 5000 digits.

    >>> shown(10**5000), shown("x" * 1000) == "'" + 199 * "x" + "..."
    ('a value of type int that cannot be shown', True)
    """
    try:
        text = repr(value)
    except Exception:
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= 200 else f"{text[:200]}..."


EXTRAS = {
    "cloudpickle": "processes",
    "distributed": "dask",
    "fastapi": "server",
    "genai_prices": "prices",
    "inspect_ai": "inspect",
    "joblib": "processes",
    "matplotlib": "plots",
    "numba_cuda": "cuda",
    "pandas": "frames",
    "psycopg": "postgres",
    "pyarrow": "frames",
    "ray": "ray",
    "scipy": "paper",
    "sklearn": "demo",
    "uvicorn": "server",
}  # the extra that installs each optional package


OTHER_WORDS = {
    "budget": "max_cost",
    "max_cost": "budget",
}  # the same, where money is spent and in a plan


def optional(name: str) -> Any:
    """Import a package or module that may be missing; if it is, the error says how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(how_to_install(error), name=error.name) from error


def how_to_install(error: ModuleNotFoundError) -> str:
    """How to install a missing package; the error's own message if it is not in an extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return str(error)
    extra = EXTRAS[package]
    return f'this needs {package}, which is not installed: in a clone of cabai, pip install ".[{extra}]"'


def number(value: Any, name: str) -> float:
    """`value` as a finite float."""
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"{name} must be a number, got {shown(value)}.") from None
    if isinstance(value, (str, bytes, bytearray)) or not math.isfinite(result):
        raise InvalidInput(f"{name} must be a finite number, got {shown(value)}.")
    return result


def amount(value: Any, name: str) -> float:
    """`value` as a finite float; true and false are refused."""
    if isinstance(value, (bool, np.bool_)):
        raise InvalidInput(f"{name} must be a number, got {value!r}.")
    return number(value, name)


def positive(value: Any, name: str) -> float:
    result = amount(value, name)
    if result <= 0:
        raise InvalidInput(f"{name} must be positive, got {shown(value)}.")
    return result


def not_negative(value: Any, name: str) -> float:
    result = amount(value, name)
    if result < 0:
        raise InvalidInput(f"{name} must not be negative, got {shown(value)}.")
    return result


def whole(value: Any, name: str, least: int, below: int = 2**63) -> int:
    """`value` as an int that is at least `least` and fits into compiled code and databases."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, got {shown(value)}.")
    if value >= below:
        raise InvalidInput(f"{name} must be below 2**{below.bit_length() - 1}, got {shown(value)}.")
    return int(value)


@contextmanager
def about(what: str) -> Iterator[None]:
    """Errors inside begin with what they are about: a file, or a row."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None


def check_kind(value: Any, kind: Any, what: str) -> None:
    """Refuse a value of another kind; `what` says what it must be."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{what}, got {shown(value)}.")


def true_or_false(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} must be true or false, got {shown(value)}.")
    return value


def probability(value: Any, name: str = "delta") -> float:
    """`value` as a float strictly between 0 and 1, such as an error probability."""
    result = number(value, name)
    if not 0 < result < 1:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, got {shown(value)}.")
    return result


def numbers(values: Any, name: str) -> NDArray[np.float64]:
    """`values` as a non-empty array of finite floats."""
    if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)):
        raise InvalidInput(f"{name} must be a list of numbers, got {shown(values)}.")
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InvalidInput(f"{name} must be a flat list of numbers, got an array of shape {values.shape}.")
    if len(values) == 0:
        raise InvalidInput(f"{name} must not be empty.")
    return np.array([number(value, f"{name}[{i}]") for i, value in enumerate(values)])


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse names that are not known.

    >>> check_names(["timout"], ["timeout", "workers"], "key")
    Traceback (most recent call last):
    cabai.errors.InvalidInput: unknown key 'timout'; did you mean timeout?
    """
    names = list(known)
    for name in given:
        if name not in names:
            listed = f"known: {', '.join(names)}."
            raise InvalidInput(f"unknown {what} {shown(name)}; {meant(name, names) or listed}")


def meant(name: str, known: Iterable[str]) -> str:
    """A question that suggests the known name closest to an unknown one; empty if none is close. Options and settings
    are the same names.

    >>> meant("bernouli", ["gaussian", "bernoulli"]), meant("--budget", ["--max-cost"]), meant("x", ["max_cost"])
    ('did you mean bernoulli?', 'did you mean --max-cost?', '')
    """
    import difflib

    plain = {each.lstrip("-").replace("-", "_"): each for each in known}
    word = name.lstrip("-").replace("-", "_")
    close = [OTHER_WORDS[word]] if OTHER_WORDS.get(word) in plain else difflib.get_close_matches(word, plain, n=1)
    return f"did you mean {plain[close[0]]}?" if close else ""
