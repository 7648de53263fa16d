"""What the server answers, for its OpenAPI description; the tests compare it with what the server does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_type_hints

from pydantic import create_model

from cabai.server.problems import SCHEMA
from cabai.study import Pull, Status
from cabai.study.state.accounts import Point
from cabai.study.wire import HANDED, LISTED


def answer(title: str, of: type | None = None, fields: Iterable[str] = (), doc: str | None = None, **more: Any) -> Any:
    """Some fields of a class as JSON, and others; none of them is left out."""
    kinds = get_type_hints(of) if of is not None else {}
    told = {each: kinds[each] for each in fields} | more
    model: Any = create_model(title, __doc__=doc, **{each: (kind, ...) for each, kind in told.items()})  # type: ignore[call-overload]
    return model


Listed = answer("Listed", Status, LISTED, sentence=str)
Handed = answer("Handed", Pull, HANDED)
UnderWay = answer("UnderWay", Pull, (each for each in HANDED if each != "metadata"), asked=float, worker=str | None)
Past = answer("Past", Point, Point._fields)
Failure = answer("Failure", arm=str, reason=str, count=int, last=float)
Amendment = answer(
    "Amendment", made=float, by=str | None, changes=dict[str, list[Any]], reopened=str | None,
    doc="When it was made, by whom, what it changed (from, to), and why the study had stopped, if this let it "
    "continue.",
)  # fmt: skip
Score = answer("Score", arm=str, item=str | int, score=float)
IN_SHORT = {"stopped": bool, "reason": str | None, "decision": str | None, "spent": float, "amended": int}

Overview = answer("Overview", studies=list[Listed], damaged=list[str])
Created = answer("Created", name=str, arms=list[str])
Pulls = answer("Pulls", pulls=list[Handed], amended=int)
AllUnderWay = answer("AllUnderWay", pulls=list[UnderWay])
History = answer("History", history=list[Past])
Failures = answer(
    "Failures", failures=list[Failure], now=float,
    doc="Why pulls have failed, the most frequent reasons first, and the time by the storage's clock.",
)  # fmt: skip
InShort = answer("InShort", **IN_SHORT)
Told = answer(
    "Told", **IN_SHORT, shares=dict[str, float],
    doc="How to divide the next period, as shares by arm; empty once the study has stopped.",
)  # fmt: skip
Split = answer("Split", pulls=dict[str, int])
Amendments = answer("Amendments", amendments=list[Amendment])
Log = answer(
    "Log", log=list[dict[str, Any]],
    doc="Everything that ever happened, the oldest first; an event has the fields that belong to its kind.",
)  # fmt: skip
Scores = answer("Scores", scores=list[Score])
About = answer("About", name=str, settings=dict[str, Any], amended=int)


PROBLEM: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem (RFC 9457): `detail` is the message that Python would show.",
        "content": {"application/problem+json": {"schema": SCHEMA}},
    }
}


def text(kind: str, description: str) -> dict[int | str, dict[str, Any]]:
    """A response that is not only JSON."""
    return {200: {"description": description, "content": {kind: {"schema": {"type": "string"}}}}}
