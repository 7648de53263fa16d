"""Settings that change while a study runs: for everybody, in one transaction, and never what was decided."""

from __future__ import annotations

import json
import math
import random
import time
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import cabai
import shell
from cabai.core.compiling import compiled
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import surplus
from cabai.errors import StudyStopped
from cabai.families import family_of
from cabai.policies import policy_of
from cabai.study import Study, create_study, levels
from cabai.thresholds import threshold_of
from combinations import covering
from shell import here, run_file
from storages import BOTH, looked
from studies import new, play, refused, reloaded, start, tables


def stopped(**options) -> Study:
    """A study that has stopped at its budget."""
    study = new(**{"arms": ["a", "b"], "max_pulls": 6} | options)
    while not study.stopped:
        study.tell(study.ask(), 1, 1.0)
    return study


@pytest.mark.parametrize(("policy", "limit"), covering(["top-two", "co", "ctas", "d-lucb"], ["max_pulls", "max_cost"]))
def test_a_study_that_stopped_at_its_budget_goes_on_as_if_it_never_had(policy, limit):
    study, other = (new(arms=["a", "b"], policy=policy, seed=1, **{limit: most}) for most in (6, 10))
    chance = random.Random(3)
    rewards = [int(chance.random() < 0.5) for _ in range(10)]
    start(study, rewards[:6])
    start(other, rewards)
    assert (study.stopped, study.status().reason) == (True, limit)
    study.amend(**{limit: 10})
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
    study.amend(max_pulls=2)  # one may be given later, and be lowered
    assert (study.stopped, study.status().reason) == (True, "max_pulls")


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
    study = new(**{"arms": ["a", "b"], "policy": "top-two", "costs": [1, 1]} | options)
    play(study, {"a": 0.6, "b": 0.6, "c": 0.6}, min(pulls, 150) if options.get("items") else pulls, seed=4, cost=None)
    return study


PAIRED = {"items": 300, "family": None, "epsilon": 0.001}


@pytest.mark.parametrize("options", [{}, {"max_pulls": 400}, {"items": 300, "family": None}, PAIRED], ids=str)
def test_what_is_proven_can_be_accepted_as_the_decision(options):
    study = tied(**options)
    late = None if study.stopped else study.ask()
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
    assert tables(study) == kept
    if late is not None:
        study.tell(late, 1)
        assert (study.decision, study.status().epsilon, study.status().late) == (before.leader, before.within, 1)


CERTIFIED = "calibrated(c=1000, policy=co, family=bernoulli, arms=2, delta=0.05, max_pulls=8)"
ENDED = {
    "has decided": ({"max_pulls": 100}, lambda study: study.run(lambda arm: (int(arm == "a"), 1.0))),
    "was decided by accepting what was proven": ({}, lambda study: (start(study, [1] * 80), study.accept())),
    "was stopped by hand": ({"max_pulls": 10}, lambda study: study.stop()),
    "has reached the end of its threshold's certificate": ({"threshold": CERTIFIED}, lambda s: start(s, [1] * 8)),
}


@pytest.mark.parametrize("why", ENDED)
def test_what_has_ended_for_good_is_not_amended_but_for_its_metadata(why):
    options, end = ENDED[why]
    study = new(arms=["a", "b"], delta=0.05 if "threshold" in options else 1e-3, **options)
    end(study)
    status = study.status()
    for change in ({"max_cost": 5000}, {"max_pulls": 8 if "threshold" in options else 8000}, {"lease": 5}):
        with refused(study, f"{why}( certificate)?: only its metadata can still be"):
            study.amend(**change)
    study.amend(metadata={"a": {"model": "m1"}}, by="me")
    assert study.settings.metadata == {"a": {"model": "m1"}}
    assert (study.decision, study.status().spent) == (status.decision, status.spent)


def test_a_certificate_is_not_outlived():
    study = stopped(threshold=CERTIFIED)
    with pytest.raises(cabai.InvalidInput, match=r"certificate .* ends after 8 pulls: max_pulls can be at most 8"):
        study.amend(max_pulls=9)
    study.amend(max_pulls=8)
    start(study, [1, 1])


