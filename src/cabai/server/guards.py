"""What every request passes before any of our code looks at it: host, origin, token, type and size.

Pure ASGI, around the whole application, so that no path can forget it: reading needs a token of either kind, and every
other method needs the token for working.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cabai.server.access import WORK, Access, Rates
from cabai.server.problems import message, problem
from cabai.study.http import LARGEST

PATIENCE = 16 * LARGEST  # bytes of a request that is too large that are read, but not kept, before the response
SLOWEST = 30.0  # seconds until a request is complete
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGES = re.compile(r"/(studies/[^/]+)?")  # what people open in a browser


class Guards:
    """Wraps an application: refuses bad requests, and adds the headers to every response."""

    def __init__(self, app: ASGIApp, access: Access, hosts: Iterable[str]) -> None:
        self.app, self.access, self.hosts = app, access, {plain_host(host) for host in hosts}
        self.rates = Rates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        # Names may contain a slash, written %2F: paths are matched as they were written, and decoded afterwards.
        scope = {**scope, "path": (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")}
        try:
            answer = self.refusal(scope) or self.entrance(scope)
            if answer is None and scope["method"] == "POST":
                body = await whole_body(scope, receive)
                answer = body if isinstance(body, Response) else None
                receive = replayed(body, receive) if isinstance(body, bytes) else receive
            await (answer or self.app)(scope, receive, guarded)
        except Exception:  # only the server's log says what it was
            logging.getLogger("cabai.server").exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            detail = (
                "The server failed: its log says why. Everything acknowledged before is stored; this call was not "
                "acknowledged."
            )
            await problem("server-error", detail)(scope, receive, guarded)

    def refusal(self, scope: Scope) -> Response | None:
        """The reason why a request is refused, if it is."""
        headers, method = Headers(scope=scope), scope["method"]
        host = headers.get("host", "")
        if plain_host(host) not in self.hosts:
            detail = f"this server does not answer to the name {host[:200]!r}: add it with cabai serve --allow-host."
            return problem("wrong-host", detail)
        if self.rates.wait(address_in(scope)) is not None:
            detail = "too many requests from this address at a time: send fewer, or wait a second."
            return problem("too-many-requests", detail, {"Retry-After": "1"})
        if is_foreign(headers, scope, host):
            return problem("foreign-origin", "requests from pages of other sites are refused.")
        if entry_token(scope) is not None:
            return None
        kind = self.access.kind_of(token_in(headers, self.access.cookie))
        if kind is None:
            return self.no_access(scope)
        if method not in ("GET", "POST"):
            return None  # no path allows it
        if method == "POST" and kind != WORK:
            return problem("read-only", "this token is for reading only: changing a study needs the other token.")
        if method == "POST" and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return problem("not-json", "a request must be JSON, with Content-Type: application/json.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > PATIENCE:
            return too_large()
        return None

    def no_access(self, scope: Scope) -> Response:
        # A valid token is always accepted, so that one worker with an old token does not lock out the others on its
        # machine; tokens are too long to be guessed.
        wait = self.access.wrong.wait(address_in(scope))
        if wait is not None:
            detail = "too many requests without a valid token from this address: check your token."
            return problem("too-many-attempts", detail, {"Retry-After": f"{math.ceil(wait)}"})
        if is_page(scope) and "text/html" in Headers(scope=scope).get("accept", ""):
            text = "Open the address that cabai serve printed: it ends with the token."
            return message("A token is needed", text, 401, {"WWW-Authenticate": "Bearer"})
        has_one = Headers(scope=scope).get("authorization", "").removeprefix("Bearer").strip()
        detail = (
            f"{'the token is not one of this server' if has_one else 'a token is needed'}: `Authorization: Bearer "
            "TOKEN`, or in a browser the address that cabai serve printed."
        )
        return problem("no-access", detail, {"WWW-Authenticate": "Bearer"})

    def entrance(self, scope: Scope) -> Response | None:
        """The page with a token in its address: the token is moved from the address to a cookie."""
        token = entry_token(scope)
        if token is None:
            return None
        if self.access.kind_of(token) is None:
            return self.no_access(scope)
        answer: Response = RedirectResponse(scope["path"], 303)
        if Headers(scope=scope).get("sec-fetch-site") == "cross-site":
            # By a link on another site: its browser keeps the cookie from a redirection, but not from a page of ours.
            answer = message("cabai", "Your token is stored in this browser.", onward=scope["path"])
        cookie = {"httponly": True, "samesite": "strict", "secure": scope["scheme"] == "https", "path": "/"}
        answer.set_cookie(self.access.cookie, self.access.pass_, **cookie)
        return answer


def address_in(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def entry_token(scope: Scope) -> str | None:
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [None])[0] if is_page(scope) else None


def is_page(scope: Scope) -> bool:
    return scope["method"] == "GET" and PAGES.fullmatch(scope["path"]) is not None


def plain_host(host: str) -> str:
    """A host's name without its port.

    >>> plain_host("LOCALHOST:8000"), plain_host("[::1]:8000"), plain_host("::1"), plain_host("a:b@c")
    ('localhost', '::1', '::1', '')
    """
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return ""
    return "" if "@" in host or "/" in host else (parts.hostname or "").rstrip(".")


def is_foreign(headers: Headers, scope: Scope, host: str) -> bool:
    """Whether a page of another site makes the request; following a link to our page is not that."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none").lower()
    if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
        return True
    follows = is_page(scope) and headers.get("sec-fetch-mode") == "navigate"
    return site not in ("none", "same-origin") and not follows


def token_in(headers: Headers, cookie: str) -> str:
    """The token of a request, from its header or its cookie; empty if there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme:
        return token.strip() if scheme.lower() == "bearer" else ""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(cookie)
    except CookieError:
        return ""
    return "" if found is None else found.value


def too_large() -> Response:
    return problem("too-large", f"a request may have at most {LARGEST} bytes.", {"Connection": "close"})


async def whole_body(scope: Scope, receive: Receive) -> bytes | Response:
    """The body of a request, or why it is refused."""
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(SLOWEST):
            async for part in Request(scope, receive).stream():
                size += len(part)
                if size <= LARGEST:
                    parts.append(part)
                if size > PATIENCE:
                    break
    except ClientDisconnect:
        return problem("bad-request", "the request ended before it was complete.")
    except TimeoutError:
        return problem("too-slow", f"a request must be complete within {SLOWEST:g} seconds.")
    return too_large() if size > LARGEST else b"".join(parts)


def replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns a body which was read before."""
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
