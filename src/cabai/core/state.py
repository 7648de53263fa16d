"""All that a policy can see, as plain data: one record per arm, one for the run, one for the rules.

Compiled code and Python share these NumPy records. An array of arm records and a run record are the whole state of a
trajectory or a live study. The rules hold the parameters of the family, the threshold and the policy, and do not
change during a run. Every policy has the fields below; a threshold and a policy can add their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.support.validation import InvalidInput

# Each field, with its value before the first pull.
ARM: dict[str, Any] = {
    "pulls": 0,  # N_a
    "rewards": 0.0,  # R_a, the sum of rewards
    "costs": 0.0,  # C_a, the sum of costs as the policy counts them (pulls, for a cost-blind one)
    "first": 0.0,  # the first reward
    "mean": 0.0,  # R_a / N_a
    "cost": 0.0,  # C_a / N_a
    "in_play": 1,  # 0 once an eliminating policy has dropped the arm
    # What the threshold needs per arm, updated when the arm is pulled:
    "tested": 0,  # pulls that count as evidence: N_a, or N_a - 1 if the first reward is set aside
    "tested_mean": 0.0,  # their mean
    "price": 0.0,  # evidence that this arm adds to the threshold of a pair
}
RUN: dict[str, Any] = {
    "t": 0,  # pulls so far
    "counted": 0.0,  # J, the sum of C_a
    "spent": 0.0,  # real cost of all pulls; a cost-blind policy does not use it
    "last": -1,  # the arm pulled last
    "leader": -1,  # the arm in play with the best mean; the lowest index if tied
    "second": -np.inf,  # an upper bound on the mean of every other arm in play
    "left": 0,  # number of arms in play
    "rival": -1,  # the arm that last prevented stopping
    "stream": np.uint64(0),  # random numbers for policies: cabai.uniform(run), cabai.normal(run)
}
RULES: dict[str, Any] = {
    "level": 0.0,  # the part of the threshold that depends on delta
    "budget": np.inf,  # the money that may be spent
    "epsilon": 0.0,  # an arm within epsilon of the best is good enough
    "cost_blind": 0,
    "tolerance": 0.0,  # relative tolerance of shares
}
# How many numbers a policy can add without needing its own compiled loop; an arm then takes two cache lines.
ARM_ROOM, RUN_ROOM, RULES_ROOM = 6, 4, 4

Fields = Mapping[str, Any]  # names and initial values


@dataclass(frozen=True)
class Layout:
    """How records are laid out for a family, a threshold and a policy.

    `arm`, `run` and `rules` name every field. `shared` holds the same three with the policy's fields unnamed, so that
    all policies share one compiled loop.
    """

    arm: np.dtype[np.void]
    run: np.dtype[np.void]
    rules: np.dtype[np.void]
    shared: tuple[np.dtype[np.void], np.dtype[np.void], np.dtype[np.void]]

    @classmethod
    def of(cls, test: tuple[Fields, Fields], policy: tuple[Fields, Fields, Fields]) -> Layout:
        """The layout with these additional fields: `test` adds to an arm and the rules (for the family and threshold),
        `policy` adds to an arm, the run and the rules."""
        parts = [
            (ARM | dict(test[0]), policy[0], ARM_ROOM, "an arm"),
            (RUN, policy[1], RUN_ROOM, "the run"),
            (RULES | dict(test[1]), policy[2], RULES_ROOM, "the rules"),
        ]
        named, shared = zip(*(_two_forms(*part) for part in parts), strict=True)
        arm, run, rules = named
        return cls(arm, run, rules, (shared[0], shared[1], shared[2]))

    def start(self, arms: int, arm_fields: Fields, run_fields: Fields) -> tuple[NDArray[Any], np.void]:
        """Arms and run before the first pull. The fields are those added by the threshold and the policy."""
        records, run = np.zeros(arms, self.arm), record(self.run)
        for name, value in (ARM | dict(arm_fields)).items():
            records[name] = value
        for name, value in (RUN | dict(run_fields)).items():
            run[name] = value
        run["left"] = arms
        return records, run


def _two_forms(common: dict[str, Any], own: Fields, room: int, of: str) -> tuple[np.dtype[np.void], np.dtype[np.void]]:
    """Two dtypes of the same size: one with all fields, and one with only the common fields."""
    twice = (set(common) | {"room"}) & set(own)
    if twice:
        raise InvalidInput(f"the policy's field {min(twice)!r} is a field of {of} already; give it another name.")
    fields, more = ([_format(*item) for item in each.items()] for each in (common, own))
    room *= max(1, -(-_numbers(more) // room))
    # Unused room gets a field too. Otherwise Numba would take a record with all fields of another kind, and more, for
    # one of that kind, with a warning.
    left = [("room", "f8", (room - _numbers(more),))] if room > _numbers(more) else []
    return np.dtype([*fields, *more, *left], align=True), np.dtype([*fields, ("room", "f8", (room,))], align=True)


def _numbers(formats: list[tuple[Any, ...]]) -> int:
    return sum(math.prod(each[2]) if len(each) > 2 else 1 for each in formats)


def _format(name: str, start: Any) -> tuple[Any, ...]:
    """A field's name and type, from its initial value. Every number takes 8 bytes."""
    value = np.asarray(start)
    kind = {"b": "i8", "i": "i8", "u": "u8", "f": "f8"}.get(value.dtype.kind)
    if kind is None or not name.isidentifier():
        raise InvalidInput(f"a field needs a name and a number to start from, got {name!r}: {start!r}.")
    return (name, kind, value.shape) if value.shape else (name, kind)


