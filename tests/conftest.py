"""What several test files share."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

import cabai


@pytest.fixture(scope="session", autouse=True)
def signals() -> Iterator[None]:
    """Ctrl-C and hanging up do what they usually do, here and in the processes that tests start, also where whoever
    started the tests ignores them: a background job of a script, nohup.

    A signal that is handled here has its default effect in a process started from here; hanging up does nothing here.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: lambda *_: None}
    ignored = {number: handler for number, handler in handlers.items() if signal.getsignal(number) == signal.SIG_IGN}
    for number, handler in ignored.items():
        signal.signal(number, handler)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


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
def clock(monkeypatch) -> object:
    """The time that studies see, moved by hand: `clock.now += 10`."""
    from cabai.study import study
    from studies import Clock

    clock = Clock()
    monkeypatch.setattr(study, "time", clock)
    return clock


def drawer(instance: cabai.Instance, seed: int, trajectory: int):
    """draw(arm) -> (reward, cost): the draws that trajectory of a simulation sees, one at a time."""
    from cabai.compiling import compiled
    from cabai.instance import COST_MODELS
    from cabai.simulation import Work, sampling

    truth, family = Work.truth(instance)
    compiled(sampling.open_streams)(truth, np.uint64(seed), np.uint64(trajectory))
    model = list(COST_MODELS).index(instance.cost_model)
    reward, cost = compiled(sampling.draw_reward), compiled(sampling.draw_cost)
    return lambda arm: (reward(truth[arm], family), cost(truth[arm], model))


def coins(instance: cabai.Instance, seed: int, trajectory: int):
    """coin() -> a number in [0, 1): those that trajectory of a simulation hands its policy, one a step."""
    from cabai.compiling import compiled
    from cabai.simulation import Work, sampling

    truth, _ = Work.truth(instance)
    start = compiled(sampling.open_streams)(truth, np.uint64(seed), np.uint64(trajectory))
    step, mix, unit = int(sampling.GOLDEN), compiled(sampling.mix), compiled(sampling.unit)
    states = ((int(start) + n * step) % 2**64 for n in itertools.count(1))
    return lambda: unit(np.uint64(mix(np.uint64(next(states)))))
