"""What may change in a study file between two runs: how arms are tried, until something is observed; and budgets."""

from __future__ import annotations

import json

import pytest

import cabai
from shell import here, run_file
from storages import BOTH, close

pytestmark = pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
FAILS, WORKS = "sh -c 'exit 3'", 'echo \'{"reward": 1, "cost": 1}\''


def run(folder, url, command, *options, more=()):
    lines = [f'storage = "{url}"', f"command = {json.dumps(command)}", 'arms = ["a", "b"]', "max_pulls = 8",
             "max_failures = 2", *(more or ['family = "bernoulli"'])]  # fmt: skip
    (folder / "judges.toml").write_text("\n".join(lines))
    return here("run", "judges.toml", *options, cwd=folder)


@BOTH
def test_a_file_whose_runs_only_failed_may_be_changed(url, folder):
    assert "exit code 3" in run(folder, url, FAILS).stderr
    assert "cannot be started" in run(folder, url, "no-such-program").stderr
    done = run(folder, url, WORKS, "--json")
    assert (done.returncode, done.stderr) == (3, "")
    assert json.loads(done.stdout)["failures"] == 2  # on the bill, and nothing else
    refused = run(folder, url, FAILS)  # now there are rewards
    assert (refused.returncode, "run with --changed" in refused.stderr) == (2, True)
    close(url)


def test_what_is_under_way_elsewhere_keeps_the_file_as_it_is(folder):
    url = f"sqlite:///{folder}/cabai.db"
    run(folder, url, FAILS)
    study = cabai.load_study("judges", storage=url)
    pull = study.ask(worker="another machine")
    assert "run with --changed" in run(folder, url, WORKS).stderr
    study.release(pull)
    assert run(folder, url, WORKS).returncode == 3


def test_with_items_a_failure_that_counts_as_a_score_is_an_observation(folder):
    url = f"sqlite:///{folder}/cabai.db"
    assert "exit code 3" in run(folder, url, FAILS, more=["items = 9"]).stderr  # none of these counts
    fails_on_two = "sh -c 'test {item} != 2 && echo 1'"
    more = ["items = 9", 'cost = "seconds"']
    assert run(folder, url, fails_on_two, more=more).returncode in (0, 3)
    assert "run with --changed" in run(folder, url, WORKS, more=more).stderr


TEXT = (
    'family = "bernoulli"\ndelta = 0.001\nfunction = "tests_of_budgets:one"\narms = ["a", "b"]\n'
    'storage = "sqlite:///s.db"\n'
)


@pytest.fixture
def limited(tmp_path):
    """Run a file with these limits; returns what was said, what was spent and how many pulls there were."""
    (tmp_path / "tests_of_budgets.py").write_text("def one(arm):\n    return 1, 1.0\n")

    def once(**limits):
        done = run_file(tmp_path, "".join(f"{name} = {value}\n" for name, value in limits.items()) + TEXT)
        assert done.returncode == 3, done.stderr
        status = cabai.load_study("study", storage=f"sqlite:///{tmp_path}/s.db").status()
        assert status.stopped
        return done.stderr, status.spent

    return once


def test_a_budget_goes_up_and_down_and_up_again(limited):
    spent = []
    for max_cost in (4, 8, 3, 8, 10):
        said, bill = limited(max_cost=max_cost)
        spent.append(bill)
        if max_cost == 3:
            assert "max_cost was 8.0 and is now 3.0" in said
            assert "8 is already spent: nothing more is pulled with this max_cost." in said
            assert said.count("\n") == 2
    assert spent == [4, 8, 8, 8, 10]
    assert "max_cost was 8.0 and is now 10.0" in said


def test_no_run_spends_more_than_its_file_says(limited):
    for max_cost, max_pulls, spent in ((3, None, 3), (30, 3, 3), (3, 3, 3), (3, 20, 3), (5, 20, 5)):
        limits = {"max_cost": max_cost} | ({} if max_pulls is None else {"max_pulls": max_pulls})
        assert limited(**limits)[1] == spent


def test_what_was_amended_by_other_means_holds_unless_the_file_changes_or_allows_less(limited, tmp_path):
    limited(max_pulls=4)
    study = cabai.load_study("study", storage=f"sqlite:///{tmp_path}/s.db")
    study.amend(max_pulls=7)
    said, bill = limited(max_pulls=4)  # as before
    assert (bill, "max_pulls is 4 here, but the study 'study' was amended: 7." in said) == (7, True)
    assert limited(max_pulls=7) == ("", 7)
    assert "max_pulls was 7 and is now 4" in limited(max_pulls=4)[0]  # since it said 7 the last time
    assert limited(max_pulls=9, max_cost=8)[1] == 8
    study.amend(max_cost=100)
    said, bill = limited(max_pulls=9, max_cost=8)
    assert (bill, "max_cost was 100.0 and is now 8.0" in said) == (8, True)
    study.amend(max_cost=8.5, max_pulls=100)
    study.amend(max_cost=5)
    said, bill = limited(max_pulls=9, max_cost=8)  # others allow less
    assert (bill, "max_cost is 8 here, but the study 'study' was amended: 5." in said) == (8, True)


def test_an_evaluation_spends_no_more_than_its_call_says(folder):
    about = {"name": "e", "storage": f"sqlite:///{folder}/cabai.db", "seed": 1, "progress": False}
    spent = [
        cabai.evaluate(["a", "b"], range(200), lambda arm, item: 1.0, max_cost=most, **about).spent
        for most in (6, 12, 6, 9, 14)
    ]
    assert spent == [6, 12, 12, 12, 14]
