"""A study that runs itself: results, failures, interrupts."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

import cabai
from cabai.simulation.work import Work
from cabai.study.run.loop import Failed, Loop
from shell import here
from studies import new, refused

pytestmark = pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
ONES = {"a": 1, "b": 0, "c": 0}


@pytest.mark.parametrize("workers", [1, 4])
def test_run_pulls_until_the_study_stops(workers):
    study, calls = new(delta=0.1), []

    def test(arm):
        calls.append(arm)
        return ONES[arm], 0.5

    status = study.run(test, workers=workers)
    assert (status.decision, study.decision) == ("a", "a")
    told = study.observations()
    assert len(calls) == len(told) == status.pulls + status.waiting
    assert status.spent == pytest.approx(0.5 * len(calls))
    assert len({each["worker"] for each in told}) <= workers
    assert status.under_way == 0
    assert study.run(test, workers=workers) == status  # nothing left to do
    assert len(calls) == len(told)


@pytest.mark.parametrize("result", [1, (1, 0.5), {"reward": 1, "cost": 0.5}, {"reward": True, "cost": 0.5}])
def test_run_reads_what_a_test_returns(result):
    study = new(max_pulls=4, costs=[0.5] * 3 if result == 1 else None)  # the reward alone where costs are known
    study.run(lambda arm: result)
    assert [(each["reward"], each["cost"]) for each in study.observations()] == [(1.0, 0.5)] * 4


@pytest.mark.parametrize(
    ("result", "why", "cost"),
    [
        ((0.5, 2.0), "reward must be 0 or 1", 2.0),
        ((1, -2.0), "cost must be positive", 0.0),
        ({"reward": 1, "cost": np.True_}, "cost must be a number, got", 0.0),
        ((1, 2, 3), "must return (reward, cost)", 0.0),
        ({"cost": 2.0}, "must return a reward and a cost", 0.0),
        (1, "a result needs a cost", 0.0),
        (None, "must return (reward, cost), got None", 0.0),
        ({"reward": None, "cost": 2.0}, "must return (reward, cost), got {'reward': None", 0.0),
    ],
)
def test_a_result_that_is_not_legal_is_told_as_failed_and_ends_the_run(result, why, cost):
    study, calls = new(), []
    with pytest.raises(cabai.RunFailed, match="test of arm 'a' did not return a reward and a cost: ") as failure:
        study.run(lambda arm: calls.append(arm) or result, max_failures=3)
    assert calls == ["a"]  # it is bought once
    assert why in str(failure.value)
    assert ("that cost 2" in str(failure.value)) == (cost == 2.0)
    assert f". The study {study.name!r} is kept" in str(failure.value)
    [told] = study.observations()
    assert (told["arm"], told["reward"], told["cost"]) == ("a", None, cost)
    assert why in told["failed"]
    status = study.run(lambda arm: (ONES[arm], 1.0))  # the study is as it was, and goes on
    assert (status.decision, status.failures) == ("a", 1)


@pytest.mark.parametrize(
    ("result", "why", "cost"),
    [
        (Failed("no luck", -2.0), "no luck", 0.0),
        (Failed("no luck", 2.0), "no luck", 2.0),
        (Failed("no luck"), "no luck", 0.0),
        (ValueError("boom"), "ValueError: boom", 0.0),
    ],
)
def test_run_tells_a_trial_that_fails_as_failed(result, why, cost):
    calls = Counter()

    def test(arm):
        calls[arm] += 1
        if calls[arm] % 3 == 0 and calls["a"] > 3:
            return ONES[arm], 1.0
        if isinstance(result, Exception):
            raise result
        return result

    study = new()
    said = rf"arm 'a' failed 3 times in a row, the last time with: {why}.*\. The study .* is kept"
    with pytest.raises(cabai.RunFailed, match=said):
        study.run(test, max_failures=3)
    told = study.observations()
    assert [(each["arm"], each["reward"], each["cost"]) for each in told] == [("a", None, cost)] * 3
    assert all(why in each["failed"] for each in told)
    assert study.run(test, max_failures=3).decision == "a"


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_results_whose_sums_no_number_can_hold_are_failed_pulls(known, workers):
    study = new(family="gaussian", costs=[1e308] * 3 if known else None)
    with pytest.raises(cabai.RunFailed, match="add up to a number that is too large to store"):
        study.run(lambda arm: 1.0 if known else (1.0, 1e308), workers=workers)
    first, *others = study.observations()
    assert (first["reward"], first["cost"], first["failed"]) == (1.0, 1e308, None)
    assert all((each["reward"], each["cost"]) == (None, 0.0) for each in others)
    assert all("reward=1.0, cost=1e+308 and those told before" in each["failed"] for each in others)
    assert (study.status().under_way, study.status().spent) == (0, 1e308)
    json.dumps(study.status().to_dict(), allow_nan=False)


def test_a_lease_is_renewed_until_its_result_is_stored(monkeypatch):
    """Else it ends while a slow database is told, and another worker pays for the same trial."""
    study = new(lease=0.4, max_pulls=1)
    tell = type(study).tell

    def slow(self, *told, **more):
        time.sleep(1.0)
        tell(self, *told, **more)

    monkeypatch.setattr(type(study), "tell", slow)
    study.run(lambda arm: (1, 1.0))
    kinds = [event["kind"] for event in study.events()]
    assert (kinds[0], kinds[-2:]) == ("ask", ["tell", "stop"])
    assert kinds.count("renew") == len(kinds) - 3 >= 2


def test_run_needs_a_function():
    study = new()
    for test in (5, None, "co"):
        with refused(study, "test must be a function"):
            study.run(test)
    for options in ({"workers": 0}, {"workers": 1.5}, {"max_failures": 0}):
        with refused(study, "must be a whole number of at least 1"):
            study.run(lambda arm: (1, 1.0), **options)


def test_a_test_cut_short_by_an_interrupt_gives_its_pull_back():
    """Its failure is not the arm's fault: nothing is told, and the pull is offered again."""
    from cabai.study.run.loop import run

    study, over, calls = new(), threading.Event(), itertools.count(1)

    def test(pull):
        if next(calls) == 4:
            signal.raise_signal(signal.SIGINT)
            assert over.wait(10)
            raise RuntimeError("killed")
        return ONES[pull.arm], 1.0

    with pytest.raises(KeyboardInterrupt):
        run(study, test, over=over)
    status = study.status()
    assert (status.pulls, status.failures) == (3, 0)
    again = study.ask()
    assert again.number == 4
    study.release(again)
    assert run(study, lambda pull: (ONES[pull.arm], 1.0)).decision == "a"


