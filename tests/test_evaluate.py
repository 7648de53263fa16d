"""`cabai.evaluate`: the best of several arms on a dataset, in one call."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import threading
import time
from collections import Counter

import numpy as np
import pytest

import cabai
from shell import here
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


@pytest.mark.parametrize("items", [range(300), np.arange(300), tuple(f"text {i}" for i in range(300))])
def test_items_are_any_sequence(items):
    seen = []
    found = cabai.evaluate(ARMS, items, lambda arm, item: (seen.append(item), arm == "b")[1])
    assert found.decision == "b"
    assert set(seen) <= set(items)
    assert set(found.scores["b"]) <= set(range(300))


BAD = [
    ((ARMS, ITEMS, "not a function"), {}, "test must be a function"),
    ((ARMS, 17, score), {}, "items must be a sequence"),
    ((ARMS, "items.txt", score), {}, ".jsonl or a .csv file"),
    ((ARMS, "nowhere.csv", score), {}, "cannot read nowhere.csv"),
    ((ARMS, "broken.jsonl", score), {}, "line 1 is not JSON"),
    ((ARMS, "empty.jsonl", score), {}, "at least one item"),
    ((["a"], ITEMS, score), {}, "at least 2 arms"),
    ((ARMS, ITEMS, score), {"storage": "memory"}, "needs a name"),
    ((ARMS, ITEMS, score), {"reuse": 17}, "reuse must be an earlier evaluation"),
    ((ARMS, ITEMS, score), {"reuse": {"z": {"q1": 1}}}, "nothing to reuse"),
    ((ARMS, ITEMS, score), {"reuse": {"a": {"q1": 7}}}, "reward"),
    ((ARMS, ITEMS, score), {"workers": 0}, "workers must be"),
    ((ARMS, ITEMS, score), {"workers": 10**6}, "workers must be at most 4000, got 1000000"),
    ((ARMS, ITEMS, score), {"batch": 0}, "batch must be a whole number of at least 1, got 0"),
    ((ARMS, ITEMS, score), {"page": "x"}, "page must be true or false, got 'x'"),
    ((ARMS, ITEMS, score), {"progress": print}, "progress must be true, false or None, got <built-in"),
    ((ARMS, ITEMS, score), {"delta": 2}, "delta must lie"),
]


@pytest.mark.parametrize(("arguments", "options", "words"), BAD)
def test_what_makes_no_sense_is_refused(arguments, options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in (("broken.jsonl", "{"), ("empty.jsonl", "")):
        (tmp_path / name).write_text(content)
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

    async def cell():  # as in a notebook, whose loop runs; and of a function that returns a coroutine
        return cabai.evaluate(ARMS, ITEMS, lambda arm, item: test(arm, item), workers=workers, speculate=1)

    found = asyncio.run(cell()) if workers > 1 else cabai.evaluate(ARMS, ITEMS, test, workers=workers, speculate=1)
    assert found.decision == "b"
    assert len(threads) == 1
    assert most == 1 if workers == 1 else 1 < most <= 8


@pytest.mark.parametrize(("stops", "batch"), [(0, None), (17, None), (30, 8)])
def test_killed_and_called_again_it_goes_on_at_once(tmp_path, stops, batch):
    about = {"name": "e", "storage": f"sqlite:///{tmp_path}/cabai.db", "workers": 3, "seed": 1, "batch": batch}
    counted, after = Counter(), []

    def single(arm, item):
        report(arm, item["id"])
        if len(counted) >= stops:
            os.kill(os.getpid(), signal.SIGKILL)
        counted[arm, item["id"]] += 1
        return score(arm, item)

    def test(arm, items):
        return [single(arm, item) for item in items] if batch else single(arm, items)

    def work(say):
        nonlocal report
        report = say
        cabai.evaluate(ARMS, ITEMS, test, **about)

    report = None
    child = Child(work)
    before = [tuple(words) for words in child.reports()]
    assert child.end() == -signal.SIGKILL
    stops, began = math.inf, time.monotonic()
    report = lambda *words: after.append(words)  # noqa: E731
    found = cabai.evaluate(ARMS, ITEMS, test, **about)
    assert time.monotonic() - began < 30  # and not only after the lease
    assert found.decision == "b"
    assert len(set(after)) == len(after)
    assert sum((Counter(before) & Counter(after)).values()) <= 3 * (batch or 1)  # those that were under way
    assert sum(arm.lapses for arm in found.status.arms) <= 3 * (batch or 1)
    assert cabai.evaluate(ARMS, ITEMS, test, **about).status == found.status


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
    with pytest.raises(cabai.InvalidInput, match="gives an order that study"):
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

    with pytest.warns(cabai.FailedPulls) as warned:
        found = cabai.evaluate(ARMS, ITEMS, test, seed=3, max_failures=8)
    assert not [each.filename for each in warned if each.filename == threading.__file__]
    assert found.decision == "b"
    failed = [item for item in found.scores["b"] if int(item[1:]) % 4 == 0]
    assert failed
    assert all(found.scores["b"][item] == 0 for item in failed)
    assert all(tries["b", item] == 3 for item in failed)
    assert found.status.failures >= len(failed)


def test_failing_may_stop_the_run():
    def test(arm, item):
        if item["number"] == 7:
            raise ValueError("odd")
        return 0.5

    with pytest.raises(cabai.RunFailed, match="failed with: ValueError: odd"):
        cabai.evaluate(ARMS, ITEMS, test, name="stops", storage="memory", failed="stop", seed=1)
    found = cabai.evaluate(ARMS, ITEMS, lambda arm, item: arm == "a", name="stops", storage="memory", failed="stop")
    assert found.decision == "a"


def test_progress_is_shown_where_it_is_wanted(capsys):
    found = cabai.evaluate(ARMS, ITEMS, score, progress=True)
    assert capsys.readouterr().err == f"{found.status.line()}\n"
    cabai.evaluate(ARMS, ITEMS, score)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("result", [(1, 0.02), {"score": 1, "cost": 0.02}])
def test_costs_that_are_given_and_returned_are_refused(result):
    with pytest.raises(cabai.RunFailed, match=r"arm '.' returned a cost of 0.02, but costs= already says") as failed:
        cabai.evaluate(["a", "b"], range(50), lambda arm, item: result, costs=[1, 2])
    assert (failed.value.evaluation.spent, failed.value.evaluation.status.pulls) == (0, 0)
    assert cabai.evaluate(["a", "b"], range(9), lambda arm, item: (arm == "a", None), costs=[1, 2]).decision == "a"
    free = cabai.evaluate(ARMS, ITEMS, lambda arm, item: {"score": score(arm, item), "cost": 0})
    assert (free.decision, free.spent) == ("b", 0)


def test_an_async_test_that_leaves_does_not_hang():
    async def test(arm, item):
        if item["number"] % 7 == 0:
            raise SystemExit(3)
        return score(arm, item)

    with pytest.raises(SystemExit):
        cabai.evaluate(ARMS, ITEMS, test, workers=3)


@pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
def test_an_arm_that_fails_on_the_first_items_is_not_stuck():
    found = cabai.evaluate(["a", "b"], range(40), lambda arm, item: 1.0, seed=1, max_failures=5)
    first = [row["item"] for row in found.study.observations() if row["arm"] == "a"][:4]

    def test(arm, item):
        if arm == "a" and item in first:
            raise ValueError("odd")
        return float(arm == "a" or item % 2)

    assert cabai.evaluate(["a", "b"], range(40), test, seed=1, epsilon=0.1).status.failures == 4
    with pytest.raises(cabai.RunFailed, match="a larger max_failures"):
        cabai.evaluate(["a", "b"], range(40), lambda arm, item: 1 / (arm == "b"), seed=1)


def test_a_pull_that_is_still_tried_here_is_not_tried_again(monkeypatch):
    """Though its lease has ended, since the process stood still."""
    study = cabai.create_study("stood still", arms=["a", "b"], items=20, lease=0.05, costs=[1, 1], storage="memory")
    tried = Counter()

    def test(arm, item):
        tried[arm, item] += 1
        if sum(tried.values()) == 1:
            time.sleep(0.5)  # longer than the lease, which a busy main thread does not renew
        return float(arm == "a")

    monkeypatch.setattr("cabai.study.run.loop.Loop.renew", lambda self: None)
    study.run(test, workers=3)
    assert max(tried.values()) == 1


MODES = {
    "one by one": {}, "workers": {"workers": 8}, "batches": {"batch": 32}, "both": {"workers": 3, "batch": 7},
    "paired": {"race": "paired"}, "speculating": {"workers": 16, "speculate": math.inf},
    "finish": {"epsilon": 0.05, "finish": 100.0}, "cheapest": {"goal": "cheapest", "epsilon": 0.1, "slack": 0.01},
    "minimize": {"direction": "minimize"},
}  # fmt: skip


@pytest.mark.parametrize("mode", [*MODES, "resume", "reuse", "join", "add_arm"])
def test_no_mode_costs_more_than_evaluating_everything(mode, tmp_path):
    """Arms that tie on 90 items, so that much is needed: nothing is called twice, so at most everything is paid."""
    calls, arms, items = Counter(), ["a", "b", "c"], range(90)

    def score(arm, item):
        calls.update((arm, each) for each in (item if isinstance(item, list) else [item]))
        return [each % 2 for each in item] if isinstance(item, list) else item % 2

    if mode in MODES:
        found = cabai.evaluate(arms, items, score, seed=1, **MODES[mode])
    elif mode == "resume":
        stored = {"name": "again", "storage": f"sqlite:///{tmp_path}/cabai.db", "seed": 1}
        for most in (50, 120, 200, 1000):
            found = cabai.evaluate(arms, items, score, max_cost=most, **stored)
    elif mode == "add_arm":
        study = cabai.create_study("open to all", arms=arms[:2], items=90, reserve=0.1, costs=[1, 1], storage="memory")
        for each in study.ask(3):
            study.tell(each, score(each.arm, each.item))
        study.add_arm("c", cost=1)
        study.run(score)
        found = study.status()
    else:
        first = cabai.evaluate(arms[:2], items, score, seed=1)
        found = cabai.evaluate(arms, items, score, **{mode: first})
    assert found.decision is not None
    assert max(calls.values()) == 1
    assert sum(calls.values()) <= 3 * 90
    assert found.spent <= 3 * 90
    assert mode == "cheapest" or set(calls) == {(arm, item) for arm in arms for item in items}


# Batches: one call scores many items of one arm


def test_results_may_come_by_id_with_costs_as_arrays_and_later():
    async def later(arm, items):
        return {item["id"]: (score(arm, item), 0.5) for item in items}

    found = cabai.evaluate(ARMS, ITEMS, later, batch=32, seed=1)
    assert (found.decision, found.spent) == ("b", 0.5 * sum(map(len, found.scores.values())))
    arrays = cabai.evaluate(ARMS, ITEMS, lambda arm, items: np.array([score(arm, i) for i in items]), batch=32, seed=1)
    assert arrays.scores == found.scores


def test_a_wrong_shape_ends_the_run_and_counts_nowhere():
    for wrong, said in (
        (lambda items: [1.0] * (len(items) - 1), "a batch of 8 items and returned 7 results"),
        (lambda items: {item["id"]: 1.0 for item in items[1:]}, "returned 7 results"),
        (lambda items: 0.5, "returned 0.5"),
        (lambda items: "10101010", "returned '10101010'"),
        (lambda items: [2.0] * len(items), "did not return a score and a cost"),
    ):
        with pytest.raises(cabai.RunFailed, match=said) as ended:
            cabai.evaluate(ARMS, ITEMS, lambda arm, items, wrong=wrong: wrong(items), batch=8)
        assert ended.value.evaluation.status.pulls == 0


@pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
def test_a_batch_that_raises_is_repeated_and_then_each_item_is_tried_alone():
    calls = []

    def score_many(arm, items):
        calls.append((arm, len(items)))
        if any(item["id"] == bad for item in items):
            raise ValueError("odd")
        return [score(arm, item) for item in items]

    bad = None
    plain = cabai.evaluate(ARMS, ITEMS, score_many, batch=8, seed=4)
    bad = next(iter(plain.scores["a"]))
    calls.clear()
    found = cabai.evaluate(ARMS, ITEMS, score_many, batch=8, seed=4)
    assert found.scores["a"][bad] == 0
    others = {id_: each for id_, each in found.scores["a"].items() if id_ != bad}
    assert others == {id_: each for id_, each in plain.scores["a"].items() if id_ != bad}
    assert found.status.failures == sum(bad in scores for scores in found.scores.values())
    assert sum(size == 1 for arm, size in calls if arm == "a") == 8


@pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
def test_failed_in_a_list_is_tried_again_and_billed():
    tries = Counter()

    def score_many(arm, items):
        tries.update((arm, item["id"]) for item in items)
        return [cabai.Failed("cut", 0.25) if item["number"] % 5 == 0 else (score(arm, item), 1.0) for item in items]

    found = cabai.evaluate(ARMS, ITEMS, score_many, batch=16, seed=1)
    failed = [(arm, id_) for arm, scores in found.scores.items() for id_ in scores if int(id_[1:]) % 5 == 0]
    assert {tries[each] for each in failed} == {3}
    assert found.spent == pytest.approx(0.75 * len(failed) + sum(map(len, found.scores.values())) - len(failed))


def test_what_batches_cost():
    """Over random tables, batches of 32 cost at most 1.15 times single items at 1000 items."""
    rng, ratios, skills = np.random.default_rng(5), [], [0.62, 0.56, 0.54, 0.5, 0.45]
    for seed in range(3):
        hard = rng.random(1000)
        table = {str(skill): (0.6 * hard + 0.4 * rng.random(1000) < skill).astype(float) for skill in skills}
        spent = [
            cabai.evaluate(list(table), range(1000), lambda arm, i, table=table: table[arm][i], seed=seed,
                           epsilon=0.02, batch=batch).spent
            for batch in (32, None)
        ]  # fmt: skip
        ratios.append(spent[0] / spent[1])
    assert 1 <= np.mean(ratios) < 1.15


@pytest.mark.parametrize("kind", ["command", "function"])
def test_a_study_file_with_a_batch(kind, tmp_path):
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    (tmp_path / "judge_batches.py").write_text(
        "import json, sys\n"
        "def score_many(arm, items):\n"
        "    return [{'reward': float(item['number'] % 9 < (8 if arm == 'b' else 5)), 'cost': 0.5} for item in items]\n"
        "if __name__ == '__main__':\n"
        "    items = [json.loads(line) for line in sys.stdin]\n"
        "    print('loading ...')\n"
        "    for result in score_many(sys.argv[1], items):\n"
        "        print(json.dumps(result))\n"
    )
    how = 'function = "judge_batches:score_many"' if kind == "function" else 'command = "python judge_batches.py {arm}"'
    (tmp_path / "study.toml").write_text(f'items = "items.jsonl"\narms = ["a", "b"]\nbatch = 32\n{how}\n')
    done = here("run", "study.toml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["decision"], found["spent"] % 16) == ("b", 0)


def test_scores_on_other_texts_with_the_same_ids_or_in_another_range_are_not_reused(tmp_path):
    """Nor by name, from a storage; the ids are named. Items may be added, left out or put in another order."""
    old = [{"id": f"q{i}", "text": f"old {i}"} for i in range(50)]
    url, right = f"sqlite:///{tmp_path}/cabai.db", lambda arm, item: arm == "a"
    first = cabai.evaluate(["a", "b"], old, right, seed=1, name="old", storage=url)
    by_place = cabai.evaluate(["a", "b"], [item["text"] for item in old], right, seed=1)
    changed = [item | {"text": "new"} if item["id"] in ("q3", "q40") else item for item in old]
    wide = {"family": "bounded(low=0, high=100)"}
    for items, options, message in (
        (changed, {"reuse": first}, r"had other items with the ids q3, q40: .* new ids"),
        (changed, {"reuse": "old", "name": "new", "storage": url}, r"had other items with the ids q3, q40: .* new ids"),
        ([item | {"text": "new"} for item in old], {"reuse": first}, "q0, q1, q2, q3, q4 and 45 more"),
        ([f"new {i}" for i in range(50)], {"reuse": by_place}, "had other items"),
        ([{"id": i} for i in range(50)], {"reuse": by_place}, "had other items"),
        ([item["text"] for item in old], {"reuse": by_place} | wide, "another range"),
    ):
        with pytest.raises(cabai.InvalidInput, match=message):
            cabai.evaluate(["a", "c"], items, right, **options)
    moved = [{"id": "q50", "text": "more"}, *old[:10:-1]]
    again = cabai.evaluate(["a", "b"], moved, right, reuse=first, seed=2)
    assert again.decision == "a"
    assert again.spent < sum(map(len, again.scores.values()))


def test_a_batch_gets_one_arms_items_in_the_order_of_the_race():
    calls, busy, lock = [], Counter(), threading.Lock()

    def score_many(arm, items):
        with lock:
            calls.append((arm, [item["id"] for item in items]))
            busy[arm] += 1
            assert busy[arm] == 1  # one batch of an arm at a time
        results = [score(arm, item) for item in items]
        with lock:
            busy[arm] -= 1
        return results

    for workers in (1, 3):
        calls.clear()
        found = cabai.evaluate(ARMS, ITEMS, score_many, batch=16, workers=workers, seed=2)
        assert found.decision == "b"
        order = [found.study.settings.items.id(i) for i in found.study.settings.items.order(2)]
        for arm in ARMS:
            ids = [id_ for of, each in calls if of == arm for id_ in each]
            assert ids == order[: len(ids)]
            assert found.scores[arm] == {id_: score(arm, {"number": int(id_[1:])}) for id_ in ids}
        sizes = [len(ids) for _, ids in calls]
        assert set(sizes[:3]) == {16}
        assert found.spent == sum(sizes)
