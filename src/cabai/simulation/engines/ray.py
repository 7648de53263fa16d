"""A Ray cluster: one that is running, or one of this machine's cores. Plain tasks, which Ray retries by itself."""

from __future__ import annotations

import os
import socket
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from cabai.errors import EngineFailed
from cabai.simulation.engines import task
from cabai.simulation.engines.base import Cluster
from cabai.simulation.work import Part, Work
from cabai.support.validation import optional

REACHED = 10.0  # seconds within which an address must answer: Ray itself would try for minutes
RETRIES = 3  # of a task whose worker has died


class Ray(Cluster):
    where, cluster = "on Ray", "the Ray cluster"

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        """The Ray that this process is connected to; else the one at an address; else one of this machine."""
        if address is not None or os.environ.get("RAY_ADDRESS"):
            show_token()
        self.ray = ray = optional("ray")
        self.workers, self.started = workers, not ray.is_initialized()
        if self.started:
            # Not left to Ray, which would join whatever cluster somebody has started on this machine.
            address = address or os.environ.get("RAY_ADDRESS") or "local"
            try:
                check_reachable(address)
                ray.init(address=address, logging_level="error", log_to_driver=False, include_dashboard=False)
            except (OSError, ValueError, RuntimeError) as error:
                raise EngineFailed(
                    f"cannot reach a Ray cluster at {address}: {error}. If it asks for a token, this machine must have "
                    "it too, in RAY_AUTH_TOKEN or in ~/.ray/auth_token."
                ) from error
        elif address is not None:
            raise EngineFailed("this process is already connected to a Ray cluster: leave out the address.")
        self.run = ray.remote(num_cpus=1, max_retries=RETRIES)(task.run)
        self.under_way: dict[Future[Part], Any] = {}

    def count(self) -> int:
        return int(self.ray.cluster_resources().get("CPU", 1))

    def share(self, work: Work) -> Any:
        return self.ray.put(task.packed(work))

    def submit(self, shared: Any, first: int, count: int) -> Future[Part]:
        reference = self.run.remote(shared, first, count)
        future: Future[Part] = reference.future()
        self.under_way[future] = reference
        future.add_done_callback(lambda done: self.under_way.pop(done, None))
        return future

    def cancel(self) -> None:
        for reference in list(self.under_way.values()):
            self.ray.cancel(reference, force=True)

    def close(self) -> None:
        if self.started:
            self.ray.shutdown()

    def explained(self, error: Exception) -> Exception:
        cause = getattr(error, "cause", None)  # what the task itself has raised
        found = cause if isinstance(cause, Exception) else error
        if type(found).__module__.startswith("ray."):
            return EngineFailed(f"the Ray cluster cannot do this work: {str(found).strip().splitlines()[0]}")
        return super().explained(found)


def show_token() -> None:
    """A cluster made by `ray start` asks for a token, and Ray shows the one it has only if it is told to."""
    has_token = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if has_token or (Path.home() / ".ray" / "auth_token").is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def check_reachable(address: str) -> None:
    """Raise OSError if nobody listens at host:port or ray://host:port; `auto` and `local` are left to Ray."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED).close()
