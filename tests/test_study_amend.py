"""Settings that change while a study runs: for everybody, in one transaction, and never what was decided."""

from __future__ import annotations

import json
import random
import threading
import time

import pytest

import cabai
from cabai.errors import NoPull, StudyStopped
from cabai.study import Study
from served import InThread
from shell import here
from storages import BOTH
from studies import new, reloaded, start, tables
from workers import Child, announce_commits, check_log, join, killed, told_in, work_on


def stopped(**options) -> Study:
    """A study that has stopped at its budget."""
    study = new(**{"arms": ["a", "b"], "max_pulls": 6} | options)
    while not study.stopped:
        study.tell(study.ask(), 1, 1.0)
    return study


@pytest.mark.parametrize(("limit", "more"), [("max_pulls", {"max_pulls": 10}), ("max_cost", {"max_cost": 10.0})])
@pytest.mark.parametrize("policy", ["top-two", "co", "ctas", "d-lucb"])
def test_a_study_that_stopped_at_its_budget_goes_on_as_if_it_never_had(limit, more, policy):
    study, other = (new(arms=["a", "b"], policy=policy, seed=1, **{limit: most}) for most in (6, 10))
    chance = random.Random(3)
    rewards = [int(chance.random() < 0.5) for _ in range(10)]
    start(study, rewards[:6])
    start(other, rewards)
    assert (study.stopped, study.status().reason) == (True, limit)
    study.amend(**more)
    assert (study.stopped, study.status().reason, study.status().leader is not None) == (False, None, True)
    start(study, rewards[6:])
    assert study.status().reason == limit
    seen = [[(each["arm"], each["reward"], each["late"]) for each in one.observations()] for one in (study, other)]
    assert seen[0] == seen[1]
    for mine, its in zip(study.status().arms, other.status().arms, strict=True):
        assert mine == its


def test_a_budget_that_is_still_too_small_stops_it_again():
    study = stopped(max_pulls=None, max_cost=6.0, costs=[1, 1])
    study.amend(max_cost=6.5)
    assert (study.stopped, study.status().reason, study.status().max_cost) == (True, "max_cost", 6.5)
    study.amend(max_cost=7.0)
    assert [each["reopened"] for each in study.amendments()] == [None, "max_cost"]
    study.tell(study.ask(), 1)
    assert study.stopped


def test_a_budget_may_be_given_later_and_be_lowered():
    study = new(arms=["a", "b"])
    start(study, [1, 0, 1])
    study.amend(max_pulls=5)
    assert not study.stopped
    study.amend(max_pulls=2)
    assert (study.stopped, study.status().reason) == (True, "max_pulls")


def test_what_was_told_late_counts_when_a_study_goes_on(clock):
    study = new(arms=["a", "b"], max_cost=3.5, costs=[1, 1], lease=10)
    start(study, [1, 1], cost=None)
    lost = study.ask()
    clock.now += 11
    study.amend(max_cost=2.5)  # which does not pay for another try
    with pytest.raises(StudyStopped):
        study.ask()
    study.tell(lost, 1)
    assert (study.status().late, study.status().pulls) == (1, 2)
    study.amend(max_cost=9.0)
    assert (study.status().late, study.status().pulls, study.stopped) == (0, 3, False)
    assert [each["counted"] for each in study.observations()] == [True] * 3


def test_late_results_may_decide_a_study_that_goes_on(clock):
    study = new(arms=["a", "b"], policy="uniform", max_cost=10.0, costs=[1, 1], lease=10)
    for _ in range(3):
        for pull in study.ask(2):
            study.tell(pull, int(pull.arm == "a"))
    pulls = study.ask(4)
    clock.now += 11
    study.amend(max_cost=6.5)  # which does not pay for another try of any
    with pytest.raises(StudyStopped):
        study.ask()
    for pull in pulls:
        study.tell(pull, int(pull.arm == "a"))
    assert (study.decision, study.status().late) == (None, 4)
    study.amend(max_cost=20.0)
    assert (study.decision, study.status().reason) == ("a", "evidence")


