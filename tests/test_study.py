"""How a study behaves: the same pulls as a simulation, leases, budgets, failures, status, and input that is refused."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import signal
import threading
import warnings

import numpy as np
import pytest
import sqlalchemy as sa
from scipy.optimize import brentq
from scipy.stats import binom

import cabai
import reference
from cabai.policies import POLICIES
from cabai.study import schema
from cabai.study import study as module
from cabai.study.play import Play
from cabai.study.runner import Failed
from cabai.study.settings import Settings
from cabai.study.status import roughly
from conftest import drawer

NAMES = itertools.count()


def new(**options) -> cabai.study.Study:
    """A study of its own name, in memory."""
    usual = {"arms": ["a", "b", "c"], "family": "bernoulli", "policy": "co", "storage": "memory"}
    return cabai.create_study(f"study {next(NAMES)}", **usual | options)


def reloaded(study: cabai.study.Study) -> cabai.study.Study:
    return cabai.load_study(study.name, storage="memory")


def tables(study: cabai.study.Study) -> dict[str, list[tuple]]:
    """Everything in the storage."""

    def work(connection: sa.Connection) -> dict[str, list[tuple]]:
        return {
            table.name: [tuple(row) for row in connection.execute(sa.select(table))]
            for table in schema.metadata.sorted_tables
        }

    return study._storage.read(work)


def start(study: cabai.study.Study, rewards, cost: float = 1.0) -> None:
    """Tell these rewards, one by one, of whatever the study asks for."""
    for reward in rewards:
        study.tell(study.ask(), reward, cost)


class Clock:
    """Stands for the module `time`, and is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


# --- A study makes the pulls that a simulation makes -----------------------------------------------------------------

CASES = {
    "gaussian": (cabai.Instance("gaussian", [1.0, 0.5, -0.5], [1, 0.1, 0.3], variance=0.5), "evalue", 0.0),
    "bernoulli": (cabai.Instance("bernoulli", [0.9, 0.6, 0.2], [1, 0.1, 0.3], cost_model="two-point"), "kt", 0.0),
    "poisson": (cabai.Instance("poisson", [4, 3, 0], [1, 0.1, 0.3], cost_model="beta"), "mixture", 0.0),
    "exponential": (cabai.Instance("exponential", [3, 1, 0.4], [1, 0.1, 0.3], cost_model="exponential"), "paper", 0.0),
    "bounded": (cabai.Instance("bounded", [0.8, 0.7, 0.2], [1, 0.1, 0.3], cost_model="uniform"), "evalue", 0.1),
}


def check_same_pulls(instance, policy, threshold, epsilon, most, seed, *, reload=False, known=False) -> None:
    K = len(instance)
    runs = cabai.simulate(
        instance, policy, threshold=threshold, delta=0.1, epsilon=epsilon, trajectories=1, seed=seed, max_pulls=most,
        grid=range(K, most + 1),
    )  # fmt: skip
    expected = np.diff(runs.path[0][: runs.steps[0] - K + 1], axis=0).argmax(axis=1).tolist()
    study = new(
        arms=list(instance.names), family=instance.family, policy=policy, threshold=threshold, delta=0.1, seed=seed,
        epsilon=epsilon, max_pulls=most, costs=instance.costs.tolist() if known else None,
    )  # fmt: skip
    draw, pulled = drawer(instance, seed, 0), []
    while not study.stopped:
        if reload:
            study = reloaded(study)
        pull = study.ask()
        a = instance.names.index(pull.arm)
        pulled.append(a)
        reward, cost = draw(a)
        if reload:
            study = reloaded(study)
        study.tell(pull, reward, None if known else cost)
    status = study.status()
    assert pulled == [*range(K), *expected]
    assert [arm.pulls for arm in status.arms] == runs.pulls[0].tolist()
    assert status.spent == pytest.approx(runs.costs[0], rel=1e-12)
    decided = -1 if status.decision is None else instance.names.index(status.decision)
    assert decided == runs.decisions[0]
    assert status.reason == ("max_pulls" if decided < 0 else "evidence")


@pytest.mark.parametrize("policy", POLICIES.names)
@pytest.mark.parametrize("family", CASES)
def test_a_study_makes_the_pulls_of_a_simulation(family, policy):
    check_same_pulls(*CASES[family][:1], policy, *CASES[family][1:], most=40, seed=3)


@pytest.mark.parametrize("policy", POLICIES.names)
def test_a_study_that_is_loaded_anew_before_every_step_makes_the_same_pulls(policy):
    instance, threshold, epsilon = CASES["bounded"]
    check_same_pulls(instance, policy, threshold, epsilon, most=40, seed=5, reload=True)


def test_a_study_that_knows_its_costs_makes_the_pulls_of_a_simulation_with_fixed_costs():
    check_same_pulls(*CASES["gaussian"][:1], "co", "evalue", 0.0, most=60, seed=2, known=True)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [*POLICIES.names, "ctas(tracking=ratio)", "ctas(exploration=0.3, slack=0.5)"])
