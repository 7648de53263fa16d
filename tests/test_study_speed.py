"""What makes a study fast changes no result: compiled functions, memory written in parts, readers next to writers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import cabai
from cabai.core import compiling
from cabai.study import create_study, damage, kernels, statements, storage
from cabai.study.memory import FEW, Memory
from cabai.study.play import Play
from cabai.study.sqlite import Guests
from cabai.study.turns import Turn
from cabai.support.lazy import lazy
from storages import BOTH
from studies import new, start

slow = pytest.mark.slow
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def settings(**options: Any) -> Any:
    arms = [f"arm {a}" for a in range(options.pop("count", 5))]
    return create_study(f"{options}", arms=arms, delta=1e-6, storage="memory", load_if_exists=True, **options).settings


@pytest.mark.parametrize(
    ("family", "policy", "options"),
    [
        ("gaussian(variance=1)", "top-two", {}),
        ("bernoulli", "ctas", {}),
        ("poisson", "co", {"direction": "minimize", "threshold": "evalue"}),
        pytest.param("poisson", "co", {"direction": "minimize"}, marks=slow),
        pytest.param("bernoulli", "top-two", {"epsilon": 0.05}, marks=slow),
        pytest.param("exponential", "top-two", {}, marks=slow),
        pytest.param("gaussian(variance=1)", "tas", {}, marks=slow),
        pytest.param("gaussian(variance=1)", "d-lucb", {"threshold": "mixture"}, marks=slow),
        ("bounded", "top-two", {"epsilon": 0.01}),
        pytest.param("bounded", "co", {}, marks=slow),
        pytest.param("bounded", "ctas", {"direction": "minimize"}, marks=slow),
        pytest.param("exponential", "ctas", {}, marks=slow),
        pytest.param("poisson", "racing", {}, marks=slow),
        pytest.param("gaussian(variance=1)", "uniform", {"threshold": "paper"}, marks=slow),
    ],
)
def test_compiled_or_not_a_study_computes_the_same_to_the_last_bit(family, policy, options, monkeypatch):
    """The records after each step, with pulls under way and without."""
    monkeypatch.setattr(kernels, "WORTH_COMPILING", np.inf)
    chance = random.Random(1)
    plain, fast = (Play(settings(family=family, policy=policy, **options | {"seed": seed})) for seed in (5, 5))
    fast.kernels = kernels.Kernels(fast.setup)
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
                if name != "room" and name not in plain.policy.arm_scratch:
                    assert ours[name].tobytes() == theirs[name].tobytes(), (step, name)
    assert not plain.kernels.compiled


def test_what_is_a_users_own_is_not_compiled():
    def second(arms, run, rules):
        return 1

    own = kernels.Kernels(cabai.core.setup.Setup(*parts("gaussian", cabai.policy(second)), arms=3, delta=0.1))
    own.compile()
    assert set(own.compiled) == {"observe", "stop", "weigh", "surplus", "beats"}


def parts(family: str, policy: Any) -> tuple[Any, Any, Any]:
    from cabai.families import family_of
    from cabai.thresholds import threshold_of

    return family_of(family), threshold_of("evalue"), policy


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


def test_to_ask_and_tell_a_few_times_does_not_import_the_compiler():
    code = """
import sys
from cabai import create_study
study = create_study("few", arms=["a", "b", "c"], family="gaussian(variance=1)", storage="memory")
for _ in range(20):
    study.tell(study.ask(), reward=1, cost=1)
