"""Running the service: where it listens, to whom, and until when; and the page of one study, while it runs."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from cabai.server.access import READ, WORK, Access, tokens_in
from cabai.server.app import make_app
from cabai.server.connections import TimedConnection
from cabai.server.studies import OpenStudies
from cabai.study import Study
from cabai.study.create import is_served
from cabai.study.log.storage import open_storage
from cabai.support.validation import InvalidInput

ANYWHERE = ("0.0.0.0", "::")
QUEUE = 2048  # connections that may wait to be accepted


def serve(
    storage: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: str | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    behind_proxy: bool = False,
    allow_hosts: Sequence[str] = (),
    ready: Callable[[str], None] = print,
) -> None:
    """Serve the studies of a storage until Ctrl-C; `ready` is called with the address, including its token."""
    if (certfile is None) != (keyfile is None):
        raise InvalidInput("--certfile and --keyfile belong together: give both, a certificate and its key.")
    is_secure = certfile is not None
    check_place(host, allow_hosts, is_private=is_secure or behind_proxy)
    if is_served(storage):
        raise InvalidInput("--storage must be a database: a server cannot serve another server.")
    open_storage(storage)  # so that errors appear now
    access = Access.new() if token_file is None else tokens_in(token_file)
    app = make_app(storage, access, [*([] if host in ANYWHERE else [host]), *allow_hosts])
    config = configured(app, certfile, keyfile, behind_proxy=behind_proxy)
    try:
        config.load()
    except OSError as error:  # ssl's own errors too
        raise InvalidInput(f"cannot use {certfile} with {keyfile}: {error.strerror or error}.") from None
    bound = bind(host, port)
    shown = next(iter(allow_hosts), "127.0.0.1") if host in ANYWHERE else host
    name = f"[{shown}]" if ":" in shown else shown
    ready(f"http{'s' if is_secure else ''}://{name}:{bound.getsockname()[1]}/?token={access.tokens[WORK]}")
    try:
        StreamingServer(config).run(sockets=[bound])
    except KeyboardInterrupt:  # the normal end of a server
        pass
    finally:
        bound.close()


def configured(
    app: FastAPI, certfile: str | None = None, keyfile: str | None = None, *, behind_proxy: bool = False
) -> uvicorn.Config:
    """The settings of the server. Requests are not logged: an address may contain a token."""
    return uvicorn.Config(
        app, http=TimedConnection, ws="none", log_level="warning", access_log=False, server_header=False,
        ssl_certfile=certfile, ssl_keyfile=keyfile, proxy_headers=behind_proxy,
        forwarded_allow_ips="*" if behind_proxy else None, timeout_keep_alive=75, timeout_graceful_shutdown=5,
    )  # fmt: skip


class StreamingServer(uvicorn.Server):
    """Ends event streams first: they would keep a server waiting forever."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.end_streams()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # of what a second Ctrl-C cuts off
        super().handle_exit(sig, frame)

    def end(self) -> None:
        """End soon; may be called from any thread."""
        self.end_streams()
        self.should_exit = True

    def end_streams(self) -> None:
        app: Any = self.config.app
        app.state.streams.over.set()


def check_place(host: str, allow_hosts: Sequence[str], *, is_private: bool) -> None:
    """Refuse to listen where others could read the traffic."""
    if is_loopback(host):
        return
    if not is_private:
        raise InvalidInput(
            f"to listen on {host}, tokens and results must be encrypted in transit: give --certfile and --keyfile, or "
            "--behind-proxy if a proxy encrypts them. 127.0.0.1, for this machine only, needs neither."
        )
    if host in ANYWHERE and not allow_hosts:
        raise InvalidInput(
            f"to listen on {host}, give the names that the server is reached by: --allow-host NAME, once for each."
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """Open the port now, so that an error is one line."""
    bound: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        if os.name == "posix":  # elsewhere it would share a port that another program has
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(QUEUE)
        return bound
    except OSError as error:
        if bound is not None:
            bound.close()
        reason = error.strerror or error
        raise InvalidInput(f"cannot listen on {host}, port {port}: {reason}. --port 0 picks a free one.") from None


@contextmanager
def live_page(study: Study) -> Iterator[str]:
    """Serve the page of a study, read-only, on a free port of this machine; returns its address, with a token."""
    path = f"/studies/{quote(study.name, safe='')}"
    if is_served(study.storage):  # it has its page there
        yield f"{study.storage}{path}"
        return
    access = Access.new()
    app = make_app(OpenStudies(study.storage, only=study), access)
    app.state.streams.last_words = "The run is over: this is the study at its end."
    server, bound = StreamingServer(configured(app)), bind("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([bound],), name="cabai page", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}{path}?token={access.tokens[READ]}"
    finally:
        server.end()  # after a last update, so that viewers see how it ended
        thread.join(10)
        bound.close()


@contextmanager
def watched(study: Study) -> Iterator[None]:
    """Print the address of a study's page, and open it if there is a screen."""
    with live_page(study) as address:
        print(f"page: {address}", file=sys.stderr, flush=True)
        if has_screen():
            webbrowser.open(address)
        yield


def has_screen() -> bool:
    """Whether somebody uses this machine's screen and sees what opens."""
    if not sys.stderr.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
