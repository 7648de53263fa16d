"""What a study hands out: the pulls of a simulation, some of them under way at once, on leases."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest

import cabai
from cabai import normal, uniform
from combinations import WITHOUT_BUDGET, covering
from storages import BOTH
from studies import check_same_pulls, new, reloaded

CASES = {
    "gaussian": (cabai.Instance("gaussian", [1.0, 0.5, -0.5], [1, 0.1, 0.3], variance=0.5), "evalue", 0.0),
    "bernoulli": (cabai.Instance("bernoulli", [0.9, 0.6, 0.2], [1, 0.1, 0.3], cost_model="two-point"), "kt", 0.0),
    "poisson": (cabai.Instance("poisson", [4, 3, 0], [1, 0.1, 0.3], cost_model="beta"), "mixture", 0.0),
    "exponential": (cabai.Instance("exponential", [3, 1, 0.4], [1, 0.1, 0.3], cost_model="exponential"), "paper", 0.0),
    "bounded": (cabai.Instance("bounded", [0.8, 0.7, 0.2], [1, 0.1, 0.3], cost_model="uniform"), "evalue", 0.1),
    "range": (
        cabai.Instance("bounded(low=-1, high=7)", [5, 4.4, 1], [1, 0.1, 0.3], law="beta", sd=0.5), "bets", 0.3,
    ),
    "0 or 1": (cabai.Instance("bounded", [0.9, 0.6, 0.2], [1, 0.1, 0.3], law="two-point"), "champion", 0.0),
}  # fmt: skip


@pytest.mark.parametrize(("family", "policy"), covering(CASES, WITHOUT_BUDGET, most=6))
def test_a_study_makes_the_pulls_of_a_simulation(family, policy):
    """Also if it is loaded again before every step."""
    instance, threshold, epsilon = CASES[family]
    check_same_pulls(instance, policy, threshold, epsilon, most=40, seed=3, reload=len(policy) % 2 == 0)


def test_a_study_that_knows_its_costs_makes_the_pulls_of_a_simulation_with_fixed_costs():
    check_same_pulls(*CASES["gaussian"][:1], "co", "evalue", 0.0, most=60, seed=2, known=True)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [*WITHOUT_BUDGET, "ctas(tracking=ratio)", "ctas(exploration=0.3, slack=0.5)"])
@pytest.mark.parametrize("family", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_a_long_study_makes_the_pulls_of_a_simulation(family, policy, seed):
    instance, threshold, epsilon = CASES[family]
    check_same_pulls(instance, policy, threshold, epsilon, most=500, seed=seed, reload=seed == 2)


@cabai.policy(arm_memory={"drawn": 0.0})
def several_coins(arms, run, rules):
    """Thompson-like: as many random numbers per pull as there are arms, and one more where the pull is odd."""
    chosen, largest = 0, -1e300
    for a in range(len(arms)):
        arms[a].drawn = arms[a].mean + normal(run) / arms[a].pulls ** 0.5
        if arms[a].drawn > largest:
            chosen, largest = a, arms[a].drawn
    if run.t % 2 == 1 and uniform(run) < 0.2:
        return run.leader
    return chosen


def test_a_policy_draws_as_many_numbers_as_it_likes_live_as_simulated():
    instance = cabai.Instance("gaussian", [1.0, 0.5, 0.0], [1, 0.5, 0.2])
    check_same_pulls(instance, several_coins, "evalue", 0.0, most=300, seed=3, reload=True)


def test_pulls_under_way_count_as_pulled_when_choosing():
    """CO takes the arm with the smallest C_a N_a; pulls under way count at the arm's mean cost."""
    costs, n = {"a": 1.0, "b": 0.2, "c": 0.5, "d": 0.1}, dict.fromkeys("abcd", 1)
    study, one_by_one = (new(family="gaussian", policy="co", arms=list(costs)) for _ in range(2))
    for each in (study, one_by_one):
        for _ in range(4):
            pull = each.ask()
            each.tell(pull, 0.0, costs[pull.arm])
    batch = study.ask(25)
    for pull in batch:
        assert pull.arm == min("abcd", key=lambda arm: costs[arm] * n[arm] ** 2)
        n[pull.arm] += 1
    assert [one_by_one.ask().arm for _ in range(25)] == [pull.arm for pull in batch]
    assert len({pull.id for pull in batch}) == 25