@pytest.mark.parametrize("family", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_a_long_study_makes_the_pulls_of_a_simulation(family, policy, seed):
    instance, threshold, epsilon = CASES[family]
    check_same_pulls(instance, policy, threshold, epsilon, most=500, seed=seed, reload=seed == 2)


def test_the_policys_coins_are_those_of_trajectory_zero():
    from cabai.simulation.sampling import GOLDEN, mix, open_streams, unit
    from cabai.study.play import coin

    with np.errstate(over="ignore"):
        coins = open_streams((), np.uint64(9), np.uint64(0))
        for n in range(1, 5):
            coins += GOLDEN
            assert coin(9, n) == unit(mix(coins))


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


@pytest.mark.parametrize("policy", POLICIES.names)
def test_pulls_under_way_are_no_evidence(policy):
    study = new(policy=policy)
    start(study, [1, 0, 1, 1, 0, 1, 0, 1])
    before = study.status()
    study.ask(10)
    after = study.status()
    assert after.under_way == sum(arm.under_way for arm in after.arms) == 10
    same = ("pulls", "spent", "leader", "rival", "evidence", "required", "confidence", "stopped")
    assert all(getattr(before, name) == getattr(after, name) for name in same)
    assert after.remaining_cost == pytest.approx(before.remaining_cost, rel=1e-4)  # solved from another start
    assert [dataclasses.replace(arm, under_way=0) for arm in after.arms] == before.arms


@pytest.mark.parametrize("policy", POLICIES.names)
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
    assert "\n3 under way, 1 of them given back or not told in time\n" in str(study)
    again = study.ask()
    assert (study.status().under_way, study.status().lapsed) == (3, 0)
    assert (again.id, again.offers) == (pulls[1].id, 2)
    study.tell(again, 1, 1.0)
    study.release(again)  # told meanwhile: does nothing
    assert study.ask().id not in {pull.id for pull in pulls}
    assert study.status().pulls == 1


def test_a_lost_pull_of_an_arm_that_was_dropped_is_not_offered_again(clock):
    study = new(policy="racing", lease=10, family="gaussian", delta=0.1)
    rewards = {"a": [0.0, 0.1], "b": [0.05, 0.05], "c": [-3.0, -3.1]}
    start(study, [0.1, 0.1, -3.0])
    lost = study.ask(3)[2]
    assert lost.arm == "c"
    while study.status().arms[2].in_play:
        pull = study.ask()
        study.tell(pull, rewards[pull.arm][pull.number % 2], 1.0)
    pulls = study.status().arms[2].pulls
    clock.now += 100
    assert lost.id not in {pull.id for pull in study.ask(5)}
    study.tell(lost, -3.0, 1.0)  # what was paid for still counts
    assert study.status().arms[2].pulls == pulls + 1
    assert not study.status().arms[2].in_play


def test_a_study_never_undecides(clock):
    study = new(arms=["a", "b"], policy="uniform", threshold="paper", delta=0.3)
    late = study.ask(40)
    while not study.stopped:
        study.tell(late.pop(0) if len(late) > 20 else study.ask(), 1 if study.status().pulls % 2 == 0 else 0, 1.0)
    decided = study.status()
    assert (decided.decision, decided.late) == ("a", 0)
    spent_on = {arm.name: arm.pulls for arm in decided.arms}
    for pull in late:  # all that comes late speaks for b
        study.tell(pull, 1 if pull.arm == "b" else 0, 1.0)
    after = study.status()
    assert (study.decision, study.stopped, after.leader, after.reason) == ("a", True, "a", "evidence")
    assert (after.confidence, after.remaining_cost, after.late) == (0.7, 0.0, len(late))
    assert after.spent == decided.spent + len(late)
    assert sum(arm.pulls for arm in after.arms) == sum(spent_on.values()) + len(late)
    assert [each["late"] for each in study.observations()] == [False] * decided.pulls + [True] * len(late)
    with pytest.raises(cabai.StudyStopped):
        study.ask()
    assert reloaded(study).decision == "a"


# --- What is refused, and leaves no trace ---------------------------------------------------------------------------

BAD_SETTINGS = [
    ({"delta": 0}, "delta must lie strictly between 0 and 1, got 0"),
    ({"delta": 1}, "delta must lie strictly between 0 and 1, got 1"),
    ({"delta": math.nan}, "delta must be a finite number, got nan"),
    ({"delta": "0.1"}, "delta must be a finite number, got '0.1'"),
    ({"arms": ["a"]}, r"at least 2 arms, got \['a'\]"),
    ({"arms": []}, "at least 2 arms"),
    ({"arms": "ab"}, "arms must be a list of names"),
    ({"arms": None}, "arms must be a list of names"),
    ({"arms": ["a", "a"]}, "names must differ"),
    ({"arms": ["a", ""]}, "non-empty"),
    ({"arms": ["a", 1]}, "non-empty strings"),
    ({"arms": ["a", "x" * 201]}, "at most 200 characters"),
    ({"arms": ["a", "b\n"]}, "printable"),
    ({"arms": {"a": {1, 2}, "b": None}}, "what JSON can hold"),
    ({"arms": {"a": math.nan, "b": None}}, "what JSON can hold"),
    ({"family": "gauss"}, "unknown family 'gauss'; did you mean gaussian"),
    ({"family": None}, "family must be a name"),
    ({"family": "gaussian(variance=0)"}, "variance must be positive"),
    ({"policy": "best"}, "unknown policy 'best'"),
    ({"policy": "ctas(tracking=never)"}, "tracking must be one of"),
    ({"threshold": "value"}, "unknown threshold 'value'; did you mean evalue"),
    ({"threshold": "kt", "family": "gaussian"}, "kt holds for bernoulli and bounded rewards only"),
    ({"direction": "up"}, "direction must be one of maximize, minimize, got 'up'"),
    ({"storage": "mysql://host/db"}, "storage must be memory, sqlite"),
    ({"storage": "file.db"}, "storage must be memory, sqlite"),
    ({"storage": ""}, "storage must be a URL"),
    ({"storage": None}, "storage must be a URL"),
    ({"epsilon": -0.1}, "epsilon must be"),
    ({"epsilon": 1}, r"epsilon must be in \[0, 1\)"),
    ({"epsilon": math.nan}, "epsilon must be a finite number"),
    ({"costs": [1, 2]}, "costs must be 3 positive numbers"),
    ({"costs": [1, 2, 0]}, r"costs\[2\] must be positive, got 0"),
    ({"costs": [1, 2, math.inf]}, r"costs\[2\] must be a finite number"),
    ({"costs": {"a": 1, "b": 2}}, "costs must name every arm once"),
    ({"costs": 5}, "costs must be 3 positive numbers"),
    ({"max_pulls": 0}, "max_pulls must be a whole number of at least 1, got 0"),
    ({"max_pulls": 2.5}, "max_pulls must be a whole number"),
    ({"max_cost": 0}, "max_cost must be positive, got 0"),
    ({"max_cost": math.inf}, "max_cost must be a finite number"),
    ({"lease": 0}, "lease must be positive, got 0"),
    ({"lease": -5}, "lease must be positive"),
    ({"seed": -1}, "seed must be a whole number of at least 0"),
    ({"seed": 2**63}, r"seed must be below 2\*\*63"),
    ({"seed": True}, "seed must be a whole number"),
]


@pytest.mark.parametrize(("options", "message"), BAD_SETTINGS)
def test_a_study_that_makes_no_sense_is_not_created(options, message):
    study = new()
    before = tables(study)
    with pytest.raises(cabai.InvalidInput, match=message):
        new(**options)
    assert tables(study) == before


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "two\nlines", 5, None])
def test_a_study_needs_a_printable_name(name):
    with pytest.raises(cabai.InvalidInput, match="name must be printable text"):
        cabai.create_study(name, arms=["a", "b"], family="bernoulli", storage="memory")
    with pytest.raises(cabai.InvalidInput, match="name must be printable text"):
        cabai.load_study(name, storage="memory")