print("numba" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_process_that_forks_while_it_compiles_waits(monkeypatch):
    begun, end = threading.Event(), threading.Event()

    def compiled(*_: Any) -> Any:
        begun.set()
        assert end.wait(60)
        raise RuntimeError

    monkeypatch.setattr(compiling, "compiled", compiled)
    threading.Thread(target=Play(settings(family="gaussian(variance=1)", policy="co", seed=9)).kernels.compile).start()
    assert begun.wait(60)
    threading.Timer(0.2, end.set).start()
    child = os.fork()
    if child == 0:
        os._exit(int(kernels.compiling.locked() or not end.is_set()))
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("count", [9, FEW + 1])
@pytest.mark.parametrize("run_names", [["a", "b", "d"], ["a", "b", "c", "d"]])
def test_what_is_remembered_is_spelt_as_json_would(count, run_names):
    """Compared with the whole, written at once; a field of many numbers only if it differs from the start."""
    arm = np.dtype([("a", "i8"), ("other", "f8"), ("b", "f8"), ("c", "f8", (2,)), ("d", "u8")])
    chance = np.random.default_rng(1)
    arms, run = np.zeros(count, arm), np.zeros(1, arm)[0]
    names = ["a", "b", "c", "d"]
    arms["b"] = run["b"] = np.inf
    first_arms, first_run = arms.copy(), run.copy()
    memory = Memory(first_arms, first_run, names, run_names)
    short = {name for name in names if arms[name].size <= FEW}
    assert "c" not in short
    assert ("a" in short) == (count == 9)
    for step in range(200):
        if step % 50 == 49:
            arms, run = first_arms.copy(), first_run.copy()
        for record in (arms[chance.integers(count)], run):
            name = names[chance.integers(4)]
            value = [chance.normal(), -np.inf, 1e300, 0.0, np.nan][chance.integers(5)]
            record[name] = (
                abs(int(value)) % 1000 if name in "ad" and np.isfinite(value) else 5 if name in "ad" else value
            )
        expected = {
            "arms": {n: arms[n].tolist() for n in names if n in short or (arms[n] != first_arms[n]).any()},
            "run": {name: run[name].tolist() for name in run_names},
        }
        assert memory.text(arms, run) == json.dumps(expected)


@pytest.mark.parametrize("count", [3, FEW + 1])
def test_ctrl_c_while_it_is_spelt_leaves_nothing_half_remembered(count):
    """At any line, in the middle of many changes; the call is then made again."""
    chance, kind = np.random.default_rng(1), np.dtype([("a", "f8"), ("b", "f8")])
    hits = 0
    for line in range(1, 60):
        arms, run = np.zeros(count, kind), np.zeros(1, kind)[0]
        memory, left = Memory(arms, run, ["a"], ["a", "b"]), [line]

        def interrupt(frame: Any, event: str, _: Any, left: list[int] = left) -> Any:
            if frame.f_code.co_filename != Memory.text.__code__.co_filename:
                return None
            left[0] -= event == "line"
            if left[0] == 0 and event == "line":
                raise KeyboardInterrupt
            return interrupt

        for _ in range(3):
            arms["a"][chance.integers(count)] = chance.normal()
            sys.settrace(interrupt)
            try:
                memory.text(arms, run)
            except KeyboardInterrupt:
                hits += 1
            finally:
                sys.settrace(None)
            arms["a"][chance.integers(count)] = chance.normal()
            assert json.loads(memory.text(arms, run))["arms"]["a"] == arms["a"].tolist()
    assert hits > 15


@BOTH
def test_reading_does_not_wait_for_a_writer(url):
    study = create_study("read", arms=["a", "b"], family="gaussian(variance=1)", storage=url)
    study.tell(study.ask(), 1.0, cost=1.0)
    inside, end = threading.Event(), threading.Event()

    def work(connection: Any) -> None:
        study._ledger.row(connection, lock=True)
        inside.set()
        assert end.wait(60)

    writer = threading.Thread(target=study._storage.write, args=(work,))
    writer.start()
    assert inside.wait(60)
    assert study.status().pulls == 1
    assert not study.stopped
    assert len(study.observations()) == 1
    assert writer.is_alive()
    end.set()
    writer.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_process_that_forks_waits_for_its_readers(tmp_path):
    study = create_study(
        "fork", arms=["a", "b"], family="gaussian(variance=1)", storage=f"sqlite:///{tmp_path}/cabai.db"
    )
    inside, end = threading.Event(), threading.Event()

    def work(connection: Any) -> None:
        inside.set()
        assert end.wait(60)

    threading.Thread(target=study._storage.read, args=(work,)).start()
    assert inside.wait(60)
    threading.Timer(0.2, end.set).start()
    child = os.fork()
    if child == 0:
        was_over = end.is_set() and not study._storage.reading.inside
        study.tell(study.ask(), 1.0, cost=1.0)
        os._exit(int(not was_over))
    assert os.waitpid(child, 0)[1] == 0
    assert study.status().pulls == 1
    storage._opened.pop(f"{tmp_path}/cabai.db").close()


def test_a_thread_that_reads_may_read_again_while_another_waits_to_fork():
    guests, closed = Guests(), threading.Event()

    def close() -> None:
        guests.acquire()
        closed.set()
        guests.release()

    with guests:
        threading.Thread(target=close).start()
        time.sleep(0.05)
        with guests:
            assert not closed.is_set()
    assert closed.wait(60)


def test_turns_are_taken_as_they_were_asked_for():
    turn, order, threads = Turn(), [], []
    turn.acquire()
    turn.acquire()  # once more, by the same thread
    for number in range(8):
        threads.append(
            threading.Thread(target=lambda number=number: (turn.acquire(), order.append(number), turn.release()))
        )
        threads[-1].start()
        while len(turn.waiting) <= number:
            time.sleep(0.001)
    turn.release()
    assert not order
    turn.release()
    for thread in threads:
        thread.join()
    assert order == list(range(8))
    assert turn.acquire(blocking=False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_waits_for_no_thread_of_its_parents():
    turn, inside, end = Turn(), threading.Event(), threading.Event()

    def hold() -> None:
        with turn:
            inside.set()
            assert end.wait(60)

    threading.Thread(target=hold).start()
    assert inside.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(int(not turn.acquire(blocking=False)))
    end.set()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_waits_for_nothing_that_a_thread_of_its_parent_was_computing():
    inside, end = threading.Event(), threading.Event()

    class Slow:
        @lazy
        def value(self) -> int:
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                assert end.wait(60)
            return 7

    slow = Slow()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert inside.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(int(slow.value != 7))
    end.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert "value" in vars(slow)


# A study that others have changed is read again, which must be quick: everybody else waits meanwhile.


def stored(study: Any) -> tuple[Any, list[Any]]:
    ledger = study._ledger
    return study._storage.read(lambda c: (ledger.row(c), statements.ARMS.rows(c, ledger.of)))


@pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
@pytest.mark.parametrize("threshold", ["contrast", "evalue", "paper", "mixture"])
@pytest.mark.parametrize("policy", ["racing", "top-two", "co", "ctas", "tas", "uniform"])
def test_a_state_that_is_read_again_is_the_one_that_was_kept(clock, policy, threshold):
    """To the last bit, with results that wait, failures, lapses and withdrawn pulls: what is weighed arm by arm, at
    once, and what the worker who told has in hand."""
    chance, seen = random.Random(7), set()
    study = new(policy=policy, threshold=threshold, delta=0.2, lease=20.0, seed=1)
    kernels, usual = study.settings.kernels, study.settings.kernels.weighs_as_usual
    held: list[Any] = []
    for turn in range(150):
        if study.stopped:
            break
        if not held or chance.random() < 0.5:
            with contextlib.suppress(cabai.NoPull):
                held += study.ask(chance.choice([1, 1, 3]))
        else:
            pull = held.pop(chance.randrange(len(held)))
            lucky = chance.random() < (0.9, 0.4, 0.1)["abc".index(pull.arm)]
            what = {"failed": "no luck"} if chance.random() < 0.1 else {"reward": float(lucky)}
            with contextlib.suppress(cabai.AlreadyTold):
                study.tell(pull, cost=chance.choice([0.5, 1.0]), **what)
        clock.now += 30.0 if turn % 40 == 39 else 0.1
        row, arms = stored(study)
        again = study._ledger.restored(row, arms)
        kernels.weighs_as_usual = False
        slowly = study._ledger.restored(row, arms)
        kernels.weighs_as_usual = usual
        known, kept = study._ledger._known, again  # unknown after a call that has changed nothing
        if known is not None:
            kept = known.play
            for name in set(known.row._fields) - {"now"}:
                assert getattr(known.row, name) == getattr(row, name), name
        for side in ("told", "ordered"):
            one, other, mine = (getattr(play, side) for play in (again, slowly, kept))
            assert one.arms.tobytes() == other.arms.tobytes()
            assert one.run.tobytes() == other.run.tobytes()
            for name in ("tested", "tested_mean", "price", "pulls", "rewards", "mean", "costs", "in_play"):
                assert one.arms[name].tobytes() == mine.arms[name].tobytes(), name
        seen |= {name for name in ("failures", "lapses", "discarded") if getattr(again, name).any()}
        seen |= {"waiting"} if again.has_waiting else set()
    assert {"failures", "waiting"} <= seen


SOMETHING = [None, "", "x", b"", True, False, 0, 1, -1, 2**70, 0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, 1e308, np.inf,
             -np.inf, np.nan, np.float64(1.0), np.int64(1)]  # fmt: skip


@pytest.mark.parametrize("items", [None, 5])
def test_a_pull_that_looks_sound_passes_the_careful_check(items):
    """The same for pulls under way; one of an item is always looked at with care."""
    study = new() if items is None else new(items=items, family="bounded", policy="top-two")
    study.ask()
    [pull] = study._storage.read(lambda c: statements.PULLS.rows(c, study._ledger.of))
    names, chance, passed = [name for name in pull._fields if name not in ("study", "number")], random.Random(4), 0
    rows = [pull._replace(**{name: value}) for name in names for value in SOMETHING]
    for _ in range(2000):
        rows.append(pull._replace(**{name: chance.choice(SOMETHING) for name in chance.sample(names, 2)}))
    for row in rows:
        if damage.looks_under_way(row, study.settings):
            damage.check_pulls([row], study.settings)
            passed += 1
    assert damage.looks_under_way(pull, study.settings) == (items is None)
    assert (passed > 50) == (items is None)


def test_what_looks_sound_passes_the_careful_check():
    """Whatever stands in a row: a glance never lets through what the careful check would not."""
    study = new()
    start(study, [1, 0, 1, 1])
    _, arms = stored(study)
    low, high = study.settings.family.mean_range
    values = SOMETHING
    chance, passed = random.Random(3), 0
    columns = [name for name in arms[0]._fields if name not in ("study", "number", "name")]
    rows = [arm._replace(**{name: value}) for arm in arms for name in columns for value in values]
    for _ in range(20_000):
        changed = chance.sample(columns, chance.randint(2, 5))
        rows.append(chance.choice(arms)._replace(**{name: chance.choice(values) for name in changed}))
    for row in [*arms, *rows]:
        if damage.looks_sound(row, study.settings, low, high):
            damage.check_arm(row, study.settings, low, high)
            passed += 1
    assert all(damage.looks_sound(arm, study.settings, low, high) for arm in arms)
    assert 100 < passed < len(rows) / 2
