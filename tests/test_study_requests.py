"""A request made again, because its answer was lost, is answered with the same pulls."""

from __future__ import annotations

import threading

import pytest

from cabai.errors import StudyStopped
from storages import BOTH
from studies import new, reloaded


def test_a_request_made_again_has_the_same_pulls_and_a_new_lease(clock):
    study = new(lease=100)
    first = study.ask(2, worker="w", request="one")
    clock.now += 60
    again = reloaded(study).ask(2, worker="w", request="one")
    assert [pull.id for pull in again] == [pull.id for pull in first]
    assert [pull.offers for pull in again] == [1, 1]
    assert [pull.expires - before.expires for pull, before in zip(again, first, strict=True)] == [60, 60]
    assert study.status().under_way == 2
    assert study.ask(worker="w", request="two").id not in [pull.id for pull in first]


def test_what_was_told_is_not_handed_out_again():
    study = new()
    first, second = study.ask(2, request="one")
    study.tell(first, 1, 1.0)
    assert [pull.id for pull in study.ask(2, request="one")] == [second.id]
    study.tell(second, 1, 1.0)
    other = study.ask(request="one")
    assert other.id not in (first.id, second.id)
    assert len({study.ask(worker=worker, request="1").id for worker in ("a", "b", None)}) == 3  # of one worker each
    study.stop()
    with pytest.raises(StudyStopped):
        study.ask(request="one")


def test_a_lapsed_pull_is_offered_again_also_to_the_request_that_had_it(clock):
    study = new(lease=10)
    pull = study.ask(worker="a", request="one")
    clock.now += 11
    again = study.ask(worker="a", request="one")
    assert (again.id, again.offers) == (pull.id, 2)
    study.release(again)  # it is the next to be offered, as to anybody
    assert study.ask(worker="a", request="one").offers == 3
    clock.now += 11
    taken = study.ask(worker="b", request="two")
    assert (taken.id, taken.offers) == (pull.id, 4)
    assert study.ask(worker="b", request="two").id == pull.id  # it answers the request of who has it now
    assert study.ask(worker="a", request="one").id != pull.id


@BOTH
def test_the_same_request_by_many_threads_leases_once(url):
    study = new(storage=url)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(study.ask(request="one").id)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1 == study.status().under_way
