"""What went wrong, in the format of RFC 9457, with the message that Python would show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from cabai.study import Study
from cabai.study.wire import ERRORS, PREFIX

CODES = {
    "study-not-found": 404, "already-told": 409, "lost-pull": 409, "invalid-input": 422, "no-pull": 409,
    "storage-failed": 503,
}  # fmt: skip
TITLES = {
    "study-not-found": "There is no such study",
    "already-told": "The pull was told before, with other values",
    "lost-pull": "Another worker has the pull now",
    "invalid-input": "A value is not allowed",
    "no-pull": "There is nothing to pull now",
    "study-stopped": "The study has stopped",
    "storage-failed": "The storage failed",
    "no-access": "A token is needed",
    "read-only": "The token is for reading only",
    "too-many-attempts": "Too many wrong tokens",
    "too-many-requests": "Too many requests at a time",
    "wrong-host": "The server does not answer to that name",
    "foreign-origin": "Requests from other sites are refused",
    "not-json": "The request must be JSON",
    "too-large": "The request is too large",
    "too-slow": "The request took too long",
    "too-many-streams": "Too many event streams",
    "no-such-path": "There is no such path",
    "no-such-method": "The path does not allow that method",
    "bad-request": "The request cannot be read",
    "server-error": "The server failed",
}
SOON = {"Retry-After": "1"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "enum": [PREFIX + kind for kind in TITLES]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, in a sentence: the message of Python's exception."},
        "reason": {"type": "string", "description": "Why the study stopped."},
        "decision": {"type": ["string", "null"], "description": "The best arm, if the study stopped with a decision."},
        "sentence": {"type": "string", "description": "The status of the stopped study, in a sentence."},
        "next": {"type": "string", "description": "What would let it continue."},
    },
}


class Json(Response):
    """JSON in plain ASCII, whatever characters names contain."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False).encode("ascii")


def problem(kind: str, status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    about = {"type": PREFIX + kind, "title": TITLES[kind], "status": status, "detail": detail, **more}
    return Json(about, status, headers, media_type="application/problem+json")


def kind_of(error: Exception) -> str:
    return next(kind for kind, each in ERRORS.items() if isinstance(error, each))


def problem_of(error: Exception, detail: str) -> Response:
    """An error of a study."""
    kind = kind_of(error)
    return problem(kind, CODES[kind], detail, SOON if kind in ("no-pull", "storage-failed") else None)


def stopped(study: Study, detail: str) -> Response:
    """There is nothing left to pull, for good if the study is decided."""
    status = study.status()
    about: dict[str, Any] = {"reason": status.reason, "decision": status.decision, "sentence": status.sentence}
    if status.decision is not None:
        return problem("study-stopped", 410, detail, **about)
    more = "This study has ended: continue in a new one."
    if status.reason in ("max_cost", "max_pulls"):
        more = f"Amend it with a larger {status.reason} to continue."
    return problem("study-stopped", 409, detail, **about, next=more)
