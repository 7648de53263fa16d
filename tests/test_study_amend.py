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
from storages import BOTH, looked
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


def tied(pulls: int = 400, **options) -> Study:
    """A study of arms that are equally good, after some pulls."""
    pulls = min(pulls, 150) if options.get("items") else pulls
    study, chance = new(**{"arms": ["a", "b"], "policy": "top-two", "costs": [1, 1]} | options), random.Random(4)
    for _ in range(pulls):
        if not study.stopped:
            pull = study.ask()
            study.tell(pull, int(chance.random() < 0.6))
    return study


PAIRED = {"items": 300, "family": None, "epsilon": 0.001}


@pytest.mark.parametrize("options", [{}, {"max_pulls": 400}, {"items": 300, "family": None}, PAIRED], ids=str)
def test_what_is_proven_can_be_accepted_as_the_decision(options):
    study = tied(**options)
    before = study.status()
    assert before.decision is None
    with pytest.raises(cabai.InvalidInput, match=r"only proven to be at most 0\.\d+ worse than the best, got epsilon"):
        study.accept(epsilon=before.within / 2)
    study.accept(epsilon=before.within, by="ann")
    for again in (study, reloaded(study)):
        status = again.status()
        assert (status.decision, again.decision, status.reason) == (before.leader, before.leader, "accepted")
        assert (status.epsilon, status.progress, again.stopped) == (before.within, 1.0, True)
        error = 0.1 if options.get("items") and "epsilon" not in options else 0.05  # a champion race has two tests
        assert status.sentence.startswith(f"Accepted: {status.decision} has a mean within ")
        assert f"wrong with probability at most {error:g}; " in status.sentence
        assert status.confidence == pytest.approx(1 - error)
    stop = study.events()[-1]
    assert (stop["kind"], stop["reason"], stop["worker"], stop["epsilon"]) == ("stop", "accepted", "ann", before.within)
    kept = tables(study)
    study.accept()
    study.stop()
    with pytest.raises(StudyStopped):
        study.ask()
    with pytest.raises(cabai.InvalidInput, match="was decided by accepting what was proven: only its metadata"):
        study.amend(max_cost=1000)
    assert tables(study) == kept


def test_a_result_that_comes_after_accepting_is_late_and_changes_nothing():
    study = tied()
    pull = study.ask()
    study.accept()
    decision, epsilon = study.decision, study.status().epsilon
    study.tell(pull, 1)
    assert (study.decision, study.status().epsilon, study.status().late) == (decision, epsilon, 1)


def test_nothing_is_accepted_where_nothing_is_proven():
    for study in (new(), tied(4), tied(threshold="calibrated(c=3)"), tied(policy="d-lucb")):
        with pytest.raises(cabai.InvalidInput, match="nothing is proven yet about the leader"):
            study.accept()
        assert not study.stopped
    cheapest = tied(goal="cheapest", epsilon=0.1, max_pulls=50)
    with pytest.raises(cabai.InvalidInput, match="looks for goal 'cheapest'"):
        cheapest.accept()


@pytest.mark.parametrize("options", [{}, {"max_pulls": 400}, {"reserve": 0.2}, PAIRED], ids=str)
def test_a_larger_epsilon_may_decide_at_once_and_decides_what_it_would_have_from_the_start(options):
    study = tied(**options)
    within, leader = study.status().within, study.status().leader
    wide = tied(**options | {"epsilon": 0.5})
    assert wide.stopped
    study.amend(epsilon=study.settings.epsilon + within / 10)
    assert (study.decision, study.stopped) == (None, "max_pulls" in options)
    study.amend(epsilon=1.5 * within)
    assert (study.decision, study.status().reason, study.status().epsilon) == (leader, "evidence", 1.5 * within)
    assert reloaded(study).status() == study.status()
    log = study.events()
    assert [event["kind"] for event in log[-2:]] == ["amend", "stop"]


def test_a_study_whose_epsilon_was_raised_is_the_same_for_all_who_read_it():
    """From a snapshot or from the log alone, and the policy forgets what it has computed with another epsilon."""
    study = tied(60, arms=["a", "b", "c"], costs=[1, 2, 3], delta=1e-3)
    study.amend(epsilon=0.02)
    assert reloaded(study).status().epsilon == 0.02
    start(study, [1, 0, 1], cost=None)
    assert reloaded(study).status() == study.status()
    looked(study._storage, "DELETE FROM cabai_snapshot WHERE study = ?", (study._row.id,))
    assert reloaded(study).status() == study.status()
    assert reloaded(study).ask().arm == study.ask().arm


def test_an_epsilon_is_raised_only_where_the_same_test_decides():
    study = tied(epsilon=0.01)
    with pytest.raises(cabai.InvalidInput, match=r"epsilon can only be raised: it is 0\.01, got 0\.005"):
        study.amend(epsilon=0.005)
    with pytest.raises(cabai.InvalidInput, match="epsilon"):
        study.amend(epsilon=-1)
    for options, why in (
        ({"items": 300, "family": None}, "use accept"), ({"goal": "cheapest", "epsilon": 0.1}, "part of the question"),
        ({"threshold": "calibrated(c=3)"}, "certificate"),
    ):  # fmt: skip
        study = tied(20, **options)
        with pytest.raises(cabai.InvalidInput, match=f"epsilon cannot be raised here: .*{why}"):
            study.amend(epsilon=0.2)


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
        study.amend(max_pulls=300)
        start(study, [1, 1, 0, 1] * 60, cost=1.0)
        with pytest.raises(cabai.InvalidInput, match="only proven to be at most"):
            study.accept(epsilon=1e-6)
        study.accept(epsilon=0.9, by="ann")
        assert (study.status(), study.decision) == (near.status(), near.decision)
        assert near.status().reason == "accepted"
    finally:
        server.close()


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_proven_is_accepted_from_the_shell(folder, as_json):
    where = ["--storage", f"sqlite:///{folder}/cabai.db"]
    study = tied(storage=where[1])
    found = here("study", "accept", study.name, "--epsilon", "1e-6", *where)
    assert (found.returncode, found.stdout) == (2, "")
    assert "is only proven to be at most" in found.stderr
    found = here("study", "accept", study.name, *where, *(["--json"] if as_json else []))
    status = study.status()
    assert found.returncode == 0
    if as_json:
        expected = {"decision": status.decision, "epsilon": status.epsilon, "statement": status.statement}
        assert json.loads(found.stdout) == expected
    else:
        assert found.stdout == f"{status.sentence}\n"


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
