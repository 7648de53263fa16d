"""What a study costs: budgets, known and learned costs, failed pulls."""

from __future__ import annotations

import math
import threading
import warnings
from collections import Counter

import numpy as np
import pytest

import cabai
import reference
from conftest import drawer
from studies import new, reloaded, start

# --- Budgets --------------------------------------------------------------------------------------------------------


def expected_confidence(study, delta: float, K: int, family: str, direction: str = "maximize") -> float:
    """1 - (K - 1) / e-value of the leader over its closest rival, from the log of observations alone."""
    sign = -1 if direction == "minimize" else 1
    data = [
        [each["reward"] for each in study.observations() if each["arm"] == arm and each["failed"] is None]
        for arm in study.arms
    ]
    n, r, f = [len(x) for x in data], [math.fsum(x) for x in data], [x[0] for x in data]
    means = [sign * total / count for total, count in zip(r, n, strict=True)]
    b = max(range(K), key=lambda a: (means[a], -a))

    def log_e(a: int) -> float:
        if sign > 0:
            return reference.log_evalue(family, n[b], r[b], f[b], n[a], r[a], f[a])
        # "mu_b >= mu_a" is refuted: the mixtures are the same, and the largest likelihood has the arms in other order
        return (
            reference.log_mixture(family, n[b], r[b], f[b], 1.0)
            + reference.log_mixture(family, n[a], r[a], f[a], 1.0)
            - (
                reference.log_largest_likelihood(family, n[a] + n[b] - 2, r[a] + r[b] - f[a] - f[b], 1.0)
                if (r[b] - f[b]) / (n[b] - 1) < (r[a] - f[a]) / (n[a] - 1)
                else reference.log_largest_likelihood(family, n[a] - 1, r[a] - f[a], 1.0)
                + reference.log_largest_likelihood(family, n[b] - 1, r[b] - f[b], 1.0)
            )
        )

    least = min(log_e(a) for a in range(K) if a != b)
    return min(max(1 - (K - 1) * math.exp(-least), 0.0), 1 - delta)


@pytest.mark.parametrize(
    ("family", "means", "direction"),
    [
        ("bernoulli", [0.9, 0.2, 0.1], "maximize"),
        ("gaussian", [2.5, 0.5, 0.0], "maximize"),
        ("poisson", [8, 2, 1], "maximize"),
        ("poisson", [1, 4, 5], "minimize"),
        ("exponential", [1, 8, 9], "minimize"),
    ],
)
def test_a_budget_ends_a_study_without_a_guarantee_and_with_its_confidence(family, means, direction):
    instance = cabai.Instance(family, means, [1, 1, 1])
    positive = 0
    for seed in range(2):
        study = new(family=family, delta=1e-6, max_pulls=24, policy="uniform", direction=direction, threshold="evalue")
        draw = drawer(instance, seed, 0)
        while not study.stopped:
            pull = study.ask()
            study.tell(pull, *draw("abc".index(pull.arm)))
            status = study.status()
            if min(arm.pulls for arm in status.arms) >= 2:
                expected = expected_confidence(study, 1e-6, 3, family, direction)
                assert status.confidence == pytest.approx(expected, abs=1e-9)
                assert status.confidence <= 1 - 1e-6
        assert (status.stopped, status.reason, status.decision, study.decision) == (True, "max_pulls", None, None)
        assert status.leader is not None
        assert status.sentence.startswith("Undecided: ")
        assert status.confidence == pytest.approx(expected, abs=1e-9)
        positive += status.confidence > 0
        with pytest.raises(cabai.StudyStopped):
            study.ask()
    assert positive >= 1


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


def test_confidence_is_never_more_than_was_asked_for():
    study = new(arms=["a", "b"], policy="uniform", delta=0.4)
    while not study.stopped:
        pull = study.ask()
        study.tell(pull, pull.arm == "a", 1.0)
        assert study.status().confidence <= 0.6
    assert (study.status().confidence, study.status().reason) == (0.6, "evidence")


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


