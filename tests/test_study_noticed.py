"""Workers notice that a study was amended elsewhere, in time to use the new settings, and read nothing twice."""

from __future__ import annotations

import time
from typing import Any

import pytest

import cabai
from cabai.study import Study, create_study
from storages import BOTH
from studies import start


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
def test_a_free_arm_that_joined_elsewhere_is_run_as_free(handles, far):
    near, worker = handles(far, costs=[1, 2], reserve=0.2, delta=1e-6, max_pulls=20)
    near.add_arm("free", cost=0)
    near.amend(max_pulls=30, lease=5)
    status = worker.run(lambda arm: (1, {"a": 1, "b": 2, "free": 0}[arm]))
    assert (status.pulls, status.failures) == (30, 0)
    assert status.arms[2].pulls > 0
    assert (worker.arms, worker.settings.max_pulls, worker.settings.lease) == (("a", "b", "free"), 30, 5.0)


@pytest.mark.parametrize("far", [False, True])
def test_results_of_an_arm_that_joined_elsewhere_are_told(handles, far):
    """By somebody who did not ask for them; one by one, and as sums."""
    near, worker = handles(far, costs=[1, 2], reserve=0.2)
    near.add_arm("free", cost=0)
    pulls = near.ask(3)
    worker.tell(next(pull.id for pull in pulls if pull.arm == "free"), reward=1, cost=0)
    with pytest.raises(cabai.InvalidInput, match="cost must not be negative"):
        worker.tell(pulls[0], reward=1, cost=-1)
    for pull in pulls:
        if pull.arm != "free":
            worker.tell(pull, reward=1)
    near.add_arm("d", cost=1)
    assert set(worker.tell_counts(dict.fromkeys("abd", (10, 5)), period="first")) == {"a", "b", "d", "free"}
    assert near.status().pulls == 33


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


# What a process knows of a study is not read again, and whatever others have written is noticed


pytestmark = pytest.mark.filterwarnings("ignore::cabai.FailedPulls")


def new(folder: Any, name: str = "study", **options: Any) -> Study:
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
    study = new(folder)
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
    study = new(folder, delta=0.1, reserve=0.01 if how == "join" else None, name=f"{where} {how}", **storage)
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