def test_a_study_that_was_stopped_by_hand_has_stopped_for_good():
    study = new(arms=["a", "b"], max_pulls=10)
    start(study, [1, 0])
    study.stop()
    with pytest.raises(cabai.InvalidInput, match="was stopped by hand: only its metadata can still be"):
        study.amend(max_pulls=100)


def test_a_decision_is_never_taken_back():
    study = new(arms=["a", "b"], max_pulls=100)
    status = study.run(lambda arm: (int(arm == "a"), 1.0))
    before = tables(study)
    for change in ({"max_cost": 50}, {"max_pulls": 500}, {"lease": 5}):
        with pytest.raises(cabai.InvalidInput, match=r"has decided: only its metadata can still be amended"):
            study.amend(**change)
    assert tables(study) == before
    study.amend(metadata={"a": {"model": "m1"}}, by="me")
    assert study.settings.metadata == {"a": {"model": "m1"}}
    assert (study.decision, study.status().spent) == ("a", status.spent)


def test_a_certificate_is_not_outlived():
    about = "calibrated(c=1000, policy=co, family=bernoulli, arms=2, delta=0.05, max_pulls=8)"
    study = stopped(threshold=about)
    with pytest.raises(
        cabai.InvalidInput, match="certificate of the threshold ends after 8 pulls: max_pulls can be at most 8"
    ):
        study.amend(max_pulls=9)
    study.amend(max_pulls=8)
    start(study, [1, 1])
    study = new(arms=["a", "b"], threshold=about)
    start(study, [1] * 8)
    assert study.status().reason == "certificate"
    for change in ({"max_cost": 100.0}, {"max_pulls": 8}, {"lease": 5.0}):
        with pytest.raises(
            cabai.InvalidInput, match="has reached the end of its threshold's certificate: only its metadata"
        ):
            study.amend(**change)


def test_metadata_is_changed_arm_by_arm_and_comes_with_pulls():
    study = new(arms={"a": {"model": "m1"}, "b": None})
    study.amend(metadata={"b": [1, 2], "a": None})
    assert study.settings.metadata == {"b": [1, 2]}
    assert [(pull.arm, pull.metadata) for pull in study.ask(2)] == [("a", None), ("b", [1, 2])]
    for wrong in ({"c": 1}, [1], {"a": {1, 2}}):
        with pytest.raises(cabai.InvalidInput, match="metadata"):
            study.amend(metadata=wrong)


def test_a_lease_that_is_amended_holds_from_the_next_ask_on(clock):
    study = new(arms=["a", "b"], lease=10)
    other = reloaded(study)
    first = study.ask()
    study.amend(lease=100)
    assert other.ask().expires == clock.now + 100
    study.renew(first)
    clock.now += 50
    assert study.ask().number == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "amend needs something to change"),
        ({"max_cost": -1}, "max_cost must be"),
        ({"max_cost": "much"}, "max_cost must be"),
        ({"max_pulls": 0}, "max_pulls must be a whole number of at least 1"),
        ({"lease": 0}, "lease must be"),
        ({"lease": 5, "by": ""}, "by must say who"),
        ({"lease": 5, "by": "x" * 201}, "worker must be|by must"),
    ],
)
def test_bad_amendments_change_nothing(given, message):
    study = stopped()
    before = tables(study)
    with pytest.raises(cabai.InvalidInput, match=message):
        study.amend(**given)
    assert tables(study) == before


def test_the_log_says_who_amended_what_and_when(clock):
    study = stopped()
    study.amend(max_pulls=10, lease=20.0, by="ann")
    clock.now += 5
    study.amend(max_pulls=10)  # setting the present value is not an amendment
    study.amend(max_pulls=12)
    first, second = study.amendments()
    assert first == {"made": clock.now - 5, "by": "ann", "reopened": "max_pulls",
                     "changes": {"max_pulls": [6, 10], "lease": [3600.0, 20.0]}}  # fmt: skip
    assert (second["made"], second["changes"], second["reopened"]) == (clock.now, {"max_pulls": [10, 12]}, None)
    assert "@" in second["by"]
    assert study.status().amended == 2


@pytest.mark.parametrize("name", ["max_cost", "delta", "stopped", "arms", "name", "anything"])
def test_to_assign_an_attribute_is_an_error_that_names_amend(name):
    study = new()
    with pytest.raises(
        AttributeError, match=rf"assigning study\.{name} has no effect: study\.amend\(max_cost=\.\.\.\)"
    ):
        setattr(study, name, 50)


