"""Batches: one call scores many items of one arm."""

from __future__ import annotations

import json
import threading
from collections import Counter

import numpy as np
import pytest

import cabai
from shell import here

ARMS = ["a", "b", "c"]
ITEMS = [{"id": f"q{i}", "number": i} for i in range(300)]
SKILL = {"a": 0.5, "b": 0.8, "c": 0.6}


def score(arm, item):
    return float((item["number"] * 37 + 11 * ARMS.index(arm)) % 100 < 100 * SKILL[arm])


def test_a_test_gets_lists_of_one_arms_items_in_the_order_of_the_race():
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
        sizes = [len(ids) for _, ids in calls]
        assert set(sizes[:3]) == {16}
        assert found.spent == sum(sizes)
        for (arm, ids), scores in zip(calls, [found.scores] * len(calls), strict=True):
            assert all(scores[arm][id_] == score(arm, {"number": int(id_[1:])}) for id_ in ids)


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


def test_batch_needs_items_and_a_number():
    study = cabai.create_study("no items", arms=["a", "b"], family="bernoulli", storage="memory")
    from cabai.study.run.loop import run

    with pytest.raises(cabai.InvalidInput, match="batch is for a study with items"):
        run(study, lambda pulls: [1], batch=8)
    with pytest.raises(cabai.InvalidInput, match="batch must be a whole number of at least 1, got 0"):
        cabai.evaluate(ARMS, ITEMS, score, batch=0)


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
