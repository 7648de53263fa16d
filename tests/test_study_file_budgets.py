"""`cabai run`: the file is the word. Its budget holds as it is written there now, whatever it was before."""

from __future__ import annotations

import pytest

import cabai
from shell import here

TEXT = (
    'family = "bernoulli"\ndelta = 0.001\nfunction = "tests_of_budgets:one"\narms = ["a", "b"]\n'
    'storage = "sqlite:///s.db"\n'
)


@pytest.fixture
def run(tmp_path):
    """Run a file with these limits; returns what was said, what was spent and how many pulls there were."""
    (tmp_path / "tests_of_budgets.py").write_text("def one(arm):\n    return 1, 1.0\n")

    def once(**limits):
        (tmp_path / "study.toml").write_text("".join(f"{name} = {value}\n" for name, value in limits.items()) + TEXT)
        done = here("run", "study.toml", cwd=tmp_path)
        assert done.returncode == 3, done.stderr
        status = cabai.load_study("study", storage=f"sqlite:///{tmp_path}/s.db").status()
        assert status.stopped
        return done.stderr, status.spent

    return once


@pytest.fixture
def amend(tmp_path):
    return lambda *options: here("study", "amend", "study", *options, "--storage", f"sqlite:///{tmp_path}/s.db")


def test_a_budget_goes_up_and_down_and_up_again(run):
    spent = []
    for max_cost in (4, 8, 6, 8, 4, 10):
        said, bill = run(max_cost=max_cost)
        spent.append(bill)
    assert spent == [4, 8, 8, 8, 8, 10]
    assert "max_cost was 4.0 and is now 10.0" in said


def test_a_budget_below_what_is_spent_is_said_to_be(run):
    run(max_cost=8)
    said, bill = run(max_cost=3)
    assert bill == 8
    assert "max_cost was 8.0 and is now 3.0" in said
    assert "8 is already spent: nothing more is pulled with this max_cost." in said
    assert said.count("\n") == 2


def test_no_run_spends_more_than_its_file_says(run):
    assert run(max_cost=3)[1] == 3
    assert run(max_cost=30, max_pulls=3)[1] == 3
    assert run(max_cost=3, max_pulls=3)[1] == 3
    assert run(max_cost=3, max_pulls=20)[1] == 3
    assert run(max_cost=5, max_pulls=20)[1] == 5


def test_what_was_amended_by_other_means_holds_unless_the_file_changes_or_allows_less(run, amend):
    run(max_pulls=4)
    amend("--max-pulls", "7")
    said, bill = run(max_pulls=4)  # as before
    assert (bill, "max_pulls is 4 here, but the study 'study' was amended: 7." in said) == (7, True)
    assert run(max_pulls=7) == ("", 7)
    assert "max_pulls was 7 and is now 4" in run(max_pulls=4)[0]  # since it said 7 the last time
    assert run(max_pulls=9, max_cost=8)[1] == 8
    amend("--max-cost", "100")
    said, bill = run(max_pulls=9, max_cost=8)
    assert (bill, "max_cost was 100.0 and is now 8.0" in said) == (8, True)
    amend("--max-cost", "8.5", "--max-pulls", "100")
    amend("--max-cost", "5")
    said, bill = run(max_pulls=9, max_cost=8)  # others allow less
    assert (bill, "max_cost is 8 here, but the study 'study' was amended: 5." in said) == (8, True)


def test_an_evaluation_spends_no_more_than_its_call_says(folder):
    about = {"name": "e", "storage": f"sqlite:///{folder}/cabai.db", "seed": 1, "progress": False}
    spent = [
        cabai.evaluate(["a", "b"], range(200), lambda arm, item: 1.0, max_cost=most, **about).spent
        for most in (6, 12, 6, 9, 14)
    ]
    assert spent == [6, 12, 12, 12, 14]
