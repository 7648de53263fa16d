"""What a study refuses, without leaving a trace, and its name."""

from __future__ import annotations

import json
import math
import re
from functools import partial

import pytest

import cabai
from cabai.errors import StorageError
from cabai.study.run.loop import run
from studies import new, refused, reloaded, start


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


BAD_SETTINGS = [
    ({"delta": 5e-324}, "delta must be at least 1e-300, got 5e-324"),
    ({"arms": ["a"]}, r"at least 2 arms, got \['a'\]"),
    ({"arms": "ab"}, "arms must be a list of names"),
    ({"arms": ["a", "a"]}, "names must differ"),
    ({"arms": ["a", "b\n"]}, "printable"),
    ({"arms": {"a": {1, 2}, "b": None}}, "valid as JSON"),
    ({"family": "gauss"}, "unknown family 'gauss'; did you mean gaussian"),
    ({"family": None}, "a study needs a family, such as bernoulli"),
    ({"direction": "up"}, "direction must be one of maximize, minimize, got 'up'"),
    ({"direction": ["maximize"]}, r"direction must be one of maximize, minimize, got \['maximize'\]"),
    ({"on_lapse": "lose"}, "on_lapse must be one of offer, fail, got 'lose'"),
    ({"max_cost": 0}, "max_cost must be positive, got 0"),
    ({"storage": "mysql://host/db"}, "storage must be memory, sqlite"),
    ({"storage": None}, "storage must be a URL"),
    ({"epsilon": 1}, r"epsilon must be in \[0, 1\)"),
    ({"costs": [1, 2]}, "costs must be 3 numbers"),
    ({"costs": [1, 2, -1]}, r"costs\[2\] must not be negative, got -1"),
    ({"costs": [1, 2, True]}, r"costs\[2\] must be a number, got True"),
    ({"max_pulls": 0}, "max_pulls must be a whole number of at least 1, got 0"),
    ({"lease": 0}, "lease must be positive, got 0"),
    ({"seed": 2**63}, r"seed must be below 2\*\*63"),
    ({"delta": 10**5000}, "delta must be a number, got a value of type int that cannot be shown"),
    ({"arms": {"a": 10**5000, "b": None}}, "valid as JSON, got a value of type dict that cannot be shown"),
    ({"arms": {"a": nested(100_000), "b": None}}, "valid as JSON, got a value of type dict that cannot be shown"),
    ({"arms": {"a": nested(100), "b": None}}, "must not be nested more than 100 levels deep"),
    ({"arms": {"a": "x" * 10**6 + "\ud800", "b": {1, 2}}}, r"valid as JSON, got .{200}\.\.\.: "),
]


@pytest.mark.parametrize(("options", "message"), BAD_SETTINGS)
def test_a_study_that_makes_no_sense_is_not_created(options, message):
    with refused(new(), message):
        new(**options)


def test_a_study_needs_a_printable_name_and_a_policy_that_other_processes_could_import():
    for name in ("", "  ", "x" * 201, "two\nlines", 5, None):
        for call in (partial(cabai.create_study, arms=["a", "b"], family="bernoulli"), cabai.load_study):
            with pytest.raises(cabai.InvalidInput, match="name must be printable text"):
                call(name, storage="memory")

    @cabai.policy
    def co(arms, run, rules):
        return 0

    for own in (co, cabai.policy(lambda arms, run, rules: 0)):
        with pytest.raises(cabai.InvalidInput, match="must be defined at the top level of a Python file"):
            new(policy=own)


BAD_TELLS = [
    ({"reward": math.nan, "cost": 1}, "reward must be a finite number, got nan"),
    ({"reward": 0.5, "cost": 1}, "reward must be 0 or 1 for the bernoulli family, got 0.5"),
    ({"reward": None, "cost": 1}, "a result needs a reward"),
    ({"reward": 1}, "a result needs a cost"),
    ({"reward": 1, "cost": -1}, "cost must be positive, got -1"),
    ({"reward": 1, "cost": True}, "cost must be a number, got True"),
    ({"failed": "  "}, "failed must say why"),
    ({"failed": "x", "reward": 1}, "a failed pull has no reward"),
    ({"failed": "x", "cost": -1}, "cost must not be negative"),
    *(
        ({"reward": reward, "cost": 1, "family": family}, f"for the {family} family, got {reward}")
        for family, rewards in {"poisson": (0.5, -1), "exponential": (0, -1), "bounded": (1.1,)}.items()
        for reward in rewards
    ),
]


@pytest.mark.parametrize(("values", "message"), BAD_TELLS)
def test_a_tell_that_makes_no_sense_is_refused_and_writes_nothing(values, message):
    values = dict(values)
    study = new(family=values.pop("family", "bernoulli"))
    start(study, [1, 1])
    pull = study.ask()
    with refused(study, message):
        study.tell(pull, **values)
    study.tell(pull, 1, 1.0)