def test_the_call_that_created_a_study_finds_it_after_it_was_amended():
    options = {"arms": ["a", "b"], "family": "bernoulli", "max_cost": 5.0, "storage": "memory"}
    study = cabai.create_study("found again", **options)
    study.amend(max_cost=9.0)
    for max_cost in (5.0, 9.0):
        found = cabai.create_study("found again", **options | {"max_cost": max_cost}, load_if_exists=True)
        assert found.settings.max_cost == 9.0
    with pytest.raises(
        cabai.InvalidInput, match=r"its max_cost is 9.0, not 7.0. Amend it: study.amend\(max_cost=...\)"
    ):
        cabai.create_study("found again", **options | {"max_cost": 7.0}, load_if_exists=True)


def test_an_evaluation_goes_on_with_a_larger_budget(folder):
    about = {"name": "e", "storage": f"sqlite:///{folder}/cabai.db", "seed": 1, "progress": False}
    scores = {"a": 1.0, "b": 0.4}
    found = [
        cabai.evaluate(["a", "b"], range(200), lambda arm, item: scores[arm], max_cost=most, **about)
        for most in (6, 400)
    ]
    assert [each.decision for each in found] == [None, "a"]


@BOTH
def test_other_processes_notice_and_nothing_is_lost(url):
    """Two processes ask and tell, to the end of a budget that a third raises again and again."""
    study = cabai.create_study(
        "noticed", arms=["left", "right"], family="gaussian(variance=1)", policy="uniform", delta=1e-9, max_pulls=20,
        storage=url,
    )  # fmt: skip

    def work(seed, report):
        mine, chance = cabai.load_study("noticed", storage=url), random.Random(seed)
        end = time.monotonic() + 60
        while (time.monotonic() < end and mine.settings.max_pulls < 200) or not mine.stopped:
            try:
                pull = mine.ask()
            except NoPull:
                time.sleep(0.002)
                continue
            reward = chance.gauss(0, 1)
            mine.tell(pull, reward, 1.0)
            report("told", pull.id, reward, 1.0, None)

    def amend(report):
        mine = cabai.load_study("noticed", storage=url)
        for most in range(40, 201, 20):
            while not mine.stopped:
                time.sleep(0.002)
            mine.amend(max_pulls=most)
            report("amended", most)

    reports = join([Child(lambda report, seed=seed: work(seed, report)) for seed in (1, 2)] + [Child(amend)])
    told = told_in(reports)
    assert len(told) == 200
    check_log(study, told)
    assert [each["changes"]["max_pulls"][1] for each in study.amendments()] == list(range(40, 201, 20))
    assert study.status().reason == "max_pulls"


@BOTH
def test_whoever_amends_may_be_killed_at_any_moment(url):
    cabai.create_study(
        "killed", arms=["left", "right"], family="gaussian(variance=1)", policy="co", delta=1e-9, max_pulls=10,
        storage=url,
    )  # fmt: skip

    def amend(report):
        mine = cabai.load_study("killed", storage=url)
        announce_commits(mine._storage, report)
        for most in range(mine.settings.max_pulls + 1, 10_000):
            mine.amend(max_pulls=most)
            report("amended", most)

    told, acknowledged = {}, []
    for attempt in range(4):
        worker = Child(lambda report, seed=attempt: work_on(url, "killed", seed, 20, report))
        reports = killed(Child(amend), 0.002 * attempt, at_commit=5)
        acknowledged += [words[1] for words in reports if words[0] == "amended"]
        told |= told_in(join([worker]))
    made = cabai.load_study("killed", storage=url).amendments()
    kept = [each["changes"]["max_pulls"] for each in made]
    assert [pair[0] for pair in kept[1:]] == [pair[1] for pair in kept[:-1]]  # each begins where the last has ended
    assert set(acknowledged) <= {pair[1] for pair in kept}
    check_log(cabai.load_study("killed", storage=url), told)


