"""Arms that join a study that runs, or are dropped from it by hand."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

import cabai
from cabai.errors import AlreadyTold
from combinations import covering
from shell import here
from studies import new, reloaded, start, tables

POLICIES = ["top-two", "ctas", "tas", "uniform"]
EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"


def run(study, means, most=10_000, seed=1):
    chance = random.Random(seed)
    for _ in range(most):
        if study.stopped:
            break
        pull = study.ask()
        study.tell(pull, int(chance.random() < means[pull.arm]), 1.0)
    return study.status()


@pytest.mark.parametrize(("policy", "reserve"), covering(POLICIES, [None, 0.2]))
def test_a_dropped_arm_is_not_pulled_and_not_the_answer(policy, reserve):
    means = {"a": 0.95, "b": 0.8, "c": 0.1, "d": 0.1}
    study = new(arms=list(means), policy=policy, reserve=reserve)
    run(study, means, 30)
    before = study.status()
    assert not before.stopped
    study.drop("a", by="ann")
    study = reloaded(study)
    found = run(study, means)
    assert found.decision == "b"
    assert found.arms[0].pulls == before.arms[0].pulls
    assert found.dropped == ["a"]
    error = 0.1 if reserve is None else 0.05
    assert found.statement == f"b has the largest mean among the arms still in, wrong with probability at most {error}"
    assert found.confidence == 1 - error
    assert study.amendments()[0]["changes"] == {"dropped": [[], ["a"]]}
    assert "dropped" in str(found)


@pytest.mark.parametrize("policy", POLICIES)
def test_with_an_arm_dropped_the_rest_are_pulled_as_in_a_study_of_their_own(policy):
    """From the same results on, as far as the policy looks at nothing but arms: coins apart."""
    policy = "top-two(randomized=false)" if policy == "top-two" else policy
    means = {"a": 0.5, "b": 0.5, "c": 0.5}
    three = new(arms=list(means), policy=policy, delta=1e-6)
    two = new(arms=["b", "c"], policy=policy, delta=1e-6)
    for study in (three, two):
        for pull in study.ask(len(study.arms)):
            study.tell(pull, int(pull.arm == "b"), 1.0)
    three.drop("a")
    chance = random.Random(2)
    for _ in range(60):
        first, second = three.ask(), two.ask()
        assert first.arm == second.arm
        reward = int(chance.random() < 0.5)
        three.tell(first, reward, 1.0)
        two.tell(second, reward, 1.0)
        three = reloaded(three)


def test_pulls_under_way_of_a_dropped_arm_are_withdrawn_and_what_waited_for_them_counts():
    study = new(policy="uniform")
    first, second, third = study.ask(3)
    study.tell(second, 1, 1.0)
    study.tell(third, 0, 1.0)
    assert (study.status().pulls, study.status().waiting) == (0, 2)
    study.drop("a")
    status = study.status()
    assert (status.pulls, status.waiting, status.leader) == (2, 0, "b")
    study.tell(first, 1, 2.5)  # after all: it is paid, and counts nowhere
    status = study.status()
    assert (status.pulls, status.discarded, status.spent) == (2, 1, 4.5)
    assert [each["counted"] for each in study.observations()] == [True, True, False]
    with pytest.raises(AlreadyTold):
        study.tell(first, 0, 2.5)
    study.tell_counts({"b": (10, 5, 1.0), "c": (10, 5, 1.0)})  # which is refused while pulls are under way
    assert study.status().pulls == 22


def test_an_arm_without_a_reward_may_be_dropped_and_the_leader_wins_as_its_last_rival_is():
    study = new(policy="top-two", arms=["a", "b", "c", "d"])
    start(study, [1, 1, 0])
    study.drop("d")
    assert {each.arm for each in study.ask(9)} <= {"a", "b", "c"}
    assert reloaded(study).status().leader == "a"
    study = new(policy="uniform")
    run(study, {"a": 1.0, "b": 1.0, "c": 0.0}, 45)
    assert not study.stopped
    study.drop("b")
    assert (study.decision, study.status().reason) == ("a", "evidence")


def test_two_arms_must_be_left_and_a_drop_made_again_is_none():
    study = new(policy="top-two")
    study.drop("a")
    study.drop("a")
    assert len(study.amendments()) == 1
    with pytest.raises(cabai.InvalidInput, match=r"only two arms are left: without 'b' there is nothing to.*stop"):
        study.drop("b")
    with pytest.raises(cabai.InvalidInput, match="there is no arm 'x': the arms are a, b, c"):
        study.drop("x")
    for reserve in (0, 1, 0.6, -1, "much", math.nan):
        with pytest.raises(cabai.InvalidInput, match="reserve must be"):
            new(policy="top-two", reserve=reserve)


def test_where_there_is_no_proof_there_is_no_drop_and_no_reserve(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    tests, top_two = "contrast, evalue or bets, got", {"policy": "top-two"}
    cheapest = {"goal": "cheapest", "epsilon": 0.1, "slack": 0.05, "costs": [1, 2, 3]}
    for options, message in (
        ({"policy": "co"}, "with policy top-two, ctas, tas or uniform, got co"),
        ({"policy": "racing"}, "got racing"),
        ({"policy": "d-lucb"}, "got d-lucb"),
        ({"policy": "own_policy:closest_rival"}, "got (own_policy:)?closest.rival"),
        (top_two | {"threshold": "stylized"}, f"{tests} stylized"),
        (top_two | {"threshold": "mixture", "family": "gaussian"}, f"{tests} mixture"),
        (top_two | {"family": None, "items": 10, "race": "champion"}, "join only a paired race, got 'champion'"),
        ({"policy": "cheapest"} | cheapest, "only if its goal is the best arm, got goal 'cheapest'"),
    ):
        study = new(**options)
        before = tables(study)
        with pytest.raises(cabai.InvalidInput, match=message):
            study.drop("a")
        assert tables(study) == before
        with pytest.raises(cabai.InvalidInput, match=message):
            new(**options, reserve=0.1)


@pytest.mark.parametrize("delta", [0.5, 0.6])
def test_an_arm_is_not_dropped_where_the_bound_would_say_nothing(delta):
    study = new(policy="top-two", delta=delta)
    before = tables(study)
    with pytest.raises(cabai.InvalidInput, match=r"at most 2 delta = 1.*, which says nothing\. If arms .* reserve"):
        study.drop("c")
    assert tables(study) == before
    kept = new(policy="top-two", delta=delta, reserve=0.2)
    kept.drop("c")
    run(kept, {"a": 0.9, "b": 0.1})
    assert reloaded(kept).status().confidence == pytest.approx(1 - delta)


def test_an_arm_that_was_dropped_does_not_join_again():
    study = new(policy="top-two", reserve=0.2)
    study.add_arm("x")
    study.drop("x")
    study.drop("a")
    before = tables(study)
    for arm in "xa":
        with pytest.raises(cabai.InvalidInput, match=f"arm '{arm}' was dropped for good"):
            study.add_arm(arm)
    assert tables(study) == before
    study.add_arm("y")
    study.add_arm("y")  # the same again, as after a lost answer
    study.stop()
    with pytest.raises(cabai.InvalidInput, match="has stopped: its arms can no longer change"):
        study.add_arm("y")


@pytest.mark.parametrize(("policy", "known"), covering(POLICIES, [True, False]))
def test_an_arm_that_joins_is_pulled_at_once_and_may_be_the_answer(policy, known):
    means = {"a": 0.3, "b": 0.2, "new": 0.9}
    study = new(arms=["a", "b"], policy=policy, costs=[1, 1] if known else None, reserve=0.1)
    other = reloaded(study)
    run(study, means, 10)
    study.add_arm("new", cost=1.0 if known else None, metadata={"model": "m3"}, by="ann")
    assert (study.arms, study.status().joined) == (("a", "b", "new"), ["new"])
    first = other.ask()  # a handle that knew nothing of it
    assert (first.arm, first.metadata) == ("new", {"model": "m3"})
    busy = other.ask(6)
    assert {each.arm for each in busy} <= {"a", "b"}  # until something is known of it
    for pull in [first, *busy]:
        other.tell(pull, int(pull.arm == "new"), 1.0)
    found = run(reloaded(study), means)
    assert found.decision == "new"
    assert found.statement == "new has the largest mean, wrong with probability at most 0.05"


def test_nothing_is_decided_before_an_arm_that_joined_is_beaten():
    means = {"a": 1.0, "b": 0.0, "new": 1.0}
    study = new(arms=["a", "b"], policy="uniform", reserve=0.1, max_pulls=80)
    run(study, means, 6)
    study.add_arm("new")
    found = run(study, means)
    assert (found.decision, found.reason) == (None, "max_pulls")


@pytest.mark.parametrize("threshold", ["contrast", "evalue", "bets"])
def test_the_level_is_that_of_the_formula(threshold):
    """log(1/(delta w v)), computed again here, and what a status says is required."""
    study = new(arms=["a", "b", "c", "d"], policy="uniform", threshold=threshold, reserve=0.2, delta=0.1)
    start(study, [1, 0, 0, 0])
    assert level_of(study) == pytest.approx(math.log(4 / 0.8) - math.log(0.8) - math.log(0.1), abs=1e-9)
    study.drop("d")
    assert level_of(study) == pytest.approx(math.log(4 / 0.8) + math.log(2 / 0.2) - math.log(0.1), abs=1e-9)
    study.drop("c")
    assert level_of(study) == pytest.approx(math.log(4 / 0.8) + math.log(4 / 0.2) - math.log(0.1), abs=1e-9)
    study.add_arm("e")
    study.add_arm("f")
    start(study, [0, 1, 0, 0, 1, 1, 0, 0])
    leader = study.status().leader
    weights = {"a": 0.8 / 4, "b": 0.8 / 4, "e": 0.2 / (2 * 2), "f": 0.2 / (4 * 4)}
    assert level_of(study) == pytest.approx(-math.log(0.1 * weights[leader] * 0.2 / 4), abs=1e-9)
    plain = new(arms=["a", "b", "c"], policy="uniform", threshold=threshold, delta=0.1)
    start(plain, [1, 0, 0])
    plain.drop("c")
    assert level_of(plain) == pytest.approx(math.log(2 / 0.1) + math.log(2), abs=1e-9)


def level_of(study):
    """What is required of the leader, without the arms' own prices."""
    play = study._current.look(lambda state: state)
    return float(play.rules_of(play.leader)["level"])


