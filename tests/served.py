"""Servers for the tests: one in a thread, one in a process that can be killed, and a line to it that can be cut."""

from __future__ import annotations

import http.client
import json
import random
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cabai.server import Access, make_app
from cabai.server.serving import StreamingServer, bind, configured


class InThread:
    """A server in a thread of this process."""

    def __init__(self, storage: str, *, hosts: Sequence[str] = (), **options: Any) -> None:
        self.storage, self.access = storage, Access.new()
        self.tokens = self.access.tokens
        bound = bind("127.0.0.1", 0)
        self.port = bound.getsockname()[1]
        self.server = StreamingServer(configured(make_app(storage, self.access, hosts), **options))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [bound]})
        self.thread.start()
        self.address = f"http://{self.tokens['work']}@127.0.0.1:{self.port}"

    def close(self) -> None:
        self.server.handle_exit(signal.SIGTERM, None)
        self.thread.join(20)
        assert not self.thread.is_alive()

    def send(self, method: str, path: str, body: Any = None, **headers: str | None) -> tuple[int, Any, Any]:
        """A request with the token for working and JSON, unless `headers` say otherwise (None: without); returns the
        code, the headers and the content of the answer."""
        usual: dict[str, str | None] = {"authorization": f"Bearer {self.tokens['work']}"}
        if body is not None:
            usual["content_type"] = "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.putrequest(method, path, skip_host="host" in headers)
        for name, value in (usual | headers).items():
            if value is not None:
                connection.putheader(name.replace("_", "-"), value)
        if content is not None and "content_length" not in headers:
            connection.putheader("Content-Length", str(len(content)))
        connection.endheaders(content)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        found = json.loads(text) if text and "json" in answer.headers.get("content-type", "") else text.decode()
        return answer.status, answer.headers, found

    def listen(self, path: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """A connection with the token for reading, and what comes on it as it comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.tokens['read']}"})
        return connection, connection.getresponse()


class Process:
    """`cabai serve` in a separate process, which may be killed and started again on the same port."""

    def __init__(self, storage: str, folder: Path) -> None:
        self.storage, self.tokens = storage, folder / "tokens"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        options = ["--storage", self.storage, "--port", str(self.port), "--token-file", str(self.tokens)]
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "cabai", "serve", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        assert self.line.startswith("http://127.0.0.1:"), self.process.communicate()

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal; how it ended, and what it said after its line."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out + err

    @property
    def token(self) -> str:
        return self.line.strip().partition("token=")[2]


class Line:
    """A line to a server, which is cut at random: before a request has passed, or before its answer has."""

    def __init__(self, port: int, seed: int, cut: float) -> None:
        self.target, self.chance, self.cut, self.cuts = port, random.Random(seed), cut, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                threading.Thread(target=self._pass_on, args=(near,), daemon=True).start()

    def _pass_on(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(("127.0.0.1", self.target)) as far:
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    data = ready.recv(2**16)
                    if not data:
                        return
                    if self.chance.random() < self.cut:  # of a request or of an answer, whole or a part of it
                        self.cuts += 1
                        (far if ready is near else near).sendall(data[: self.chance.randrange(len(data) + 1)])
                        return
                    (far if ready is near else near).sendall(data)