def test_a_policy_of_ones_own_is_refused_because_it_cannot_be_stored():
    @cabai.policy
    def co(arms, run, rules):
        return 0

    for own in (co, cabai.policy(lambda arms, run, rules: 0)):
        with pytest.raises(cabai.InvalidInput, match="must be one that cabai knows by name"):
            new(policy=own)


BAD_TELLS = [
    ({"reward": math.nan, "cost": 1}, "reward must be a finite number, got nan"),
    ({"reward": math.inf, "cost": 1}, "reward must be a finite number, got inf"),
    ({"reward": -math.inf, "cost": 1}, "reward must be a finite number"),
    ({"reward": 0.5, "cost": 1}, "reward must be 0 or 1 for the bernoulli family, got 0.5"),
    ({"reward": "1", "cost": 1}, "reward must be a finite number, got '1'"),
    ({"reward": b"1", "cost": 1}, "reward must be a finite number, got b'1'"),
    ({"reward": None, "cost": 1}, "tell needs a reward"),
    ({"reward": [1], "cost": 1}, "reward must be a number"),
    ({"reward": 1}, "tell needs a cost"),
    ({"reward": 1, "cost": 0}, "cost must be positive, got 0"),
    ({"reward": 1, "cost": -1}, "cost must be positive, got -1"),
    ({"reward": 1, "cost": math.nan}, "cost must be a finite number"),
    ({"reward": 1, "cost": math.inf}, "cost must be a finite number"),
    ({"reward": 1, "cost": "1"}, "cost must be a finite number"),
    ({"failed": ""}, "failed must say why"),
    ({"failed": "  "}, "failed must say why"),
    ({"failed": True}, "failed must say why"),
    ({"failed": "x", "reward": 1}, "a failed pull has no reward"),
    ({"failed": "x", "cost": -1}, "cost must not be negative"),
    ({"failed": "x", "cost": math.nan}, "cost must be a finite number"),
]


@pytest.mark.parametrize(("values", "message"), BAD_TELLS)
def test_a_tell_that_makes_no_sense_is_refused_and_writes_nothing(values, message):
    study = new()
    start(study, [1, 0])
    pull = study.ask()
    before = tables(study)
    with pytest.raises(cabai.InvalidInput, match=message):
        study.tell(pull, **values)
    assert tables(study) == before
    study.tell(pull, 1, 1.0)


@pytest.mark.parametrize(
    ("family", "reward"), [("poisson", 0.5), ("poisson", -1), ("exponential", 0), ("exponential", -1), ("bounded", 1.1)]
)
def test_every_family_refuses_rewards_that_are_not_its_own(family, reward):
    study = new(family=family)
    pull = study.ask()
    before = tables(study)
    with pytest.raises(cabai.InvalidInput, match=f"for the {family} family, got {reward}"):
        study.tell(pull, reward, 1.0)
    assert tables(study) == before


def test_a_pull_that_was_never_handed_out_is_refused():
    study, other = new(), new()
    mine, theirs = study.ask(), other.ask()
    token = mine.id.partition("-")[0]
    before = tables(study)
    given = [
        theirs,
        theirs.id,
        f"{token}-2",
        f"{token}-0",
        f"{token}-01",
        f"{token}--1",
        f"{token}-1\n",
        token,
        "",
        "1",
    ]
    for pull in [*given, f"{token}-{10**30}", 1, None, "a", mine.id.upper() + "x"]:
        with pytest.raises(cabai.InvalidInput, match=r"is not the id of a pull|has handed out no pull"):
            study.tell(pull, 1, 1.0)
        with pytest.raises(cabai.InvalidInput, match=r"is not the id of a pull|has handed out no pull"):
            study.release(pull)
    for n in (0, -1, 1.5, True, "2"):
        with pytest.raises(cabai.InvalidInput, match="n must be a whole number of at least 1"):
            study.ask(n)
    for worker in (5, "x" * 201):
        with pytest.raises(cabai.InvalidInput, match="worker must be a text of at most 200 characters"):
            study.ask(worker=worker)
    assert tables(study) == before
    study.tell(mine.id, 1, 1.0)  # the id will do


