"""What a study hands out: the pulls of a simulation, some of them under way at once, on leases."""

from __future__ import annotations

import dataclasses

import pytest

import cabai
from cabai import normal, uniform
from combinations import WITHOUT_BUDGET, covering
from studies import check_same_pulls, new, reloaded, start

# --- A study makes the pulls that a simulation makes -----------------------------------------------------------------

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


@pytest.mark.parametrize(("family", "policy"), covering(CASES, WITHOUT_BUDGET, most=8))
def test_a_study_makes_the_pulls_of_a_simulation(family, policy):
    check_same_pulls(*CASES[family][:1], policy, *CASES[family][1:], most=40, seed=3)


@pytest.mark.parametrize("policy", covering(WITHOUT_BUDGET, most=5))
def test_a_study_that_is_loaded_anew_before_every_step_makes_the_same_pulls(policy):
    instance, threshold, epsilon = CASES["bounded"]
    check_same_pulls(instance, policy, threshold, epsilon, most=40, seed=5, reload=True)


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


# --- Pulls under way ------------------------------------------------------------------------------------------------


def test_pulls_under_way_count_as_pulled_when_choosing():
    """CO takes the arm with the smallest C_a N_a; pulls under way count at the arm's mean cost."""
    study = new(family="gaussian", policy="co", arms=["a", "b", "c", "d"])
    costs = {"a": 1.0, "b": 0.2, "c": 0.5, "d": 0.1}
    for _ in range(4):
        pull = study.ask()
        study.tell(pull, 0.0, costs[pull.arm])
    n = dict.fromkeys("abcd", 1)
    batch = study.ask(25)
    for pull in batch:
        assert pull.arm == min("abcd", key=lambda arm: costs[arm] * n[arm] ** 2)
        n[pull.arm] += 1
    one_by_one = new(family="gaussian", policy="co", arms=["a", "b", "c", "d"])
    for _ in range(4):
        pull = one_by_one.ask()
        one_by_one.tell(pull, 0.0, costs[pull.arm])
    assert [one_by_one.ask().arm for _ in range(25)] == [pull.arm for pull in batch]
    assert len({pull.id for pull in batch}) == 25


@pytest.mark.parametrize("policy", WITHOUT_BUDGET)
def test_pulls_under_way_are_no_evidence(policy):
    study = new(policy=policy)
    start(study, [1, 0, 1, 1, 0, 1, 0, 1])
    before = study.status()
    study.ask(10)
    after = study.status()
    assert after.under_way == sum(arm.under_way for arm in after.arms) == 10
    same = ("pulls", "spent", "leader", "rival", "evidence", "required", "confidence", "stopped")
    assert all(getattr(before, name) == getattr(after, name) for name in same)
    assert (after.progress, after.forecast) == (before.progress, before.forecast)
    assert [
        dataclasses.replace(arm, under_way=0, offers=arm.offers - arm.under_way) for arm in after.arms
    ] == before.arms


@pytest.mark.parametrize("policy", WITHOUT_BUDGET)
def test_a_batch_of_first_pulls_covers_every_arm_first(policy):
    study = new(policy=policy)
    assert [pull.arm for pull in study.ask(3)] == ["a", "b", "c"]
    more = [pull.arm for pull in study.ask(6)]  # nothing is known: evenly
    assert sorted(more) == ["a", "a", "b", "b", "c", "c"]


def test_while_a_first_reward_is_awaited_others_are_pulled():
    study = new(policy="co")
    first = {pull.arm: pull for pull in study.ask(3)}
    study.tell(first["a"], 1, 1.0)
    study.tell(first["b"], 1, 0.01)
    assert [study.ask().arm for _ in range(3)] == ["b", "b", "b"]  # c is under way, and b is cheap
    assert study.status().leader == "a"


def test_telling_in_any_order_gives_the_same_sums():
    rewards = [0.3, 0.1, 0.7, 0.2, 0.25, 0.125]
    sums = []
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4]):
        study = new(family="bounded", arms=["a", "b"], policy="uniform")
        pulls = study.ask(6)
        for i in order:
            study.tell(pulls[i], rewards[i], 1.0)
        sums.append([(arm.pulls, round(arm.mean, 12)) for arm in study.status().arms])
        assert [each["pull"] for each in study.observations()] == [pulls[i].id for i in order]
    assert sums[0] == sums[1]


# --- Leases ---------------------------------------------------------------------------------------------------------


def test_a_pull_whose_lease_ran_out_is_offered_again_with_the_same_id(clock):
    study = new(lease=100)
    first = study.ask(worker="one")
    assert (first.expires, first.offers) == (clock.now + 100, 1)
    clock.now += 99
    other = study.ask()
    assert other.id != first.id
    clock.now += 1  # its lease has ended
    again = study.ask(worker="two")
    assert (again.id, again.arm, again.number, again.offers) == (first.id, first.arm, first.number, 2)
    assert again.expires == clock.now + 100
    assert study.ask().id not in (first.id, other.id)
    clock.now += 1000
    assert [pull.id for pull in study.ask(2)] == [first.id, other.id]  # the oldest first


