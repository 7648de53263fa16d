"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port, thrown away afterwards."""

from __future__ import annotations

import getpass
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg


def programs() -> Path | None:
    """The folder with PostgreSQL's `initdb` and `postgres`, or None."""
    on_path = [Path(found).resolve() for found in [shutil.which("initdb"), shutil.which("postgres")] if found]
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: float(file.parts[-3]))
    folders = [file.parent for file in [*on_path, *reversed(debian)]]
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


class Postgres:
    """A server, and a new database on request. It does not wait for the disk unless told to: what it has passed to the
    system survives a killed server, but not a power cut."""

    def __init__(self) -> None:
        found = programs()
        assert found is not None
        self.programs = found
        self.user = getpass.getuser()
        if os.geteuid() == 0:  # which PostgreSQL refuses to run as
            self.user = next(user for user in ("postgres", "nobody") if exists(user))
        self.folder = Path(tempfile.mkdtemp(prefix="cabai-postgres-", dir=place()))
        if os.geteuid() == 0:
            shutil.chown(self.folder, self.user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.server: subprocess.Popen[bytes] | None = None
        self.numbers = itertools.count(1)
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        self.run("initdb", "-D", str(self.data), *options).communicate()
        self.start()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        extra = {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [self.programs / program, *arguments],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                **(extra if os.geteuid() == 0 else {}),
            )  # fmt: skip

    def start(self) -> None:
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder, "fsync": "off",
                    "max_connections": 60, "shared_buffers": "16MB"}  # fmt: skip
        options = [f"--{name}={value}" for name, value in settings.items()]
        self.server = self.run("postgres", "-D", str(self.data), "-p", str(self.port), *options)
        deadline = time.monotonic() + 30
        while True:
            try:
                return self.execute("SELECT 1")
            except psycopg.OperationalError:
                if self.server.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.05)

    def stop(self, *, at_once: bool = False) -> None:
        """As `pg_ctl stop` with `-m immediate` (as if it had crashed) or `-m fast`."""
        if self.server is not None:
            self.server.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            self.server.wait(30)
            self.server = None

    def close(self) -> None:
        self.stop(at_once=True)
        shutil.rmtree(self.folder)

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def address(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{next(self.numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.address(name)

    def end_connections(self) -> None:
        """End every connection but our own, from the server's side."""
        others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f"SELECT pg_terminate_backend(pid) {others}")
            while connection.execute(f"SELECT count(*) {others}").fetchone() != (0,):
                time.sleep(0.001)


def place() -> str | None:
    """A folder in memory, if there is one with room enough; else the usual place for temporary files."""
    memory = "/dev/shm"
    return memory if os.path.isdir(memory) and shutil.disk_usage(memory).free > 2**29 else None


def exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