def test_nothing_is_accepted_where_nothing_is_proven():
    nothing = "nothing is proven yet about the leader"
    for study in (new(), tied(4), tied(threshold="calibrated(c=3)"), tied(policy="d-lucb")):
        with refused(study, nothing):
            study.accept()
    cheapest = tied(goal="cheapest", epsilon=0.1, max_pulls=50)
    with refused(cheapest, "looks for goal 'cheapest'"):
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
    for epsilon, why in ((0.005, r"epsilon can only be raised: it is 0\.01, got 0\.005"), (-1, "epsilon")):
        with refused(study, why):
            study.amend(epsilon=epsilon)
    for options, why in (
        ({"items": 300, "family": None}, "use accept"), ({"goal": "cheapest", "epsilon": 0.1}, "part of the question"),
        ({"threshold": "calibrated(c=3)"}, "certificate"),
    ):  # fmt: skip
        study = tied(20, **options)
        with refused(study, f"epsilon cannot be raised here: .*{why}"):
            study.amend(epsilon=0.2)


def test_metadata_and_a_lease_are_amended_for_the_next_pulls(clock):
    study = new(arms={"a": {"model": "m1"}, "b": None})
    study.amend(metadata={"b": [1, 2], "a": None})
    assert study.settings.metadata == {"b": [1, 2]}
    assert [(pull.arm, pull.metadata) for pull in study.ask(2)] == [("a", None), ("b", [1, 2])]
    for wrong in ({"c": 1}, [1], {"a": {1, 2}}):
        with pytest.raises(cabai.InvalidInput, match="metadata"):
            study.amend(metadata=wrong)
    study = new(arms=["a", "b"], lease=10)
    other = reloaded(study)
    first = study.ask()
    study.amend(lease=100)
    assert other.ask().expires == clock.now + 100
    study.renew(first)
    clock.now += 50
    assert study.ask().number == 3


def test_bad_amendments_change_nothing():
    study = stopped()
    for given, message in (
        ({}, "amend needs something to change"),
        ({"max_cost": -1}, "max_cost must be"),
        ({"max_cost": "much"}, "max_cost must be"),
        ({"max_pulls": 0}, "max_pulls must be a whole number of at least 1"),
        ({"lease": 0}, "lease must be"),
        ({"lease": 5, "by": ""}, "by must say who"),
        ({"lease": 5, "by": "x" * 201}, "worker must be|by must"),
    ):
        with refused(study, message):
            study.amend(**given)
    for name in ("max_cost", "stopped", "anything"):
        with refused(study, rf"assigning study\.{name} has no effect: study\.amend\(", AttributeError):
            setattr(study, name, 50)


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


def test_the_call_that_created_a_study_finds_it_after_it_was_amended():
    options = {"arms": ["a", "b"], "family": "bernoulli", "max_cost": 5.0, "storage": "memory"}
    study = cabai.create_study("found again", **options)
    study.amend(max_cost=9.0)
    for max_cost in (5.0, 9.0):
        found = cabai.create_study("found again", **options | {"max_cost": max_cost}, load_if_exists=True)
        assert found.settings.max_cost == 9.0
    with pytest.raises(cabai.InvalidInput, match=r"its max_cost is 9.0, not 7.0. Amend it: study.amend\(max_cost="):
        cabai.create_study("found again", **options | {"max_cost": 7.0}, load_if_exists=True)


def test_from_the_shell(tmp_path):
    where = ["--storage", f"sqlite:///{tmp_path}/cabai.db"]
    study = tied(storage=where[1], max_pulls=300)
    done = here("study", "amend", study.name, "--max-pulls", "900", "--by", "ann", *where)
    assert (done.returncode, done.stderr) == (0, "")
    assert "by ann: max_pulls: 300 -> 900 (it had stopped at max_pulls, and continued)" in done.stdout
    shown = json.loads(here("study", "amend", study.name, "--json", *where).stdout)
    assert shown["amendments"] == json.loads(json.dumps(study.amendments()))
    shell.refused("study", "amend", study.name, "--max-cost", "-5", *where)
    assert "only proven to be at most" in shell.refused("study", "accept", study.name, "--epsilon", "1e-6", *where)
    found = here("study", "accept", study.name, "--json", *where)
    status = study.status()
    expected = {"decision": status.decision, "epsilon": status.epsilon, "statement": status.statement}
    assert (found.returncode, json.loads(found.stdout)) == (0, expected)


def test_a_file_says_that_metadata_has_changed(tmp_path):
    text = 'family = "bernoulli"\nmax_pulls = 4\nfunction = "tests_of_it:one"\nstorage = "sqlite:///s.db"\n'
    (tmp_path / "tests_of_it.py").write_text("def one(arm):\n    return 1, 1.0\n")
    assert run_file(tmp_path, f'{text}arms = ["a", "b"]\n').returncode == 3
    assert "its metadata is" in run_file(tmp_path, f'{text}[arms.a]\nmodel = "m"\n[arms.b]\n').stderr
    assert here("run", "study.toml", "--changed", cwd=tmp_path).returncode == 3


