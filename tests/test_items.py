"""Studies with items: what is asked, what is told, and that what was paid for is never lost or paid again."""

from __future__ import annotations

import contextlib
import json
import random
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import cabai
import studies
from cabai.datasets.dataset import Dataset
from cabai.datasets.race import Race
from shell import here, refused, run_file
from tables_of_scores import table

ARMS = ["a", "b", "c"]


def new(items=200, **options):
    return studies.new(**{"arms": ARMS, "items": items, "family": None, "policy": "top-two"} | options)


def score(scores, pull):
    return float(scores[ARMS.index(pull.arm), pull.item])


def play(study, scores, workers=1, seed=0, cost=1.0):
    """Ask and tell until the study stops, with so many pulls under way, told in any order."""
    chance, under_way = random.Random(seed), []
    while not study.stopped:
        with contextlib.suppress(cabai.NoPull):
            under_way += study.ask(workers - len(under_way))
        pull = under_way.pop(chance.randrange(len(under_way)))
        study.tell(pull, score(scores, pull), cost)
    for pull in under_way:
        study.tell(pull, score(scores, pull), cost)


@pytest.mark.parametrize("race", ["paired", "champion"])
@pytest.mark.parametrize("workers", [1, 5])
def test_a_study_asks_what_the_race_asks(race, workers):
    """Pull by pull, even if studies are loaded again in between."""
    scores, study = table(), new(race=race, seed=3)
    again = cabai.load_study(study.name, storage="memory")
    order = study.settings.items.order(3)
    twin = Race(3, 200, delta=0.05, race=race)
    busy, under_way, chance = [set(), set(), set()], [], random.Random(1)
    while twin.winner([1, 1, 1]) is None:
        while len(under_way) < workers:
            found = twin.next([1, 1, 1], busy)
            if found is None:
                with pytest.raises(cabai.NoPull, match="enough is under way"):
                    study.ask()
                break
            pull = (study if chance.random() < 0.5 else again).ask()
            assert (ARMS.index(pull.arm), pull.item) == (found[0], order[found[1]])
            busy[found[0]].add(found[1])
            under_way.append((pull, found))
        pull, (arm, position) = under_way.pop(chance.randrange(len(under_way)))
        busy[arm].discard(position)
        twin.tell(arm, position, score(scores, pull))
        (again if chance.random() < 0.5 else study).tell(pull, score(scores, pull), 1)
    assert study.stopped
    assert again.decision == ARMS[twin.winner([1, 1, 1])] == "b"
    status = study.status()
    assert [arm.pulls + arm.waiting for arm in status.arms] == np.isfinite(twin.scores).sum(axis=1).tolist()


def test_what_is_known_is_shown():
    scores, study = table(), new(costs=[1, 2, 3], seed=5)
    assert study.status().sentence == "Nothing observed yet."
    first = study.ask(3)
    assert [pull.arm for pull in first] == ARMS
    assert len({pull.item for pull in first}) == 1
    study.tell_many([{"pull": pull, "reward": score(scores, pull)} for pull in first])
    status = study.status()
    assert (status.items, status.full_cost, status.spent, status.under_way) == (200, 1200.0, 6.0, 0)
    assert status.required == pytest.approx(np.log(1 / 0.05), abs=1e-5)
    assert re.fullmatch(r". leads, .*: 6 spent, probably [\d.]+ to [\d.]+ more\.", status.sentence)
    play(study, scores)
    status = study.status()
    assert status.statement == (
        "b has the highest mean of these three on these 200 items, wrong with probability at most 0.05"
    )
    assert status.decision == study.decision == "b"
    assert status.confidence == 0.95
    json.dumps(status.to_dict(), allow_nan=False)
    told = study.observations()
    assert list(told[0])[:3] == ["pull", "arm", "item"]
    assert all(each["counted"] for each in told if not each["late"])
    known = study.scores()
    assert {(each["arm"], each["item"]): each["reward"] for each in told} == {
        (arm, item): value for arm in ARMS for item, value in known[arm].items()
    }
    assert list(study.to_frame().columns)[:3] == ["pull", "arm", "item"]


