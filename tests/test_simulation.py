"""The engine: same seed, same result; limits, grids, results, and a user's own policies."""

from __future__ import annotations

import json
import math
import re
import sys
import traceback

import numpy as np
import pytest

import cabai
from cabai import InvalidInput, uniform
from cabai.core.compiling import UNCOUNTED
from cabai.core.setup import Setup
from cabai.policies import policy_of
from cabai.simulation.work import Work
from cabai.thresholds import threshold_of
from combinations import covering
from conftest import differing

ALL = covering(["co", "ctas", "top-two", "d-lucb", "tas", "uniform", "racing"], most=4)


@pytest.mark.parametrize("policy", ALL)
def test_result_depends_on_seed_and_trajectory_only(paper_instance, policy):
    options = {"trajectories": 130, "seed": 5, "grid": [3, 10, 100], "threshold": "paper"}
    whole = cabai.simulate(paper_instance, policy, **options)
    for workers in (1, 3):
        assert differing(whole, cabai.simulate(paper_instance, policy, workers=workers, **options)) == 0
    fewer = cabai.simulate(paper_instance, policy, trajectories=7, seed=5, threshold="paper")
    assert np.array_equal(fewer.costs, whole.costs[:7])
    other = cabai.simulate(paper_instance, policy, trajectories=130, seed=6, threshold="paper")
    assert not np.array_equal(other.steps, whole.steps)


@pytest.mark.parametrize(("policy", "threshold"), [("ctas", "paper"), ("top-two", "paper"), ("top-two", "champion")])
def test_several_deltas_from_one_trajectory_equal_one_at_a_time(paper_instance, policy, threshold):
    deltas = [0.01, 0.3, 1e-6]
    options = {"trajectories": 50, "max_pulls": 600, "grid": [10, 50, 300, 500], "threshold": threshold}
    together = cabai.simulate(paper_instance, policy, delta=deltas, **options)
    assert [runs.delta for runs in together] == deltas
    for runs in together:
        assert differing(runs, cabai.simulate(paper_instance, policy, delta=runs.delta, **options)) == 0
    with pytest.raises(InvalidInput, match="depend on delta: give one delta at a time"):
        cabai.simulate(paper_instance, "co", delta=[0.1, 0.01], threshold="paper")


def test_instances_simulated_together_are_drawn_as_the_one_with_the_largest_mean_needs():
    """Poisson counts are drawn by inversion below a mean of 10, which for large means would not end."""
    few, many = (cabai.Instance("poisson", [mean, 1], [1, 1]) for mean in (2, 2000))
    setup = Setup(few.family, threshold_of("paper"), policy_of("uniform"), arms=2, delta=0.1)
    for instances in ([few, many], [many, few]):
        assert Work(instances, [setup], 0, 100, math.inf, numbers=[0, 0]).largest is many


@pytest.mark.parametrize("policy", ALL)
def test_limits_leave_a_trajectory_unfinished(paper_instance, policy):
    runs = cabai.simulate(paper_instance, policy, trajectories=50, delta=1e-6, max_pulls=40, threshold="paper")
    unfinished = runs.decisions == -1
    assert unfinished.any()
    assert (runs.steps[unfinished] == 40).all()
    assert (runs.pulls.sum(axis=1) == runs.steps).all()
    summary = runs.summary()
    assert summary.unfinished == unfinished.sum()
    assert summary.errors == 0
    paid = cabai.simulate(paper_instance, policy, trajectories=50, delta=1e-6, max_cost=20.0, threshold="paper")
    over = paid.decisions == -1
    assert over.any()
    assert ((paid.costs[over] >= 20) & (paid.costs[over] <= 20 + 1.0)).all()
    tied = cabai.Instance("bernoulli", [0.5, 0.5], [1, 1])  # any best arm is right
    summary = cabai.simulate(tied, policy, delta=0.1, trajectories=100, max_pulls=500, threshold="paper").summary()
    assert (summary.errors, summary.lower_bound, summary.ratio) == (0, None, None)


def test_grid_counts_the_pulls_along_the_way(paper_instance):
    grid = [1, 3, 4, 50, 200, 10**6]
    runs = cabai.simulate(paper_instance, "ctas", delta=0.01, trajectories=40, grid=grid, threshold="paper")
    assert runs.grid.tolist() == grid
    reached = runs.steps[:, None] >= runs.grid
    reached[:, runs.grid < 3] = False  # a path begins when every arm has been pulled once
    assert np.array_equal(runs.path[:, :, 0] >= 0, reached)
    assert np.array_equal(runs.path.sum(axis=2)[reached], np.broadcast_to(runs.grid, reached.shape)[reached])
    assert (runs.path[:, 1] == 1).all()