def test_a_thread_that_reads_what_was_before_an_amendment_does_not_bring_the_old_settings_back():
    study = cabai.create_study("study", arms=["a", "b"], family="bernoulli", reserve=0.1, storage="memory")
    before = study._current.look(lambda state: state.trial())
    study.add_arm("c")
    study._current._see(before)
    assert study.arms == ("a", "b", "c")


# Workers notice that a study was amended elsewhere, in time to use the new settings, and read nothing twice


@pytest.fixture
def handles(folder, serve):
    """Two handles of one study: one that amends it, and a worker's, in the database or over HTTP."""

    def made(far: bool, **settings):
        storage = f"sqlite:///{folder}/cabai.db"
        options = {"arms": ["a", "b"], "family": "bernoulli", "seed": 1} | settings
        near = cabai.create_study("s", **options, storage=storage)
        return near, cabai.load_study("s", storage=serve(storage).address if far else storage)

    return made


@pytest.mark.parametrize("far", [False, True])
def test_a_free_arm_that_joined_elsewhere_is_told_and_run_as_free(handles, far):
    """By somebody who did not ask for its pulls; one by one, as sums, and by a run."""
    near, worker = handles(far, costs=[1, 2], reserve=0.2, delta=1e-6, max_pulls=20)
    near.add_arm("free", cost=0)
    pulls = near.ask(3)
    worker.tell(next(pull.id for pull in pulls if pull.arm == "free"), reward=1, cost=0)
    with pytest.raises(cabai.InvalidInput, match="cost must not be negative"):
        worker.tell(pulls[0], reward=1, cost=-1)
    for pull in pulls:
        if pull.arm != "free":
            worker.tell(pull, reward=1)
    near.amend(max_pulls=50)
    near.add_arm("d", cost=1)
    assert set(worker.tell_counts(dict.fromkeys("abd", (10, 5)), period="first")) == {"a", "b", "d", "free"}
    assert near.status().pulls == 33
    near.add_arm("another", cost=0)
    near.amend(max_pulls=60, lease=5)
    costs = {"a": 1, "b": 2, "free": 0, "d": 1, "another": 0}
    status = worker.run(lambda arm: (1, costs[arm]))
    assert (status.pulls, status.failures) == (60, 0)
    assert status.arms[4].pulls > 0
    assert (worker.arms, worker.settings.max_pulls, worker.settings.lease) == (near.arms, 60, 5.0)


@pytest.mark.parametrize("far", [False, True])
def test_a_run_renews_by_the_lease_that_was_amended(handles, far):
    """The second pull, which is asked for since then: by the lease of before, nobody would renew it for 15 minutes."""
    tried, deadline = [], time.monotonic() + 60

    def test(arm):
        tried.append(arm)
        if len(tried) == 1:
            near.amend(lease=4.0)
        while len(tried) == 2 and near.events()[-1]["kind"] != "renew":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return 1

    near, worker = handles(far, costs=[1, 1], max_pulls=2)
    worker.run(test)
    assert len(tried) == 2
    assert near.status().lapsed == 0


def test_over_http_every_answer_shows_what_was_amended(handles):
    near, worker = handles(True, max_pulls=9)
    for number, look in enumerate((worker.status, worker.ask, lambda: worker.stopped, worker.history), 10):
        near.amend(max_pulls=number)
        look()
        seen = number if look != worker.history else number - 1  # it is no place for it
        assert worker.settings.max_pulls == seen


def study_in(folder: Any, name: str = "study", **options: Any) -> Study:
    usual = {"arms": ["a", "b", "c"], "family": "bernoulli", "delta": 1e-9, "storage": f"sqlite:///{folder}/cabai.db"}
    return create_study(name, **usual | options)


def said(study: Study, work: Any) -> list[str]:
    """The statements that are said to the database meanwhile."""
    found: list[str] = []
    study._storage.writer.driver.set_trace_callback(found.append)
    try:
        work()
    finally:
        study._storage.writer.driver.set_trace_callback(None)
    return found


def test_a_single_worker_reads_no_event_again(folder):
    study = study_in(folder)
    start(study, [1, 1, 1])
    pull = study.ask()
    for place, work in ((7, study.ask), (8, lambda: study.tell(pull, 1, cost=1.0))):
        found = said(study, work)
        assert [text.split()[0] for text in found] == ["BEGIN", "SELECT", "INSERT", "COMMIT"]
        assert f"place > {place} " in found[1]


