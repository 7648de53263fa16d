"""What the server answers, for its OpenAPI description; the tests compare it with what the server does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_type_hints

from pydantic import BaseModel, create_model

from cabai.server.problems import SCHEMA
from cabai.study import Pull, Status
from cabai.study.state.accounts import Point
from cabai.study.wire import HANDED, LISTED


def fields_of(name: str, kind: type, names: Iterable[str], **more: Any) -> Any:
    """Some fields of a class as JSON, none of them left out; and others."""
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {each: (hints[each], ...) for each in names}
    return create_model(name, **fields | {each: (what, ...) for each, what in more.items()})


Listed = fields_of("Listed", Status, LISTED, sentence=str)
Handed = fields_of("Handed", Pull, HANDED)
UnderWay = fields_of("UnderWay", Pull, (each for each in HANDED if each != "metadata"), asked=float, worker=str | None)
Past = fields_of("Past", Point, Point._fields)


class Overview(BaseModel):
    studies: list[Listed]  # type: ignore[valid-type]
    damaged: list[str]


class Created(BaseModel):
    name: str
    arms: list[str]


class Pulls(BaseModel):
    pulls: list[Handed]  # type: ignore[valid-type]
    amended: int


class AllUnderWay(BaseModel):
    pulls: list[UnderWay]  # type: ignore[valid-type]


class History(BaseModel):
    history: list[Past]  # type: ignore[valid-type]


class Failure(BaseModel):
    arm: str
    reason: str
    count: int
    last: float


class Failures(BaseModel):
    """Why pulls have failed, the most frequent reasons first, and the time by the storage's clock."""

    failures: list[Failure]
    now: float


class InShort(BaseModel):
    stopped: bool
    reason: str | None
    decision: str | None
    spent: float
    amended: int


class Told(InShort):
    """How to divide the next period, as shares by arm; empty once the study has stopped."""

    shares: dict[str, float]


class Split(BaseModel):
    pulls: dict[str, int]


class Amendment(BaseModel):
    """When it was made, by whom, what it changed (from, to), and why the study had stopped, if this let it continue."""

    made: float
    by: str | None
    changes: dict[str, list[Any]]
    reopened: str | None


class Amendments(BaseModel):
    amendments: list[Amendment]


class Log(BaseModel):
    """Everything that ever happened, the oldest first; an event has the fields that belong to its kind."""

    log: list[dict[str, Any]]


class Score(BaseModel):
    arm: str
    item: str | int
    score: float


class Scores(BaseModel):
    scores: list[Score]


class About(BaseModel):
    name: str
    settings: dict[str, Any]
    amended: int


PROBLEM: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem (RFC 9457): `detail` is the message that Python would show.",
        "content": {"application/problem+json": {"schema": SCHEMA}},
    }
}


def text(kind: str, description: str) -> dict[int | str, dict[str, Any]]:
    """A response that is not only JSON."""
    return {200: {"description": description, "content": {kind: {"schema": {"type": "string"}}}}}
