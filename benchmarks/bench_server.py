"""Ask and tell over HTTP, against the same through Python on the same database.

    python benchmarks/bench_server.py [--quick] [--postgres] [--page]

Clients are threads of one process, each asking and telling as fast as it can, one pull at a time. `python` calls the
study itself, on the database; `http` goes through `cabai serve`, a separate process, on the same database. Both take
turns within one run, each with a new study in each round; a rate is the best of the rounds, so that the ratio holds
even if the machine is busy. SQLite is in a temporary folder; with --postgres, PostgreSQL is the tests' own server,
which does not wait for the disk. The smallest answer is one row read by one client. First comes the page of a large
study: how many bytes are sent, and how long that takes.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cabai.study import create_study, load_study
from cabai.study.http import Server
from cabai.support.tables import table

CLIENTS = (1, 8, 64)
ABOUT: dict[str, Any] = {"arms": ["a", "b", "c"], "family": "gaussian(variance=1)", "delta": 1e-9}


def rate(storage: str, where: str, name: str, clients: int, seconds: float) -> float:
    """Asks and tells per second, in pairs, by so many clients of one study."""
    create_study(name, **ABOUT, storage=storage)
    study = load_study(name, storage=where)
    over, counts, ready = threading.Event(), [0] * clients, threading.Barrier(clients + 1)

    def work(client: int) -> None:
        study.tell(study.ask(worker=str(client)), 0.0, 1.0)  # connect, and warm up
        ready.wait()
        while not over.is_set():
            study.tell(study.ask(worker=str(client)), 0.0, 1.0)
            counts[client] += 1

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - started)


@contextmanager
def serving(storage: str, folder: str) -> Iterator[str]:
    """`cabai serve` on a storage; its address."""
    command = [sys.executable, "-m", "cabai", "serve", "--port", "0", "--storage", storage]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)


def compare(storage: str, rounds: int, seconds: float, folder: str) -> list[list[str]]:
    rows = []
    with serving(storage, folder) as address:
        for clients in CLIENTS:
            best = {"python": 0.0, "http": 0.0}
            for turn in range(rounds):
                for kind, where in (("python", storage), ("http", address)):
                    name = f"{kind} {clients} {turn}"
                    best[kind] = max(best[kind], rate(storage, where, name, clients, seconds))
            kind = storage.partition(":")[0]
            ratio = best["python"] / best["http"]
            rows.append([kind, str(clients), f"{best['python']:.0f}", f"{best['http']:.0f}", f"{ratio:.1f}"])
        bare = Server(address)
        bare.call("studies", "http 1 0", "decision")
        started, times = time.perf_counter(), 300
        for _ in range(times):
            bare.call("studies", "http 1 0", "decision")
        each = (time.perf_counter() - started) / times
        print(f"{storage.partition(':')[0]}: the smallest answer takes {each * 1e3:.2f} ms")
    return rows


def page(folder: str, arms: int, size: int) -> None:
    """The page of a study with many arms and observations: what is sent, and how long it takes."""

    from bench_workers import ask_and_tell, filled

    storage = f"sqlite:///{folder}/large.db"
    study = filled(storage, size, arms, "top-two")
    study.settings.kernels.compile()
    for _ in range(40):
        ask_and_tell(study)  # so that there is a snapshot
    points = study.history()
    with serving(storage, folder) as address:
        server = Server(address)
        times, sizes = [], []
        for _ in range(5):
            started = time.perf_counter()
            sizes.append(len(raw(server, "/studies/study")))
            times.append(time.perf_counter() - started)
        stream, came = opened(server, "/studies/study/events"), list[tuple[float, int]]()
        threading.Thread(target=lambda: [came.append((time.perf_counter(), len(line))) for line in stream]).start()
        first = quiet(came)
        study.tell(study.ask(), 0.5, 1.0)
        told = time.perf_counter()
        update = quiet(came) - first
        waited = next(when for when, size in came if when > told and size > 100) - told
    print(f"page of {arms} arms, {size:,} observations, {len(points)} points of history:")
    print(f"  {sizes[-1]:,} bytes in {min(times):.2f} s (the first time {times[0]:.2f} s)")
    print(f"  parts sent to begin with {first:,} bytes, after a change {update:,} bytes, {waited:.1f} s after it")


def opened(server: Server, path: str) -> Any:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    connection.request("GET", path, headers={"Authorization": f"Bearer {server.token}"})
    return connection.getresponse()


def raw(server: Server, path: str) -> bytes:
    answer = opened(server, path)
    found: bytes = answer.read()
    assert answer.status == 200
    return found


def quiet(came: list[tuple[float, int]]) -> int:
    """Wait for something large, and then until only comments come for a while; returns the bytes received so far."""
    before = sum(size for _, size in came)
    while sum(size for _, size in came) < before + 1000 or time.perf_counter() - came[-1][0] < 3:
        time.sleep(0.1)
    return sum(size for _, size in came)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--page", action="store_true", help="the page of 200 arms and a million observations, alone")
    options = parser.parse_args()
    rounds, seconds = (1, 1.0) if options.quick else (3, 3.0)
    rows = [["storage", "clients", "python/s", "http/s", "python / http"]]
    with tempfile.TemporaryDirectory() as folder:
        page(folder, 200, 10**4 if options.quick else 10**6)
        if options.page:
            return
        rows += compare(f"sqlite:///{folder}/cabai.db", rounds, seconds, folder)
        if options.postgres:
            sys.path.append(str(Path(__file__).parent.parent / "tests"))
            from servers import Postgres

            server = Postgres()
            try:
                rows += compare(server.new_database(), rounds, seconds, folder)
            finally:
                server.close()
    print(table(rows))
    print(f"{os.cpu_count()} cores")


if __name__ == "__main__":
    main()
