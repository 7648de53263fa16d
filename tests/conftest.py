"""What several test files share."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cabai


def pytest_collection_finish() -> None:
    """What was loaded stays until the end: looking through it at every collection of garbage would take long."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def signals() -> Iterator[None]:
    """Ctrl-C and hanging up do what they usually do, here and in the processes that tests start, even if the process
    that started the tests ignores them: a background job of a script, nohup.

    A signal that is handled here has its default effect in a process started from here; hanging up does nothing here.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: lambda *_: None}
    ignored = {number: handler for number, handler in handlers.items() if signal.getsignal(number) == signal.SIG_IGN}
    for number, handler in ignored.items():
        signal.signal(number, handler)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study on a dataset without a seed draws one nobody could know: in a test, one that follows from its name."""
    import cabai.study.settings

    drawn = random.Random(request.node.nodeid)
    monkeypatch.setattr(cabai.study.settings, "secrets", types.SimpleNamespace(randbits=drawn.getrandbits))


@pytest.fixture(autouse=True)
def compilers() -> Iterator[None]:
    """A thread that compiles changes the filters of warnings for all threads: it ends with the test that started it."""
    yield
    for thread in threading.enumerate():
        if thread.name == "cabai compiles":
            thread.join()


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    """Studies in memory end with their test: many tests compare all that is stored with what was stored before."""
    yield
    storage = sys.modules.get("cabai.study.log.storage")
    if storage is not None and storage.MEMORY in storage._opened:
        storage._opened.pop(storage.MEMORY).close()


@pytest.fixture(scope="session")
def paper_instance() -> cabai.Instance:
    """The paper's Gaussian instance."""
    return cabai.Instance("gaussian", means=[1.5, 1.0, 0.5], costs=[1, 0.1, 0.01])


@pytest.fixture(scope="session")
def postgres() -> Iterator[object]:
    """A PostgreSQL server that is ours alone; `postgres.new_database()` is the URL of a new database in it."""
    import servers

    if servers.programs() is None:
        reason = "no PostgreSQL server is installed: `make postgres`, or apt-get install postgresql"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    server = servers.Postgres()
    yield server
    server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A temporary folder; storages opened in it are closed afterwards."""
    from storages import close

    yield tmp_path
    close(str(tmp_path))


@pytest.fixture
def url(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """A new storage."""
    from storages import close

    if request.param == "sqlite":
        yield f"sqlite:///{folder}/cabai.db"
        return
    address = request.getfixturevalue("postgres").new_database()
    yield address
    close(address)


@pytest.fixture
def serve() -> Iterator[object]:
    """serve(storage, ...): a server in a thread, which is closed when the test has ended."""
    from served import InThread

    with contextlib.ExitStack() as stack:
        yield lambda storage, **options: stack.enter_context(contextlib.closing(InThread(storage, **options)))


@pytest.fixture
def clock(monkeypatch) -> object:
    """The time that studies see, moved by hand: `clock.now += 10`."""
    from cabai.study.log import database as module
    from studies import Clock

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def variance_of(family: str | cabai.families.Family) -> float:
    """A gaussian family's variance; 1 for the others, which have none, and whose formulas do not look at it."""
    return getattr(cabai.families.family_of(family), "variance", 1.0)


def drawer(instance: cabai.Instance, seed: int, trajectory: int):
    """draw(arm) -> (reward, cost): the draws that trajectory of a simulation sees, one at a time."""
    from cabai.core.compiling import compiled
    from cabai.simulation.truth import DRAWS

    truth, _ = opened(instance, seed, trajectory)
    reward, cost = compiled(instance.drawing), compiled(DRAWS[instance.cost_model])
    return lambda arm: (instance.family.unscaled(reward(truth[arm])), cost(truth[arm]))


def opened(instance: cabai.Instance, seed: int, trajectory: int) -> tuple[np.ndarray, np.uint64]:
    """The truth with the streams of that trajectory of a simulation, and where run.stream starts in it."""
    from cabai.core.compiling import compiled
    from cabai.simulation.truth import open_streams, truth_of

    truth = truth_of(instance)
    return truth, np.uint64(compiled(open_streams)(truth, np.uint64(seed), np.uint64(trajectory)))


def differing(a: cabai.results.Runs, b: cabai.results.Runs) -> float:
    """The share of trajectories that are not the same to the bit."""
    differ = np.zeros(len(a), bool)
    for name in ("decisions", "costs", "steps", "pulls", "path"):
        differ |= (getattr(a, name) != getattr(b, name)).reshape(len(differ), -1).any(axis=1)
    return float(differ.mean())