def test_confidences_and_intervals_pay_too():
    with_reserve, without = (new(arms=["a", "b"], policy="uniform", reserve=reserve) for reserve in (0.2, None))
    for study in (with_reserve, without):
        start(study, [1, 0] * 3)
    mine, its = with_reserve.status(), without.status()
    assert 0 < mine.confidence < its.confidence < 0.95
    wrong = 1 - its.confidence
    assert mine.confidence == pytest.approx(1 - wrong * 2 / 0.8 / 0.8, abs=1e-6)
    assert mine.arms[0].low < its.arms[0].low
    with_reserve.add_arm("c")
    assert with_reserve.status().arms[0].low == pytest.approx(mine.arms[0].low, rel=1e-12)


def test_bad_arms_do_not_join():
    for options, given, message in (
        ({}, {"arm": "d"}, "was created without a reserve"),
        ({"reserve": 0.1}, {"arm": "a"}, "there is already an arm 'a'"),
        ({"reserve": 0.1}, {"arm": ""}, "arm"),
        ({"reserve": 0.1}, {"arm": "x" * 201}, "an arm's name must be"),
        ({"reserve": 0.1}, {"arm": 7}, "an arm's name must be a string"),
        ({"reserve": 0.1}, {"arm": "d", "cost": 1.0}, "measures costs: leave cost out"),
        ({"reserve": 0.1, "costs": [1, 1, 1]}, {"arm": "d"}, "was created with known costs: give cost"),
        ({"reserve": 0.1, "costs": [1, 1, 1]}, {"arm": "d", "cost": -1}, "must not be negative"),
        ({"reserve": 0.1}, {"arm": "d", "metadata": {1, 2}}, "metadata must be valid as JSON"),
    ):
        study = new(policy="top-two", **options)
        before = tables(study)
        with pytest.raises(cabai.InvalidInput, match=message):
            study.add_arm(given.pop("arm"), **given)
        assert tables(study) == before


