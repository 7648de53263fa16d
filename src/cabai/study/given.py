"""What a study hands out and is given: pulls and results, checked; and the names of workers, requests and periods."""

from __future__ import annotations

import getpass
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cabai.settings import STOP
from cabai.study.settings import Settings
from cabai.study.stand_ins import StandIn
from cabai.support.validation import InvalidInput, not_negative, positive, shown

TOLD = ("pull", "reward", "cost", "failed")  # what is told of a pull
MOST_PULLS = 2**17  # one `ask` hands out fewer: everybody else waits for it
LONGEST_LABEL = 200  # characters of the name of a worker, a request or a period
LONGEST_REASON = 5000  # characters of why a pull has failed that are kept


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


class Result(NamedTuple):
    number: int
    reward: float | None = None
    cost: float | None = None
    failed: str | None = None
    pull: str = ""  # its id


def checked_result(
    settings: Settings, reward: Any = None, cost: Any = None, failed: Any = None, *, number: int = 0, pull: str = ""
) -> Result:
    """The result of a pull, checked as far as that depends on what never changes."""
    if isinstance(settings.family, StandIn):  # only the server, which has the user's own code, can check it
        return Result(number, reward, cost, failed, pull)
    if failed is None:
        if reward is None:
            raise InvalidInput("a result needs a reward or, in `failed`, the reason why there is none.")
        reward = settings.family.check_reward(reward)
    elif not isinstance(failed, str) or not failed.strip():
        raise InvalidInput(f"failed must say why the pull failed, got {failed!r}.")
    elif reward is not None:
        raise InvalidInput(f"a failed pull has no reward, got {reward!r}.")
    elif settings.items is not None and settings.items.failed == STOP:
        raise InvalidInput(
            "failed='stop' leaves a failed evaluation without a score: release the pull, and try it again."
        )
    else:
        failed = storable(failed)
        if len(failed) > LONGEST_REASON:
            failed = f"{failed[:LONGEST_REASON]} ... (cut)"
    if cost is not None:
        is_learned = settings.costs is None and failed is None and settings.items is None
        cost = positive(cost, "cost") if is_learned else not_negative(cost, "cost")
    elif settings.costs is None and failed is None:
        raise InvalidInput("a result needs a cost: this study has no known costs.")
    return Result(number, reward, cost, failed, pull)


def checked_label(given: Any, what: str, least: int = 1) -> str | None:
    """The name of a worker, a request or a period, as it can be stored; None if there is none."""
    if given is None:
        return None
    kept = storable(given) if isinstance(given, str) else ""
    if not isinstance(given, str) or not least <= len(kept) <= LONGEST_LABEL:
        length = f"{least} to {LONGEST_LABEL}" if least else f"at most {LONGEST_LABEL}"
        raise InvalidInput(f"{what} must be a string of {length} characters, got {shown(given)}.")
    return kept


def amender(by: Any) -> str:
    """Who amends a study: as given, or else the user and the machine."""
    if by is None:
        user = "somebody"
        with suppress(KeyError, OSError, ImportError):  # the user has no name
            user = getpass.getuser()
        by = f"{user}@{socket.gethostname()}"[:LONGEST_LABEL]
    kept = checked_label(by, "worker", least=0)
    if not kept:
        raise InvalidInput("by must say who amends the study.")
    return kept


def storable(text: str) -> str:
    """A string from outside, such as an error message; NUL and surrogates, which databases refuse, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