class Record(np.void):  # type: ignore[misc]
    """A view of a record, with its fields as attributes as in compiled code: arm.pulls, run.t."""

    __slots__ = ()

    def __new__(cls, fields: np.void) -> Any:
        return fields.view(with_attributes(fields.dtype))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_unknown(name, self))

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            self[name] = value
        except ValueError:
            if name in (self.dtype.names or ()):
                raise
            raise AttributeError(_unknown(name, self)) from None


@cache
def with_attributes(dtype: np.dtype[np.void]) -> np.dtype[np.void]:
    """The same, of records whose fields are read as attributes, by NumPy alone: a function would take twice as long."""
    own = {name: property(itemgetter(name)) for name in dtype.names or ()}
    return np.dtype((type("Record", (Record,), {"__slots__": (), **own}), dtype))


def _unknown(name: str, fields: np.void) -> str:
    known = [each for each in fields.dtype.names or () if each != "room"]
    return f"there is no field {name!r}; there are {', '.join(known)}."


class Records:
    """An array of such records, for kernels called as plain Python: arms[a].pulls."""

    def __new__(cls, array: NDArray[Any]) -> Any:
        return array.view(with_attributes(array.dtype))


class Columns(dict[str, Any]):
    """The fields of an array of records, found when they are first read."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __missing__(self, name: str) -> Any:
        found = self[name] = self.array[name]
        return found


def by_columns(array: NDArray[Any]) -> list[Any]:
    """Records with their fields as attributes, for cabai's own kernels called as plain Python: NumPy reads a number in
    an array ten times as fast as a field of a record."""
    kind, columns = of_columns(array.dtype), Columns(array)
    return [kind(columns, a) for a in range(len(array))]


@cache
def of_columns(dtype: np.dtype[np.void]) -> Any:
    def init(self: Any, columns: Columns, at: int) -> None:
        self.columns, self.at = columns, at

    def field(name: str) -> property:
        def write(self: Any, value: Any) -> None:
            self.columns[name][self.at] = value

        return property(lambda self: self.columns[name][self.at], write)

    fields = {name: field(name) for name in dtype.names or ()}
    return type("ByColumns", (), {"__slots__": ("columns", "at"), "__init__": init, **fields})


def record(kind: np.dtype[np.void]) -> np.void:
    """A record of this dtype, all zeros, with writable fields. It is a view of an array of one, its `base`."""
    return np.zeros(1, kind)[0]


def copy_of(one: Any) -> Any:
    """A copy of such a record."""
    return copy_of_all(one.base)[0]


def copy_of_all(records: Any) -> Any:
    """A copy of an array of records, as bytes: NumPy would copy them field by field."""
    return records.view(np.uint8).copy().view(records.dtype)