def test_the_arms_of_a_study_that_has_stopped_are_what_they_were():
    options = {"arms": ["a", "b", "c"], "family": "bernoulli", "policy": "top-two", "reserve": 0.1, "max_pulls": 3}
    study = new(**options)
    start(study, [1, 1, 1])
    for change in (lambda: study.drop("a"), lambda: study.add_arm("d")):
        with pytest.raises(cabai.InvalidInput, match=r"its arms can no longer change. Raise its budget with amend"):
            change()
    study.amend(max_pulls=20)
    study.add_arm("d")
    study.drop("a")
    for arms in (["a", "b", "c"], ["a", "b", "c", "d"]):  # the call that created it finds it all the same
        again = options | {"arms": arms, "storage": "memory"}
        found = cabai.create_study(study.name, **again, load_if_exists=True)
        assert (found.arms, found.settings.dropped) == (("a", "b", "c", "d"), ("a",))


def test_from_the_shell_and_in_a_file(tmp_path):
    text = 'family = "bernoulli"\nreserve = 0.1\nmax_pulls = 4\nfunction = "tests_of_arms:one"\nstorage = "sqlite:///s.db"\n'
    (tmp_path / "tests_of_arms.py").write_text("def one(arm):\n    return int(arm == 'c'), 1.0\n")
    (tmp_path / "study.toml").write_text(text + 'arms = ["a", "b"]\n')
    storage = ["--storage", f"sqlite:///{tmp_path}/s.db"]
    assert here("run", "study.toml", cwd=tmp_path).returncode == 3
    here("study", "amend", "study", "--max-pulls", "500", *storage)
    done = here("study", "add-arm", "study", "c", "--by", "ann", *storage)
    assert 'by ann: arms: ["a", "b"] -> ["a", "b", "c"]' in done.stdout
    assert "arm 'c' has joined the study 'study': add it here" in here("run", "study.toml", cwd=tmp_path).stderr
    (tmp_path / "study.toml").write_text(text + 'arms = ["a", "b", "c"]\n')
    here("study", "drop", "study", "a", *storage)
    done = here("run", "study.toml", cwd=tmp_path)
    assert (done.returncode, "Decided: c has the largest mean among the arms still in" in done.stdout) == (0, True)
    assert "there is no arm 'x'" in here("study", "drop", "study", "x", *storage).stderr
