"""A user's own family, threshold and policy, from docs/examples: simulated, live, and in other processes."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import cabai
from cabai.bench.suites import random_instance
from cabai.cli.main import app
from cabai.families import poisson
from studies import check_same_pulls, new, reloaded, start

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
ADDRESSES = {"family": "geometric:Geometric", "threshold": "half_log:HalfLog(extra=0.5)", "policy": "thompson:thompson"}
ARMS = ["a", "b", "c"]


@pytest.fixture
def own(monkeypatch) -> dict[str, object]:
    """The examples' family, threshold and policy, as options of what takes them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from geometric import Geometric
    from half_log import HalfLog
    from thompson import thompson

    return {"family": Geometric(), "threshold": HalfLog(extra=0.5), "policy": thompson}


@pytest.fixture
def movable(tmp_path, monkeypatch) -> Path:
    """The same policy in a file that a test may change or take away: `movable:thompson`."""
    file = tmp_path / "movable.py"
    shutil.copy(EXAMPLES / "thompson.py", file)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "movable", raising=False)
    yield file
    sys.modules.pop("movable", None)


def pull_on(study: cabai.Study, number: int) -> list[str]:
    """The arms of the next pulls; what they return depends on their number alone."""
    arms = []
    for _ in range(number):
        pull = study.ask()
        study.tell(pull, pull.number * 7 % 5, cost=1.0)
        arms.append(pull.arm)
    return arms