def test_a_pull_under_way_reserves_the_largest_cost_of_its_arm(clock):
    study = new(arms=["a", "b"], max_cost=10, policy="uniform", lease=100)
    start(study, [1, 0], cost=2.0)
    assert len(study.ask(9)) == 3  # 4 paid, 2 reserved for each
    with pytest.raises(cabai.NoPull, match="used up by pulls under way"):
        study.ask()
    clock.now += 101
    again = study.ask(9)
    assert len(again) == 3
    study.tell(again[0], 1, 0.5)
    with pytest.raises(cabai.NoPull):  # 4.5 paid, 4 reserved, and another 2 is too much: it costs 2, not 1.25
        study.ask()
    study.tell(again[1], 1, 5.5)
    assert not study.stopped  # the last is under way, is paid in any case, and may decide
    assert study.status().spent == 10.0
    with pytest.raises(cabai.NoPull):
        study.ask()
    study.tell(again[2], 0, 3.0)
    status = study.status()
    assert (status.reason, status.spent, status.late, status.spent_late) == ("max_cost", 13.0, 0, 0.0)


def test_a_budget_that_is_used_up_ends_a_study_though_the_next_pull_is_free():
    study = new(arms=["a", "b"], policy="uniform", costs=[1, 0], max_cost=2)
    start(study, [1, 1, 1], cost=None)
    assert (study.status().spent, study.status().reason) == (2.0, "max_cost")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("policy", ["co", "top-two", "uniform"])
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


def test_costs_that_are_learned_overdraw_by_no_more_than_was_not_reserved():
    """Nothing is known at first, so one pull of each arm is under way; from then on, 10 are reserved for each."""
    study = new(max_cost=5, delta=1e-9)
    status = study.run(lambda arm: (1, 10.0), workers=30)
    assert status.reason == "max_cost"
    assert status.pulls <= 3
    assert status.spent <= 30
    study = new(max_cost=100, delta=1e-9, policy="uniform")
    rng = np.random.default_rng(1)
    overdrawn, reserved, largest, under_way = 0.0, {}, dict.fromkeys("abc", 0.0), []
    while not study.stopped:
        try:
            for pull in study.ask(5):
                assert largest[pull.arm] or all(other.arm != pull.arm for other in under_way)
                reserved[pull.id] = largest[pull.arm]
                under_way.append(pull)
        except cabai.NoPull:
            assert under_way
        pull, cost = under_way.pop(int(rng.integers(len(under_way)))), float(rng.exponential())
        study.tell(pull, 1, cost)
        largest[pull.arm] = max(largest[pull.arm], cost)
        overdrawn += max(cost - reserved[pull.id], 0.0)
    status = study.status()
    assert status.reason == "max_cost"
    assert status.spent <= 100 + overdrawn


def test_a_batch_before_any_cost_is_known_has_one_pull_of_each_arm():
    study = new(max_cost=1)
    pulls = study.ask(1000)
    assert [pull.arm for pull in pulls] == ["a", "b", "c"]
    with pytest.raises(
        cabai.NoPull, match=r"the cost of a pull of arm 'a' is not known yet, and the first one is under way"
    ):
        study.ask()
    study.tell(pulls[0], failed="broke", cost=0.0)  # says nothing of what a pull costs
    again = study.ask(1000)
    assert [pull.arm for pull in again] == ["a"]
    study.tell(pulls[1], 1, 0.25)
    more = study.ask(1000)  # as far as is known, a and c cost 0.25 as well
    assert [pull.arm for pull in more] == ["b"]
    for pull in (*again, *more, pulls[2]):
        study.tell(pull, 1, 0.25)
    while not study.stopped:
        study.tell(study.ask(), 1, 0.25)
    assert (study.status().spent, study.status().failures) == (1.0, 1)