@pytest.mark.parametrize("known", [False, True])
def test_telling_something_else_of_a_told_pull_is_refused_and_changes_nothing(known):
    study = new(costs=[1, 2, 3] if known else None)
    pull, failed = study.ask(2)
    study.tell(pull, 1, 1.0)
    study.tell(failed, failed="lost", cost=0.5)
    before = tables(study)
    study.tell(pull, 1, 1.0)
    study.tell(pull.id, True, 1)
    study.tell(failed, failed="lost", cost=0.5)
    if known:
        study.tell(pull, 1)  # its cost is 1
    for told, values in [
        (pull, {"reward": 0, "cost": 1.0}),
        (pull, {"reward": 1, "cost": 2.0}),
        (pull, {"failed": "x", "cost": 1.0}),
        (failed, {"failed": "another reason", "cost": 0.5}),
        (failed, {"failed": "lost", "cost": 1.0}),
        (failed, {"reward": 1, "cost": 0.5}),
    ]:
        with pytest.raises(cabai.AlreadyTold, match="that stands"):
            study.tell(told, **values)
    assert tables(study) == before


@pytest.mark.parametrize(
    ("family", "rewards", "cost"),
    [("gaussian", [1e308] * 20, 1.0), ("gaussian", [1.0] * 20, 1e308), ("poisson", [1e308] * 20, 1.0)],
)
def test_sums_that_no_number_can_hold_are_refused(family, rewards, cost):
    study = new(family=family, arms=["a", "b"])
    with pytest.raises(cabai.InvalidInput, match="too large to hold"):
        start(study, rewards, cost)
    json.dumps(study.status().to_dict(), allow_nan=False)
    assert study.status().pulls == len(study.observations())


@pytest.mark.parametrize(
    ("family", "rewards"),
    [
        ("gaussian", [1e200, -1e200, 1e200, 1e-200, 3e200, 1]),
        ("exponential", [1e20, 1.0, 1e-5, 1.0, 1e-5, 2.0]),
        ("exponential", [5e-324, 1e300, 1e-308, 1e-308, 1e-308, 5e-324]),
        ("poisson", [0, 1e300, 0, 1, 1e300, 0]),
        ("bounded", [0.0, 1.0, 5e-324, 1.0, 1e-300, 1 - 2**-53]),
    ],
)
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("epsilon", [0.0, 0.01])
def test_extreme_rewards_break_nothing(family, rewards, direction, epsilon):
    study = new(family=family, arms=["a", "b"], direction=direction, epsilon=epsilon, max_pulls=6)
    for reward in rewards:
        if not study.stopped:
            study.tell(study.ask(), reward, 1.0)
        status = study.status()
        json.dumps(status.to_dict(), allow_nan=False)
        assert str(status)
        assert 0 <= status.confidence <= 1 - status.delta


def test_text_that_a_database_cannot_hold_is_spelt_out():
    study = new()
    pull = study.ask(worker="half \ud800")
    study.tell(pull, failed="half \ud800 and \0")
    assert study.observations()[0]["failed"] == r"half \ud800 and \x00"
    study.tell(pull, failed="half \ud800 and \0")


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
        study = new(family=family, delta=1e-6, max_pulls=24, policy="uniform", direction=direction)
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
        assert "without a guarantee" in status.sentence
        assert status.confidence == pytest.approx(expected, abs=1e-9)
        positive += status.confidence > 0
        with pytest.raises(cabai.StudyStopped):
            study.ask()
    assert positive >= 1


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


def test_a_pull_under_way_counts_toward_the_cost_as_expected(clock):
    study = new(arms=["a", "b"], max_cost=10, policy="uniform", lease=100)
    start(study, [1, 0], cost=2.0)
    assert len(study.ask(9)) == 3  # 4 paid, 2 expected of each: the third is handed out with 8 of 10 used
    with pytest.raises(cabai.NoPull):
        study.ask()
    clock.now += 101
    again = study.ask(9)
    assert len(again) == 3
    study.tell(again[0], 1, 0.5)
    assert len(study.ask(9)) == 2  # 4.5 paid, 2 and 1.25 expected of those under way, 2 of one more: 9.75 of 10
    study.tell(again[1], 1, 5.5)
    assert study.status().reason == "max_cost"
    assert study.status().spent == 10.0
    study.tell(again[2], 0, 3.0)  # what comes late is paid and kept
    assert (study.status().spent, study.status().late) == (13.0, 1)


def test_an_arm_that_only_fails_does_not_use_up_the_budget():
    study = new(max_cost=100)
    study.tell(study.ask(), failed="no", cost=1.0)
    assert [study.ask().arm for _ in range(3)] == ["a", "b", "c"]


def test_budgets_below_the_number_of_arms():
    study = new(max_pulls=2)
    start(study, [0, 1])
    status = study.status()
    assert (status.reason, status.leader, status.confidence, status.decision) == ("max_pulls", "b", 0.0, None)
    assert "confidence 0 " in status.sentence
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
    assert [study.ask().arm for _ in range(2)] == ["b", "b"]  # a has become dear: 4.5 · 1² against 1 · 1², 1 · 2²
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
    assert told[0][3].startswith("3 of 4 pulls of arm 'a' failed. The guarantee is about the mean reward of pulls that")
    assert study.status().warnings == [told[0][3].replace("3 of 4", "12 of 13").removesuffix(" The last: no")]
    assert "Warning: 12 of 13 pulls" in str(study)
    assert "12 failed" in str(study)


# --- Status ---------------------------------------------------------------------------------------------------------