def test_summary_agrees_with_the_arrays(paper_instance):
    runs = cabai.simulate(paper_instance, "co", delta=0.1, trajectories=400, seed=2, threshold="paper")
    summary = runs.summary()
    assert summary.mean_cost == pytest.approx(np.mean(runs.pulls @ paper_instance.costs), rel=1e-12)
    assert summary.se_cost == pytest.approx(np.std(runs.costs, ddof=1) / 20)
    assert summary.errors == np.sum(runs.decisions != 0)
    low, high = summary.error_interval
    assert low <= summary.errors / 400 <= high
    assert summary.lower_bound == pytest.approx(cabai.bound(paper_instance).cost(0.1))
    assert summary.ratio == pytest.approx(summary.mean_cost / summary.lower_bound)
    assert sum(summary.pull_shares) == pytest.approx(1)
    assert sum(summary.cost_shares) == pytest.approx(1)
    assert summary.steps == runs.steps.sum()
    json.dumps(summary.to_dict(), allow_nan=False)


def test_frames_and_parquet_hold_every_trajectory(paper_instance, tmp_path):
    import pandas as pd
    import pyarrow.parquet as pq

    runs = cabai.simulate(paper_instance, "co", trajectories=30, max_pulls=200, delta=1e-6, threshold="paper")
    frame = runs.to_frame()
    assert len(frame) == 30
    assert frame["decision"].isna().sum() == (runs.decisions == -1).sum() > 0
    assert frame["pulls_3"].tolist() == runs.pulls[:, 2].tolist()
    path = tmp_path / "new" / "runs.parquet"
    runs.to_parquet(path)
    pd.testing.assert_frame_equal(pd.read_parquet(path), frame)
    made_by = json.loads(pq.read_schema(path).metadata[b"cabai"])
    assert (made_by["policy"], made_by["seed"]) == ("co", 0)
    assert [p.name for p in path.parent.iterdir()] == ["runs.parquet"]
    with pytest.raises(InvalidInput, match=r"cannot write .*: .*runs.parquet is not a folder"):
        runs.to_parquet(path / "below a file")


def test_compare_has_one_row_a_policy_with_intervals(paper_instance):
    policies, options = ["co", "ctas(tracking=ratio)"], {"delta": 0.01, "trajectories": 100, "threshold": "paper"}
    comparison = cabai.compare(paper_instance, policies, **options)
    assert comparison.to_frame().index.tolist() == policies
    for row in comparison.to_dicts():
        assert row["cost_interval"][0] < row["mean_cost"] < row["cost_interval"][1]
        assert row["ratio_interval"][0] < row["ratio"] < row["ratio_interval"][1]
    summary, text = cabai.simulate(paper_instance, "co", **options).summary(), str(comparison)
    error = f"{summary.se_cost:.2g}"
    assert f"mean cost       {summary.mean_cost:.6g} ± {error} (standard error)" in str(summary)
    assert text.splitlines()[0].endswith(", ± is a standard error")
    assert re.search(rf"^co +{summary.mean_cost:.6g} +{re.escape(error)} ", text, re.MULTILINE)
    assert "lower bound" in text


def test_compare_takes_several_instances(paper_instance):
    other = cabai.Instance("bernoulli", [0.9, 0.5], [1, 2])
    options = {"delta": 0.1, "trajectories": 50, "threshold": "paper"}
    seen: list[int] = []
    found = cabai.compare({"paper": paper_instance, "other": other}, ["co", "tas"], progress=seen.append, **options)
    assert seen[-1] == 200
    for name, instance in (("paper", paper_instance), ("other", other)):
        alone = cabai.compare(instance, ["co", "tas"], **options)
        for one, same in zip(found.parts[name].runs, alone.runs, strict=True):
            assert (one.costs == same.costs).all()
    assert found.to_frame().index.tolist() == [(a, b) for a in ("paper", "other") for b in ("co", "tas")]
    assert [axis.get_title(loc="left").split(":")[0] for axis in found.plot().axes] == ["paper", "other"]
    assert repr(found).startswith("paper: Instance('gaussian'")
    assert list(cabai.compare([other, other], ["co"], **options).parts) == ["instance 1", "instance 2"]
    for wrong in ([], {}, [other, 3], "paper"):
        with pytest.raises(InvalidInput, match=r"compare takes a cabai.Instance, or a list or a dictionary of them"):
            cabai.compare(wrong, ["co"])


