"""Many workers on one study: killed, with clocks that are wrong, on a budget."""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from cabai import NoPull, StudyStopped
from cabai.study import create_study, load_study
from cabai.study.log import database as clock
from storages import BOTH, POSTGRES
from workers import Child, announce_commits, check_log, join, killed, new_study, told_in, work_on

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::cabai.FailedPulls"),
]


@POSTGRES
def test_clocks_an_hour_apart_make_no_difference(url: str) -> None:
    """Leases are by the server's clock: no pull is offered twice, though workers' clocks run ahead and behind."""
    study = new_study(url, lease=60, max_pulls=100)

    def work(ahead: float, report: Any) -> None:
        clock.now = lambda: time.time() + ahead  # type: ignore[assignment]
        time.time = lambda real=time.time: real() + ahead  # type: ignore[assignment]
        work_on(url, "study", int(ahead) % 1000, 10**9, report)

    children = [Child(partial(work, ahead)) for ahead in (0.0, 3600.0, -3600.0, 86400.0)]
    told = told_in(join(children))
    assert len(told) == len(study.observations()) == 100
    assert {each["offers"] for each in study.observations()} == {1}
    now = time.time()
    assert all(abs(each["told"] - now) < 600 and each["asked"] <= each["told"] for each in study.observations())
    check_log(study, told)


@BOTH
@pytest.mark.parametrize("known", [True, False])
def test_a_budget_holds_with_many_workers(url: str, known: bool) -> None:
    """Six processes, each with several pulls under way. With known costs the bill is never more than the budget; with
    costs that are learned, by no more than what pulls under way cost beyond what was reserved for them, here 0.5."""
    budget = 40.0
    costs = {"left": 1.0, "middle": 0.5, "right": 0.25}
    study = new_study(url, max_cost=budget, costs=costs if known else None, policy="co", delta=1e-12)

    def work(seed: int, report: Any) -> None:
        mine, chance, held = load_study("study", storage=url), random.Random(seed), []
        while True:
            try:
                held += mine.ask(3)
            except StudyStopped:
                return
            except NoPull:
                if not held:
                    time.sleep(0.005)
            while held and chance.random() < 0.7:
                pull = held.pop(chance.randrange(len(held)))
                cost = costs[pull.arm] * (1.0 if known else chance.uniform(0.5, 1.0))
                reward = chance.gauss()
                mine.tell(pull, reward, None if known else cost)
                report("told", pull.id, reward, cost, None)

    told = told_in(join([Child(partial(work, seed)) for seed in range(6)]))
    status = study.status()
    assert (status.reason, status.under_way) == ("max_cost", 0)
    assert budget - 1.0 < status.spent <= budget if known else budget * 0.8 < status.spent <= budget + 0.5 * 18
    if known:
        check = Counter(each["arm"] for each in study.observations())
        assert status.spent == pytest.approx(sum(costs[arm] * number for arm, number in check.items()))
    else:
        check_log(study, told)
    assert len(told) == len(study.observations())


@BOTH
def test_a_call_that_changes_several_things_is_there_whole_or_not_at_all_when_its_caller_is_killed(url: str) -> None:
    """Sums of a period, for two arms, and an amendment of two settings after each; killed three times."""
    options = {"arms": ["a", "b"], "family": "bernoulli", "delta": 1e-9}
    study = create_study("sums", **options, max_pulls=10**6, storage=url)

    def work(report: Any) -> None:
        mine = load_study("sums", storage=url)
        announce_commits(mine._storage, report)
        for hour in range(mine.status().pulls // 20, 1000):
            mine.tell_counts({"a": (10, 5, 1.0), "b": (10, 5, 2.0)}, period=str(hour))
            report("told", hour)
            mine.amend(max_pulls=10**6 + hour, max_cost=10.0**6 + hour)
            report("amended", hour)

    acknowledged = []
    for attempt in range(3):
        acknowledged += killed(Child(work), 0.002 * attempt, at_commit=6)
    hours = [row["period"] for row in study.observations() if row["arm"] == "a"]
    assert hours == [row["period"] for row in study.observations() if row["arm"] == "b"]
    assert hours == [str(hour) for hour in range(len(hours))]
    assert {str(words[1]) for words in acknowledged if words[0] == "told"} <= set(hours)
    status = study.status()
    assert (status.pulls, status.spent) == (20 * len(hours), pytest.approx(3.0 * len(hours)))
    amended = [each["changes"]["max_cost"][1] - 10**6 for each in study.amendments()]
    assert {words[1] for words in acknowledged if words[0] == "amended"} <= set(amended)