def log_wealth(family: str, n: int, r: float, f: float, mean: float, variance: float = 1.0) -> float:
    """log of the mixture over the likelihood at `mean`, of one arm's data, given the first reward but for bernoulli."""
    s, rest = r - f, n - 1
    mixture = reference.log_mixture(family, n, r, f, variance)
    if family in ("bernoulli", "bounded"):
        return mixture - (r * math.log(mean) if r > 0 else 0.0) - ((n - r) * math.log1p(-mean) if n > r else 0.0)
    if family == "gaussian":
        return mixture - (s * mean - rest * mean**2 / 2) / variance
    if family == "poisson":
        return mixture - (s * math.log(mean) if s > 0 else 0.0) + rest * mean
    return mixture + rest * math.log(mean) + s / mean


def settings_of(family: str, arms: int, delta: float, direction: str = "maximize") -> Settings:
    return Settings.checked(
        arms=[str(a) for a in range(arms)], family=family, delta=delta, policy="uniform", threshold="paper",
        epsilon=0.0, direction=direction, costs=None, max_cost=None, max_pulls=None, lease=1.0, seed=0,
    )  # fmt: skip


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "bounded", "poisson", "exponential"])
def test_an_interval_is_where_the_mixture_has_gained_too_little_to_rule_a_mean_out(family, direction):
    """{q : log(mixture / likelihood at q) <= log(K / delta)}, whose ends are found here by bisection."""
    rng = np.random.default_rng(6)
    draws = {
        "gaussian": lambda n: rng.normal(0.3, 1, n),
        "bernoulli": lambda n: (rng.uniform(size=n) < rng.choice([0.5, 0.02, 1.0])).astype(float),
        "bounded": lambda n: rng.uniform(size=n),
        "poisson": lambda n: rng.poisson(rng.choice([0.1, 3, 40]), n).astype(float),
        "exponential": lambda n: rng.exponential(2, n),
    }
    lowest, highest = {"gaussian": (-1e6, 1e6), "poisson": (1e-12, 1e6), "exponential": (1e-12, 1e9)}.get(
        family, (1e-14, 1 - 1e-14)
    )
    settings = settings_of(family, 4, 0.05, direction)
    for n in (1, 2, 3, 10, 200):
        play, rewards = Play(settings), draws[family](n)
        for reward in rewards:
            play.observe(0, settings.seen(float(reward)), 1.0)
        low, high = play.interval(0)
        assert play.interval(1) == settings.family.mean_range
        if n == 1 and family not in ("bernoulli", "bounded"):
            assert (low, high) == settings.family.mean_range
            continue
        r, f = math.fsum(rewards), float(rewards[0])
        centre = r / n if family in ("bernoulli", "bounded") else (r - f) / (n - 1)

        def gained(q, n=n, r=r, f=f):
            return log_wealth(family, n, r, f, q) - math.log(4 / 0.05)

        for end, edge in ((low, lowest), (high, highest)):
            inside = min(max(centre, lowest), highest)
            if gained(edge) <= 0:
                assert end == pytest.approx(settings.family.mean_range[edge == highest], abs=1e-9)
            else:
                assert end == pytest.approx(brentq(gained, edge, inside, xtol=1e-13), rel=1e-6, abs=1e-9)


INTERVALS = {
    "gaussian": cabai.Instance("gaussian", [0.2, 0.0, 1.0], [1, 1, 1]),
    "bernoulli": cabai.Instance("bernoulli", [0.5, 0.05, 0.99], [1, 1, 1]),
    "poisson": cabai.Instance("poisson", [0.2, 1.0, 5.0], [1, 1, 1]),
}


def misses(instance: cabai.Instance, delta: float):
    """A stopping rule: has the interval of some arm lost its mean? The same formula as `log_wealth`, to be compiled."""
    family = ["gaussian", "bernoulli", "poisson"].index(instance.family.name)
    m_0, m_1, m_2 = instance.means.tolist()
    level = math.log(3 / delta)

    def some_interval_misses(arms, run, rules):
        for a in range(3):
            arm = arms[a]
            mean = m_0 if a == 0 else (m_1 if a == 1 else m_2)
            n, r, f = arm.pulls, arm.rewards, arm.first
            if family == 1:
                mixture = math.lgamma(r + 0.5) + math.lgamma(n - r + 0.5) - math.lgamma(n + 1.0) - math.log(math.pi)
                truth = r * math.log(mean) + (n - r) * math.log(1.0 - mean)
            elif n < 2:
                continue
            elif family == 0:
                mixture = -0.5 * math.log(n) + 0.5 * (r * r / n - f * f)
                truth = (r - f) * mean - 0.5 * (n - 1) * mean * mean
            else:
                mixture = math.lgamma(r + 0.5) - (r + 0.5) * math.log(n) - math.lgamma(f + 0.5)
                truth = (r - f) * math.log(mean) - (n - 1) * mean
            if mixture - truth > level:
                return True
        return False

    return some_interval_misses


def check_coverage(family: str, trajectories: int, most: int) -> None:
    from cabai.policies.uniform import choose

    instance, delta = INTERVALS[family], 0.1
    watch = cabai.policy(choose, stop=misses(instance, delta), cost_blind=True)
    runs = cabai.simulate(
        instance, watch, threshold="evalue", delta=delta, trajectories=trajectories, max_pulls=most, seed=2
    )
    missed = int(runs.finished.sum())
    assert missed <= binom.isf(1e-6 / 3, trajectories, delta)
    assert missed >= binom.isf(1 - 1e-9, trajectories, delta / 100)  # the watch does see


@pytest.mark.parametrize("family", INTERVALS)
def test_intervals_hold_for_all_arms_at_all_times(family):
    """4,000 trajectories of 600 pulls; the share in which any interval ever misses its mean is at most delta = 0.1."""
    check_coverage(family, 4000, 600)