@BOTH
def test_a_study_that_others_have_deleted_is_not_gone_on_with(url):
    study = create_study("study", arms=["a", "b"], family="bernoulli", storage=url)
    start(study, [1, 1])
    pull = study.ask()
    cabai.delete_study("study", storage=url)
    again = create_study("study", arms=["a", "b"], family="bernoulli", delta=1e-6, storage=url)
    for call in (
        study.ask, study.status, study.observations, study.events, lambda: study.stopped, lambda: study.decision,
        lambda: study.tell(pull, 1, cost=1.0), lambda: study.release(pull),
    ):  # fmt: skip
        with pytest.raises(cabai.StudyNotFound, match="the study 'study' has been deleted"):
            call()
    assert again.ask().number == 1
    with pytest.raises(cabai.InvalidInput, match="is not the id of a pull of study 'study'"):
        again.tell(pull, 1, cost=1.0)
    assert again.observations() == []


@pytest.mark.parametrize("where", ["file", "memory"])
@pytest.mark.parametrize("how", ["limit", "drop", "join"])
def test_nobody_goes_on_with_settings_that_were_amended(folder, monkeypatch, where, how):
    """Ctrl-C comes when the amendment is stored and before the handle knows of it; or another thread is quicker."""
    storage = {"storage": "memory"} if where == "memory" else {}
    study = study_in(folder, delta=0.1, reserve=0.01 if how == "join" else None, name=f"{where} {how}", **storage)
    start(study, [1, 1, 1])
    changes = {"limit": lambda: study.amend(max_pulls=5), "drop": lambda: study.drop("c"),
               "join": lambda: study.add_arm("d")}  # fmt: skip
    with monkeypatch.context() as patched:
        commit = study._storage.commit

        def committed(connection: Any) -> None:
            commit(connection)
            raise KeyboardInterrupt

        patched.setattr(study._storage, "commit", committed)
        with pytest.raises(KeyboardInterrupt):
            changes[how]()
    if how == "limit":
        start(study, [1, 1])
        with pytest.raises(cabai.StudyStopped):
            study.ask()
    elif how == "join":
        assert study.ask().arm == "d"
    else:
        study.run(lambda arm: (float(arm == "a"), 1.0))
        assert study._current.look(lambda state: state.ended.reward) == pytest.approx(0.8)


# What docs/theory/amending.md claims, attacked: a user does what makes a wrong decision most likely. All arms are tied,
# an arm being "worse" than those before it. Of n runs, at most so many may be wrong that a rate of exactly what is
# claimed would exceed it once in a million times.


DELTA = 0.1
OFTEN = 20_000
RUNS = [5, pytest.param(OFTEN, marks=pytest.mark.slow)]


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize(("reserve", "claimed"), [(None, 2 * DELTA), (0.2, DELTA)])
def test_arms_dropped_by_somebody_who_looks(runs, reserve, claimed):
    arms, drops, chance = 4, 2, np.random.default_rng(2)
    level = drop_levels(arms, DELTA, reserve, drops)
    study = new(arms=list("abcd"), policy="uniform", reserve=reserve, delta=DELTA)
    for dropped in range(drops + 1):  # those are the levels that a study has
        assert levels.level(study.settings, 0, DELTA) == pytest.approx(level[dropped], rel=1e-12)
        if dropped < drops:
            study.drop(study.arms[dropped])
    attack, pulls = attacking(by_dropping, arms, often=runs == OFTEN), 500 if runs == OFTEN else 60
    wrong = sum(attack(chance.standard_normal(pulls), level, np.zeros((arms, arms))) for _ in range(runs))
    print(f"{wrong} of {runs}")
    assert wrong <= binom.isf(1e-6, runs, claimed)


