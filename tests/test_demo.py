"""The demo: its pulls are what docs/study.md says, its file says what its program says, and its report can be made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cabai
from cabai.study.run.recipe import read_recipe
from cabai.study.settings import Settings

pytest.importorskip("sklearn")
DEMO = Path(__file__).parent.parent / "demo"


@pytest.fixture(scope="module")
def digits():
    sys.path.insert(0, str(DEMO))
    import digits

    yield digits
    sys.path.remove(str(DEMO))


@pytest.mark.parametrize("arm", ["centroid", "bayes", "neighbour", "lda", "svc", "logistic", "extra", "forest"])
@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
def test_a_pull_returns_an_accuracy_and_a_cost(digits, arm):
    reward, cost = digits.test(arm)
    assert 0.8 < reward < 1  # the worst arm's mean is 0.9, the standard deviation 0.01
    assert cost > 0
    if arm == "bayes":  # no two pulls use the same split
        assert len({digits.test(arm)[0] for _ in range(10)}) > 1


def test_a_pull_uses_one_core_although_numpy_was_there_before(digits):
    from threadpoolctl import threadpool_info

    pools = threadpool_info()  # with more, what a pull costs depends on who else is at work
    assert {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"} == {1}


def test_the_file_describes_the_study_of_the_program(digits, tmp_path):
    recipe = read_recipe(DEMO / "study.toml")
    program = cabai.create_study("digits", storage=f"sqlite:///{tmp_path}/a.db", **digits.SETTINGS)
    file = cabai.create_study("digits", storage=f"sqlite:///{tmp_path}/b.db", **recipe.settings)
    assert (recipe.name, Path(recipe.storage.removeprefix("sqlite:///")).resolve()) == (
        "digits",
        DEMO.parent / "results" / "digits.db",
    )
    assert isinstance(program.settings, Settings)
    assert not program.settings.differences(file.settings)
    assert set(recipe.tests.values()) == {"digits:test"}


@pytest.mark.parametrize(("arguments", "code"), [(["bayes"], 0), pytest.param(["nobody"], 1, marks=pytest.mark.slow)])
def test_one_pull_as_a_command(arguments, code):
    done = subprocess.run([sys.executable, DEMO / "digits.py", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == code
    if code == 0:
        assert set(json.loads(done.stdout.splitlines()[-1])) == {"reward", "cost"}
    else:
        assert done.stderr.startswith("usage: ")


@pytest.mark.slow  # it trains eight classifiers
@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
def test_the_race_of_models_says_what_it_found_and_checks_it():
    done = subprocess.run([sys.executable, DEMO / "models.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in done.stderr.splitlines())  # progress, where it is slow
    assert "within 0.01 of the highest of these eight on these 897 items, wrong with probability at most" in done.stdout
    assert "Checked by evaluating everything: svc has the highest mean" in done.stdout
    assert "within 0.01 of the best in 200" in done.stdout
