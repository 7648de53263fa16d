"""Ask and tell over HTTP, against the same through Python on the same database.

    python benchmarks/bench_server.py [--quick] [--postgres]

Clients are threads of one process, each asking and telling as fast as it can, one pull at a time. `python` calls the
study itself, on the database; `http` goes through `cabai serve`, a process of its own, on the same database. Both take
turns within one run, each with a new study in each round; a rate is the best of the rounds, so that the ratio holds
also where the machine is busy. SQLite lies in a temporary folder; with --postgres, PostgreSQL is the tests' own server,
which does not wait for the disk. The smallest answer is one row read by one client.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
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


def compare(storage: str, rounds: int, seconds: float, folder: str) -> list[list[str]]:
    command = [sys.executable, "-m", "cabai", "serve", "--port", "0", "--storage", storage]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    rows = []
    try:
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
        bare.get("studies", "http 1 0", "decision")
        started, times = time.perf_counter(), 300
        for _ in range(times):
            bare.get("studies", "http 1 0", "decision")
        each = (time.perf_counter() - started) / times
        print(f"{storage.partition(':')[0]}: the smallest answer takes {each * 1e3:.2f} ms")
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    options = parser.parse_args()
    rounds, seconds = (1, 1.0) if options.quick else (3, 3.0)
    rows = [["storage", "clients", "python/s", "http/s", "python / http"]]
    with tempfile.TemporaryDirectory() as folder:
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
