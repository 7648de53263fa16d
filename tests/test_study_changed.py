"""How arms are tried may change in a file as long as nothing was observed."""

from __future__ import annotations

import json

import pytest

import cabai
from shell import here
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