def test_no_cheaper_arm_is_pulled_where_the_chosen_one_is_not_paid_for():
    study = new(max_cost=4, policy="uniform", costs={"a": 0.5, "b": 3, "c": 0.1})
    first = study.ask(9)
    assert [pull.arm for pull in first] == ["a", "b", "c"]  # then a and b would follow: 3.6 + 0.5 is too much
    study.tell(first[0], 1)
    study.tell(first[1], 1)
    with pytest.raises(cabai.NoPull):
        study.ask()
    study.tell(first[2], 1, 0.0625)  # cheaper than known: a is not paid for, c would be
    status = study.status()
    assert (status.reason, status.spent, status.pulls) == ("max_cost", 3.5625, 3)
    study = new(max_cost=4, policy="uniform", costs={"a": 5, "b": 1, "c": 1})
    with pytest.raises(cabai.StudyStopped):  # not one pull of the first arm is paid for
        study.ask()
    status = study.status()
    assert (status.stopped, status.reason, status.spent) == (True, "max_cost", 0.0)
    assert status.sentence == "Stopped at max_cost = 4 before any reward; no decision."


@pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
def test_what_is_left_for_pulls_of_a_dropped_arm_that_nobody_tells_does_not_block_a_study(clock):
    """A pull of a dropped arm is not offered again, and nothing waits for it. What it has reserved stays
    reserved: it may still be told, and the budget holds all the same."""
    study = new(
        policy="racing", lease=10, family="gaussian", delta=0.1, max_cost=400, costs=[1, 1, 100], threshold="evalue"
    )
    start(study, [0.1, 0.1, -30.0], cost=1.0)
    while study.status().arms[2].in_play:
        pulls = study.ask(6)
        for pull in pulls[:-1]:
            study.tell(pull, -30.0 if pull.arm == "c" else 0.1 * (pull.number % 2), 1.0)
        assert pulls[-1].arm == "c"
        if study.status().arms[2].in_play:
            study.tell(pulls[-1], -30.0, 1.0)
    under_way = study.status().under_way + len(study.ask(1000))
    with pytest.raises(cabai.NoPull):
        study.ask()
    clock.now += 100
    again = study.ask(1000)
    assert len(again) == under_way - 1
    with pytest.raises(cabai.NoPull):
        study.ask()
    while not study.stopped:
        study.tell(again.pop(0), 0.05)
    study.tell(pulls[-1], -30.0)
    for pull in again:
        study.tell(pull, 0.05)
    assert study.status().spent <= 400


@pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
@pytest.mark.parametrize("workers", [1, 8])
def test_a_run_with_a_budget_goes_on_past_failing_pulls_and_ends(workers):
    study, lock, calls = new(max_cost=20, delta=1e-9), threading.Lock(), Counter()

    def test(arm):
        with lock:
            calls[arm] += 1
            if calls[arm] <= 2 or calls[arm] % 3 == 0:
                raise OSError("again")
        return 1, 0.5

    status = study.run(test, workers=workers, max_failures=50)
    assert (status.reason, status.under_way, status.late) == ("max_cost", 0, 0)
    assert status.spent == 20
    assert status.failures >= 6
    study = new(max_cost=20)
    with pytest.raises(cabai.RunFailed):  # an arm whose every pull fails, at no cost
        study.run(lambda arm: (1, 0.5) if arm != "b" else None, workers=workers)


def test_the_largest_cost_survives_a_reload():
    study = new(arms=["a", "b"], max_cost=11, policy="uniform")
    for cost in (1.0, 1.0, 4.0, 0.5):
        study.tell(study.ask(), 1, cost)
    study = reloaded(study)
    assert [pull.arm for pull in study.ask(9)] == ["a"]  # 6.5 paid, 4 reserved for it, 1 for b is too much


def test_an_arm_that_only_fails_does_not_use_up_the_budget():
    study = new(max_cost=100)
    study.tell(study.ask(), failed="no", cost=1.0)
    assert [study.ask().arm for _ in range(3)] == ["a", "b", "c"]