@pytest.mark.parametrize("policy", WITHOUT_BUDGET)
def test_pulls_under_way_are_no_evidence(policy):
    """And the first of them cover every arm, evenly."""
    study = new(policy=policy)
    first = study.ask(9)
    assert [pull.arm for pull in first[:3]] == ["a", "b", "c"]
    assert sorted(pull.arm for pull in first[3:]) == ["a", "a", "b", "b", "c", "c"]
    for pull, reward in zip(first, [1, 0, 1, 1, 0, 1, 0, 1, 0], strict=True):
        study.tell(pull, reward, 1.0)
    before = study.status()
    study.ask(10)
    after = study.status()
    assert after.under_way == sum(arm.under_way for arm in after.arms) == 10
    same = ("pulls", "spent", "leader", "rival", "evidence", "required", "confidence", "stopped")
    assert all(getattr(before, name) == getattr(after, name) for name in same)
    assert (after.progress, after.forecast.high) == (before.progress, before.forecast.high)
    assert after.forecast.low <= before.forecast.low  # their results may be all that is missing
    assert [
        dataclasses.replace(arm, under_way=0, offers=arm.offers - arm.under_way) for arm in after.arms
    ] == before.arms


@pytest.mark.parametrize("call", ["release", "renew"])
def test_a_worker_whose_pull_was_offered_again_can_no_longer_renew_it_or_give_it_back(clock, call):
    study = new(lease=100)
    mine = study.ask(worker="A")
    clock.now += 101
    study.renew(mine)  # nobody else has it yet
    assert study.ask().id != mine.id
    clock.now += 101
    theirs = study.ask(worker="B")
    assert theirs.id == mine.id
    expected = rf"pull {mine.id} was offered to another worker \('B'\): only that worker may now renew"
    for lost, who in [(mine, {}), (mine, {"worker": "A"}), (mine.id, {"worker": "A"}), (theirs, {"worker": "A"})]:
        with pytest.raises(cabai.LostPull, match=expected):
            getattr(study, call)(lost, **who)
    getattr(study, call)(theirs)  # the one who has it may
    getattr(study, call)(theirs.id, worker="B")
    with pytest.raises(cabai.LostPull, match="was offered 2 times"):  # nothing is known of who speaks
        getattr(study, call)(theirs.id)
    assert (study.ask(worker="C").id == mine.id) == (call == "release")
    study.tell(mine, 1, 1.0)  # the first result told counts
    with pytest.raises(cabai.AlreadyTold):
        study.tell(theirs, 0, 1.0)
    for pull in (mine, theirs):
        getattr(study, call)(pull)  # told in the meantime: does nothing
    with pytest.raises(cabai.InvalidInput, match="worker must be a string"):
        getattr(study, call)(theirs, worker=5)


def test_a_study_never_undecides(clock):
    study = new(arms=["a", "b"], policy="uniform", threshold="paper", delta=0.3)
    late = study.ask(40)
    while not study.stopped:
        pull = late.pop(0)
        study.tell(pull, 1 if pull.arm == "a" else 0, 1.0)
    decided = study.status()
    assert (decided.decision, decided.late) == ("a", 0)
    spent_on = {arm.name: arm.pulls for arm in decided.arms}
    for pull in late:  # all that comes late speaks for b
        study.tell(pull, 1 if pull.arm == "b" else 0, 1.0)
    after = study.status()
    assert (study.decision, study.stopped, after.leader, after.reason) == ("a", True, "a", "evidence")
    assert (after.confidence, after.progress, after.late) == (0.7, 1.0, len(late))
    assert after.spent == decided.spent + len(late)
    assert (decided.spent_late, after.spent_late) == (0.0, len(late))
    assert f"\n{len(late)} results arrived after the decision; they cost {len(late)}\n" in str(after)
    assert "not counted" not in str(after)
    assert {arm.name: arm.pulls for arm in after.arms} == spent_on  # what decided, and no more
    assert after.waiting == len(late)
    assert [each["late"] for each in study.observations()] == [False] * decided.pulls + [True] * len(late)
    with pytest.raises(cabai.StudyStopped):
        study.ask()
    assert reloaded(study).decision == "a"


def test_a_request_made_again_has_the_same_pulls_and_what_was_told_is_not_handed_out_again(clock):
    study = new(lease=100)
    first = study.ask(2, worker="w", request="one")
    clock.now += 60
    again = reloaded(study).ask(2, worker="w", request="one")
    assert [pull.id for pull in again] == [pull.id for pull in first]
    assert [pull.offers for pull in again] == [1, 1]
    assert [pull.expires - before.expires for pull, before in zip(again, first, strict=True)] == [60, 60]
    assert study.status().under_way == 2
    assert study.ask(worker="w", request="two").id not in [pull.id for pull in first]
    study = new()
    first, second = study.ask(2, request="one")
    study.tell(first, 1, 1.0)
    assert [pull.id for pull in study.ask(2, request="one")] == [second.id]
    study.tell(second, 1, 1.0)
    other = study.ask(request="one")
    assert other.id not in (first.id, second.id)
    assert len({study.ask(worker=worker, request="1").id for worker in ("a", "b", None)}) == 3  # of one worker each
    study.stop()
    with pytest.raises(cabai.StudyStopped):
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
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(study.ask, request="one") for _ in range(8)]
    assert len({each.result().id for each in found}) == 1 == study.status().under_way