def test_threads_that_ask_and_tell_share_no_transaction_with_an_amendment():
    study = new(arms=["a", "b"], policy="uniform", family="gaussian", delta=1e-9, max_pulls=100)
    chance, done = random.Random(1), []

    def work():
        while len(done) < 400:
            try:
                pull = study.ask()
            except NoPull:
                time.sleep(0.001)
                continue
            study.tell(pull, chance.gauss(0, 1), 1.0)
            done.append(pull.id)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for most in (200, 300, 400):
        time.sleep(0.02)
        study.amend(max_pulls=most)
    for thread in threads:
        thread.join(60)
    assert len(set(done)) == 400
    assert study.status().reason == "max_pulls"


def test_over_http_it_is_the_same(folder):
    storage = f"sqlite:///{folder}/cabai.db"
    server = InThread(storage)
    try:
        study = cabai.create_study("far", arms=["a", "b"], family="bernoulli", max_pulls=2, storage=server.address)
        near = cabai.load_study("far", storage=storage)
        start(study, [1, 0], cost=1.0)
        assert near.stopped
        study.amend(max_pulls=4, metadata={"a": {"model": "m"}}, by="worker")
        assert (study.settings.max_pulls, near.stopped, near.settings.max_pulls) == (4, False, 4)
        assert study.amendments() == near.amendments()
        assert study.amendments()[0]["by"] == "worker"
        near.amend(max_pulls=5)
        start(study, [1, 0, 1], cost=1.0)
        assert study.stopped
        with pytest.raises(cabai.InvalidInput, match="max_pulls must be a whole number"):
            study.amend(max_pulls=1.5)
        code, _, found = server.send("POST", "/api/studies/far/amend", {"delta": 0.5})
        assert (code, found["type"]) == (422, "urn:cabai:invalid-input")
        with pytest.raises(AttributeError, match=r"study\.amend"):
            study.max_cost = 50
    finally:
        server.close()


def test_from_the_shell(tmp_path):
    here("study", "create", "x", "--arms", "a,b", "--family", "bernoulli", "--max-pulls", "1", cwd=tmp_path)
    pull = here("study", "ask", "x", cwd=tmp_path).stdout.split("\t")[0]
    here("study", "tell", "x", pull, "--reward", "1", "--cost", "0.5", cwd=tmp_path)
    done = here("study", "amend", "x", "--max-pulls", "9", "--by", "ann", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "by ann: max_pulls: 1 -> 9 (it had stopped at max_pulls, and continued)" in done.stdout
    shown = json.loads(here("study", "amend", "x", "--json", cwd=tmp_path).stdout)
    exported = json.loads(here("study", "export", "x", "--json", cwd=tmp_path).stdout)
    assert shown["amendments"] == exported["amendments"]
    assert len(exported["observations"]) == 1
    wrong = here("study", "amend", "x", "--max-cost", "-5", cwd=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1


def test_a_file_whose_budget_was_raised_goes_on(tmp_path):
    file = tmp_path / "study.toml"
    text = 'family = "bernoulli"\nmax_pulls = 4\nfunction = "tests_of_it:one"\narms = ["a", "b"]\nstorage = "sqlite:///s.db"\n'
    (tmp_path / "tests_of_it.py").write_text("def one(arm):\n    return int(arm == 'a'), 1.0\n")
    file.write_text(text)
    assert here("run", "study.toml", cwd=tmp_path).returncode == 3
    file.write_text(text.replace("max_pulls = 4", "max_pulls = 6"))
    done = here("run", "study.toml", cwd=tmp_path)
    assert done.returncode == 3
    assert "max_pulls was 4 and is now 6: the study 'study' had stopped at max_pulls and now continues." in done.stderr
    here("study", "amend", "study", "--max-pulls", "500", "--storage", f"sqlite:///{tmp_path}/s.db")
    done = here("run", "study.toml", cwd=tmp_path)  # the file says 6 still
    assert done.returncode == 0
    assert "max_pulls is 6 here, but the study 'study' was amended: 500." in done.stderr
    other = text.replace('arms = ["a", "b"]', "") + '[arms.a]\nmodel = "m"\n[arms.b]\n'
    file.write_text(other)
    assert "its metadata is" in here("run", "study.toml", cwd=tmp_path).stderr
    assert here("run", "study.toml", "--changed", cwd=tmp_path).returncode == 0