def test_a_pull_that_was_never_handed_out_is_refused():
    study, other = new(), new()
    mine, theirs = study.ask(), other.ask()
    token = mine.id.partition("-")[0]
    given = [f"{token}-{number}" for number in ("2", "0", "01", "-1", "1\n", 10**30)]
    for pull in [*given, theirs, theirs.id, token, "", "1", 1, None, "a", mine.id.upper() + "x"]:
        for call in (lambda pull: study.tell(pull, 1, 1.0), study.release):
            with refused(study, r"is not the id of a pull|has handed out no pull"):
                call(pull)
    for name, wrong, message in (
        ("n", (0, -1, 1.5, True, "2", 10_000_000), r"n must be (a whole number of at least 1|below 2\*\*17)"),
        ("worker", (5, "x" * 201), "worker must be a string of at most 200 characters"),
        ("request", ("", "x" * 201, 7, "\ud800" * 100), "request must be a string of 1 to 200 characters"),
    ):
        for value in wrong:
            with refused(study, message):
                study.ask(**{name: value})
    study.tell(mine.id, 1, 1.0)  # the id will do


def test_a_value_of_another_kind_is_refused():
    study, of_policy = new(), "a policy is made of a function that chooses the next arm, got"
    for call, message in (
        (lambda: study.tell_many(3), "results must be a list of dictionaries, got 3"),
        (
            lambda: study.tell_many([{"reward": 1}]),
            "each result must be a dictionary with a pull, and reward, cost or failed",
        ),
        (lambda: study.report(3), "file must be a path, got 3"),
        (lambda: study.run(print, progress=3), "progress must be a function, got 3"),
        (lambda: run(study, lambda pulls: [1], batch=8), "batch is for a study with items"),
        (lambda: study.run(print, page="x"), "page must be true or false, got 'x'"),
        (lambda: cabai.import_study(3, storage="memory"), "file must be a path, got 3"),
        (lambda: cabai.evidence("x"), "evidence takes cabai.Statistics, got 'x'"),
        (lambda: cabai.policy(partial(print)), f"{of_policy} func"),
        (lambda: cabai.policy(3), f"{of_policy} 3"),
    ):
        with pytest.raises(cabai.InvalidInput, match=message):
            call()


def test_sums_that_no_number_can_hold_and_rewards_that_cannot_be_summed_are_refused():
    for known, cost in ((None, 1e308), ([1e308, 1e308], 1.0), ([0.0, 1.7e308], 0.0)):
        study = new(family="gaussian", arms=["a", "b"], costs=known)
        with pytest.raises(cabai.InvalidInput, match="too large to store"):
            start(study, [1.0] * 20, cost)
        json.dumps(study.status().to_dict(), allow_nan=False)
        assert study.status().pulls == len(study.observations())
    largest = {"gaussian": 4e15, "gaussian(variance=4)": -2.1e9, "poisson": 1e16, "exponential": 1e101}
    for family, reward in largest.items():
        study = new(family=family, arms=["a", "b"])
        with pytest.raises(cabai.InvalidInput, match=r"reward must be from .* to .* for family"):
            study.tell(study.ask(), reward, 1.0)
        assert study.status().pulls == 0


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("epsilon", [0.0, 0.01])
def test_extreme_rewards_break_nothing(direction, epsilon):
    for family, rewards in (
        ("gaussian", [1e9, -1e9, 1e9, 1e-200, -1e9, 1]),
        ("exponential", [1e20, 1.0, 1e-5, 1.0, 1e-5, 2.0]),
        ("exponential", [1e-100, 1e100, 1e-100, 1e-100, 1e-100, 1e100]),
        ("poisson", [0, 2**53, 0, 1, 2**53, 0]),
        ("bounded", [0.0, 1.0, 5e-324, 1.0, 1e-300, 1 - 2**-53]),
    ):
        study = new(family=family, arms=["a", "b"], direction=direction, epsilon=epsilon, max_pulls=6)
        for reward in rewards:
            if not study.stopped:
                study.tell(study.ask(), reward, 1.0)
            status = study.status()
            json.dumps(status.to_dict(), allow_nan=False)
            assert str(status)
            assert 0 <= status.confidence <= 1 - status.delta


OTHER = [
    ({"delta": 0.1}, "its delta is 0.05, not 0.1"),
    ({"policy": "ctas"}, "its policy is co, not ctas"),
    ({"threshold": "kt"}, "its threshold is champion, not kt"),
    ({"direction": "minimize"}, "its direction is maximize, not minimize"),
    ({"arms": ["a", "c", "b"]}, r"its arms is \['a', 'b', 'c'\], not \['a', 'c', 'b'\]"),
    ({"arms": {"a": 1, "b": 2, "c": 3}}, "its metadata is {}, not {'a': 1, 'b': 2, 'c': 3}"),
    ({"costs": [1, 2, 3]}, r"its costs is None, not \[1.0, 2.0, 3.0\]"),
    ({"max_pulls": 5}, "its max_pulls is None, not 5"),
    ({"delta": 0.1, "seed": 5}, "its delta is 0.05, not 0.1; its seed is 0, not 5"),
]


