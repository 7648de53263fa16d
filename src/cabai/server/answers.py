"""What the server answers, for its OpenAPI description; the tests compare it with what the server does."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from cabai.server.problems import SCHEMA


class Listed(BaseModel):
    name: str
    stopped: bool
    reason: str | None
    decision: str | None
    leader: str | None
    pulls: int
    spent: float
    sentence: str


class Overview(BaseModel):
    studies: list[Listed]
    damaged: list[str]


class Created(BaseModel):
    name: str
    arms: list[str]


class Handed(BaseModel):
    """A pull, as `ask` hands it out."""

    id: str
    arm: str
    item: str | int | None
    number: int
    expires: float
    offers: int
    metadata: Any


class Pulls(BaseModel):
    pulls: list[Handed]
    amended: int


class UnderWay(BaseModel):
    id: str
    arm: str
    item: str | int | None
    number: int
    asked: float
    expires: float
    offers: int
    worker: str | None


class AllUnderWay(BaseModel):
    pulls: list[UnderWay]


class Past(BaseModel):
    told: int
    time: float
    spent: float
    arms: int
    leader: str | None
    rival: str | None
    evidence: float | None
    required: float | None
    progress: float | None
    lead: float | None


class History(BaseModel):
    history: list[Past]


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
