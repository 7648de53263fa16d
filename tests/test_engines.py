"""Threads, processes, Dask and Ray: the same results to the bit, whatever happens to a worker."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import subprocess
import sys
import time
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import cabai
from cabai import EngineFailed
from cabai.core.setup import Setup
from cabai.simulation.engines import opened, task
from cabai.simulation.engines.task import packed
from cabai.simulation.sums import Sums, exact_sums
from cabai.simulation.work import Work
from conftest import differing
from shell import here

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
HARD = ["--family", "bernoulli", "--means", "0.5,0.4999999", "--costs", "1,1", "--policy", "ctas"]  # all but endless
#: "dask here" is a cluster in this process: clusters of processes start slowly.
CLUSTERS = [pytest.param(each, marks=pytest.mark.slow) for each in ("dask", "ray")]
ENGINES = ["processes", *CLUSTERS]


def dask_cluster(processes: bool):
    """A client of a Dask cluster of two workers, of one thread each."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "set_as_default": False}
    with distributed.Client(processes=processes, **options) as client:
        yield client


@pytest.fixture(scope="module")
def dask():
    yield from dask_cluster(processes=True)


@pytest.fixture
def dask_here():
    yield from dask_cluster(processes=False)


@pytest.fixture(scope="module")
def ray():
    """A Ray of two worker processes."""
    ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray
    ray.shutdown()


@pytest.fixture
def engine(request):
    """What to give as `engine`, by its name; a cluster is running already."""
    if request.param in ("dask", "dask here"):
        return request.getfixturevalue(request.param.replace(" ", "_"))
    if request.param == "ray":
        request.getfixturevalue("ray")
    return request.param


