"""What a study is given, checked: results, and the names of workers, requests and periods."""

from __future__ import annotations

import getpass
import secrets
import socket
from collections.abc import Mapping
from typing import Any

from cabai.study.change import Result
from cabai.study.items import STOP
from cabai.study.settings import Settings
from cabai.support.validation import InvalidInput, amount, positive, shown

LONGEST_REASON = 5000  # characters of why a pull has failed that are kept


def legal(settings: Settings, number: int, reward: Any, cost: Any, failed: Any) -> Result:
    """What is told of a pull, if the settings allow it."""
    if failed is None:
        if reward is None:
            raise InvalidInput("tell needs a reward, or failed=... with the reason why there is none.")
        reward = settings.family.check_reward(reward)
    elif not isinstance(failed, str) or not failed.strip():
        raise InvalidInput(f"failed must say why the pull failed, got {failed!r}.")
    elif reward is not None:
        raise InvalidInput(f"a failed pull has no reward, got {reward!r}.")
    elif settings.items is not None and settings.items.failed == STOP:
        raise InvalidInput(
            "this study has no score for a failed evaluation (failed='stop'): release the pull and evaluate it again."
        )
    else:
        failed = storable(failed)
        if len(failed) > LONGEST_REASON:
            failed = f"{failed[:LONGEST_REASON]} ... (cut)"
    if cost is not None:
        costs = settings.costs
        free = failed is not None or settings.items is not None or (costs is not None and not all(costs))
        cost = amount(cost, "cost") if free else positive(cost, "cost")
        if cost < 0:
            raise InvalidInput(f"cost must not be negative, got {cost!r}.")
    elif settings.costs is None and failed is None:
        raise InvalidInput("tell needs a cost: this study has no known costs.")
    return Result(number, reward, cost, failed)


def fields(result: Any) -> dict[str, Any]:
    """One of the results of `tell_many`."""
    known = {"pull", "reward", "cost", "failed"}
    if not isinstance(result, Mapping) or "pull" not in result or not set(result) <= known:
        raise InvalidInput(
            f"each result must be a dictionary with a pull, and reward, cost or failed, got {shown(result)}."
        )
    return dict(result)


def checked_worker(worker: Any) -> str | None:
    """Who asks, as it can be stored."""
    kept = storable(worker) if isinstance(worker, str) else worker
    if kept is not None and (not isinstance(kept, str) or len(kept) > 200):
        raise InvalidInput(f"worker must be a string of at most 200 characters, got {worker!r}.")
    return kept


def amender(by: Any) -> str:
    """Who amends a study: as given, or else the user and the machine."""
    if by is None:
        by = f"{user()}@{socket.gethostname()}"[:200]
    kept = checked_worker(by)
    if not kept:
        raise InvalidInput("by must say who amends the study.")
    return kept


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # the user has no name
        return "somebody"


def checked_period(period: Any) -> str:
    """The name of a period; without one, it gets a unique name, so that it counts once."""
    if period is None:
        return secrets.token_hex(16)
    kept = storable(period) if isinstance(period, str) else period
    if not isinstance(kept, str) or not 1 <= len(kept) <= 200:
        raise InvalidInput(f"period must be a string of 1 to 200 characters, got {shown(period)}.")
    return kept


def checked_request(request: Any) -> str | None:
    """What a worker calls its request, as it can be stored."""
    kept = storable(request) if isinstance(request, str) else request
    if kept is not None and (not isinstance(kept, str) or not 1 <= len(kept) <= 200):
        raise InvalidInput(f"request must be a string of 1 to 200 characters, got {shown(request)}.")
    return kept


def storable(text: str) -> str:
    """A string from outside, such as an error message; NUL and surrogates, which databases refuse, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