def test_an_interrupt_while_the_workers_start_leaves_none_of_them_at_work(monkeypatch):
    """The pool waits for the threads it knows, and it does not know one whose start was interrupted."""
    study, tried, start = new(), threading.Event(), threading.Thread.start

    def test(arm):
        tried.set()
        return ONES[arm], 1.0

    def interrupted(thread):
        start(thread)
        tried.wait(0.2)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            study.run(test)
    assert not tried.wait(0.2)
    status = study.status()
    assert (status.pulls, status.under_way, status.stopped) == (0, 0, False)
    assert study.run(test).decision == "a"


@pytest.mark.parametrize("leaves", [False, True])
def test_a_run_whose_pull_was_offered_to_another_worker_goes_on(leaves):
    """It cannot renew the pull any more, nor give it back; what it tells is counted if it is the first."""
    from cabai.study.run.loop import run

    study, others = new(lease=0.2, max_pulls=4), []

    def test(pull):
        if not others:
            study.release(pull)  # as if its lease had run out
            others.append(study.ask(worker="another"))
            time.sleep(0.3)  # longer than it takes to renew
            if leaves:
                raise SystemExit(3)
        return 1, 1.0

    if leaves:
        with pytest.raises(SystemExit):
            run(study, test)
        study.tell(others[0], 0, 1.0)
        return
    assert run(study, test).pulls == 4
    with pytest.raises(cabai.AlreadyTold):
        study.tell(others[0], 0, 1.0)
    assert study.observations()[0]["reward"] == 1


@pytest.mark.parametrize("items", [None, 40])
def test_an_async_test_is_awaited_with_many_workers(items):
    arms, name = list(ONES), f"awaited {items}"
    study, threads = cabai.create_study(name, arms=arms, items=items, family="bernoulli", storage="memory"), set()

    async def test(arm, *item):
        threads.add(threading.get_ident())
        await asyncio.sleep(0)
        return ONES[arm], 0.5

    assert study.run(test, workers=4).decision == "a"
    assert len(threads) == 1
    assert not [each for each in threading.enumerate() if each.name == "cabai awaits"]


