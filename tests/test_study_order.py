"""Results count in the order in which their pulls were asked, so that no delay can bias a decision."""

from __future__ import annotations

import heapq
import itertools
import random
import warnings

import pytest
from scipy.stats import binom

import cabai
from folding import check_order_of_asking
from studies import new, refused, reloaded, start
from workers import check_replay


def run_with_delays(study, clock, workers, draw, *, most=10**6):
    """Workers that ask whenever they are free; `draw(pull)` is a reward and how long it takes to come. Returns how many
    pulls were asked for."""
    under_way, idle, asked, ties = [], workers, 0, itertools.count()
    while not study.stopped and asked < most:
        while idle:
            try:
                pull = study.ask()
            except cabai.NoPull:
                break
            reward, delay = draw(pull)
            heapq.heappush(under_way, (clock.now + delay, next(ties), pull, reward))
            idle, asked = idle - 1, asked + 1
        if not under_way:
            break
        clock.now, _, pull, reward = heapq.heappop(under_way)
        study.tell(pull, reward, 1.0)
        idle += 1
    return asked


def hostile(means, slow, seed):
    """Bernoulli rewards; the failures of the slow arm take 200 times as long as anything else."""
    chance = random.Random(seed)

    def draw(pull):
        reward = int(chance.random() < means[pull.arm])
        return reward, 200.0 if pull.arm == slow and not reward else 1.0

    return draw


@pytest.mark.parametrize(
    ("studies", "good", "bad"), [(10, 0.75, 0.6), pytest.param(2000, 0.8, 0.5, marks=pytest.mark.slow)]
)
def test_hostile_delays_do_not_change_what_is_decided(clock, studies, good, bad):
    """32 workers, and the failures of the worse arm come late. Counted as they were told, all of 10 chose it."""
    wrong = 0
    for seed in range(studies):
        study = new(arms=["good", "bad"], policy="top-two", delta=0.2, lease=1e9, seed=seed)
        run_with_delays(study, clock, 32, hostile({"good": good, "bad": bad}, "bad", seed))
        assert study.decision is not None
        wrong += study.decision == "bad"
    assert wrong <= binom.isf(1e-6, studies, 0.2)


@pytest.mark.parametrize("workers", [8, 32])
@pytest.mark.parametrize("policy", ["top-two", "co", "racing", "ctas", "uniform"])
def test_the_decision_is_that_of_the_first_prefix_in_the_order_of_asking_that_decides(clock, policy, workers):
    """By `champion`, whose credits depend on the order of the pulls; also when the log is folded again."""
    for seed in range(2):
        study = new(policy=policy, lease=1e9, delta=0.1, seed=seed)
        run_with_delays(study, clock, workers, hostile({"a": 0.9, "b": 0.5, "c": 0.4}, "c", seed))
        check_order_of_asking(study, "rivals", "rival_rewards")
        check_replay(study)
        status = study.status()
        assert status.pulls + status.waiting == len(study.observations())
        if status.waiting:
            what, them = ("result is", "it") if status.waiting == 1 else ("results are", "them")
            assert f"\n{status.waiting} {what} not counted: the decision did not need {them}\n" in str(status)


def test_what_is_told_early_waits_and_is_shown(clock):
    study = new(arms=["a", "b"], policy="uniform")
    first, second, third = study.ask(3)
    study.tell(second, 1, 1.0)
    status = study.status()
    assert (status.pulls, status.waiting, status.waiting_for, status.spent) == (0, 1, first.id, 1.0)
    assert (status.leader, status.arms[1].waiting, status.arms[1].mean, status.arms[1].spent) == (None, 1, None, 1.0)
    assert status.sentence == "Nothing counts yet: 1 told early, waiting for pulls asked before them. 1 spent."
    study.tell(third, 0, 1.0)
    study = reloaded(study)
    assert f"\n2 told early, waiting for {first.id}, asked before them\n" in str(study)
    study.tell(first, 1, 1.0)
    status = study.status()
    assert (status.pulls, status.waiting, status.waiting_for) == (3, 0, None)
    assert [(arm.pulls, arm.mean) for arm in status.arms] == [(2, 0.5), (1, 1.0)]


