"""The items of a study whose arms are evaluated on a dataset, and how the race on them is run."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import BEST
from cabai.datasets.dataset import Dataset, permutation
from cabai.datasets.race import finish_of, race_of
from cabai.families import Bernoulli, Family
from cabai.settings import STOP, WORST, settings_for
from cabai.support.validation import InvalidInput, amount, shown

LONGEST_ID = 500
MOST_ITEMS = 10_000_000


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values from JSON, which has lists only."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


@dataclass(frozen=True)
class Items:
    """A dataset, as a study stores it: only the ids of its items."""

    count: int
    ids: tuple[str | int, ...] | None  # None: they are numbered from 0
    race: str
    failed: str | float
    speculate: float
    finish: float = 0.0  # a share of what was spent: if the rest of everything costs less, it is evaluated
    digest: str | None = None  # of the items themselves, if they were given
    seeds: tuple[int, ...] = field(default=(), compare=False)  # of the orders in which reused scores were gathered
    earlier: tuple[str, ...] = ()  # arms of the race that this one has joined, whose winner is the first arm here
    earlier_error: float = 0.0  # the probability that its winner was wrong

    @classmethod
    def checked(
        cls, items: Any, *, family: Family, epsilon: float, race: Any, failed: Any, speculate: Any, goal: Any = BEST,
        finish: Any = None,
    ) -> Items:  # fmt: skip
        """The items as given, or an error that says what is wrong with them."""
        if not isinstance(family, Bernoulli):  # or a family derived from it: bounded
            raise InvalidInput(f"a dataset needs scores in a known range: family bounded or bernoulli, got {family}.")
        if not isinstance(failed, str):
            failed = amount(failed, "failed")
            family.check_reward(failed)
        elif failed not in (WORST, STOP):
            raise InvalidInput(f"failed must be {WORST}, {STOP} or a score, got {shown(failed)}.")
        items, more = ids_or_dataset(items), ("digest", "seeds", "earlier", "earlier_error")
        count, ids = checked_ids(items)
        return cls(
            count=count, ids=ids, race=race_of(race, epsilon, goal), failed=failed,
            speculate=settings_for("study")["speculate"].checked(speculate), finish=finish_of(finish, goal),
            **{name: getattr(items, name) for name in more if hasattr(items, name)},
        )  # fmt: skip

    def id(self, item: int) -> str | int:
        return item if self.ids is None else self.ids[item]

    @cached_property
    def numbers(self) -> Mapping[str | int, int]:
        return {id_: number for number, id_ in enumerate(self.ids or range(self.count))}

    def to_json(self) -> dict[str, Any]:
        """Its values as JSON, which has no infinity: to speculate without a limit is null."""
        return dataclasses.asdict(self) | {"speculate": None if self.speculate == math.inf else self.speculate}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Items:
        speculate = math.inf if values["speculate"] is None else values["speculate"]
        return cls(**with_tuples(values) | {"speculate": speculate})

    def __str__(self) -> str:
        first = ", ".join(str(self.id(item)) for item in range(min(self.count, 3)))
        more = f"race {self.race}, failed {self.failed}, speculate {self.speculate:g}"
        more += "" if self.digest is None else f"; fingerprint {self.digest[:8]}"
        return f"{self.count} ({first}{', ...' if self.count > 3 else ''}; {more})"

    def is_same(self, other: Items) -> bool:
        """Whether the datasets are the same, as far as that is known."""
        return (self.count, self.digest) == (other.count, other.digest)

    def order(self, seed: int) -> NDArray[np.int64]:
        return permutation(self.count, seed)


def plain_id(id_: Any) -> str | int:
    if isinstance(id_, np.integer):
        id_ = int(id_)
    is_id = isinstance(id_, (str, int)) and not isinstance(id_, bool) and id_ != ""
    if not is_id or (isinstance(id_, int) and abs(id_) >= 2**63) or len(str(id_)) > LONGEST_ID:
        raise InvalidInput(
            f"an item's id must be a string or a whole number of at most {LONGEST_ID} characters, got {shown(id_)}."
        )
    return id_  # type: ignore[no-any-return]


def ids_or_dataset(items: Any) -> Any:
    """What `create_study` was given: a number, ids, or the items themselves."""
    if isinstance(items, (bool, int, np.integer, Items, Dataset)):
        return items
    is_list = isinstance(items, Sequence) and not isinstance(items, (str, bytes))
    if is_list and not any(isinstance(each, (Mapping, list, tuple)) for each in items):
        return items
    return Dataset.of(items)


def checked_ids(items: Any) -> tuple[int, tuple[str | int, ...] | None]:
    if isinstance(items, (Items, Dataset)):
        return checked_ids(items.count if items.ids is None else items.ids)
    if isinstance(items, (int, np.integer)) and not isinstance(items, bool):
        if not 1 <= items <= MOST_ITEMS:
            raise InvalidInput(f"items must be from 1 to {MOST_ITEMS}, got {shown(items)}.")
        return int(items), None
    if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
        raise InvalidInput(f"items must be a number of items or a list of their ids, got {shown(items)}.")
    if not 1 <= len(items) <= MOST_ITEMS:
        raise InvalidInput(f"there must be from 1 to {MOST_ITEMS} items, got {len(items)}.")
    ids = tuple(map(plain_id, items))
    double, often = Counter(map(str, ids)).most_common(1)[0]
    if often > 1:
        raise InvalidInput(f"ids of items must be unique: {shown(double)} appears twice.")
    return len(ids), ids
