"""What a process knows of a study is not read again, and whatever others have written is noticed."""

from __future__ import annotations

from typing import Any

import pytest

import cabai
from cabai.study import Study, create_study
from storages import BOTH

pytestmark = pytest.mark.filterwarnings("ignore::cabai.FailedPulls")


def new(folder: Any, name: str = "study", **options: Any) -> Study:
    usual = {"arms": ["a", "b", "c"], "family": "bernoulli", "delta": 1e-9, "storage": f"sqlite:///{folder}/cabai.db"}
    return create_study(name, **usual | options)


def told(study: Study, count: int = 3) -> None:
    for _ in range(count):
        study.tell(study.ask(), 1, cost=1.0)


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
    told(study)
    pull = study.ask()
    for place, work in ((7, study.ask), (8, lambda: study.tell(pull, 1, cost=1.0))):
        found = said(study, work)
        assert [text.split()[0] for text in found] == ["BEGIN", "SELECT", "INSERT", "COMMIT"]
        assert f"place > {place} " in found[1]


@BOTH
def test_a_study_that_others_have_deleted_is_not_gone_on_with(url):
    study = create_study("study", arms=["a", "b"], family="bernoulli", storage=url)
    told(study, 2)
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
    told(study)
    with monkeypatch.context() as patched:
        commit = study._storage.commit

        def committed(connection: Any) -> None:
            commit(connection)
            raise KeyboardInterrupt

        patched.setattr(study._storage, "commit", committed)
        with pytest.raises(KeyboardInterrupt):
            {"limit": lambda: study.amend(max_pulls=5), "drop": lambda: study.drop("c"),
             "join": lambda: study.add_arm("d")}[how]()  # fmt: skip
    if how == "limit":
        told(study, 2)
        with pytest.raises(cabai.StudyStopped):
            study.ask()
    elif how == "join":
        assert study.ask().arm == "d"
    else:
        study.run(lambda arm: (float(arm == "a"), 1.0))
        assert study._current.look(lambda state: state.ended.reward) == pytest.approx(0.8)