def test_what_a_stopped_study_did_not_count_or_got_late_is_shown(clock):
    study = new(arms=["a", "b"], policy="uniform")
    first, second, third = study.ask(3)
    study.tell(second, 1, 1.0)
    study.stop()
    assert "\n1 result is not counted: the study stopped without it\n" in str(study)
    study.tell(first, 1, 0.5)
    study.tell(third, failed="no answer", cost=0.25)
    for each in (study, reloaded(study)):  # what arrived late is not told as uncounted too
        assert "\n1 result is not counted: the study stopped without it\n" in str(each)
        assert "\n2 results arrived after the study stopped; they cost 0.75\n" in str(each)


def test_policies_choose_from_everything_told(clock):
    """CO drops no arm before its results count, and yet balances all that it knows of costs."""
    study = new(arms=["a", "b"], policy="co")
    first = study.ask()
    second = study.ask()
    study.tell(second, 1, 100.0)
    assert study.status().waiting == 1
    assert [study.ask().arm for _ in range(3)] == ["a", "b", "a"]  # of a nothing is known but what is under way
    study.tell(first, 1, 1.0)
    assert [study.ask().arm for _ in range(3)] == ["a", "a", "a"]


def test_results_that_waited_leave_a_policy_nothing_wrong_to_remember(clock):
    """Top-two keeps each arm's distance to a mark. Where the mark was forgotten and the distances were not, one ask in
    five chose another arm than a policy that remembers nothing."""
    chance = random.Random(1)
    study = new(arms=list("abcdefghij"), family="gaussian", policy="top-two", lease=1e9, delta=1e-9, seed=1)
    under_way, waited = [], 0
    for _ in range(150):
        state = study._current.look(lambda state: state.trial())
        waited += state.has_waiting
        state._forget(state.told_view)
        state.told_view.run["rival"] = -1
        expected = state.choose_after([sum(pull.arm == arm for pull in under_way) for arm in study.arms])
        pull = study.ask()
        assert pull.arm == study.arms[expected]
        under_way.append(pull)
        while len(under_way) > 5 or (under_way and chance.random() < 0.5):
            pull = under_way.pop(chance.randrange(len(under_way)) if chance.random() < 0.7 else 0)
            study.tell(pull, chance.gauss(0.5, 1), 1.0 + study.arms.index(pull.arm))
    assert 30 < waited < 120


def test_what_was_shown_once_stays_shown_when_results_begin_to_wait():
    """With goal cheapest, an arm that was shown to be too bad is not in question again."""
    study = new(goal="cheapest", epsilon=0.2, policy="cheapest")
    _, second = study.ask(2)

    def tell(transaction):
        state = transaction.state
        state.told_view.arms["excluded"] = [1, 0, 0]
        transaction.add("tell", pull=second.number, arm=1, reward=1.0, cost=1.0)
        assert state.has_waiting
        assert state.ordered.arms["excluded"].tolist() == state.told_view.arms["excluded"].tolist() == [1, 0, 0]

    study._current.change(tell)


def would_decide():
    """A study that the results told decide, and the pull that is missing before they count."""
    study = new(arms=["a", "b"], policy="uniform", threshold="paper", delta=0.3, lease=100)
    missing = study.ask()
    while not study.status().would_decide:
        pull = study.ask()
        study.tell(pull, int(pull.arm == "a"), 1.0)
    return study, missing


def test_nothing_needless_is_asked_for_while_the_results_in_hand_decide(clock):
    study, missing = would_decide()
    for handle in (study, reloaded(study)):
        with pytest.raises(cabai.NoPull, match="told so far decide, once those of pulls asked before") as refused:
            handle.ask()
        assert not isinstance(refused.value, cabai.StudyStopped)
    status = study.status()
    assert (status.stopped, status.decision, status.pulls) == (False, None, 0)
    assert "; counting them would decide the study\n" in str(status)
    study.tell(missing, 0, 1.0)  # the one that was missing may make a difference
    assert study.run(lambda arm: (int(arm == "a"), 1.0)).decision == "a"


def test_a_lapsed_pull_is_offered_first_also_while_the_results_in_hand_decide(clock):
    study, missing = would_decide()
    clock.now += 101
    again = study.ask()
    assert (again.id, again.offers) == (missing.id, 2)
    study.tell(again, failed="again")
    assert study.decision == "a"