@pytest.mark.slow
@pytest.mark.parametrize("family", INTERVALS)
def test_intervals_hold_for_all_arms_at_all_times_in_the_long_run(family):
    check_coverage(family, 40_000, 20_000)


@pytest.mark.parametrize("policy", POLICIES.names)
def test_the_remaining_cost_is_the_bound_of_the_estimates_times_the_evidence_that_is_missing(policy):
    instance = cabai.Instance("gaussian", [2.0, 1.0, 0.0], [1, 0.1, 0.3], cost_model="uniform")
    study, draw = new(family="gaussian", policy=policy, delta=0.1), drawer(instance, 1, 0)
    checked = 0
    while not study.stopped:
        pull = study.ask()
        study.tell(pull, *draw("abc".index(pull.arm)))
        status = study.status()
        if status.stopped or status.required is None:
            continue
        missing = max(status.required - status.evidence, 0.0)
        assert status.remaining_cost >= 0
        if missing > 0:
            assert status.remaining_cost > 0
        estimate = cabai.Instance("gaussian", [a.mean for a in status.arms], [a.cost for a in status.arms])
        assert status.remaining_cost == pytest.approx(cabai.bound(estimate).hardness * missing, rel=1e-4)
        checked += 1
    assert checked > 3
    assert study.status().remaining_cost == 0.0


def test_evidence_and_what_is_required_of_it_are_those_of_the_closest_rival():
    study = new(policy="uniform", threshold="evalue", delta=0.05)
    start(study, [1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1])
    data = {arm: [o["reward"] for o in study.observations() if o["arm"] == arm] for arm in "abc"}
    status = study.status()
    b = status.leader
    assert b == max("abc", key=lambda arm: (np.mean(data[arm]), -"abc".index(arm)))
    left = {
        a: reference.log_evalue(
            "bernoulli", len(data[b]), sum(data[b]), data[b][0], len(data[a]), sum(data[a]), data[a][0]
        )
        for a in "abc"
        if a != b
    }
    assert status.rival == min(left, key=left.get)
    assert status.evidence - status.required == pytest.approx(min(left.values()) - math.log(2 / 0.05), abs=1e-9)
    z = reference.evidence("bernoulli", len(data[b]), sum(data[b]), len(data[status.rival]), sum(data[status.rival]))
    assert status.evidence == pytest.approx(max(z, 0.0), abs=1e-9)


@pytest.mark.parametrize("policy", ["co", "tas", "d-lucb"])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "exponential"])
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_status_is_json_at_every_moment(policy, family, direction):
    study = new(family=family, policy=policy, direction=direction, epsilon=0.01, max_cost=6.5)
    seen = set()
    while True:
        status = study.status()
        text = json.dumps(status.to_dict(), allow_nan=False)
        assert json.loads(text)["name"] == study.name
        assert status.sentence in str(status)
        seen.add(status.sentence.split()[0])
        if status.stopped:
            break
        study.tell(study.ask(), 1, 1.0)
    assert {"Nothing", "Stopped"} <= seen
    assert len(status.arms) == 3


def test_what_a_status_says_before_any_reward():
    study = new()
    assert study.status().sentence == "Nothing observed yet."
    study.tell(study.ask(), failed="no answer", cost=0.5)
    assert study.status().sentence == "No reward yet: 1 failed. 0.5 spent."


def test_what_a_status_says_as_a_study_goes_on():
    study = new(arms=["small", "large"], delta=0.01, policy="uniform", max_pulls=100)
    study.tell(study.ask(), 0, 0.5)
    assert study.status().sentence == "small leads so far; too few pulls for evidence. 0.5 spent."
    while not study.stopped:
        pull = study.ask()
        study.tell(pull, pull.arm == "large", 0.5)
        status = study.status()
        if status.pulls == 6:
            lines = str(status).splitlines()
            assert lines[0] == f"{study.name}: bernoulli, maximize, delta 0.01, policy uniform, threshold evalue"
            assert lines[1].split() == ["arm", "pulls", "mean", "0.99", "interval", "mean", "cost", "spent"]
            assert lines[2].split()[:3] == ["small", "3", "0"]
            assert lines[3].split()[-1] == "leads"
            assert lines[4].startswith("large leads; evidence over small 4.16 of ")
            assert "3 spent, about " in lines[4]
    n = study.status().pulls
    assert study.status().sentence == (
        f"Decided: large has the largest mean, wrong with probability at most 0.01; {n / 2:g} spent on {n} pulls."
    )
    assert str(study).splitlines()[3].split()[-1] == "best"
    assert repr(study) == f"Study({study.name!r}, arms=['small', 'large'], storage='memory')"


@pytest.mark.parametrize(
    ("cost", "shown"), [(0, "0"), (0.0123456, "0.0123"), (10.34, "10.3"), (3298.4, "3300"), (123456, "123000")]
)
def test_what_remains_to_be_paid_is_said_roughly_and_without_exponents(cost, shown):
    assert roughly(cost) == shown


def test_a_status_says_what_is_not_proven_and_what_is_enough():
    study = new(family="gaussian", threshold="stylized", epsilon=0.5, policy="uniform", direction="minimize")
    start(study, [1, 2, 3])
    assert study.status().warnings == ["threshold stylized: not proven for this family."]
    assert not study.status().proven
    while not study.stopped:
        start(study, [1.0])
    assert "has a mean within 0.5 of the smallest mean" in study.status().sentence


