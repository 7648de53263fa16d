"""What makes a study fast changes no result: compiled functions, snapshots, readers next to writers."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cabai.core import compiling, kernels
from cabai.study import create_study
from cabai.support.lazy import lazy
from folding import Play
from storages import BOTH

slow = pytest.mark.slow
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    kernels.shared.cache_clear()


def settings(**options: Any) -> Any:
    arms = [f"arm {a}" for a in range(options.pop("count", 5))]
    return create_study(f"{options}", arms=arms, delta=1e-6, storage="memory", load_if_exists=True, **options).settings


@pytest.mark.parametrize(
    ("family", "policy", "options"),
    [
        pytest.param("gaussian(variance=1)", "top-two", {}, marks=slow),
        ("bernoulli", "ctas", {}),
        pytest.param("poisson", "co", {"direction": "minimize", "threshold": "evalue"}, marks=slow),
        pytest.param("bernoulli", "top-two", {"epsilon": 0.05}, marks=slow),
        pytest.param("exponential", "top-two", {}, marks=slow),
        pytest.param("gaussian(variance=1)", "d-lucb", {"threshold": "mixture"}, marks=slow),
        ("bounded", "top-two", {"epsilon": 0.01}),
        pytest.param("bounded", "top-two", {}, marks=slow),
        pytest.param("bounded", "ctas", {"direction": "minimize"}, marks=slow),
        pytest.param("poisson", "racing", {}, marks=slow),
        pytest.param("gaussian(variance=1)", "uniform", {"threshold": "paper"}, marks=slow),
    ],
)
def test_compiled_or_not_a_study_computes_the_same_to_the_last_bit(family, policy, options, monkeypatch):
    """The records after each step, with pulls under way and without."""
    monkeypatch.setattr(kernels, "WORTH_COMPILING", np.inf)
    chance = random.Random(1)
    plain, fast = (Play(settings(family=family, policy=policy, **options | {"seed": seed})) for seed in (5, 5))
    vars(fast.settings)["kernels"] = kernels.Kernels(fast.setup)
    fast.kernels.compiled = {}  # not those of the plain one
    fast.kernels.compile()
    assert {"choose", "stop"} <= set(fast.kernels.compiled)
    needs_lgamma = options.get("threshold") == "evalue"  # for the prices of its arms
    assert ("observe" in fast.kernels.compiled) != needs_lgamma
    for step in range(400):
        under_way = [chance.randrange(3) if step % 3 == 0 else 0 for _ in range(5)]
        chosen = plain.choose(under_way)
        assert fast.choose(under_way) == chosen
        reward, cost = float(chance.random() < 0.4 + 0.02 * chosen), chance.uniform(0.1, 2.0)
        if family == "bounded" and step % 8:
            reward = 0.5 + 0.02 * chosen + 0.1 * chance.random()
        for play in (plain, fast):
            play.observe(chosen, reward, cost)
        assert plain.stops() == fast.stops()
        for ours, theirs in ((plain.arms, fast.arms), (plain.run, fast.run)):
            for name in ours.dtype.names:
                if name != "room" and name not in plain.settings.policy.arm_scratch:
                    assert ours[name].tobytes() == theirs[name].tobytes(), (step, name)
    assert not plain.kernels.compiled


def test_a_compiler_that_fails_changes_nothing(monkeypatch):
    def fail(*_: Any) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(compiling, "compiled", fail)
    play = Play(settings(family="gaussian(variance=1)", policy="co", seed=7))
    play.kernels.compile()
    assert not play.kernels.compiled
    play.observe(0, 1.0, 1.0)
    assert play.choose([0] * 5) == 1


def test_a_process_compiles_once_and_only_if_it_has_computed_for_long(monkeypatch):
    compiled = []
    monkeypatch.setattr(kernels.Kernels, "compile", lambda self: compiled.append(threading.current_thread().name))
    play = Play(settings(family="gaussian(variance=1)", policy="co", seed=8))
    play.observe(0, 1.0, 1.0)
    assert not compiled
    monkeypatch.setattr(kernels, "WORTH_COMPILING", 0.0)
    for _ in range(5):
        play.observe(0, 1.0, 1.0)
    deadline = time.monotonic() + 60
    while not compiled and time.monotonic() < deadline:
        time.sleep(0.01)
    assert compiled == ["cabai compiles"]


def forked(work: Any) -> int:
    """How a forked process ends in which `work()` should be true: 0 if it is."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(int(not work()))
    return os.waitpid(child, 0)[1]