EXTREMES = {
    "gaussian, large": ("gaussian", [0.5, 0.0], [1e9, 1e9 - 0.5]),
    "gaussian, small variance": ("gaussian(variance=1e-20)", [0.5e-10, 0.0], [-0.1 + 0.5e-10, -0.1]),
    "poisson, large": ("poisson", [1e6 + 500, 1e6], [2.0**53, 2.0**53 - 0.5 * 2**26.5]),
    "exponential, large": ("exponential", [2.0, 1.0], [1e100, 5e99]),
    "exponential, small": ("exponential", [2.0, 1.0], [2e-100, 1e-100]),
}


@pytest.mark.parametrize(("name", "policy"), covering(EXTREMES, ["co", "ctas", "d-lucb"], most=3))
def test_means_as_extreme_as_allowed_take_as_long_as_others(name, policy):
    """The same gap in standard deviations: rounding must not show. Five standard errors."""
    family, easy, extreme = EXTREMES[name]
    options = {"threshold": "evalue", "delta": 0.01, "trajectories": 400, "max_pulls": 10_000}
    near, far = (
        cabai.simulate(cabai.Instance(family, means, [1, 1]), policy, seed=seed, **options)
        for seed, means in enumerate([easy, extreme])
    )
    assert far.finished.all()
    assert far.wrong.sum() <= 8  # at a rate of 0.001, what is seen with evalue, more once in 10^9
    noise = math.hypot(near.steps.std(), far.steps.std()) / 20
    assert abs(near.steps.mean() - far.steps.mean()) < 5 * noise


def test_own_policy_with_a_stop_and_a_coin_or_a_missing_arm(paper_instance):
    def after_thirty(arms, run, rules):
        return run.t >= 30

    @cabai.policy(stop=after_thirty)
    def toss(arms, run, rules):
        return int(uniform(run) * len(arms))

    runs = cabai.simulate(paper_instance, toss, trajectories=2000, threshold="paper")
    assert (runs.steps == 30).all()
    # 27 tosses of 2000 trajectories fall on each arm with probability 1/3
    tosses = 27 * 2000
    assert np.abs(runs.pulls.sum(axis=0) - 2000 - tosses / 3).max() < 5 * math.sqrt(tosses * 2 / 9)

    @cabai.policy
    def beyond(arms, run, rules):
        return len(arms)

    with pytest.raises(InvalidInput, match="policy beyond chose an arm that does not exist"):
        cabai.simulate(paper_instance, beyond, trajectories=5, threshold="paper")


WRONG = {
    "return int(arms[0].rewardz)": "`return int(arms[0].rewardz)`: there is no field 'rewardz'; did you mean rewards?",
    "run.colour = 3; return 0": "there is no field 'colour'; `cabai.core.state` lists those of arms, run and rules.",
    "return json.dumps(1)": "Unknown attribute 'dumps' of type Module",
    "return sum(arms)": "`return sum(arms)`: No implementation of function Function(<built-in function sum>).",
    "return nowhere(arms)": "`return nowhere(arms)`: NameError: name 'nowhere' is not defined.",
    "return len([arm.mean for arm in arms])": "it creates a list, an array or another object;",
    "return 'one'": "`return 'one'`: No conversion from Literal[str](one) to int64",
}
MAY_WORK = "return len([arm.mean for arm in arms])"  # where Numba cannot compile without reference counts


@pytest.mark.parametrize("line", WRONG)
def test_own_policy_that_cannot_be_compiled_is_told_by_line(paper_instance, tmp_path, line):
    if line == MAY_WORK and not UNCOUNTED:
        pytest.skip("this Numba cannot compile without reference counts: a policy may then create a list")
    path, scope = tmp_path / "own.py", {"json": json}
    path.write_text(f"def mine(arms, run, rules):\n    x = 1\n    {line}\n")
    exec(compile(path.read_text(), path, "exec"), scope)
    with pytest.raises(InvalidInput) as refused:
        cabai.simulate(paper_instance, cabai.policy(scope["mine"]), trajectories=2, threshold="paper")
    message = str(refused.value)
    assert message.startswith(f"policy mine cannot be compiled: {path}, line 3, `{line}`: ")
    assert WRONG[line] in message
    assert len(message) < 400
    shown = "".join(traceback.format_exception(refused.value))
    assert "numba" not in shown  # its pages are not shown, but kept for a debugger
    assert refused.value.__context__ is not None