def test_observations_as_a_table(clock):
    study = new(arms=["a", "b"])
    pull = study.ask(worker="w")
    clock.now += 2
    study.tell(pull, 1, 0.25)
    frame = study.to_frame()
    assert frame.columns.tolist() == ["pull", "arm", "reward", "cost", "failed", "asked", "told", "worker", "late"]
    assert frame.loc[0, ["arm", "reward", "cost", "worker", "late"]].tolist() == ["a", 1.0, 0.25, "w", False]
    assert (frame.loc[0, "told"] - frame.loc[0, "asked"]).total_seconds() == pytest.approx(2)
    assert str(frame["told"].dt.tz) == "UTC"
    assert len(new().to_frame()) == 0


# --- run ------------------------------------------------------------------------------------------------------------

ONES = {"a": 1, "b": 0, "c": 0}


@pytest.mark.parametrize("workers", [1, 4])
def test_run_pulls_until_the_study_stops(workers):
    study, calls = new(delta=0.1), []

    def test(arm):
        calls.append(arm)
        return ONES[arm], 0.5

    status = study.run(test, workers=workers)
    assert (status.decision, study.decision) == ("a", "a")
    told = study.observations()
    assert len(calls) == len(told) == status.pulls
    assert status.spent == pytest.approx(0.5 * len(calls))
    assert len({each["worker"] for each in told}) <= workers
    assert status.under_way == 0
    assert study.run(test, workers=workers) == status  # nothing left to do
    assert len(calls) == len(told)


@pytest.mark.parametrize("result", [(1, 0.5), {"reward": 1, "cost": 0.5}, {"reward": True, "cost": 0.5}])
def test_run_reads_what_a_test_returns(result):
    study = new(max_pulls=4)
    study.run(lambda arm: result)
    assert [(each["reward"], each["cost"]) for each in study.observations()] == [(1.0, 0.5)] * 4


def test_run_takes_the_reward_alone_where_costs_are_known():
    study = new(max_pulls=4, costs=[1, 2, 3])
    study.run(lambda arm: 1)
    assert study.status().spent == pytest.approx(sum({"a": 1, "b": 2, "c": 3}[o["arm"]] for o in study.observations()))
    assert study.status().failures == 0


@pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
@pytest.mark.parametrize(
    ("result", "why", "cost"),
    [
        ((0.5, 2.0), "reward must be 0 or 1", 2.0),
        ((1, -2.0), "cost must be positive", 0.0),
        ((1, 2, 3), "must return (reward, cost)", 0.0),
        ({"reward": 1, "price": 2}, "must return a reward and a cost", 0.0),
        ({"cost": 2.0}, "must return a reward and a cost", 0.0),
        (1, "tell needs a cost", 0.0),
        (None, "must return (reward, cost), got None", 0.0),
        ("1", "must be a finite number", 0.0),
        (Failed("no luck", 2.0), "no luck", 2.0),
        (Failed("no luck"), "no luck", 0.0),
        (ValueError("boom"), "ValueError: boom", 0.0),
    ],
)
def test_run_tells_a_pull_without_a_legal_result_as_failed(result, why, cost):
    def test(arm):
        if isinstance(result, Exception):
            raise result
        return result

    study = new()
    with pytest.raises(cabai.RunFailed, match=r"arm 'a' failed 3 times in a row, the last time with: ") as failure:
        study.run(test, max_failures=3)
    assert why in str(failure.value)
    assert f". The study {study.name!r} is kept" in str(failure.value)
    assert ".. The study" not in str(failure.value)
    told = study.observations()
    assert [(each["arm"], each["reward"], each["cost"]) for each in told] == [("a", None, cost)] * 3
    assert all(why in each["failed"] for each in told)
    status = study.run(lambda arm: (ONES[arm], 1.0))  # the study is as it was, and goes on
    assert (status.decision, status.failures) == ("a", 3)


@pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
def test_failures_that_are_not_in_a_row_do_not_end_a_run():
    study, calls = new(arms=["a", "b"]), {"a": 0, "b": 0}

    def test(arm):
        calls[arm] += 1
        if calls[arm] % 3:
            raise OSError("again")
        return ONES[arm], 1.0

    assert study.run(test, max_failures=3).decision == "a"


@pytest.mark.parametrize("test", [5, None, "co"])
def test_run_needs_a_function(test):
    study = new()
    before = tables(study)
    with pytest.raises(cabai.InvalidInput, match="test must be a function"):
        study.run(test)
    for options in ({"workers": 0}, {"workers": 1.5}, {"max_failures": 0}):
        with pytest.raises(cabai.InvalidInput, match="must be a whole number of at least 1"):
            study.run(lambda arm: (1, 1.0), **options)
    assert tables(study) == before


def test_an_interrupt_from_progress_leaves_a_study_that_can_be_run_again():
    study, done = new(), itertools.count(1)

    def progress():
        if next(done) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(lambda arm: (ONES[arm], 1.0), progress=progress)
    status = study.status()
    assert (status.pulls, status.under_way, status.stopped, status.failures) == (5, 0, False, 0)
    assert study.run(lambda arm: (ONES[arm], 1.0)).decision == "a"


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interrupt_by_signal_waits_for_the_tests_under_way(workers):
    study, calls = new(), itertools.count(1)

    def test(arm):
        if next(calls) == 7:
            signal.raise_signal(signal.SIGINT)
        return ONES[arm], 1.0

    with pytest.raises(KeyboardInterrupt):
        study.run(test, workers=workers)
    status = study.status()
    assert status.pulls >= 7
    assert (status.under_way, status.failures) == (0, 0)
    assert study.run(lambda arm: (ONES[arm], 1.0)).decision == "a"


