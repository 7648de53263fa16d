"""A pull as it is handed out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Pull:
    """One trial of an arm, handed out by `ask` and to be told once.

    >>> from cabai import create_study
    >>> arms = {"small": {"model": "m1"}, "large": {"model": "m2"}}
    >>> study = create_study("a pull", arms=arms, family="bernoulli", storage="memory")
    >>> pull = study.ask()
    >>> pull.arm, pull.number, pull.offers, pull.metadata
    ('small', 1, 1, {'model': 'm1'})

    The id is all that another process needs to tell it:

    >>> study.tell(pull.id, reward=1, cost=0.02)
    """

    id: str
    arm: str
    number: int  # in the study, from 1
    expires: float  # when the lease ends, in seconds since 1970
    offers: int = 1  # more than 1: the lease of an earlier worker ran out
    metadata: Any = field(default=None, compare=False)  # the arm's
    item: str | int | None = None  # the id of the item to evaluate, in a study with items