def python(code: str, folder: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, with modules from these places."""
    places = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=os.environ | {"PYTHONPATH": places}, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip


def test_a_study_stores_where_what_is_ones_own_is_found(own):
    study = cabai.create_study("own", arms=ARMS, storage="memory", **own)
    stored = json.loads(study.settings.to_json())
    assert {kind: stored[kind] for kind in ADDRESSES} == ADDRESSES
    assert sorted(stored["sources"]) == sorted(ADDRESSES)
    by_address = cabai.create_study("by address", arms=ARMS, storage="memory", **ADDRESSES)
    assert by_address.settings.to_json() == study.settings.to_json()
    again = cabai.create_study("own", arms=ARMS, storage="memory", load_if_exists=True, **own)
    assert pull_on(again, 20) == pull_on(by_address, 20)
    with pytest.raises(cabai.InvalidInput, match=r"its policy is thompson:thompson, not uniform"):
        cabai.create_study("own", arms=ARMS, storage="memory", load_if_exists=True, **own | {"policy": "uniform"})


OTHER_PROCESS = """
import json, sys
import cabai
from cabai.cli.main import app
from cabai.study.stand_ins import stored
from cabai.thresholds import Calibrated

study = cabai.load_study("own", storage="sqlite:///own.db")
study.status(), study.observations(), study.decision
for command in ("list", "status own", "export own"):
    app(["study", *command.split(), "--storage", "sqlite:///own.db"], standalone_mode=False)
imported = [name for name in ("geometric", "half_log", "thompson") if name in sys.modules]
arms = []
for _ in range(25):
    pull = study.ask()
    study.tell(pull, pull.number * 7 % 5, cost=1.0)
    arms.append(pull.arm)
print(json.dumps({"imported": imported, "arms": arms}))
"""


def test_another_process_imports_it_to_ask_and_not_to_look_and_makes_the_same_pulls(own, tmp_path):
    alone = cabai.create_study("alone", arms=ARMS, seed=7, storage="memory", **own)
    expected = pull_on(alone, 40)
    assert len(set(expected)) == 3
    study = cabai.create_study("own", arms=ARMS, seed=7, storage=f"sqlite:///{tmp_path}/own.db", **own)
    assert pull_on(study, 15) == expected[:15]
    done = python(OTHER_PROCESS, tmp_path, EXAMPLES)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("own: ")
    assert lines[1].startswith("own: geometric:Geometric, maximize")
    assert json.loads(lines[-1]) == {"imported": [], "arms": expected[15:]}
    assert [seen["arm"] for seen in study.observations()] == expected


def test_what_cannot_be_imported_is_refused_in_one_line_and_nothing_is_lost(movable, tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/own.db"
    study = cabai.create_study("gone", arms=ARMS, family="gaussian(variance=1)", policy="movable:thompson", storage=url)
    before = pull_on(study, 6)
    pull = study.ask()
    away = movable.rename(tmp_path / "elsewhere.txt")
    del sys.modules["movable"]
    importlib.invalidate_caches()
    study = cabai.load_study("gone", storage=url)
    said = "cannot import policy 'movable:thompson': ModuleNotFoundError: No module named 'movable'."
    for call in (study.ask, lambda: study.tell(pull, 1.0, cost=1.0)):
        with pytest.raises(cabai.InvalidInput) as refused:
            call()
        assert str(refused.value) == said
    status = study.status()
    assert (status.policy, status.pulls, status.under_way) == ("movable:thompson", 6, 1)
    assert [seen["arm"] for seen in study.observations()] == before
    for command, begins in [("list", "gone: "), ("status gone", "gone: gaussian"), ("export gone", "pull,arm,")]:
        app(["study", *command.split(), "--storage", url], standalone_mode=False)
        assert capsys.readouterr().out.startswith(begins)
    away.rename(movable)
    importlib.invalidate_caches()
    study.tell(pull, 1.0, cost=1.0)
    assert study.status().pulls == 7


def test_a_changed_source_is_warned_of_once(movable):
    study = new(arms=ARMS, family="gaussian", policy="movable:thompson")
    pull_on(study, 3)
    movable.write_text(movable.read_text() + "\n# the same rule\n")
    pull_on(study, 1)  # it was imported before it changed
    study = reloaded(study)
    study.status()
    with pytest.warns(cabai.errors.SourceChanged, match="the source of movable:thompson has changed since") as all:
        pull = study.ask()
    assert [warning.filename for warning in all] == [__file__]
    study.tell(pull, 1.0, cost=1.0)  # a second warning would be an error here
    pull_on(study, 3)
    with pytest.warns(cabai.errors.SourceChanged):
        reloaded(study).tell(study.ask(), 1.0, cost=1.0)


def test_a_study_makes_the_pulls_of_a_simulation_with_ones_own(own):
    instance = cabai.Instance(own["family"], [3.0, 1.0, 0.3], [1, 0.5, 0.2])
    check_same_pulls(instance, own["policy"], own["threshold"], 0.0, most=40, seed=3, reload=True)


def test_a_study_takes_what_was_calibrated_for_a_family_and_a_policy_of_ones_own(own):
    options = {"delta": 0.2, "max_pulls": 20}
    found = cabai.calibrate(own["family"], [1, 0.5], own["policy"], trajectories=300, **options)
    arms = {"arms": ["a", "b"], "family": own["family"], "policy": own["policy"], "delta": 0.2}
    study = cabai.create_study("calibrated for my own", threshold=found.threshold, storage="memory", **arms)
    study.tell(study.ask(), 3, 1.0)
    assert cabai.load_study(study.name, storage="memory").status().certified_pulls == 20
    with pytest.raises(cabai.InvalidInput, match="certified for policy thompson:thompson, got uniform"):
        cabai.create_study("another", threshold=found.threshold, storage="memory", **arms | {"policy": "uniform"})


def test_names_that_are_taken_or_unknown_are_refused(own):
    family = type(own["family"])

    @dataclasses.dataclass(frozen=True)
    class Levelled(family):
        level: float = 1.0

    @dataclasses.dataclass(frozen=True)
    class Pretender(family):
        name = "gaussian"

    class Misspelt(cabai.Threshold):
        name = "misspelt"

        def parameters(self, family, arms, delta):
            return {"level": 1.0, "slop": 2.0}

    class Nameless(cabai.Threshold):
        def parameters(self, family, arms, delta):
            return {"level": 1.0}

    @cabai.policy(arm_memory={"pulls": 0})
    def forgetful(arms, run, rules):
        return 0

    assert not cabai.thresholds.Mixture().is_proven_for(Pretender())
    levelled, gaussian = (cabai.Instance(each, [3.0, 1.0], [1, 1]) for each in (Levelled(), "gaussian"))
    for call, message in (
        (lambda: random_instance(own["family"], 3, seed=0, number=0), "random instances are drawn only for gaussian"),
        (lambda: cabai.simulate(levelled, threshold="mixture"), "has a parameter 'level', a name that is taken"),
        (
            lambda: cabai.simulate(gaussian, threshold=Misspelt()),
            "misspelt has a parameter 'slop' that its functions do",
        ),
        (lambda: cabai.simulate(gaussian, threshold=Nameless()), r"the threshold .*Nameless has no name"),
        (lambda: cabai.simulate(gaussian, forgetful), "the policy's field 'pulls' is a field of an arm already"),
    ):
        with pytest.raises(cabai.InvalidInput, match=message):
            call()


def keep(arm, rules, reward):
    arm.squares += reward * reward


def weigh(arm, rules):
    arm.tested, arm.tested_mean = arm.pulls, arm.mean
    arm.price = 0.02 * arm.squares


@dataclasses.dataclass(frozen=True)
class Squares(cabai.Threshold):
    """Asks for more the larger the rewards were: something that it must keep of each arm."""

    name = "squares"
    arm_fields = {"squares": 0.0}  # noqa: RUF012
    functions = (*cabai.Threshold.functions, keep, weigh)

    def parameters(self, family, arms, delta):
        return {"level": 3.0}


def test_what_a_threshold_keeps_is_there_again_when_a_study_is_loaded():
    """It is weighed as in a simulation, even if the study is loaded again before every step."""
    instance = cabai.Instance("gaussian", [1.0, 0.5, 0.0], [1, 0.5, 0.2])
    check_same_pulls(instance, "co", Squares(), 0.0, most=300, seed=3, reload=True)
    with pytest.raises(cabai.InvalidInput, match="threshold squares needs more data per arm"):
        Squares().beats(cabai.Statistics("gaussian", pulls=[9, 9], rewards=[9, 0]), 0, 1, delta=0.1)


def after_five(arms, run, rules):
    return run.t >= 5


@cabai.policy(stop=after_five)
def impatient(arms, run, rules):
    return run.t % len(arms)


def test_a_stopping_rule_of_ones_own_gets_no_threshold_s_guarantee(own):
    """Nor does a threshold of one's own; the lower bound is that of the family."""
    runs = cabai.simulate(cabai.Instance("bernoulli", [0.9, 0.1], [1, 1]), impatient, trajectories=10)
    assert (runs.summary().proven, runs.summary().standing) == (False, "its stopping rule is not proven")
    compared = repr(cabai.compare(runs.instance, [impatient, "uniform"], trajectories=10))
    assert compared.startswith("delta 0.05, threshold contrast, 10 trajectories")
    assert compared.endswith("impatient stops by its own rule, not by the threshold: nothing is proven about it, and "
                             "the lower bound need not hold.")  # fmt: skip
    with pytest.raises(cabai.InvalidInput, match="stops by its own rule, which no threshold's proof covers"):
        cabai.create_study("impatient", arms=["a", "b"], family="bernoulli", policy=impatient, storage="memory")
    instance = cabai.Instance(own["family"], [3.0, 1.0, 0.3], [1, 0.5, 0.2])
    policies, options = [own["policy"], "uniform"], {"delta": 0.1, "trajectories": 20, "max_pulls": 2000}
    for each in cabai.compare(instance, policies, threshold=own["threshold"], **options).summaries:
        assert (each.threshold, each.proven) == ("half-log(extra=0.5)", False)
        assert each.lower_bound == pytest.approx(cabai.bound(instance).hardness * 0.8 * math.log(9))  # kl(0.1, 0.9)


@cabai.policy(run_memory={"seen": [0.0, 0.0]})
def broken_later(arms, run, rules):
    run.seen[0] += 1.0
    return 7 if run.t > 3 else 0


@cabai.policy
def misspelt(arms, run, rules):
    return 0 if run.t < 4 else arms[0].pullz


@cabai.policy
def forgetful(arms, run, rules):
    if run.t < 4:
        return 0


@cabai.policy
def half_an_arm(arms, run, rules):
    return 0.5 if run.t > 3 else 0


WRONG = [
    (broken_later, "chose an arm that does not exist", None),
    (forgetful, "must return the number of an arm, got None", "None"),  # it was called a bug of cabai
    (half_an_arm, "must return the number of an arm, got 0.5", "a fraction"),  # it was cut off
    (misspelt, r"test_own.py, line \d+, `.*pullz`: .* there is no field 'pullz'", None),
]


@pytest.mark.parametrize(("policy", "message", "returned"), WRONG)
def test_what_ones_own_policy_does_wrong_is_told_in_a_study(policy, message, returned):
    study = new(arms=["a", "b"], policy=policy)
    start(study, [1] * 4)
    with pytest.raises(cabai.InvalidInput, match=message):
        study.ask()
    assert study.status().pulls == 4
    if returned:
        said = rf"must return the number of an arm; .*test_own.py, line \d+, can return {returned}\."
        with pytest.raises(cabai.InvalidInput, match=said):
            cabai.simulate(cabai.Instance("gaussian", [3, 0], [1, 1]), policy, trajectories=5, max_pulls=50)


def test_a_plain_function_is_told_how_to_become_a_policy(tmp_path, monkeypatch):
    def mine(arms, run, rules):
        return run.leader

    instance = cabai.Instance("gaussian", [1, 0], [1, 1])
    for call in (
        lambda: cabai.simulate(instance, mine),
        lambda: cabai.create_study("plain", arms=ARMS, family="bernoulli", policy=mine, storage="memory"),
    ):
        with pytest.raises(cabai.InvalidInput, match=r"policy must be a name .* write @cabai\.policy above it\.$"):
            call()
    (tmp_path / "undecorated.py").write_text("def mine(arms, run, rules):\n    return run.leader\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(cabai.InvalidInput, match=r"'undecorated:mine' is a function, .* write @cabai\.policy above it"):
        cabai.simulate(instance, "undecorated:mine")


@dataclass(frozen=True)
class Counts(cabai.Family):
    """Poisson rewards, as a family of one's own with what `contrast` needs."""

    name = "counts"
    means, rewards = "0 or positive", "a whole number, 0 or more,"
    whole_rewards = True
    functions = tuple(
        getattr(poisson, name) for name in ("divergence", "variance_at", "variance_slope", "edges", "draw", "tilted")
    )

    def spread(self, mean):
        return math.exp(-mean)  # for `draw`

    def tilt(self, tilt):
        return math.expm1(tilt), math.expm1(tilt) - tilt


def test_a_family_of_ones_own_gets_champion_if_it_has_what_contrast_needs(own):
    """And pays what cabai's own family pays; without `tilted`, it gets `mixture`."""
    assert str(cabai.thresholds.threshold_of(None, own["family"])) == "mixture"
    about = {"means": [3, 2, 1], "costs": [1, 0.1, 0.01]}
    mine, ours = (
        cabai.simulate(cabai.Instance(family, **about), trajectories=50, max_pulls=10_000).summary()
        for family in (Counts(), "poisson")
    )
    assert (mine.threshold, mine.standing) == ("champion", "not proven for this family")
    assert mine.mean_cost == pytest.approx(ours.mean_cost, rel=0.02)