# A test with a bug ends a run at once, and is not repeated; a failed trial is


WRONG = [NameError, UnboundLocalError, AttributeError, TypeError, ImportError, SyntaxError, AssertionError,
         NotImplementedError, RecursionError, ModuleNotFoundError]  # fmt: skip
UNLUCKY = [OSError, TimeoutError, ConnectionResetError, ValueError, KeyError, RuntimeError, ZeroDivisionError, EOFError,
           subprocess.SubprocessError]  # fmt: skip


class RateLimit(Exception):
    """As a client of a model's API has them."""


def raising(error, calls):
    def test(arm, item=None):
        calls[arm] += 1
        raise error

    return test


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_program_stops_at_once_with_its_own_traceback(kind):
    study, calls = new(), Counter()
    with pytest.raises(kind, match=r"^it is wrong") as stopped:
        study.run(raising(kind("it is wrong"), calls))
    assert calls == {"a": 1}
    assert type(stopped.value) is kind
    [note] = stopped.value.__notes__
    assert "this is an error in the test of arm 'a', not a failed trial" in note
    assert f"catch=(OSError, {kind.__name__})" in note
    assert stopped.value.__context__ is None
    files = [frame.filename for frame in traceback.extract_tb(stopped.value.__traceback__)]
    assert [name for name in files if "concurrent" in name or "threading" in name] == []
    assert sum("loop.py" in name for name in files) == 1  # where it was called, and none of what lies between
    assert files[-1] == __file__
    assert (study.observations(), study.status().under_way) == ([], 1)  # given back: the next to be offered
    assert study.ask().number == 1


@pytest.mark.parametrize("kind", [*UNLUCKY, RateLimit], ids=lambda kind: kind.__name__)
def test_what_another_trial_may_not_meet_is_bought_again(kind):
    study, calls = new(), Counter()
    with pytest.raises(cabai.RunFailed, match="arm 'a' failed 3 times in a row"):
        study.run(raising(kind("no luck"), calls), max_failures=3)
    assert calls == {"a": 3}
    assert study.status().failures == 3


def test_the_user_names_what_is_caught():
    """A group of exceptions is as its members, and what cabai refuses inside a test is not the trial's fault."""
    timeouts, mixed = (ExceptionGroup("both", [TimeoutError(), kind()]) for kind in (OSError, NameError))
    for catch, error, tries in [
        (TypeError, TypeError("x"), 3), ((OSError, TypeError), TypeError("x"), 3), ([LookupError], KeyError("x"), 3),
        (OSError, ValueError("x"), 1), ((), TimeoutError("x"), 1), (Exception, NameError("x"), 3), (None, timeouts, 3),
        (None, mixed, 1), (None, cabai.InvalidInput("unknown"), 1),
    ]:  # fmt: skip
        calls, options = Counter(), {} if catch is None else {"catch": catch}
        with pytest.raises((cabai.RunFailed, type(error))) as ended:
            new().run(raising(error, calls), max_failures=3, **options)
        assert (calls["a"], isinstance(ended.value, cabai.RunFailed)) == (tries, tries == 3)
    for catch in ("OSError", 5, KeyboardInterrupt, (OSError, "x"), [BaseException]):
        with pytest.raises(cabai.InvalidInput, match="catch must be exception classes"):
            new().run(lambda arm: (1, 1.0), catch=catch)


def test_other_workers_tell_what_they_have_paid_for(monkeypatch):
    """One test is wrong; what the others return is on the bill, and nothing stays leased."""
    study, begun, over = new(arms=["a", "b"], policy="uniform"), threading.Event(), threading.Event()
    end = Loop.end
    monkeypatch.setattr(Loop, "end", lambda loop: end(loop) or over.set())

    def test(arm):
        if arm == "a":
            assert begun.wait(20)
            raise NameError("oops")
        begun.set()
        assert over.wait(60)  # meanwhile the other raises
        return 0, 2.0

    with pytest.raises(NameError, match="oops"):
        study.run(test, workers=2)
    assert [(each["arm"], each["cost"]) for each in study.observations()] == [("b", 2.0)]
    assert [study.ask().number, study.status().spent] == [1, 2.0]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", [None, "wrong evaluation"])
