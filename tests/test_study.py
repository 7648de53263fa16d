"""What a study hands out: the pulls of a simulation, some of them under way at once, on leases."""

from __future__ import annotations

import dataclasses
import math
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

import cabai
from cabai import normal, uniform
from cabai.study.settings import FREE
from combinations import WITHOUT_BUDGET, covering
from conftest import drawer
from storages import BOTH
from studies import check_same_pulls, new, play, reloaded, start

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


# What a study costs: budgets, known and learned costs, failed pulls


@pytest.mark.parametrize(("family", "direction", "threshold", "parts"), [
    ("bernoulli", "maximize", "champion", 1), ("exponential", "minimize", "contrast", 2),
])  # fmt: skip
def test_the_confidence_is_that_of_the_e_value(family, direction, threshold, parts):
    """1 - 1/F, or 1 - (K - 1)/E: the delta at which the leader would have been decided for."""
    instance, positive = cabai.Instance(family, [0.9, 0.2, 0.1], [1, 1, 1]), 0
    study = new(family=family, delta=1e-6, max_pulls=120, policy="uniform", direction=direction, threshold=threshold)
    draw = drawer(instance, 0, 0)
    while not study.stopped:
        pull = study.ask()
        study.tell(pull, *draw("abc".index(pull.arm)))
        status = study.status()
        if status.evidence is not None:
            assert status.required == pytest.approx(math.log(parts * 1e6))
            expected = min(max(0, 1 - parts * math.exp(-status.evidence)), 1 - 1e-6)  # not more than was asked for
            assert status.confidence == pytest.approx(expected, abs=1e-8)
            positive += status.confidence > 0
    assert positive > 5


def test_a_pull_under_way_counts_toward_the_number_of_pulls(clock):
    study = new(max_pulls=5, lease=100)
    assert len(study.ask(9)) == 5  # fewer where the budget ends
    with pytest.raises(cabai.NoPull, match="used up by pulls under way") as refused:
        study.ask()
    assert not isinstance(refused.value, cabai.StudyStopped)
    clock.now += 101  # no deadlock when workers are lost
    lost = study.ask(9)
    assert [pull.number for pull in lost] == [1, 2, 3, 4, 5]
    for pull in lost[:3]:
        study.tell(pull, 1, 1.0)
    study.tell(lost[3], failed="no reward", cost=1.0)  # is a pull all the same
    assert not study.stopped
    study.tell(lost[4], 0, 1.0)
    assert (study.status().reason, study.status().pulls, study.status().failures) == ("max_pulls", 4, 1)


def test_a_budget_that_is_used_up_ends_a_study_though_the_next_pull_is_free():
    study = new(arms=["a", "b"], policy="uniform", costs=[1, 0], max_cost=2)
    start(study, [1, 1, 1], cost=None)
    assert (study.status().spent, study.status().reason) == (2.0, "max_cost")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("policy", ["top-two", "uniform"])
@pytest.mark.parametrize(("cost", "budget", "pulls"), [(0.1, 1, 10), (0.1, 0.7, 7), (1 / 3, 5, 15), (0.3, 1, 3)])
def test_a_budget_makes_as_many_pulls_as_it_pays_for(known, policy, cost, budget, pulls):
    """Ten times 0.1 is 1, although the sum of ten doubles is not."""
    study = new(max_cost=budget, delta=1e-9, policy=policy, costs=[cost] * 3 if known else None)
    while not study.stopped:
        study.tell(study.ask(), 1, cost)
    status = study.status()
    assert (status.pulls, status.reason, status.late) == (pulls, "max_cost", 0)
    assert status.spent <= budget * (1 + 1e-9)