def test_a_tell_is_accepted_once_after_the_lease_ran_out(clock):
    study = new(lease=100)
    first = study.ask(worker="one")
    clock.now += 1000
    study.tell(first, 1, 1.0)
    study.tell(first, 1, 1.0)  # the same again changes nothing
    assert len(study.observations()) == 1
    second = study.ask()
    assert second.id != first.id
    clock.now += 1000
    again = study.ask(worker="two")
    assert again.id == second.id
    study.tell(again, 0, 1.0)
    with pytest.raises(cabai.AlreadyTold, match=r"told before with reward=0\.0, cost=1\.0"):
        study.tell(second, 1, 1.0)  # the first worker comes late
    seen = study.observations()
    assert [(each["reward"], each["worker"]) for each in seen] == [(1.0, "one"), (0.0, "two")]
    assert study.status().pulls == 2


def test_a_pull_given_back_is_the_next_to_be_offered(clock):
    study = new()
    pulls = study.ask(3)
    study.release(pulls[1])
    assert (study.status().under_way, study.status().lapsed) == (3, 1)
    assert "\n3 under way, 1 of them released or expired\n" in str(study)
    again = study.ask()
    assert (study.status().under_way, study.status().lapsed) == (3, 0)
    assert (again.id, again.offers) == (pulls[1].id, 2)
    study.tell(again, 1, 1.0)
    study.release(again)  # told in the meantime: does nothing
    assert study.ask().id not in {pull.id for pull in pulls}
    assert (study.status().pulls, study.status().waiting) == (0, 1)  # for the first
    study.tell(pulls[0], 1, 1.0)
    assert (study.status().pulls, study.status().waiting) == (2, 0)


@pytest.mark.parametrize("call", ["release", "renew"])
def test_a_worker_whose_pull_was_offered_again_can_no_longer_renew_it_or_give_it_back(clock, call):
    study = new(lease=100)
    mine = study.ask(worker="A")
    clock.now += 101
    theirs = study.ask(worker="B")
    assert theirs.id == mine.id
    expected = rf"pull {mine.id} was offered to another worker \('B'\): only that worker may now renew"
    for lost, who in [(mine, {}), (mine, {"worker": "A"}), (mine.id, {"worker": "A"}), (theirs, {"worker": "A"})]:
        with pytest.raises(cabai.LostPull, match=expected):
            getattr(study, call)(lost, **who)
    assert study.ask(worker="C").id != mine.id
    clock.now += 50
    getattr(study, call)(theirs)  # the one who has it may
    getattr(study, call)(theirs.id, worker="B")
    with pytest.raises(cabai.LostPull, match="was offered 2 times"):  # nothing is known of who speaks
        getattr(study, call)(theirs.id)
    clock.now += 60
    assert (study.ask(worker="C").id == mine.id) == (call == "release")
    study.tell(mine, 1, 1.0)  # the first result told counts
    with pytest.raises(cabai.AlreadyTold):
        study.tell(theirs, 0, 1.0)
    for pull in (mine, theirs):
        getattr(study, call)(pull)  # told in the meantime: does nothing
    with pytest.raises(cabai.InvalidInput, match="worker must be a string"):
        getattr(study, call)(theirs, worker=5)


def test_a_lease_that_ran_out_can_be_renewed_as_long_as_nobody_else_has_the_pull(clock):
    study = new(lease=100)
    pull = study.ask()
    clock.now += 1000
    study.renew(pull)
    assert study.ask().id != pull.id


def test_a_lost_pull_of_an_arm_that_was_dropped_is_not_offered_again(clock):
    study = new(policy="racing", lease=10, family="gaussian", delta=0.1)
    rewards = {"a": [0.0, 0.1], "b": [0.05, 0.05], "c": [-3.0, -3.1]}
    start(study, [0.1, 0.1, -3.0])
    while (dropped := study.status()).arms[2].in_play:
        pulls = study.ask(12)  # four of each arm, of which the last of c is told last
        for pull in pulls[:-1]:
            study.tell(pull, rewards[pull.arm][pull.number % 2], 1.0)
        lost = pulls[-1]
        assert lost.arm == "c"
        if study.status().arms[2].in_play:
            study.tell(lost, -3.0, 1.0)
    assert (dropped.under_way, dropped.waiting) == (1, 0)
    early = study.ask()
    study.tell(early, rewards[early.arm][0], 1.0)
    assert (study.status().waiting, study.status().waiting_for) == (1, lost.id)
    clock.now += 100
    asked = study.ask(5)
    assert lost.id not in {pull.id for pull in asked}
    assert study.status().waiting == 0  # for a pull that nobody is asked for
    spent = study.status().spent
    study.tell(lost, -3.0, 1.0)  # is on the bill and in the log, and counts nowhere
    status = study.status()
    assert (status.spent, status.discarded, status.arms[2].pulls) == (spent + 1.0, 1, dropped.arms[2].pulls)
    assert (status.arms[2].low, status.arms[2].high) == (dropped.arms[2].low, dropped.arms[2].high)
    assert "\n1 told of arms that are out: they do not count\n" in str(status)
    assert reloaded(study).status() == status
    assert not status.arms[2].in_play
    study.tell(asked[0], rewards[asked[0].arm][0], 1.0)
    assert study.status().waiting == 0
    assert sum(each["counted"] for each in study.observations()) == study.status().pulls


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
    assert {arm.name: arm.pulls for arm in after.arms} == spent_on  # what decided, and no more
    assert after.waiting == len(late)
    assert [each["late"] for each in study.observations()] == [False] * decided.pulls + [True] * len(late)
    with pytest.raises(cabai.StudyStopped):
        study.ask()
    assert reloaded(study).decision == "a"
