"""`cabai.evaluate`: the best of several arms on a dataset, in one call."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter

import numpy as np
import pytest

import cabai
from tables_of_scores import table
from workers import Child

ARMS = ["a", "b", "c"]
SCORES = table(items=300, seed=1)
ITEMS = [{"id": f"q{i}", "number": i} for i in range(300)]


def score(arm, item):
    return float(SCORES[ARMS.index(arm), item["number"]])


def test_a_winner_a_bill_and_the_scores():
    calls = []

    def test(arm, item):
        calls.append((arm, item["id"]))
        return score(arm, item), {"a": 1, "b": 2, "c": 3}[arm]

    found = cabai.evaluate(ARMS, ITEMS, test, seed=1)
    assert found.decision == "b"
    assert found.statement == (
        "b has the highest mean of these three on these 300 items, wrong with probability at most 0.05"
    )
    assert len(set(calls)) == len(calls)
    assert found.spent == sum({"a": 1, "b": 2, "c": 3}[arm] for arm, _ in calls) < found.full_cost == 6 * 300
    assert {(arm, item) for arm, known in found.scores.items() for item in known} == set(calls)
    frame = found.to_frame()
    assert frame.shape == (300, 3)
    assert frame.notna().sum().sum() == len(calls)
    assert str(found) == str(found.status)


def test_costs_may_be_known_or_none():
    assert cabai.evaluate(ARMS, ITEMS, score).full_cost == 900
    assert cabai.evaluate(ARMS, ITEMS, score, costs={"a": 1, "b": 2, "c": 3}).full_cost == 1800


@pytest.mark.parametrize(
    "items", [range(300), list(range(300)), np.arange(300), tuple(f"text {i}" for i in range(300))]
)
def test_items_are_any_sequence(items):
    seen = []

    def test(arm, item):
        seen.append(item)
        return arm == "b"

    found = cabai.evaluate(ARMS, items, test)
    assert found.decision == "b"
    assert set(seen) <= set(items)
    assert set(found.scores["b"]) <= set(range(300))


def test_items_are_read_from_a_file(tmp_path):
    (tmp_path / "items.jsonl").write_text('{"id": "x", "q": 1}\n\n{"id": "y", "q": 2}\n')
    (tmp_path / "items.csv").write_text("id,q\nx,1\ny,2\n")
    for file in ("items.jsonl", "items.csv"):
        found = cabai.evaluate(["a", "b"], tmp_path / file, lambda arm, item: (arm == "b") * int(item["q"]) / 2)
        assert found.decision == "b"
        assert found.scores["b"].items() <= {"x": 0.5, "y": 1.0}.items()
    (tmp_path / "numbers.jsonl").write_text("1\n2\n3\n")
    assert cabai.evaluate(["a", "b"], str(tmp_path / "numbers.jsonl"), lambda arm, item: arm == "a").decision == "a"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "line 1 is not JSON"),
        ("", "at least one item"),
        ('{"id": 1}\n{"q": 1}\n', "1 of 2 items have no id"),
        ('{"id": 1}\n{"id": 1}\n', "'1' is there twice"),
        ('{"id": null}\n', "an item's id must be"),
    ],
)
def test_files_that_make_no_sense(tmp_path, content, words):
    (tmp_path / "items.jsonl").write_text(content)
    with pytest.raises(cabai.InvalidInput, match=words):
        cabai.evaluate(["a", "b"], tmp_path / "items.jsonl", score)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((ARMS, ITEMS, "not a function"), {}, "test must be a function"),
        ((ARMS, 17, score), {}, "items must be a sequence"),
        ((ARMS, "items.txt", score), {}, ".jsonl or a .csv file"),
        ((ARMS, "nowhere.csv", score), {}, "cannot read nowhere.csv"),
        ((["a"], ITEMS, score), {}, "at least 2 arms"),
        ((ARMS, ITEMS, score), {"storage": "memory"}, "needs a name"),
        ((ARMS, ITEMS, score), {"reuse": 17}, "reuse must be an earlier evaluation"),
        ((ARMS, ITEMS, score), {"reuse": {"z": {"q1": 1}}}, "nothing to reuse"),
        ((ARMS, ITEMS, score), {"reuse": {"a": {"q1": 7}}}, "reward"),
        ((ARMS, ITEMS, score), {"workers": 0}, "workers must be"),
        ((ARMS, ITEMS, score), {"delta": 2}, "delta must lie"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, options, words):
    with pytest.raises(cabai.InvalidInput, match=words):
        cabai.evaluate(*arguments, **options)


@pytest.mark.parametrize("workers", [1, 8])
def test_async_tests_are_awaited_together(workers):
    at_once, most, threads = 0, 0, set()

    async def test(arm, item):
        nonlocal at_once, most
        at_once, most = at_once + 1, max(most, at_once + 1)
        threads.add(threading.get_ident())
        await asyncio.sleep(0.002)
        at_once -= 1
        return score(arm, item), 0.5

    found = cabai.evaluate(ARMS, ITEMS, test, workers=workers, speculate=1)
    assert found.decision == "b"
    assert len(threads) == 1
    assert most == 1 if workers == 1 else 1 < most <= 8


def test_within_a_loop_that_runs():
    """As in a notebook."""

    async def test(arm, item):
        return score(arm, item)

    async def cell():
        return cabai.evaluate(ARMS, ITEMS, test)

    assert asyncio.run(cell()).decision == "b"


@pytest.mark.parametrize("stops", [0, 17, 30])
def test_killed_and_called_again_it_goes_on_at_once(tmp_path, stops):
    url, counted = f"sqlite:///{tmp_path}/cabai.db", Counter()

    def work(report):
        def test(arm, item):
            report(arm, item["id"])
            if len(counted) == stops:
                os.kill(os.getpid(), signal.SIGKILL)
            counted[arm, item["id"]] += 1
            return score(arm, item)

        cabai.evaluate(ARMS, ITEMS, test, name="e", storage=url, workers=3, seed=1)

    child = Child(work)
    before = [tuple(words) for words in child.reports()]
    assert child.end() == -signal.SIGKILL
    after = []

    def test(arm, item):
        after.append((arm, item["id"]))
        return score(arm, item)

    began = time.monotonic()
    found = cabai.evaluate(ARMS, ITEMS, test, name="e", storage=url, workers=3, seed=1)
    assert time.monotonic() - began < 30  # and not only after the lease
    assert found.decision == "b"
    again = Counter(before) & Counter(after)
    assert sum(again.values()) <= 3  # those that were under way
    lapsed = sum(arm.lapses for arm in found.status.arms)
    assert lapsed <= 3
    assert cabai.evaluate(ARMS, ITEMS, test, name="e", storage=url).status == found.status


def test_a_new_model_reuses_the_scores_of_the_others(tmp_path):
    url, calls = f"sqlite:///{tmp_path}/cabai.db", Counter()

    def test(arm, item):
        calls[arm] += 1
        return (0.99 if arm == "d" else score(arm, item)), 1

    old = cabai.evaluate(ARMS, ITEMS, test, name="old", storage=url, seed=1, epsilon=0.01)
    known = {arm: len(scores) for arm, scores in old.scores.items()}
    calls.clear()
    new = cabai.evaluate([*ARMS, "d"], ITEMS, test, name="new", storage=url, reuse="old", seed=2, epsilon=0.01)
    assert new.decision == "d"
    paid = Counter(calls)
    assert new.spent == sum(paid.values())
    fresh = cabai.evaluate([*ARMS, "d"], ITEMS, lambda arm, item: test(arm, item)[0], seed=2, epsilon=0.01)
    assert (fresh.status.pulls, fresh.decision) == (new.status.pulls, "d")  # the same race, but cheaper
    assert new.spent < fresh.spent
    for arm in ARMS:
        assert len(new.scores[arm]) == known[arm] + paid[arm]
    assert new.full_cost == 4 * 300
    with pytest.raises(cabai.InvalidInput, match="need a new order"):
        cabai.evaluate([*ARMS, "d"], ITEMS, test, reuse=old, seed=1)
    calls.clear()
    everything = {arm: {item["id"]: score(arm, item) for item in ITEMS} for arm in ARMS}
    done = cabai.evaluate(ARMS, ITEMS, test, reuse=[old, everything])
    assert (done.decision, done.spent, sum(calls.values())) == ("b", 0.0, 0)
    assert done.statement.endswith("known exactly, since everything was evaluated")


def test_an_arm_that_always_fails_has_no_scores():
    def test(arm, item):
        if arm == "c":
            raise ValueError("no key")
        return score(arm, item)

    with pytest.raises(cabai.RunFailed, match=r"arm 'c' failed .* no key"):
        cabai.evaluate(ARMS, ITEMS, test, name="no key", storage="memory", workers=3)
    study = cabai.load_study("no key", storage="memory")
    assert study.scores()["c"] == {}
    assert study.status().failures == 0
    found = cabai.evaluate(ARMS, ITEMS, score, name="no key", storage="memory")
    assert found.decision == "b"
    assert found.status.failures == 0


def test_an_item_that_fails_is_tried_again_and_then_has_the_worst_score():
    tries = Counter()

    def test(arm, item):
        tries[arm, item["id"]] += 1
        if item["number"] % 4 == 0 or tries[arm, item["id"]] == 1:
            raise ValueError("odd")
        return score(arm, item)

    with pytest.warns(cabai.FailedPulls):
        found = cabai.evaluate(ARMS, ITEMS, test, seed=3, max_failures=8)
    assert found.decision == "b"
    failed = [item for item in found.scores["b"] if int(item[1:]) % 4 == 0]
    assert failed
    assert all(found.scores["b"][item] == 0 for item in failed)
    assert all(tries["b", item] == 3 for item in failed)
    assert found.status.failures >= len(failed)


def test_an_item_on_which_all_fail_ends_like_any_other():
    def test(arm, item):
        if item == 3:
            raise ValueError("odd")
        return 0.5

    found = cabai.evaluate(["a", "b"], range(5), test, costs=[2, 1])
    assert (found.decision, found.status.failures, found.status.is_complete) == ("b", 2, True)
    assert cabai.evaluate(["a", "b"], range(5), test, failed=0.5, costs=[1, 2]).decision == "a"


def test_failing_may_stop_the_run():
    def test(arm, item):
        if item["number"] == 7:
            raise ValueError("odd")
        return 0.5

    with pytest.raises(cabai.RunFailed, match="failed with: ValueError: odd"):
        cabai.evaluate(ARMS, ITEMS, test, name="stops", storage="memory", failed="stop", seed=1)
    found = cabai.evaluate(ARMS, ITEMS, lambda arm, item: arm == "a", name="stops", storage="memory", failed="stop")
    assert found.decision == "a"


def test_a_budget_ends_it_without_a_decision():
    found = cabai.evaluate(ARMS, ITEMS, score, max_cost=9, seed=1)
    assert (found.decision, found.statement, found.spent) == (None, None, 9.0)
    assert "without a guarantee" in str(found)


def test_progress_is_shown_where_it_is_wanted(capsys):
    cabai.evaluate(ARMS, ITEMS, score, progress=True)
    assert "leads" in capsys.readouterr().err
    cabai.evaluate(ARMS, ITEMS, score)
    assert capsys.readouterr().err == ""
