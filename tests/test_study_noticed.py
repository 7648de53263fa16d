"""Workers notice that a study was amended elsewhere, in time to use the new settings."""

from __future__ import annotations

import time

import pytest

import cabai


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