def test_evaluate_stops_at_once_and_keeps_what_was_gathered(is_async, name):
    calls = Counter()

    def test(arm, item):
        calls[arm] += 1
        if sum(calls.values()) == 9:
            return undefined_name  # noqa: F821
        return float(arm == "a"), 2.0

    async def later(arm, item):
        return test(arm, item)

    storage = None if name is None else "memory"
    name = name and f"{name} {is_async}"
    with pytest.raises(NameError, match="undefined_name") as ended:
        cabai.evaluate(["a", "b"], range(100), later if is_async else test, seed=1, name=name, storage=storage)
    assert sum(calls.values()) == 9
    found = ended.value.evaluation
    assert (found.status.failures, found.spent) == (0, 16.0)
    assert any("`reuse` takes" in note for note in ended.value.__notes__) == (name is None)
    again = cabai.evaluate(["a", "b"], range(100), lambda arm, item: float(arm == "a"), reuse=found, seed=2)
    assert again.decision == "a"


def recipe(folder, function, *more):
    (folder / "failing_judges.py").write_text(
        "import json\n"
        "class Busy(Exception):\n    pass\n"
        "def typo(arm):\n    return answer(arm), 1.0\n"
        "def busy(arm):\n    raise Busy('later')\n"
        "def key(arm):\n    return {}['score'], 1.0\n"
        "def wrong(arm):\n    return 'good'\n"
    )
    lines = ['family = "bernoulli"', 'arms = ["a", "b"]', f'function = "failing_judges:{function}"', *more]
    (folder / "study.toml").write_text("\n".join(lines))


@pytest.mark.parametrize("cost", [(), ('cost = "seconds"',)])
def test_a_function_that_is_wrong_shows_where_and_one_line(cost, tmp_path):
    recipe(tmp_path, "typo", *cost)
    done = here("run", "study.toml", cwd=tmp_path)
    assert done.returncode == 1
    *shown, last = done.stderr.splitlines()
    assert shown[0] == "Traceback (most recent call last):"
    assert any("failing_judges.py" in line for line in shown)
    assert not any("runner.py" in line for line in shown)
    assert shown[-1] == "NameError: name 'answer' is not defined"
    assert last.startswith("cabai: NameError: name 'answer' is not defined. This is an error in the test")
    parts = json.loads(here("run", "study.toml", "--json", cwd=tmp_path).stderr)
    assert "failing_judges.py" in parts["traceback"]
    assert parts["error"].startswith("NameError")
    assert cabai.load_study("study", storage=f"sqlite:///{tmp_path}/cabai.db").observations() == []


@pytest.mark.parametrize(
    ("function", "more", "code", "why"),
    [
        ("busy", [], 1, "arm 'a' failed 5 times in a row, the last time with: Busy: later"),
        ("busy", ['catch = "OSError"'], 1, "Busy: later. This is an error in the test"),
        ("key", ["max_failures = 2"], 1, "failed 2 times in a row"),
        ("key", ['catch = ["failing_judges:Busy", "OSError"]', 'cost = "seconds"'], 1, "'score'. This is an error"),
        ("typo", ['catch = ["NameError"]', "max_failures = 2"], 1, "failed 2 times in a row"),
        ("wrong", ['cost = "cpu"'], 1, "did not return a reward and a cost"),
        ("typo", ["catch = [5]"], 2, "catch must be names of exceptions"),
        ("typo", ['catch = "NoSuchError"'], 2, "the module builtins has no 'NoSuchError'"),
        ("typo", ['catch = "failing_judges:typo"'], 2, "catch must be exception classes"),
    ],
)  # fmt: skip
def test_a_file_names_what_is_caught(function, more, code, why, tmp_path):
    recipe(tmp_path, function, *more)
    done = here("run", "study.toml", cwd=tmp_path)
    assert (done.returncode, why in done.stderr) == (code, True), done.stderr
    assert code == 1 or done.stderr.count("\n") == 1


# Ctrl-C in Python: it is heard, it reaches the caller without our insides, and leaves what it should


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