def test_budgets_below_the_number_of_arms():
    study = new(max_pulls=2)
    start(study, [0, 1])
    status = study.status()
    assert (status.reason, status.leader, status.confidence, status.decision) == ("max_pulls", "b", 0.0, None)
    assert status.sentence == "Undecided: b leads, but nothing is proven. Stopped at max_pulls = 2; 2 spent."
    study = new(max_pulls=1)
    study.tell(study.ask(), failed="no reward")
    assert study.status().leader is None
    assert study.status().sentence == "Stopped at max_pulls = 1 before any reward; no decision."


def test_evidence_at_the_limit_is_a_decision():
    """The pull that uses up the budget is also the one that decides."""
    study = new(arms=["a", "b"], policy="uniform", delta=0.4)
    while not study.stopped:
        pull = study.ask()
        study.tell(pull, pull.arm == "a", 1.0)
    n = study.status().pulls
    limited = new(arms=["a", "b"], policy="uniform", delta=0.4, max_pulls=n, max_cost=n)
    while not limited.stopped:
        pull = limited.ask()
        limited.tell(pull, pull.arm == "a", 1.0)
    assert (limited.decision, limited.status().reason, limited.status().pulls) == ("a", "evidence", n)


# --- Costs and failures ---------------------------------------------------------------------------------------------


def test_known_costs_may_be_left_out_and_steer_alone():
    """CO with declared costs chooses by them, whatever is told; the bill is what is told."""
    study = new(costs={"c": 0.1, "a": 1, "b": 4}, policy="co", family="gaussian")
    costs = {"a": 1.0, "b": 4.0, "c": 0.1}
    n = dict.fromkeys("abc", 0)
    for i in range(20):
        pull = study.ask()
        if i >= 3:
            assert pull.arm == min("abc", key=lambda arm: costs[arm] * n[arm] ** 2)
        n[pull.arm] += 1
        study.tell(pull, 0.1 * i, *([100.0] if i == 5 else []))
        if i == 5:
            dear = pull.arm
    status = study.status()
    assert [arm.cost for arm in status.arms] == [1.0, 4.0, 0.1]
    expected = {arm: costs[arm] * n[arm] + (100 - costs[arm]) * (arm == dear) for arm in "abc"}
    assert [arm.spent for arm in status.arms] == pytest.approx([expected[arm] for arm in "abc"])
    assert status.spent == pytest.approx(sum(expected.values()))
    pull = study.ask()
    study.tell(pull, failed="it broke")  # its known cost was paid
    assert study.status().spent == pytest.approx(sum(expected.values()) + costs[pull.arm])


def test_the_cost_of_a_failed_pull_counts_and_its_reward_does_not():
    study = new(policy="co", arms=["a", "b"])
    first = study.ask()
    study.tell(first, failed="crashed", cost=3.0)
    assert study.ask().arm == "a"  # still nothing known of it
    study.release(study.ask())
    study = new(policy="co", arms=["a", "b"])
    start(study, [1, 1], cost=1.0)
    before = study.status()
    pull = study.ask()
    assert pull.arm == "a"
    study.tell(pull, failed="crashed", cost=3.5)
    status = study.status()
    a = status.arms[0]
    assert (a.pulls, a.failures, a.mean, a.spent, a.cost) == (1, 1, 1.0, 4.5, 4.5)  # 4.5 for one reward
    assert (status.pulls, status.failures, status.spent) == (2, 1, 5.5)
    assert (status.evidence, status.confidence) == (before.evidence, before.confidence)
    assert (a.low, a.high) == (before.arms[0].low, before.arms[0].high)
    assert [study.ask().arm for _ in range(2)] == ["b", "b"]  # a has become expensive: 4.5 · 1² against 1 · 1², 1 · 2²
    told = study.observations()[-1]
    assert (told["reward"], told["failed"], told["cost"]) == (None, "crashed", 3.5)
    study.tell(study.ask(), failed="free of charge")
    assert study.status().spent == 5.5


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