@pytest.mark.parametrize("policy", ["co", "ctas", "top-two", "d-lucb"])
def test_known_costs_are_never_overdrawn_by_any_number_of_workers(policy):
    costs = {"a": 1.0, "b": 0.4, "c": 0.07}
    for budget in (1.2, 3.0, 7.77):
        study = new(max_cost=budget, delta=1e-9, policy=policy, costs=costs)
        status = study.run(lambda arm: arm == "a", workers=5)
        assert (status.reason, status.under_way, status.late) == ("max_cost", 0, 0)
        assert status.spent <= budget
        assert budget - status.spent < 1.0


@pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
def test_what_is_left_for_pulls_of_a_dropped_arm_that_nobody_tells_does_not_block_a_study(clock):
    """A pull of a dropped arm is not offered again, and nothing waits for it. What it has reserved stays
    reserved: it may still be told, and the budget holds all the same."""
    study = new(policy="racing", lease=10, family="gaussian", delta=0.1, max_cost=400, costs=[1, 1, 100],
                threshold="evalue")  # fmt: skip
    start(study, [0.1, 0.1, -30.0], cost=1.0)
    while study.status().arms[2].in_play:
        *pulls, lost = study.ask(6)
        for pull in pulls:
            study.tell(pull, -30.0 if pull.arm == "c" else 0.1 * (pull.number % 2), 1.0)
        assert lost.arm == "c"
        if study.status().arms[2].in_play:
            study.tell(lost, -30.0, 1.0)
    before = study.status().arms[2]
    under_way = study.status().under_way + len(study.ask(1000))
    with pytest.raises(cabai.NoPull):
        study.ask()
    clock.now += 100
    again = study.ask(1000)
    assert (len(again), lost.id in {pull.id for pull in again}) == (under_way - 1, False)
    with pytest.raises(cabai.NoPull):
        study.ask()
    while not study.stopped:
        study.tell(again.pop(0), 0.05)
    study.tell(lost, -30.0)  # is on the bill and in the log, and counts nowhere
    status = study.status()
    assert (status.discarded, status.waiting, status.arms[2].pulls) == (1, 0, before.pulls)
    assert (status.arms[2].low, status.arms[2].high, status.arms[2].in_play) == (before.low, before.high, False)
    assert "\n1 told of arms that are out: they do not count\n" in str(status)
    assert reloaded(study).status() == status
    for pull in again:
        study.tell(pull, 0.05)
    assert study.status().spent <= 400


def test_evidence_at_the_limit_is_a_decision():
    """The pull that uses up the budget is also the one that decides."""
    options = {"arms": ["a", "b"], "policy": "uniform", "delta": 0.4}
    n = new(**options).run(lambda arm: (arm == "a", 1.0)).pulls
    found = new(**options, max_pulls=n, max_cost=n).run(lambda arm: (arm == "a", 1.0))
    assert (found.decision, found.reason, found.pulls) == ("a", "evidence", n)


def test_declared_costs_steer_alone_whatever_is_told():
    """CO chooses by them; the bill is what is told."""
    costs = {"c": 0.1, "a": 1.0, "b": 4.0}
    study, twin = (new(costs=costs, policy="co", family="gaussian") for _ in range(2))
    for i in range(20):
        pull, other = study.ask(), twin.ask()
        assert pull.arm == other.arm
        study.tell(pull, 0.1 * i, 100.0)
        twin.tell(other, 0.1 * i)
    assert (study.status().spent, [arm.cost for arm in study.status().arms]) == (2000.0, [1.0, 4.0, 0.1])
    assert twin.status().spent == pytest.approx(sum(costs[each["arm"]] for each in twin.observations()))
    twin.tell(pull := twin.ask(), failed="it broke")  # its known cost was paid
    assert twin.observations()[-1]["cost"] == costs[pull.arm]


