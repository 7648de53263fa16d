"""What went wrong, in the format of RFC 9457, with the message that Python would show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import HTMLResponse, Response

from cabai import views
from cabai.study import Study
from cabai.study.http import ERRORS, PREFIX

# What can go wrong, by the last word of its `type`: the status, and a title.
PROBLEMS = {
    "study-not-found": (404, "There is no such study"),
    "already-told": (409, "The pull was told before, with other values"),
    "lost-pull": (409, "Another worker has the pull now"),
    "invalid-input": (422, "A value is not allowed"),
    "no-pull": (409, "There is nothing to pull now"),
    "study-stopped": (409, "The study has stopped"),
    "storage-failed": (503, "The storage failed"),
    "no-access": (401, "A token is needed"),
    "read-only": (403, "The token is for reading only"),
    "too-many-attempts": (429, "Too many wrong tokens"),
    "too-many-requests": (429, "Too many requests at a time"),
    "wrong-host": (421, "The server does not answer to that name"),
    "foreign-origin": (403, "Requests from other sites are refused"),
    "not-json": (415, "The request must be JSON"),
    "too-large": (413, "The request is too large"),
    "too-slow": (408, "The request took too long"),
    "too-many-streams": (503, "Too many event streams"),
    "no-such-path": (404, "There is no such path"),
    "no-such-method": (405, "The path does not allow that method"),
    "bad-request": (400, "The request cannot be read"),
    "server-error": (500, "The server failed"),
}
SOON = {"Retry-After": "1"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "enum": [PREFIX + kind for kind in PROBLEMS]},
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


def problem(
    kind: str, detail: str, headers: Mapping[str, str] | None = None, *, status: int | None = None, **more: Any
) -> Response:
    usual, title = PROBLEMS[kind]
    about = {"type": PREFIX + kind, "title": title, "status": status or usual, "detail": detail, **more}
    return Json(about, status or usual, headers, media_type="application/problem+json")


def message(
    title: str, text: str, status: int = 200, headers: Mapping[str, str] | None = None, *, onward: str = ""
) -> Response:
    """A page for a browser: one message, and a link to `onward`."""
    return HTMLResponse(views.render("message.html", title=title, text=text, onward=onward), status, headers)


def problem_of(error: Exception, detail: str) -> Response:
    kind = next(kind for kind, each in ERRORS.items() if isinstance(error, each))
    return problem(kind, detail, SOON if kind in ("no-pull", "storage-failed") else None)


def stopped(study: Study, detail: str) -> Response:
    """There is nothing left to pull, for good if the study is decided."""
    status = study.status()
    about: dict[str, Any] = {"reason": status.reason, "decision": status.decision, "sentence": status.sentence}
    if status.decision is not None:
        return problem("study-stopped", detail, status=410, **about)
    more = "This study has ended: continue in a new one."
    if status.reason in ("max_cost", "max_pulls"):
        more = f"Amend it with a larger {status.reason} to continue."
    return problem("study-stopped", detail, **about, next=more)
