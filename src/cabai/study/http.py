"""Requests to `cabai serve`, with the standard library only: one connection per thread, kept open.

Every request is safe to repeat. One whose answer was lost is repeated until the server is back: asking has a key, and
telling the same again changes nothing.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import ssl
import threading
import time
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from cabai.errors import AlreadyTold, LostPull, NoPull, StorageError, StudyNotFound, StudyStopped
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
TOKEN = "CABAI_TOKEN"  # the environment variable
TIMEOUT = 150.0  # seconds for one answer: the server itself waits up to two minutes for its database
PATIENCE = 120.0  # seconds within which a lost server may come back
PAUSE = (0.05, 2.0)  # seconds before a request is repeated, from and to
TOO_MANY = b"too-many-requests"  # at a time: the same request may be repeated a little later
BROKEN = (OSError, http.client.HTTPException)
STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class Plain(http.client.HTTPConnection):
    """A connection that is closed when it is no longer needed: its thread has ended, or its study is gone."""

    def __del__(self) -> None:
        self.close()


class Secure(http.client.HTTPSConnection):
    __del__ = Plain.__del__


class Server:
    """A server, by its address; its token is in the address, `http://TOKEN@HOST:PORT`, or in the environment."""

    def __init__(self, address: str) -> None:
        try:
            parts = urlsplit(address)
            self.host, self.port = parts.hostname or "", parts.port
        except ValueError:
            raise InvalidInput("the storage's address must be like http://HOST:PORT, and cannot be read.") from None
        query = parse_qs(parts.query)
        if not self.host or parts.path not in ("", "/") or parts.fragment or not set(query) <= {"token"}:
            raise InvalidInput(f"the storage's address must be {parts.scheme}://HOST:PORT and nothing more.")
        in_address = unquote(parts.username or "") or query.get("token", [""])[0]
        self.token = in_address or os.environ.get(TOKEN, "")
        if not self.token.isascii() or not self.token.isprintable():
            raise InvalidInput("the token must be plain text, as `cabai serve` printed it.")
        self.is_secure = parts.scheme.lower() == "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.url = f"{parts.scheme.lower()}://{host}" + ("" if self.port is None else f":{self.port}")
        self.was_reached = False
        self._of_thread = threading.local()  # connections, by process: that of the parent of a fork is not used

    def call(self, *path: str, body: Any = None, key: str | None = None, **query: str) -> Any:
        """Make a request, with a body a POST, and repeat it if its answer is lost; returns the answer, or raises what
        Python would."""
        target = "/api/" + "/".join(quote(part, safe="") for part in path) + ("?" + urlencode(query) if query else "")
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json", "Connection": "keep-alive"}
        method, content = "GET", None
        if body is not None:
            method, content = "POST", json.dumps(body, allow_nan=False).encode("ascii")
            headers["Content-Type"] = "application/json"
            if len(content) > LARGEST:
                raise InvalidInput(f"a request has at most {LARGEST} bytes, got {len(content)}: send less at a time.")
        if key is not None:
            headers["Idempotency-Key"] = key
        deadline, pause = time.monotonic() + PATIENCE, PAUSE[0]
        while True:
            try:
                status, text = self._once(method, target, content, headers)
                if status != 429 or TOO_MANY not in text or time.monotonic() > deadline:
                    break
            except BROKEN as error:
                vars(self._of_thread).pop(str(os.getpid()), None)
                wrong = isinstance(error, ssl.SSLCertVerificationError)
                if wrong or not self.was_reached or time.monotonic() > deadline:
                    reason = " ".join(str(error).split()) or type(error).__name__
                    raise StorageError(
                        f"the server {self.url} cannot be reached: {reason}. Everything acknowledged before is stored; "
                        "this call was not acknowledged."
                    ) from error
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, PAUSE[1])
        self.was_reached = True
        return self._answer(status, text)

    def _once(self, *request: Any) -> tuple[int, bytes]:
        """One request on this thread's connection, or on a new one if the server has closed it."""
        connections, process = vars(self._of_thread), str(os.getpid())
        if process in connections:
            try:
                return exchanged(connections[process], *request)
            except STALE:
                del connections[process]
        made = Secure if self.is_secure else Plain
        connections[process] = made(self.host, self.port, timeout=TIMEOUT)
        return exchanged(connections[process], *request)

    def _answer(self, status: int, text: bytes) -> Any:
        try:
            found = json.loads(text)
        except ValueError:
            wrong = f"{self.url} answered {status}, but not as cabai serve does: is it a cabai server?"
            raise StorageError(wrong) from None
        if status < 300:
            return found
        about = found if isinstance(found, dict) else {}
        kind, detail = str(about.get("type", "")).removeprefix(PREFIX), str(about.get("detail", ""))
        if kind in ERRORS:
            raise ERRORS[kind](detail)
        if status >= 500:
            raise StorageError(f"{self.url} failed: {detail or status}")
        hint = f" Write http://TOKEN@HOST:PORT, or set {TOKEN} in the environment."
        hint = "" if self.token or status not in (401, 403, 429) else hint
        raise InvalidInput(f"{self.url} refused: {detail or status}{hint}")


def exchanged(connection: http.client.HTTPConnection, *request: Any) -> tuple[int, bytes]:
    connection.request(*request)
    answer = connection.getresponse()
    text = answer.read()
    if answer.getheader("Content-Length", "") != str(len(text)) and not answer.chunked:  # it was cut among its headers
        raise http.client.IncompleteRead(text)
    return answer.status, text