def test_the_cost_of_a_failed_pull_counts_and_its_reward_does_not():
    study = new(policy="co", arms=["a", "b"])
    study.tell(study.ask(), failed="crashed", cost=3.0)
    assert study.ask().arm == "a"  # still nothing known of it
    study = new(policy="co", arms=["a", "b"])
    start(study, [1, 1], cost=1.0)
    before = study.status()
    pull = study.ask()
    study.tell(pull, failed="crashed", cost=3.5)
    status = study.status()
    a = status.arms[0]
    assert (a.pulls, a.failures, a.mean, a.spent, a.cost) == (1, 1, 1.0, 4.5, 4.5)  # 4.5 for one reward
    assert (status.pulls, status.failures, status.spent) == (2, 1, 5.5)
    assert (status.evidence, status.confidence) == (before.evidence, before.confidence)
    assert (a.low, a.high) == (before.arms[0].low, before.arms[0].high)
    assert [study.ask().arm for _ in range(2)] == ["b", "b"]  # a has become expensive: 4.5 · 1² against 1 · 1², 1 · 2²
    told = study.observations()[-1]
    assert (told["arm"], told["reward"], told["failed"], told["cost"]) == ("a", None, "crashed", 3.5)


def test_many_failed_pulls_are_warned_of():
    study = new(arms=["a", "b"], policy="uniform")
    start(study, [1, 0])
    told = []
    for _ in range(12):
        pull = study.ask()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            study.tell(pull, failed="no", cost=1.0)
        told += [(pull.arm, study.status().failures, w.category, str(w.message)) for w in caught]
    assert [(arm, n) for arm, n, _, _ in told] == [("a", 3), ("a", 10)]  # not every time
    assert all(category is cabai.FailedPulls for _, _, category, _ in told)
    assert told[0][3].startswith("3 of 4 pulls of arm 'a' failed. The guarantee covers the mean reward of pulls that")
    assert study.status().warnings == [told[0][3].replace("3 of 4", "12 of 13").removesuffix(" The last: no")]
    assert "Warning: 12 of 13 pulls" in str(study)
    assert "12 failed" in str(study)


@pytest.mark.parametrize("policy", ["top-two", "co", "ctas", "tas", "d-lucb", "uniform"])
def test_a_free_arm_is_on_no_bill_and_pulled_as_if_it_cost_a_hundredth_of_the_cheapest(policy):
    means = {"local": 0.5, "small": 0.6, "large": 0.9}
    free, cheap = (new(arms=list(means), policy=policy, costs=[cost, 2.0, 5.0], seed=3) for cost in (0.0, FREE * 2.0))
    found, other = play(free, means, cost=None), play(cheap, means, cost=None)
    assert [arm.pulls for arm in found.arms] == [arm.pulls for arm in other.arms]
    assert found.decision == other.decision == "large"
    assert (found.arms[0].spent, found.arms[0].cost) == (0.0, 0.0)
    assert found.spent == sum(arm.spent for arm in found.arms[1:])
    again = reloaded(free)
    assert again.settings.costs == (0.0, 2.0, 5.0)
    assert again.status() == free.status()


def test_where_nothing_costs_anything_all_count_the_same_and_a_free_pull_may_be_told_with_its_cost():
    means = {"a": 0.2, "b": 0.8}
    free, equal = (new(arms=list(means), policy="top-two", costs=[cost] * 2, seed=3) for cost in (0, 1))
    found, other = play(free, means, cost=None), play(equal, means, cost=None)
    assert [arm.pulls for arm in found.arms] == [arm.pulls for arm in other.arms]
    assert (found.spent, found.decision) == (0.0, "b")
    study = new(arms=["local", "large"], costs=[0, 1])
    study.tell(study.ask(), 1, cost=0)
    for costs, cost, message in (([0, 1], -1, "negative"), (None, 0, "positive"), ([1, 1], 0, "positive")):
        study = new(arms=["local", "large"], costs=costs)
        with pytest.raises(cabai.InvalidInput, match=f"cost must (not )?be {message}"):
            study.tell(study.ask(), 1, cost=cost)
    study = new(arms=["a", "b"], policy="co", costs=[0, 5e-324])  # the smallest costs do not vanish
    assert study.settings.steering_costs == (5e-324, 5e-324)
    assert play(study, {"a": 0.1, "b": 0.9}, cost=None).decision == "b"