def asked_and_told(study: Any) -> int:
    """How many pulls a study has, once another was asked for and told."""
    study.tell(study.ask(), 1.0, cost=1.0)
    return int(study.status().pulls)


class Paused:
    """`pause()` is called in another thread, and waits there; it goes on when the block ends, or after some seconds."""

    def __init__(self, seconds: float | None = None) -> None:
        self.inside, self.end, self.seconds = threading.Event(), threading.Event(), seconds

    def __call__(self, *_: Any) -> None:
        self.inside.set()
        assert self.end.wait(60)

    @contextmanager
    def in_thread(self, work: Any) -> Iterator[threading.Thread]:
        thread = threading.Thread(target=work)
        thread.start()
        assert self.inside.wait(60)
        if self.seconds is not None:
            threading.Timer(self.seconds, self.end.set).start()
        yield thread
        self.end.set()
        thread.join()


@forks
def test_a_process_that_forks_while_it_compiles_waits(monkeypatch):
    pause = Paused(0.2)

    def compiled(*_: Any) -> Any:
        pause()
        raise RuntimeError

    monkeypatch.setattr(compiling, "compiled", compiled)
    with pause.in_thread(Play(settings(family="gaussian(variance=1)", policy="co", seed=9)).kernels.compile):
        assert forked(lambda: pause.end.is_set() and not kernels.compiling.locked()) == 0


@BOTH
def test_reading_does_not_wait_for_a_writer(url):
    study, pause = create_study("read", arms=["a", "b"], family="gaussian(variance=1)", storage=url), Paused()
    study.tell(study.ask(), 1.0, cost=1.0)

    def work(connection: Any) -> None:
        connection.lock(study._row.id, 0)
        pause()

    with pause.in_thread(lambda: study._storage.write(work)) as writer:
        assert study.status().pulls == 1
        assert not study.stopped
        assert len(study.observations()) == 1
        assert writer.is_alive()


@forks
def test_a_process_that_forks_waits_for_its_readers(folder):
    study = create_study("fork", arms=["a", "b"], family="gaussian(variance=1)", storage=f"sqlite:///{folder}/cabai.db")
    assert study.status().pulls == 0
    pause = Paused(0.2)
    study._storage.reader.driver.set_trace_callback(pause)
    with pause.in_thread(study.status):
        assert forked(lambda: pause.end.is_set() and asked_and_told(study) == 1) == 0
    assert study.status().pulls == 1


@forks
@pytest.mark.parametrize("who", ["writer", "reader"])
@BOTH
def test_a_forked_process_waits_for_no_thread_of_its_parents(url, who):
    study, pause = create_study("fork", arms=["a", "b"], family="gaussian(variance=1)", storage=url), Paused()
    study.tell(study.ask(), 1.0, cost=1.0)

    def hold() -> None:
        with getattr(study._current, who).lock:
            pause()

    with pause.in_thread(hold):
        assert forked(lambda: asked_and_told(study) == 2) == 0
    assert study.status().pulls == 2


@forks
def test_a_forked_process_waits_for_nothing_that_a_thread_of_its_parent_was_computing():
    pause = Paused()

    class Slow:
        @lazy
        def value(self) -> int:
            if threading.current_thread() is not threading.main_thread():
                pause()
            return 7

    slow = Slow()
    with pause.in_thread(lambda: slow.value):
        assert forked(lambda: slow.value == 7) == 0
    assert "value" in vars(slow)
