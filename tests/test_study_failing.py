"""A test with a bug ends a run at once, and is not repeated; a failed trial is."""

from __future__ import annotations

import json
import subprocess
import threading
import traceback
from collections import Counter

import pytest

import cabai
from cabai.study.run.loop import Loop
from shell import here
from studies import new

pytestmark = pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
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
