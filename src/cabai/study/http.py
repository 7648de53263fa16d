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
from urllib.parse import parse_qs, quote, unquote, urlsplit

from cabai.errors import StorageError
from cabai.study.wire import ERRORS, LARGEST, PREFIX
from cabai.support.validation import InvalidInput

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
    """A server, by its address: `http://HOST:PORT`, with its token as in `http://TOKEN@HOST:PORT`, or as `cabai serve`
    printed it, or in the environment."""

    def __init__(self, address: str) -> None:
        try:
            parts = urlsplit(address)
            self.host, self.port = parts.hostname or "", parts.port
        except ValueError:
            raise InvalidInput(
                "the storage's address must be like http://HOST:PORT; this one cannot be read."
            ) from None
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
        self._of_thread = threading.local()

    def get(self, *path: str, **query: str) -> Any:
        return self.send("GET", path, query=query)

    def post(self, *path: str, body: Any = None, key: str | None = None) -> Any:
        return self.send("POST", path, {} if body is None else body, key)

    def send(
        self, method: str, path: tuple[str, ...], body: Any = None, key: str | None = None, query: Any = None
    ) -> Any:
        """Make a request, and repeat it if its answer is lost; returns the answer, or raises what Python would."""
        target = "/api/" + "/".join(quote(part, safe="") for part in path)
        target += "?" + "&".join(f"{name}={quote(value)}" for name, value in query.items()) if query else ""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json", "Connection": "keep-alive"}
        content = None
        if body is not None:
            content = json.dumps(body, allow_nan=False).encode("ascii")
            headers["Content-Type"] = "application/json"
            if len(content) > LARGEST:
                raise InvalidInput(
                    f"a request may have at most {LARGEST} bytes, got {len(content)}: send less at a time."
                )
        if key is not None:
            headers["Idempotency-Key"] = key
        deadline, pause = time.monotonic() + PATIENCE, PAUSE[0]
        while True:
            try:
                status, text = self._once(method, target, content, headers)
                if status != 429 or TOO_MANY not in text or time.monotonic() > deadline:
                    break
            except BROKEN as error:
                self._close()
                wrong = isinstance(error, ssl.SSLCertVerificationError)
                if wrong or not self.was_reached or time.monotonic() > deadline:
                    raise self._lost(error) from error
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, PAUSE[1])
        self.was_reached = True
        return self._answer(status, text)

    def _once(self, method: str, target: str, content: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        """One request on this thread's connection, or on a new one if the server has closed it."""
        connection = getattr(self._of_thread, "connection", None)
        if connection is not None and self._of_thread.process == os.getpid():  # not that of the parent of a fork
            try:
                return exchanged(connection, method, target, content, headers)
            except STALE:
                self._close()
        made = Secure if self.is_secure else Plain
        connection = self._of_thread.connection = made(self.host, self.port, timeout=TIMEOUT)
        self._of_thread.process = os.getpid()
        return exchanged(connection, method, target, content, headers)

    def _close(self) -> None:
        connection = getattr(self._of_thread, "connection", None)
        self._of_thread.connection = None
        if connection is not None:
            connection.close()

    def _lost(self, error: Exception) -> StorageError:
        reason = " ".join(str(error).split()) or type(error).__name__
        return StorageError(
            f"the server {self.url} cannot be reached: {reason}. Everything acknowledged before is stored; this call "
            "was not acknowledged."
        )

    def _answer(self, status: int, text: bytes) -> Any:
        try:
            found = json.loads(text)
        except ValueError:
            raise StorageError(
                f"{self.url} answered {status}, but not as cabai serve does: is it a cabai server?"
            ) from None
        if status < 300:
            return found
        kind = str(found.get("type", "")).removeprefix(PREFIX) if isinstance(found, dict) else ""
        detail = str(found.get("detail", "")) if isinstance(found, dict) else ""
        if kind in ERRORS:
            raise ERRORS[kind](detail)
        if status in (401, 403, 429):
            hint = "" if self.token else f" Write http://TOKEN@HOST:PORT, or set {TOKEN} in the environment."
            raise InvalidInput(f"{self.url} refused: {detail}{hint}")
        if status < 500:
            raise InvalidInput(f"{self.url} refused: {detail or status}")
        raise StorageError(f"{self.url} failed: {detail or status}")


def exchanged(
    connection: http.client.HTTPConnection, method: str, target: str, content: bytes | None, headers: dict[str, str]
) -> tuple[int, bytes]:
    connection.request(method, target, content, headers)
    answer = connection.getresponse()
    text = answer.read()
    if answer.getheader("Content-Length", "") != str(len(text)) and not answer.chunked:  # it was cut among its headers
        raise http.client.IncompleteRead(text)
    return answer.status, text