def test_a_helper_and_a_stopping_rule_that_cannot_be_compiled_are_told_by_line(paper_instance):
    def uses_a_missing_field(arms):
        return arms[0].mean_reward

    def uses_a_helper(arms, run, rules):
        return int(uses_a_missing_field(arms))

    def first(arms, run, rules):
        return 0

    def tired(arms, run, rules):
        return run.tt > 100

    helper = r"test_simulation.py, line \d+, `return arms\[0\].mean_reward`: there is no"
    for policy, message in (
        (cabai.policy(uses_a_helper), helper),
        (cabai.policy(first, stop=tired), r"policy first cannot be .* `return run.tt > 100`: there is no field 'tt'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            cabai.simulate(paper_instance, policy, trajectories=2, threshold="paper")


def test_more_trajectories_than_memory_holds_are_refused(paper_instance):
    with pytest.raises(InvalidInput, match=r"1000000000000 trajectories would take 72,000 GB of memory, and this"):
        cabai.simulate(paper_instance, "co", trajectories=10**12, threshold="paper")
    with pytest.raises(InvalidInput, match=r"give fewer trajectories, or a shorter grid\."):
        cabai.simulate(paper_instance, "co", trajectories=10**8, grid=range(1, 1000), threshold="paper")


NEEDED = {
    "pandas": ("frames", lambda runs: runs.to_frame()),
    "pyarrow": ("frames", lambda runs: runs.to_parquet("runs.parquet")),
    "distributed": ("dask", lambda runs: cabai.simulate(runs.instance, engine="dask")),
    "ray": ("ray", lambda runs: cabai.simulate(runs.instance, engine="ray")),
    "joblib": ("processes", lambda runs: cabai.simulate(runs.instance, engine="processes")),
    "numba_cuda": ("cuda", lambda runs: cabai.simulate(runs.instance, engine="cuda")),
}


@pytest.mark.parametrize("package", NEEDED)
def test_what_is_not_installed_is_told(paper_instance, monkeypatch, package):
    runs, (extra, call) = cabai.simulate(paper_instance, trajectories=2), NEEDED[package]
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    how = rf'this needs {package}, which is not installed: in a clone of cabai, pip install "\.\[{extra}\]"'
    with pytest.raises(ModuleNotFoundError, match=how):
        call(runs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0}, "delta must lie strictly between 0 and 1, got 0"),
        ({"delta": []}, "delta must be a number or a list"),
        ({"delta": [0.1, 0.1]}, "list of different numbers"),
        ({"trajectories": 0}, "trajectories must be a whole number of at least 1, got 0"),
        ({"seed": 2**64}, "seed must be below"),
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"max_pulls": 2}, "max_pulls must be a whole number of at least 3, got 2"),
        ({"policy": "cta"}, "unknown policy 'cta'; did you mean ctas"),
        ({"policy": "ctas(track=ratio)"}, "policy ctas cannot take 'track=ratio'; did you mean tracking? its para"),
        ({"policy": 7}, "policy must be a name or a policy, got 7"),
        ({"grid": [0]}, "grid must be a whole number of at least 1"),
        ({"instance": "G3"}, "simulate takes a cabai.Instance, got 'G3'"),
        ({"engine": "joblib"}, "one of 'processes', 'dask', 'ray' and 'cuda', or a dask.distributed.Client, got 'jobl"),
        ({"engine": 7}, "got 7"),
        ({"engine": "processes", "address": "tcp://host:1"}, "it needs engine 'dask' or 'ray', got 'processes'"),
        ({"engine": "processes", "workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ({"keep": "all"}, "keep must be 'rows' or 'summary', got 'all'"),
        ({"keep": "summary", "grid": [5]}, "it needs keep='rows'"),
    ],
)
def test_bad_input_is_refused_by_name(paper_instance, options, message):
    arguments = {"instance": paper_instance, "policy": "uniform"} | options
    with pytest.raises(InvalidInput) as error:
        cabai.simulate(arguments.pop("instance"), arguments.pop("policy"), **arguments)
    assert message in str(error.value)


def test_a_run_without_limits_ends_and_is_said_to_be_unfinished(monkeypatch):
    """As where racing drops the best of .2, 0 and 0, and never tells the other two apart (arXiv 2411.01808)."""
    monkeypatch.setattr("cabai.simulation.simulating.LONGEST", 3000)
    tied = cabai.Instance("gaussian", [0, 0], [1, 1])
    runs = cabai.simulate(tied, "racing", trajectories=20, threshold="paper")
    summary = runs.summary()
    assert (summary.unfinished, summary.errors, runs.steps.max()) == (20, 0, 3000)
    said = "ended at a limit of pulls or cost, so the mean cost is too low"
    assert f"unfinished      20: {said}" in str(runs)
    compared = cabai.compare(tied, ["racing", "uniform"], trajectories=20, threshold="paper")
    assert f"racing: 20 {said}." in str(compared)