@pytest.mark.parametrize(("epsilon", "words"), [(0, "the lowest mean"), (0.02, "a mean within 0.02 of the lowest")])
def test_the_lowest_mean_in_a_range_of_ones_own(epsilon, words):
    scores = 30 - 20 * table()
    study = new(family="bounded(low=10, high=30)", direction="minimize", epsilon=epsilon * 20 and 0.4)
    play(study, scores)
    status = study.status()
    assert status.decision == "b"
    assert status.best.replace("0.4", "0.02") == f"has {words} of these three on these 200 items"
    assert study.scores()["b"][study.observations()[1]["item"]] in (10.0, 30.0)
    for arm in status.arms:
        assert 10 <= arm.low <= scores[ARMS.index(arm.name)].mean() <= arm.high <= 30


def test_the_order_is_random_unless_a_seed_is_given():
    assert len({new(1000).ask().item for _ in range(8)}) > 4
    assert new(1000, seed=7).ask().item == new(1000, seed=7).ask().item
    study = new()
    again = cabai.create_study(study.name, arms=ARMS, items=200, storage="memory", load_if_exists=True)
    assert again.settings == study.settings


BAD = [
    ({"items": 0}, "items must be from 1 to"),
    ({"items": ["x", "x"]}, "'x' appears twice"),
    ({"items": ["x", None]}, "an item's id must be a string or a whole number"),
    ({"items": "questions.jsonl"}, "cannot read questions.jsonl"),
    ({"items": [{"id": "x"}, {}]}, "1 of 2 items have no id"),
    ({"family": "gaussian(variance=1)"}, "needs scores in a known range"),
    ({"policy": "co"}, "has its own policy"),
    ({"threshold": "evalue"}, "has its own threshold"),
    ({"race": "horse"}, "race must be one of paired, champion"),
    ({"race": "champion", "epsilon": 0.1}, "needs epsilon 0"),
    ({"failed": "best"}, "failed must be worst, stop or a score"),
    ({"speculate": -1}, "speculate must not be negative"),
    ({"speculate": float("nan")}, "speculate must be a finite number, got nan"),
    ({"failed": "stop", "on_lapse": "fail"}, "nothing may fail"),
    ({"full_cost": 10}, "leave full_cost out"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(cabai.InvalidInput, match=message):
        new(**options)


def test_another_dataset_is_another_study_and_a_score_out_of_range_is_refused():
    study = new(["x", "y"])
    for items, words in ((["x", "z"], "x, z"), (3, "3 "), (["x", "y", "z"], "x, y, z")):
        with pytest.raises(cabai.InvalidInput, match="items is 2") as refused:
            cabai.create_study(study.name, arms=ARMS, items=items, storage="memory", load_if_exists=True)
        assert words in str(refused.value)
    study = new()
    for reward in (-0.1, 1.1, float("nan"), "1", None):
        with pytest.raises(cabai.InvalidInput):
            study.tell(study.ask(), reward, 1)
    assert study.observations() == []


def test_a_failed_evaluation_has_the_score_that_was_declared():
    for options, counts in (({}, 0.0), ({"failed": 0.25}, 0.25), ({"direction": "minimize"}, 1.0)):
        study = new(**options)
        pull = study.ask()
        study.tell(pull, failed="no answer", cost=0.5)
        status = study.status()
        assert (status.failures, status.spent, status.arms[0].mean) == (1, 0.5, counts)
        assert study.scores()["a"] == {pull.item: counts}
        assert (study.observations()[0]["reward"], study.observations()[0]["counted"]) == (None, True)
    study = new(failed="stop")
    with pytest.raises(cabai.InvalidInput, match="release the pull"):
        study.tell(study.ask(), failed="no answer")


def test_many_failures_of_an_arm_are_warned_of():
    study = new(seed=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(12):
            pull = study.ask()
            study.tell(pull, **({"failed": "no", "cost": 1} if pull.arm == "a" else {"reward": 1, "cost": 1}))
    said = [str(each.message) for each in caught]
    assert said == ["3 of 3 evaluations of arm 'a' failed, and count as a score of 0. The last: no"]
    assert study.status().warnings == ["4 of 4 evaluations of arm 'a' failed, and count as a score of 0."]


def test_a_budget_holds():
    study = new(max_cost=100)  # the first pull of an arm tells its cost
    assert [pull.arm for pull in study.ask(10)] == ARMS
    with pytest.raises(cabai.NoPull, match="the cost of an evaluation of 'a' is not known yet"):
        study.ask()
    scores, study = table(), new(costs=[1, 1, 1], max_cost=15, seed=1)
    while not study.stopped:
        for pull in study.ask(10):
            study.tell(pull, score(scores, pull))
    status = study.status()
    assert (status.spent, status.reason, status.decision, status.leader) == (15.0, "max_cost", None, "b")
    assert 0 < status.confidence < 0.95
    assert status.sentence == (
        "Undecided: b is at most 0.97 worse than the best, wrong with probability at most 0.05. "
        "Stopped at max_cost = 15; 15 spent."
    )


def test_a_study_that_costs_more_than_its_dataset_says_so_once():
    study = new(None, arms=["a", "b"], family="bernoulli", costs=[1, 1], full_cost=5)
    for i in range(5):
        study.tell(study.ask(), i % 2)
    with pytest.warns(cabai.CostlyStudy, match="evaluating everything would have cost 5"):
        study.tell(study.ask(), 1)
    for i in range(2):
        study.tell(study.ask(), i % 2)
    assert "8 spent" in study.status().warnings[0]


def test_a_run_from_a_file(tmp_path):
    questions = [{"id": f"q{i}", "answer": i % 3} for i in range(60)]
    file, storage = tmp_path / "questions.jsonl", f"sqlite:///{tmp_path}/cabai.db"
    file.write_text("".join(json.dumps(each) + "\n" for each in questions))
    (tmp_path / "judge.py").write_text(
        "import json, os, sys\n"
        "item = json.load(sys.stdin)\n"
        "assert item['id'] == sys.argv[2] == os.environ['CABAI_ITEM']\n"
        "print(json.dumps({'reward': float(sys.argv[1] == 'good' or item['answer'] == 0), 'cost': 0.5}))\n"
    )
    text = f'storage = "{storage}"\nitems = "questions.jsonl"\nworkers = 2\nseed = 1\narms = ["good", "bad"]\n'
    ran = run_file(tmp_path, f'{text}command = "python judge.py {{arm}} {{item}}"\n', file="race.toml")
    assert ran.returncode == 0, ran.stderr
    assert "good has the highest mean of these two on these 60 items" in ran.stdout
    exported = here("study", "export", "race", "--storage", storage).stdout.splitlines()
    assert exported[0].startswith("pull,arm,item,reward,cost")
    assert exported[1].split(",")[2].startswith("q")
    assert json.loads(here("run", str(tmp_path / "race.toml"), "--json").stdout)["decision"] == "good"
    file.write_text(file.read_text().replace('"answer": 0', '"answer": 17', 1))
    assert "items" in refused("run", str(tmp_path / "race.toml"))


def test_ask_and_tell_on_the_shell(tmp_path):
    (tmp_path / "items.csv").write_text("id,question\nx,1 + 1\ny,2 + 2\n")
    where = ("--storage", f"sqlite:///{tmp_path}/cabai.db")
    items = str(tmp_path / "items.csv")
    made = here("study", "create", "s", "--arms", "a,b", "--items", items, "--costs", "1,2", *where)
    assert made.returncode == 0, made.stderr
    for _ in range(4):
        asked = here("study", "ask", "s", *where)
        if asked.returncode == 3:
            break
        pull, arm, item = asked.stdout.split()
        assert item in ("x", "y")
        told = here("study", "tell", "s", pull, "--reward", "1" if arm == "b" else "0", *where)
    assert told.stdout.startswith("Decided: b has the highest mean of these two on these 2 items")
    assert "on these 2 items" in here("study", "status", "s", *where).stdout
    assert "s: Decided: b" in here("study", "list", *where).stdout
    fields = json.loads(here("study", "create", "t", "--arms", "a,b", "--items", "3", "--json", *where).stdout)
    assert fields["arms"] == ["a", "b"]
    asked = json.loads(here("study", "ask", "t", "--json", *where).stdout)["pulls"][0]
    assert asked["item"] in (0, 1, 2)


def test_an_item_that_is_told_twice_counts_once_whoever_reads_it(clock):
    """An arm pauses, its pull lapses and is withdrawn; the arm resumes, and the same item is handed out again."""
    study = new(20, epsilon=0.4, delta=0.5, speculate=float("inf"), lease=100, seed=1, race="paired")
    twin = cabai.load_study(study.name, storage="memory")
    pulls = study.ask(30)
    a, b, c = ([pull for pull in pulls if pull.arm == arm] for arm in ARMS)
    for k in range(7):  # b beats a within epsilon: a pauses
        study.tell(a[k], 0.5, 1)
        study.tell(b[k], 0.55, 1)
    slow = a[7]
    clock.now += 101
    again = study.ask(40)
    study.tell(next(pull for pull in again if pull.id == c[0].id), 0.9, 1)  # c leads now, and does not beat a
    second = next(pull for pull in study.ask(60) if pull.arm == "a" and pull.item == slow.item)
    assert second.id != slow.id
    study.tell(slow, 1, 1)
    study.tell(second, 0, 1)
    assert study.scores()["a"][slow.item] == 1
    fresh = cabai.load_study(study.name, storage="memory")
    assert study.status() == twin.status() == fresh.status()
    assert fresh.status().discarded == 1
    both = [each for each in fresh.observations() if (each["arm"], each["item"]) == ("a", slow.item)]
    assert [each["counted"] for each in both] == [True, False]
    with contextlib.suppress(cabai.NoPull):
        fresh.ask()


@pytest.mark.parametrize("race", ["champion", "paired"])
def test_arms_with_the_same_total_are_called_tied(race):
    """Everything was evaluated, so it is known exactly: no arm is out, and none is better than the others."""
    found = cabai.evaluate(["a", "b", "c"], range(30), lambda arm, item: (item % 2) * (arm != "c"), race=race, seed=1)
    status = found.study.status()
    tied = {arm.name: arm.standing for arm in status.arms if arm.name in status.tied}
    if found.spent < found.full_cost:  # decided before c was finished: what is known is that a and b tie
        assert status.arms[2].name not in status.tied
    assert set(tied) == {"a", "b"} - {status.decision}
    assert all("the same total on all items" in standing for standing in tied.values())
    assert "known for certain" not in str(tied)
    assert f"{status.decision} has the highest mean, tied with {min(tied)}, of these three" in str(found)
    assert [arm.may_be_best for arm in status.arms] == [True, True, False]


def test_a_study_takes_the_items_that_evaluate_takes(tmp_path):
    rows = [{"id": f"q{i}", "text": "?" * i} for i in range(9)]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "items.csv").write_text("id,text\n" + "".join(f"q{i},a\n" for i in range(9)))
    for items in (rows, tmp_path / "items.jsonl", str(tmp_path / "items.csv"), pd.DataFrame(rows)):
        given = new(items, arms=["a", "b"], seed=1)
        evaluated = cabai.evaluate(["a", "b"], items, lambda arm, item: arm == "a", seed=1)
        assert given.settings.items == evaluated.study.settings.items
        assert given.ask().item in {row["id"] for row in rows}
    assert new([["question", "answer"]] * 3).settings.items.ids is None
    for end in ("\n", "\r\n"):  # what a cell holds does not depend on the system that wrote the file
        (tmp_path / "items.csv").write_text(f'id,text{end}x,"one{end}two"{end}y,z{end}', newline="")
        assert Dataset.of(tmp_path / "items.csv").items[0] == {"id": "x", "text": "one\ntwo"}
