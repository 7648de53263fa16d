"""What the server answers, for its OpenAPI description; the tests compare it with what the server does."""

from __future__ import annotations

from collections.abc import Iterable
from types import GenericAlias
from typing import Any, get_type_hints

from pydantic import create_model

from cabai.server.problems import SCHEMA
from cabai.study import Pull, Status
from cabai.study.show.status import LISTED
from cabai.study.state.accounts import Point


def shape(name: str, about: str | None = None, /, **fields: Any) -> Any:
    """An object with these fields, none of them left out; [kind] is a list of that kind."""
    kinds = {each: GenericAlias(list, kind[0]) if isinstance(kind, list) else kind for each, kind in fields.items()}
    made: Any = create_model(name, __doc__=about, **{each: (kind, ...) for each, kind in kinds.items()})  # type: ignore[call-overload]
    return made


def some(kind: type, names: Iterable[str]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in names}


Listed = shape("Listed", **some(Status, LISTED), sentence=str)
Handed = shape("Handed", **get_type_hints(Pull))
UNDER_WAY = ("id", "arm", "item", "number", "expires", "offers")
UnderWay = shape("UnderWay", **some(Pull, UNDER_WAY), asked=float, worker=str | None)
Past = shape("Past", **some(Point, Point._fields))
Overview = shape("Overview", studies=[Listed], damaged=list[str])
Created = shape("Created", name=str, arms=list[str])
Pulls = shape("Pulls", pulls=[Handed], amended=int)
AllUnderWay = shape("AllUnderWay", pulls=[UnderWay])
History = shape("History", history=[Past])
Failure = shape("Failure", arm=str, reason=str, count=int, last=float)
Failures = shape(
    "Failures", "Why pulls have failed, the most frequent reasons first, and the time by the storage's clock.",
    failures=[Failure], now=float,
)  # fmt: skip
IN_SHORT: dict[str, Any] = {
    "stopped": bool, "reason": str | None, "decision": str | None, "spent": float, "amended": int,
}  # fmt: skip
InShort = shape("InShort", **IN_SHORT)
Told = shape(
    "Told", "How to divide the next period, as shares by arm; empty once the study has stopped.", **IN_SHORT,
    shares=dict[str, float],
)  # fmt: skip
Split = shape("Split", pulls=dict[str, int])
Amendment = shape(
    "Amendment",
    "When it was made, by whom, what it changed (from, to), and why the study had stopped, if this let it continue.",
    made=float, by=str | None, changes=dict[str, list[Any]], reopened=str | None,
)  # fmt: skip
Amendments = shape("Amendments", amendments=[Amendment])
Log = shape(
    "Log", "Everything that ever happened, the oldest first; an event has the fields that belong to its kind.",
    log=list[dict[str, Any]],
)  # fmt: skip
Score = shape("Score", arm=str, item=str | int, score=float)
Scores = shape("Scores", scores=[Score])
About = shape("About", name=str, settings=dict[str, Any], amended=int)
PROBLEM: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem (RFC 9457): `detail` is the message that Python would show.",
        "content": {"application/problem+json": {"schema": SCHEMA}},
    }
}


def text(kind: str, description: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": description, "content": {kind: {"schema": {"type": "string"}}}}}
