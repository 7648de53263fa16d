"""Ctrl-C in Python: it is heard, it reaches the caller without our insides, and leaves what it should."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator

import pytest

import cabai
from cabai.simulation.work import Work
from cabai.study.run.loop import Loop
from studies import new

ONES = {"a": 1, "b": 0, "c": 0}


def interrupt() -> None:
    """As Ctrl-C does: the main thread gets it, and does not sleep on."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.fixture
def heard(monkeypatch) -> threading.Event:
    """Set once a run has heard of an interrupt, and waits again: so no test depends on how fast it does."""
    found, watch = threading.Event(), Loop.watch

    def watching(loop):
        if loop.over.is_set():
            found.set()
        watch(loop)

    monkeypatch.setattr(Loop, "watch", watching)
    return found


def interrupted(call) -> None:
    """It ends with Ctrl-C, which shows the way from the caller to what was called and nothing that lies inside."""
    with pytest.raises(KeyboardInterrupt) as stopped:
        call()
    shown = "".join(traceback.format_exception(stopped.value))
    files = [frame.filename for frame in traceback.extract_tb(stopped.value.__traceback__)]
    assert not [name for name in files if "psycopg" in name or "threading" in name or "numba" in name]
    assert "During handling" not in shown
    assert "direct cause" not in shown


@pytest.mark.parametrize("workers", [1, 3])
def test_the_first_waits_for_what_is_paid_for(workers, heard):
    study, begun = new(policy="uniform"), threading.Event()

    def test(arm):
        if not begun.is_set():
            begun.set()
            interrupt()
        assert heard.wait(60)
        return ONES[arm], 2.0

    interrupted(lambda: study.run(test, workers=workers))
    told = study.observations()
    assert 1 <= len(told) <= workers
    assert (study.status().spent, study.status().under_way) == (2.0 * len(told), 0)


def test_the_second_leaves_a_test_that_never_returns(heard):
    study, end, calls = new(), threading.Event(), []

    def test(arm):
        calls.append(arm)
        interrupt()
        assert heard.wait(60)
        interrupt()
        end.wait()
        return 1, 2.0

    interrupted(lambda: study.run(test))
    assert len(calls) == 1
    pull = study.ask(worker="another")  # it was given back
    assert (pull.number, pull.offers) == (1, 2)
    end.set()  # and what it returns after all is told: it was paid for
    deadline = time.monotonic() + 20
    while not study.observations() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [each["cost"] for each in study.observations()] == [2.0]
    with pytest.raises(cabai.AlreadyTold):
        study.tell(pull, reward=0, cost=1.0)


def test_one_that_comes_as_the_line_about_progress_begins_leaves_no_thread(monkeypatch):
    start = threading.Thread.start

    def started(thread):
        start(thread)
        if thread.name == "cabai progress":
            interrupt()

    monkeypatch.setattr(threading.Thread, "start", started)
    interrupted(lambda: new().run(lambda arm: (ONES[arm], 2.0)))


def test_a_script_shows_one_traceback_and_ends(tmp_path):
    """Of a separate process, in which nobody catches it, and whose test never returns."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time, cabai\n"
        "from cabai.study.run.loop import Loop\n"
        "def test(arm):\n    os.write(1, b'begun\\n')\n    time.sleep(3600)\n"
        "def watch(loop, real=Loop.watch):\n"
        "    if loop.over.is_set():\n        os.write(1, b'heard\\n')\n"
        "    real(loop)\n"
        "Loop.watch = watch\n"
        "study = cabai.create_study('x', arms=['a', 'b'], family='bernoulli', storage='sqlite:///cabai.db')\n"
        "study.run(test, workers=2)\n"
    )
    process = subprocess.Popen(
        [sys.executable, script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        for _ in range(2):
            assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGINT  # as Python ends when nobody has caught it
    assert err.count("Traceback") == 1
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    study = cabai.load_study("x", storage=f"sqlite:///{tmp_path}/cabai.db")
    assert sorted(pull.offers for pull in study.ask(2)) == [2, 2]


@pytest.mark.parametrize("returns", [True, False])
def test_async_tests_are_waited_for_and_those_that_never_return_need_two(heard, returns):
    begun, name = [], f"awaited {returns}"

    async def test(arm, item):
        begun.append(arm)
        is_last = len(begun) == 3  # all that there are workers for
        if is_last:
            interrupt()
        while not heard.is_set():
            await asyncio.sleep(0.01)
        if not returns:
            if is_last:
                interrupt()
            await asyncio.sleep(3600)
        return 0.5, 1.0

    interrupted(lambda: cabai.evaluate(["a", "b"], range(9), test, name=name, storage="memory", workers=3))
    assert len(cabai.load_study(name, storage="memory").observations()) == 3 * returns
    assert cabai.evaluate(["a", "b"], range(9), lambda arm, item: arm == "a", name=name, storage="memory").decision


def test_an_interrupt_while_llvm_calls_back_is_heard(monkeypatch, paper_instance):
    """An exception in a function that C code calls is printed and lost: so it must not be raised there."""
    end, lost = threading.Event(), []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    back = ctypes.CFUNCTYPE(None)(interrupt)

    def compiled(work):
        back()
        end.wait()  # as long as the caller waits for it, so does this

    monkeypatch.setattr(Work, "compiled", compiled)
    interrupted(lambda: cabai.simulate(paper_instance, "co", delta=0.1))
    assert lost == []
    end.set()


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """No thread of ours is left when a test has ended, after a moment in which they may end."""
    yield
    deadline = time.monotonic() + 20
    while left := [each.name for each in threading.enumerate() if each.name.startswith("cabai")]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