def test_lost_pulls_are_counted_shown_and_warned_of(clock):
    """A worker that dies of every failure: its pulls are offered and drawn again until they succeed."""
    study, caught = new(arms=["a", "b"], policy="uniform", lease=100, delta=1e-9), []
    start(study, [1, 1])
    for i in range(24):
        with warnings.catch_warnings(record=True) as more:
            warnings.simplefilter("always")
            pull = study.ask()
        caught += [(w.category, str(w.message), study.status().arms[1].lapses) for w in more]
        if pull.arm == "b" and pull.offers < 3:
            clock.now += 101
        else:
            study.tell(pull, i % 2, 1.0)
    a, b = study.status().arms
    assert (a.lapses, a.offers) == (0, a.pulls + a.under_way)
    assert b.lapses >= 10
    assert b.offers == b.pulls + b.under_way + b.lapses
    assert [lapses for _, _, lapses in caught] == [3, 10]
    assert all(category is cabai.FailedPulls for category, _, _ in caught)
    expected = f"{b.lapses} of {b.lapses + b.pulls} leases of arm 'b' ended without a result."
    assert study.status().warnings[0].startswith(expected)
    assert f"{b.lapses} lapsed" in str(study)
    assert {each["offers"] for each in study.observations() if each["arm"] == "b"} == {1, 3}


def test_several_results_are_told_in_one_transaction_or_not_at_all(clock):
    study = new(arms=["a", "b"], policy="uniform")
    pulls = study.ask(4)
    results = [{"pull": pull, "reward": 1, "cost": 1.0} for pull in pulls[:3]]
    for wrong, error in [
        ({"pull": pulls[3], "reward": 0.5, "cost": 1}, cabai.InvalidInput),
        ({"pull": "nonsense", "reward": 1, "cost": 1}, cabai.InvalidInput),
        ({"pull": pulls[0], "reward": 0, "cost": 1}, cabai.AlreadyTold),
        ({"reward": 1, "cost": 1}, cabai.InvalidInput),
        ({"pull": pulls[3], "reward": 1, "cost": 1, "price": 3}, cabai.InvalidInput),
        (("a", 1), cabai.InvalidInput),
    ]:
        with refused(study, error=error):
            study.tell_many([*results, wrong])
    study.tell_many([*reversed(results), {"pull": pulls[3].id, "failed": "no"}, results[0]])
    status = study.status()
    assert (status.pulls, status.waiting, status.failures, status.spent) == (3, 0, 1, 3.0)
    study.tell_many(results)  # the same again
    study.tell_many([])
    assert study.status() == status


@pytest.mark.parametrize("policy", ["d-lucb", "top-two", "co"])
def test_many_workers_decide_with_little_more_than_one(clock, policy):
    """A policy sees the rival that everything told leaves, though the test counts less: else only the leader is
    pulled."""

    def pulls(workers):
        study = new(policy=policy, lease=1e9, delta=0.1)
        chance = random.Random(4)
        means = {"a": 0.8, "b": 0.4, "c": 0.3}

        def draw(pull):
            return int(chance.random() < means[pull.arm]), chance.expovariate(1)

        asked = run_with_delays(study, clock, workers, draw, most=1500)
        assert study.decision == "a"
        return asked

    assert pulls(12) < 3 * pulls(1) + 100


def test_lost_pulls_that_the_budget_does_not_pay_for_again_are_not_counted_past(clock):
    """The results in hand are no fair sample without them: so the study ends without a decision."""
    tight = new(arms=["a", "b"], policy="uniform", threshold="paper", delta=0.3, lease=100, max_cost=20)
    start(tight, [1, 0])
    first, *others = tight.ask(9)
    for pull in others[:-1]:
        tight.tell(pull, int(pull.arm == "a"), 1.0)
    tight.tell(others[-1], int(others[-1].arm == "a"), 15.0)  # beyond what was reserved
    clock.now += 101
    with pytest.raises(cabai.StudyStopped):
        tight.ask()
    status = tight.status()
    assert (status.reason, status.decision, status.pulls, status.waiting) == ("max_cost", None, 2, 8)
    tight.tell(first, 1, 1.0)
    assert tight.status().decision is None