@pytest.fixture
def own(monkeypatch):
    """A family, a threshold and a policy of a user's own."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from geometric import Geometric
    from half_log import HalfLog
    from thompson import thompson

    return Geometric(), HalfLog(extra=0.5), thompson


@pytest.mark.parametrize("engine", ["dask here", *ENGINES], indirect=True)
def test_an_engine_gives_what_threads_give_also_for_what_is_ones_own(engine, own, monkeypatch):
    family, threshold, policy = own
    instance = cabai.Instance(family, means=[3, 1, 0.5], costs=[1, 0.1, 0.01], cost_model="beta")
    options = {"delta": [0.01, 0.2], "threshold": threshold, "trajectories": 700, "seed": 3}
    here = cabai.simulate(instance, policy, grid=[3, 20], **options)
    short = cabai.simulate(instance, policy, keep="summary", **options)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # of this machine: a cluster has its own
    with opened(engine, workers=2 if engine == "processes" else None) as place:
        assert place.cores == 2
        for a, b in zip(here, cabai.simulate(instance, policy, grid=[3, 20], engine=place, **options), strict=True):
            assert differing(a, b) == 0
        there = cabai.simulate(instance, policy, keep="summary", engine=place, **options)
    for a, b in zip(short, there, strict=True):
        assert pickle.dumps(vars(a.sums)) == pickle.dumps(vars(b.sums))  # to the bit


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
@pytest.mark.slow
def test_compare_calibrate_bench_and_reproduce_take_an_engine(engine, paper_instance):
    from cabai.bench import bench
    from cabai.paper import reproduce

    seen: list[int] = []

    def found(engine):
        for keep in ("rows", "summary"):
            options = {"delta": 0.1, "trajectories": 60, "progress": seen.append}
            yield repr(cabai.compare(paper_instance, ["co", "ctas"], keep=keep, engine=engine, **options))
            assert seen[-1] == 120
        options = {"delta": 0.2, "max_pulls": 20, "trajectories": 300}
        yield cabai.calibrate("gaussian", [1, 1], "racing", engine=engine, **options).searched
        yield [row["mean_cost"] for row in bench(["menard19"], ["co"], trajectories=10, engine=engine).rows]
        yield reproduce("table1", trajectories=20, engine=engine)[0][0].tables[0].rows

    assert list(found(None)) == list(found(engine))


@pytest.mark.slow
def test_a_ray_cluster_by_its_address(paper_instance):
    """One that `ray start` has made, with the token that it asks for."""
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    start = [*ray, "start", "--head", "--num-cpus", "2", "--port", "6397", "--include-dashboard", "false"]
    subprocess.run([*start, "--disable-usage-stats"], check=True, capture_output=True, timeout=120)
    try:
        options = ["--family", "gaussian", "--means", "1.5,1,0.5", "--costs", "1,0.1,0.01", "--trajectories", "300"]
        found = [
            subprocess.run([sys.executable, "-m", "cabai", "simulate", *options, "--json", *more],
                           capture_output=True, text=True, timeout=200)
            for more in ([], ["--engine", "ray", "--address", "127.0.0.1:6397"])
        ]  # fmt: skip
    finally:
        subprocess.run([*ray, "stop", "--force"], check=False, capture_output=True, timeout=120)
    assert [(each.returncode, each.stderr) for each in found] == [(0, "")] * 2
    here, there = (json.loads(each.stdout) for each in found)
    assert {**here, "seconds": 0} == {**there, "seconds": 0}


@pytest.mark.slow
def test_dask_without_a_cluster_starts_one_and_ends_it(paper_instance):
    code = (
        "import cabai\n"
        "if __name__ == '__main__':\n"
        "    instance = cabai.Instance('gaussian', means=[1.5, 1, 0.5], costs=[1, 0.1, 0.01])\n"
        "    for engine in (None, 'dask', 'ray', 'processes'):\n"
        "        print(cabai.simulate(instance, trajectories=50, engine=engine, workers=2).costs.sum().hex())\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.split()) == 4
    assert len(set(done.stdout.split())) == 1


def test_what_is_ones_own_is_unpacked_where_its_files_are_not(own, tmp_path):
    family, threshold, policy = own
    instance = cabai.Instance(family, means=[3, 1, 0.5], costs=[1, 0.1, 0.01])
    work = Work([instance], [Setup(family, threshold, policy, arms=3, delta=0.1)], 0, 2**62, math.inf)
    (tmp_path / "work").write_bytes(packed(work))
    code = (
        "import pickle, sys\n"
        "from cabai.simulation.engines import task\n"
        "part = task.run(open('work', 'rb').read(), 10, 5)\n"
        "again = task.unpacked(open('work', 'rb').read())\n"
        "assert 'thompson' not in sys.modules\n"
        "assert again is task.unpacked(open('work', 'rb').read())\n"
        "print(part.rows[0]['cost'].sum().hex())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == work.run(10, 5, np.zeros(2, np.int64)).rows[0]["cost"].sum().hex()


def worker_pids(engine, client) -> list[int]:
    import psutil

    if engine == "dask":
        return list(client.run(os.getpid).values())
    name = "ray::run" if engine == "ray" else "LokyProcess"
    children = psutil.Process().children(recursive=True)
    return [each.pid for each in children if any(name in part for part in each.cmdline())]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.slow
def test_a_worker_that_is_killed_costs_nothing_but_time(engine, request, paper_instance):
    client = request.getfixturevalue("dask") if engine == "dask" else None
    if engine == "ray":
        request.getfixturevalue("ray")
    options = {"delta": 1e-9, "trajectories": 60_000}
    expected = cabai.simulate(paper_instance, "top-two", **options)
    killed: list[int] = []

    def kill(done: int) -> None:
        if not killed and done > 2000:
            killed.extend(worker_pids(engine, client)[:1])
            os.kill(killed[0], signal.SIGKILL)

    place = client or engine
    found = cabai.simulate(paper_instance, "top-two", engine=place, workers=2, progress=kill, **options)
    assert len(killed) == 1
    assert differing(expected, found) == 0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.slow
def test_ctrl_c_stops_within_seconds_and_says_what_is_cancelled(engine):
    """To all processes of the group, as a terminal sends it."""
    command = [sys.executable, "-m", "cabai", "simulate", *HARD, "--engine", engine, "--workers", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    time.sleep(20)
    assert process.poll() is None
    started = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - started < 15
    assert (process.returncode, out) == (130, "")
    where = {"processes": "in other processes", "dask": "on Dask", "ray": "on Ray"}[engine]
    assert err == f"cabai: stopped: 2 tasks that were under way or queued {where} were cancelled.\n"


def test_a_task_that_stops_early_and_a_worker_of_another_version_are_errors(paper_instance, monkeypatch):
    run = Work.run
    monkeypatch.setattr(Work, "run", lambda work, first, count, signals: run(work, first, count - 1, signals))
    with pytest.raises(EngineFailed, match="stopped before it finished"):
        cabai.simulate(paper_instance, "uniform", trajectories=10, threshold="paper", workers=1)
    setup = Setup(paper_instance.family, cabai.thresholds.Stylized(), cabai.policies.CO(), arms=3, delta=0.1)
    work = Work([paper_instance], [setup], 0, 2**62, math.inf)
    sent = packed(work)
    monkeypatch.setattr("cabai.simulation.engines.task.__version__", "0.0.9")
    with pytest.raises(EngineFailed, match=r"a worker has cabai 0\.0\.9, and you have .*: install the same version"):
        task.unpacked(sent)


def test_sums_and_quantiles_are_exact():
    random = np.random.default_rng(0)
    many = [0.1] * 3000  # whose sum does not fit in 64 bits
    values = np.concatenate([10 ** random.uniform(-100, 100, 500), many, [5e-324, 1e300, 0.0]])
    total, squares = exact_sums(values)
    assert Fraction(total, 2**1126) == sum(map(Fraction, values.tolist()))
    assert Fraction(squares, 2**2252) == sum(Fraction(value) ** 2 for value in values.tolist())

    def of(costs: list[float]) -> Sums:
        rows = np.zeros(len(costs), [("decision", "i8"), ("cost", "f8"), ("steps", "i8")])
        rows["cost"] = costs
        return Sums.of(rows, np.ones((len(costs), 2), np.int64), np.array([0]))

    assert [of([0.3] * 9).quantile(q) for q in (0, 0.5, 1)] == [0.3] * 3
    assert (of([0.3] * 9).mean, of([0.3] * 9).std, of([7.0]).std) == (0.3, 0.0, 0.0)
    assert of([1.0, 1e6]).quantile(0.25) == pytest.approx(np.quantile([1, 1e6], 0.25), rel=2**-11)


def test_totals_say_what_rows_say(paper_instance):
    options = {"delta": 0.2, "trajectories": 3000, "max_pulls": 250, "threshold": "stylized"}
    rows = cabai.simulate(paper_instance, "co", **options).summary()
    kept = cabai.simulate(paper_instance, "co", keep="summary", **options)
    assert len(kept) == 3000
    found, expected = kept.summary().to_dict(), rows.to_dict()
    assert found["errors"] > 0
    assert found["unfinished"] > 0
    for name, value in expected.items():
        if name == "cost_quantiles":
            assert all(math.isclose(found[name][q], value[q], rel_tol=2**-11) for q in value)
        elif value is None or isinstance(value, (int, str)):
            assert found[name] == value, name
        elif name != "seconds":
            assert found[name] == pytest.approx(value, rel=1e-12), name


@pytest.mark.parametrize("cut", [[1], [999], [1, 2, 3, 500, 501], list(range(1, 1000))])
def test_sums_do_not_depend_on_how_trajectories_are_cut_nor_on_their_order(paper_instance, cut):
    runs = cabai.simulate(paper_instance, "co", trajectories=1000)
    rows = np.zeros(1000, [("decision", "i8"), ("cost", "f8"), ("steps", "i8")])
    rows["decision"], rows["cost"], rows["steps"] = runs.decisions, runs.costs, runs.steps
    right = np.array([0])
    parts = [Sums.of(*pair, right) for pair in zip(np.split(rows, cut), np.split(runs.pulls, cut), strict=True)]
    np.random.default_rng(len(cut)).shuffle(parts)
    together = parts[0]
    for part in parts[1:]:
        together = together + part
    assert pickle.dumps(vars(together)) == pickle.dumps(vars(Sums.of(rows, runs.pulls, right)))


def test_memory_does_not_grow_with_trajectories_of_which_a_summary_is_kept():
    instance = cabai.Instance("gaussian", means=[9, 0], costs=[1, 1])
    peaks = []
    for trajectories in (200_000, 1_600_000):
        tracemalloc.start()
        kept = cabai.simulate(instance, "uniform", trajectories=trajectories, keep="summary", workers=2)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(kept) == trajectories
    assert peaks[1] < 1.5 * peaks[0]
    assert peaks[1] < 1_600_000 * 8 * 5 / 4  # a quarter of what its rows alone would take


def test_the_shell_refuses_what_does_not_go_together_and_a_scheduler_that_is_not_there():
    import dask

    for arguments, message, code in (
        (["--address", "tcp://host:1"], "an address is for a cluster: it needs engine 'dask' or 'ray', got None.", 2),
        (["--keep", "summary", "--out", "x.parquet"], "--out needs --keep rows: it writes every trajectory.", 2),
        (["--engine", "spark"], "engine must be one of processes, dask, ray, cuda, or left out, got 'spark'.", 2),
        (["--engine", "dask", "--address", "tcp://127.0.0.1:9"], "cannot reach a Dask scheduler at tcp://127.0", 1),
    ):
        with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
            done = here("simulate", *HARD, *arguments)
        assert (done.returncode, message in done.stderr, done.stderr.count("\n")) == (code, True, 1)
