"""cabai bench: suites, rows, the leaderboard, and a run that goes on where it was stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.stats import beta

import cabai
from cabai.bench import SUITES, bench
from cabai.bench.suites import random_instance
from shell import here

MEASURED = ["us_per_step"]


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "exponential", "bounded"])
@pytest.mark.parametrize("arms", [3, 50])
def test_random_instances_are_as_described_and_differ(family, arms):
    drawn = [random_instance(family, arms, seed=1, number=i) for i in range(200)]
    for instance in drawn:
        assert len(instance) == arms
        assert len(instance.best_arms) == 1
        others = np.delete(instance.means, instance.best)
        assert (others <= 0.85 * instance.means.max() * (1 + 1e-12)).all()
        assert (instance.costs >= 0.01 * (1 - 1e-12)).all()
        assert (instance.costs <= 1).all()
    assert len(set(drawn)) == 200
    assert random_instance(family, arms, seed=1, number=3) == drawn[3]
    assert (random_instance(family, arms, seed=1, number=3, spread=1).costs == 1).all()


def test_a_row_is_what_a_simulation_says():
    found = bench(["menard19"], ["uniform", "ocba"], trajectories=40, seed=3, reference="uniform", delta=0.2)
    instance = SUITES["menard19"](0)[0].instance
    assert [(row["policy"], row["delta"]) for row in found.rows[:2]] == [("uniform", 0.2), ("ocba", 0.2)]
    row = found.rows[0]
    runs = cabai.simulate(instance, "uniform", delta=0.2, threshold="stylized", trajectories=40, seed=3, shuffle=True)
    summary = runs.summary()
    assert (row["mean_cost"], row["errors"], row["ratio"]) == (summary.mean_cost, summary.errors, summary.ratio)
    assert row["error_high"] == pytest.approx(beta.isf(0.025, row["errors"] + 1, 40 - row["errors"]), rel=1e-6)
    assert (row["difference"], row["se_difference"]) == (0, 0)
    other = cabai.simulate(instance, "ocba", delta=0.2, threshold="stylized", trajectories=40, seed=3, shuffle=True)
    assert found.rows[1]["difference"] == pytest.approx((other.costs - runs.costs).mean())


def test_a_policy_that_needs_too_many_pulls_gets_fewer_trajectories(monkeypatch):
    """As many as the first ten suggest, at least those ten; differences are over the trajectories of both."""
    options = {"delta": 0.1, "threshold": "stylized", "shuffle": True}
    most, leads = (
        cabai.simulate(SUITES["menard19"](0)[0].instance, policy, trajectories=25, **options)
        for policy in ("uniform", "top-two")
    )
    monkeypatch.setattr("cabai.bench.running.MOST_WORK", 25 * 4 * most.steps[:10].sum() // 10)
    found = bench(["menard19"], ["top-two", "uniform"], trajectories=60, delta=0.1)
    assert found.rows[0]["trajectories"] > found.rows[1]["trajectories"] == 25
    assert found.rows[1]["difference"] == pytest.approx((most.costs - leads.costs).mean())
    assert "fewer (25 or more) of policies that need many pulls" in repr(found)
    monkeypatch.setattr("cabai.bench.running.MOST_WORK", 1)
    assert {row["trajectories"] for row in bench(["menard19"], ["uniform"], trajectories=60).rows} == {10}


def test_a_bench_that_was_killed_goes_on_and_finds_the_same(tmp_path):
    """By a signal, when half of the parts are there."""
    import pandas as pd

    words = [sys.executable, "-m", "cabai", "bench", "gk16", "cr23", "--policies", "uniform,successive-rejects",
             "--trajectories", "30", "--out"]  # fmt: skip
    killed = subprocess.Popen([*words, str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
    limit = time.monotonic() + 120
    while len(list((tmp_path / "killed" / "parts").glob("*.npz"))) < 4 and time.monotonic() < limit:
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    assert not (tmp_path / "killed" / "bench.parquet").exists()
    parts = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "killed" / "parts").glob("*.npz")}
    for name in ("killed", "whole"):
        here(*words[3:], str(tmp_path / name))
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "killed" / "parts").glob("*.npz")}
    assert 0 < len(parts) < len(kept)
    assert parts.items() <= kept.items()
    tables = [pd.read_parquet(tmp_path / name / "bench.parquet").drop(columns=MEASURED) for name in ("killed", "whole")]
    pd.testing.assert_frame_equal(*tables)
    assert len(tables[0]) == 2 + 3 * 2
    page = (tmp_path / "whole" / "leaderboard.html").read_text()
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "cr23: two groups" in page
    assert "| successive-rejects |" in (tmp_path / "whole" / "leaderboard.md").read_text()


def test_ones_own_policy_joins_by_its_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import cabai\n\n\n@cabai.policy\ndef first_or_leader(arms, run, rules):\n"
        "    return run.leader if run.t % 2 else run.t // 2 % len(arms)\n"
    )
    found = here("bench", "menard19", "--policies", f"{tmp_path}/mine.py:first_or_leader,uniform", "--trajectories",
                 "10", "--json")  # fmt: skip
    assert {row["policy"] for row in json.loads(found.stdout)["rows"]} == {"first-or-leader", "uniform"}
    assert here("bench", "--bibtex", "--policies", "at2,fws").stdout.count("@inproceedings") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing24"], "unknown suite 'nothing24'; known: kanarios24, gk16"),
        (["gk16", "--policies", "successive-rejects"], "no policy suits"),
        (["gk16", "--policies", "best"], "unknown policy"),
        (["gk16", "--trajectories", "1", "--policies", "co"], "trajectories must be"),
    ],
)
def test_a_bench_that_makes_no_sense_is_refused(words, message):
    found = here("bench", *words)
    assert found.returncode == 2
    assert message in found.stderr