def test_a_test_cut_short_by_an_interrupt_gives_its_pull_back():
    """Its failure is no fault of the arm's: nothing is told, and the pull is offered again."""
    from cabai.study.runner import run

    study, over, calls = new(), threading.Event(), itertools.count(1)

    def test(pull):
        if next(calls) == 4:
            signal.raise_signal(signal.SIGINT)
            assert over.wait(10)
            raise RuntimeError("killed")
        return ONES[pull.arm], 1.0

    with pytest.raises(KeyboardInterrupt):
        run(study, test, over=over)
    status = study.status()
    assert (status.pulls, status.failures) == (3, 0)
    assert study.ask().number == 4
    study.release(f"{study._token}-4")
    assert run(study, lambda pull: (ONES[pull.arm], 1.0)).decision == "a"


def test_an_interrupt_while_the_workers_start_leaves_none_of_them_at_work(monkeypatch):
    """The pool waits for the threads it knows, and it does not know one whose start was interrupted."""
    study, tried, start = new(), threading.Event(), threading.Thread.start

    def test(arm):
        tried.set()
        return ONES[arm], 1.0

    def interrupted(thread):
        start(thread)
        tried.wait(0.2)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            study.run(test)
    assert not tried.wait(0.2)
    status = study.status()
    assert (status.pulls, status.under_way, status.stopped) == (0, 0, False)
    assert study.run(test).decision == "a"


def test_a_test_that_exits_gives_its_pull_back():
    study = new()

    def test(arm):
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        study.run(test)
    assert study.observations() == []
    assert study.ask().number == 1


def test_several_workers_do_not_pull_beyond_the_budget():
    study = new(max_pulls=30, delta=1e-9)
    status = study.run(lambda arm: (1, 1.0), workers=4)
    assert (status.pulls, status.reason, status.under_way, status.late) == (30, "max_pulls", 0, 0)


# --- Names ----------------------------------------------------------------------------------------------------------

OTHER = [
    ({"delta": 0.1}, "its delta is 0.05, not 0.1"),
    ({"family": "bounded"}, "its family is bernoulli, not bounded"),
    ({"policy": "ctas"}, "its policy is co, not ctas"),
    ({"threshold": "kt"}, "its threshold is evalue, not kt"),
    ({"epsilon": 0.01}, "its epsilon is 0.0, not 0.01"),
    ({"direction": "minimize"}, "its direction is maximize, not minimize"),
    ({"arms": ["a", "c", "b"]}, r"its arms is \['a', 'b', 'c'\], not \['a', 'c', 'b'\]"),
    ({"arms": {"a": 1, "b": 2, "c": 3}}, "its metadata is {}, not {'a': 1, 'b': 2, 'c': 3}"),
    ({"costs": [1, 2, 3]}, r"its costs is None, not \[1.0, 2.0, 3.0\]"),
    ({"max_cost": 5}, "its max_cost is None, not 5.0"),
    ({"max_pulls": 5}, "its max_pulls is None, not 5"),
    ({"lease": 5}, "its lease is 3600.0, not 5.0"),
    ({"seed": 5}, "its seed is 0, not 5"),
    ({"delta": 0.1, "seed": 5}, "its delta is 0.05, not 0.1; its seed is 0, not 5"),
]


@pytest.mark.parametrize(("options", "message"), OTHER)
def test_a_study_with_other_settings_is_not_loaded_and_the_error_says_which(options, message):
    study = new()
    start(study, [1])
    usual = {"arms": ["a", "b", "c"], "family": "bernoulli", "policy": "co", "storage": "memory"}
    before = tables(study)
    with pytest.raises(cabai.InvalidInput, match=f"there is a study {study.name!r} with other settings: {message}"):
        cabai.create_study(study.name, **usual | options, load_if_exists=True)
    with pytest.raises(cabai.InvalidInput, match="there is a study"):
        cabai.create_study(study.name, **usual)
    assert tables(study) == before
    again = cabai.create_study(study.name, **usual, load_if_exists=True)
    assert again.status() == study.status()


def test_settings_come_back_as_they_were_given():
    study = new(
        arms={"x": {"model": "small", "prices": [1, 2.5, None]}, "y": None},
        family=cabai.families.Gaussian(variance=1 / 3),
        policy="ctas(exploration=0.1, tracking=ratio)", threshold="paper(alpha=1.25, B=3)", epsilon=1e-300, delta=1e-9,
        direction="minimize", costs=[1e-9, 7], max_cost=1e6, max_pulls=10**12, lease=0.5, seed=2**63 - 1,
    )  # fmt: skip
    assert reloaded(study).settings == study.settings
    assert study.settings.family.variance == 1 / 3
    pull = study.ask()
    assert (pull.arm, pull.metadata) == ("x", {"model": "small", "prices": [1, 2.5, None]})
    assert study.ask().metadata is None


def test_studies_are_listed_found_and_deleted_by_name():
    study = new()
    start(study, [1, 0])
    pull = study.ask()
    assert study.name in cabai.list_studies(storage="memory")
    cabai.delete_study(study.name, storage="memory")
    assert study.name not in cabai.list_studies(storage="memory")
    for forgotten in (
        lambda: cabai.load_study(study.name, storage="memory"),
        lambda: cabai.delete_study(study.name, storage="memory"),
        study.ask,
        study.status,
        study.observations,
        lambda: study.tell(pull, 1, 1.0),
        lambda: study.release(pull),
        lambda: study.stopped,
    ):
        with pytest.raises(cabai.StudyNotFound, match=study.name):
            forgotten()
    twin = cabai.create_study(study.name, arms=["a", "b", "c"], family="bernoulli", storage="memory")
    assert twin.status().pulls == 0  # nothing of the old one is left
    with pytest.raises(cabai.StudyNotFound):
        study.ask()  # the old one is not the new one
    with pytest.raises(cabai.InvalidInput, match="not the id of a pull"):
        twin.tell(pull, 1, 1.0)
