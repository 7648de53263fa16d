"""The HTTP protocol of studies: what the server and its client must agree on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cabai.errors import AlreadyTold, LostPull, NoPull, StorageError, StudyNotFound, StudyStopped
from cabai.study.given import Pull
from cabai.study.show.status import ArmStatus, Forecast, Status
from cabai.support.validation import InvalidInput

PREFIX = "urn:cabai:"
# The errors that travel, by the last word of their problem's `type`; an error is of the first kind that it is.
ERRORS: dict[str, type[Exception]] = {
    "study-not-found": StudyNotFound,
    "already-told": AlreadyTold,
    "lost-pull": LostPull,
    "invalid-input": InvalidInput,
    "study-stopped": StudyStopped,
    "no-pull": NoPull,
    "storage-failed": StorageError,
}
LARGEST = 10**6  # bytes of a request
LISTED = ("name", "stopped", "reason", "decision", "leader", "pulls", "spent")  # of each study in a list
HANDED = ("id", "arm", "item", "number", "expires", "offers", "metadata")  # of a pull


def pull_to(pull: Pull) -> dict[str, Any]:
    return {name: getattr(pull, name) for name in HANDED}


def pull_from(values: Mapping[str, Any]) -> Pull:
    return Pull(**{name: values[name] for name in HANDED})


def status_from(values: Mapping[str, Any]) -> Status:
    """A status from its `to_dict`; what a newer server adds to it is left out."""
    arms = [ArmStatus(**known(ArmStatus, arm)) for arm in values["arms"]]
    forecast = values.get("forecast")
    more = {"arms": arms, "forecast": None if forecast is None else Forecast(**known(Forecast, forecast))}
    return Status(**known(Status, values) | more)


def known(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in dataclasses.fields(kind) if field.name in values}