@pytest.mark.parametrize("runs", RUNS)
def test_arms_that_join_until_one_of_them_wins(runs):
    first, arms, reserve, chance = 2, 12, 0.2, np.random.default_rng(3)
    level = join_levels(first, arms, DELTA, reserve)
    study = new(arms=["a", "b"], policy="uniform", reserve=reserve, delta=DELTA)
    for k in range(arms - first):
        study.add_arm(f"new {k}")
    for a in range(arms):
        assert levels.level(study.settings, a, DELTA) == pytest.approx(level[arms][a], rel=1e-12)
    attack, pulls = attacking(by_adding, arms, often=runs == OFTEN), 500 if runs == OFTEN else 80
    wrong = sum(attack(chance.standard_normal(pulls), level, first, pulls // 20) for _ in range(runs))
    print(f"{wrong} of {runs}")
    assert wrong <= binom.isf(1e-6, runs, DELTA)


# People who change a study's arms so that a wrong decision is as likely as they can make it: plain functions of records


def by_dropping(arms, run, rules, rewards, levels, log_e):
    """Whether somebody who drops arms, whichever and whenever it helps, makes a worse arm the decision.

    levels[D] is the level once D arms were dropped. Arm i wins if it beats every arm but D, dropped, and one that it
    beats is better. Pulls go to whichever worse arm looks best against a better one, and to that one. log_e is a matrix
    of zeros to work with."""
    K = len(arms)
    worse, better = 1, 0
    for t in range(len(rewards)):
        a = t % K if t < 3 * K or t % 4 == 0 else worse if arms[worse].pulls <= arms[better].pulls else better
        observe(arms, run, rules, a, rewards[t], 1.0)
        if t < K:
            continue
        for other in range(K):
            if other != a:
                log_e[a, other] = surplus(rules, run.t, arms[a], arms[other]) + rules.level
                log_e[other, a] = surplus(rules, run.t, arms[other], arms[a]) + rules.level
        most = -1.0
        for i in range(1, K):
            for drops in range(len(levels)):
                not_beaten, wrong = 0, False
                for j in range(K):
                    if j != i:
                        if log_e[i, j] > levels[drops]:
                            wrong = wrong or j < i
                        else:
                            not_beaten += 1
                if wrong and not_beaten <= drops:
                    return True
            for j in range(i):
                if log_e[i, j] > most:
                    most, worse, better = log_e[i, j], i, j
    return False


def by_adding(arms, run, rules, rewards, levels, first, every):
    """Whether somebody who lets another arm join after every so many pulls of the last makes one of them the decision,
    each worse than the first arm. levels[n][i] is the level of arm i when there are n arms. Pulls go to the newest arm
    and to the best in turn, and now and then to others, which must be beaten too."""
    present = first
    t = 0
    for i in range(first):
        observe(arms, run, rules, i, rewards[t], 1.0)
        t += 1
    while t < len(rewards):
        newest = present - 1
        a = newest if t % 2 == 0 else 0
        if t % 8 == 7:  # the others must be beaten too
            a = 0
            for i in range(present):
                if arms[i].pulls < arms[a].pulls:
                    a = i
        observe(arms, run, rules, a, rewards[t], 1.0)
        t += 1
        rules.level = levels[present][newest]
        wins = arms[newest].mean > arms[0].mean
        for j in range(present):
            if wins and j != newest:
                wins = surplus(rules, run.t, arms[newest], arms[j]) > 0.0
        if wins and newest > 0:
            return True
        if arms[newest].pulls >= every and present < len(arms):
            if t < len(rewards):
                observe(arms, run, rules, present, rewards[t], 1.0)
                t += 1
            present += 1
    return False


def attacking(attack, arms: int, *, often: bool):
    """An attack on contrast's test of that many gaussian arms: run(rewards, ...) -> whether it succeeds. Compiled, if
    it is made often."""
    kind = family_of("gaussian")
    setup = Setup(kind, threshold_of("contrast", kind), policy_of("uniform"), arms=arms, delta=0.1)
    plain = setup.bound(attack)
    fast = compiled(plain) if often else None

    def run(rewards, *more) -> bool:
        records, rules = setup.start(), setup.rules.copy()
        with np.errstate(all="ignore"):
            if fast is not None:
                return bool(fast(*records, rules, rewards, *more))
            return bool(plain(Records(records[0]), Record(records[1]), Record(rules), rewards, *more))

    return run


def drop_levels(K: int, delta: float, reserve: float | None, most: int) -> np.ndarray:
    """The levels of docs/theory/amending.md, for 0 to `most` arms dropped."""
    if reserve is None:
        return np.array([math.log((K - 1) * 2**drops / delta) for drops in range(most + 1)])
    parts = [1 - reserve, *(reserve / 2**drops for drops in range(1, most + 1))]
    return np.array([math.log(K / (1 - reserve) / part / delta) for part in parts])


def join_levels(first: int, K: int, delta: float, reserve: float) -> np.ndarray:
    """By the number of arms, and by arm."""
    own = [first / (1 - reserve)] * first + [2 * k * 2**k / reserve for k in range(1, K - first + 1)]
    return np.array([[math.log(part / (1 - reserve) / delta) for part in own]] * (K + 1))