@pytest.mark.parametrize(("options", "message"), OTHER)
def test_a_study_with_other_settings_is_not_loaded_and_the_error_says_which(options, message):
    study = new()
    start(study, [1])
    usual = {"arms": ["a", "b", "c"], "family": "bernoulli", "policy": "co", "storage": "memory"}
    with refused(study, f"study {study.name!r} already exists with other settings: {message}"):
        cabai.create_study(study.name, **usual | options, load_if_exists=True)
    with refused(study, "already exists"):
        cabai.create_study(study.name, **usual)
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


def test_studies_are_found_by_name_and_text_that_a_database_cannot_hold_is_spelt_out():
    study = new()
    assert study.name in cabai.list_studies(storage="memory")
    cabai.delete_study(study.name, storage="memory")
    assert study.name not in cabai.list_studies(storage="memory")
    for forgotten in (cabai.load_study, cabai.delete_study):
        with pytest.raises(cabai.StudyNotFound, match=study.name):
            forgotten(study.name, storage="memory")
    study = new()
    pull = study.ask(worker="half \ud800")
    study.tell(pull, failed="half \ud800 and \0")
    assert study.observations()[0]["failed"] == r"half \ud800 and \x00"
    study.tell(pull, failed="half \ud800 and \0")


def test_a_gaussian_study_without_a_variance_does_not_know_it():
    for family in ("gaussian", " Gaussian ", "gaussian()", cabai.families.Gaussian):
        study = cabai.create_study(f"bare {family}", arms=["a", "b"], family=family, storage="memory")
        assert study.settings.family == cabai.families.family_of("gaussian(variance=unknown)")
        assert str(study.settings.threshold) == "symmetric"
    study = new(family=cabai.families.Gaussian(variance=1))
    assert reloaded(study).settings.family.variance == 1.0  # what is stored as gaussian still loads


def test_a_stored_study_keeps_its_test_and_is_loaded_without_one_named():
    """What the default is may change from one version to the next."""
    study = new(threshold="evalue")
    same = {"arms": ["a", "b", "c"], "family": "bernoulli", "policy": "co", "storage": "memory"}
    again = cabai.create_study(study.name, **same, load_if_exists=True)
    assert (again.status().threshold, new().status().threshold) == ("evalue", "champion")


# The URLs that say where studies are stored: errors are one line, and no password is shown


NOWHERE = "127.0.0.1:1"  # nobody listens there

WRONG = [
    ("mysql://u:secret@h/d", "must be memory, sqlite:///FILE or postgresql://USER@HOST/DATABASE, got mysql://..."),
    ("u:secret@h/d", "got something else"),
    ("file.db", "got 'file.db'"),
    ("postgresql://u:secret@h:port/d", "the port in storage postgresql://... must be a number from 1 to 65535"),
    ("postgresql://u:secret", "must be a number from 1 to 65535"),  # the host was forgotten
    ("postgresql://u:secret@h:65536/d", "must be a number from 1 to 65535"),
    ("postgresql://u:secret@h:0/d", "must be a number from 1 to 65535"),
    ("postgresql+asyncpg://u:secret@h/d", "postgresql+asyncpg:// names a driver that cabai does not use"),
    ("sqlite:///x.db?nonsense=secret", "takes a file and nothing else"),
    ("sqlite:///secret\0.db", "got one with NUL or broken characters"),
    ("sqlite:///secret\udcff.db", "got one with NUL or broken characters"),
    ("postgresql://u:secret%00@h/d", "cannot be read: write %40, %3A, %2F within a password"),
    ("postgresql://u:half@secret@h/d", "must have one @ at most: write %40"),
    ("postgresql://u/x:secret@h/d", "must have one @ at most"),
    (f"postgresql://u:secret@{NOWHERE}/d?plugin=nonsense", "has options that the database does not know"),
    (f"postgresql://u:secret@{NOWHERE}/d?port=nonsense", "must be a number from 1 to 65535"),
    (f"postgresql://u:secret@{NOWHERE}/d?connect_timeout=nonsense", "has options that the database does not know"),
    (f"postgresql://u:secret@{NOWHERE}/d?nonsense=1", "has options that the database does not know"),
    ("postgresql://u:secret@a..b/d", "names a host that cannot exist"),
    (f"postgresql://u:secret@{'h' * 80}/d", "names a host that cannot exist"),
    (["postgresql://u:secret@h/d"], "must be a URL such as sqlite:///cabai.db, got a value of type list"),
]


@pytest.mark.parametrize(("url", "message"), WRONG)
def test_a_url_that_is_wrong_is_refused_without_showing_a_password(url, message):
    with pytest.raises(cabai.InvalidInput, match=re.escape(message)) as refused:
        cabai.create_study("x", arms=["a", "b"], family="bernoulli", storage=url)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:secret@{NOWHERE}/d",
        f"postgresql+psycopg2://u:secret@{NOWHERE}/d",
        f"postgresql://u@{NOWHERE}/d?password=secret",
        f"postgresql://u:secret%40%2F@{NOWHERE}/d",
    ],
)
def test_a_server_that_cannot_be_reached_is_one_line_without_a_password(url):
    with pytest.raises(StorageError, match=rf"storage postgresql://u.*@{NOWHERE}/d failed: ") as failed:
        cabai.list_studies(storage=url)
    assert "secret" not in str(failed.value)
    assert "\n" not in str(failed.value)
