"""What is compiled is compiled once, cached, and never stale."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cabai

COUNT = """
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    import cabai
    instance = cabai.Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01])
    runs = cabai.simulate(instance, "{policy}", trajectories=5, delta=0.1)
    summary = runs.summary()
print(sum(1 for _, record in recorder.buffer if record.is_start), summary.mean_cost)
"""


def run(code: str, cache: Path, source: Path) -> str:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(source)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=300
    ).stdout


@pytest.fixture
def source(tmp_path):
    """A copy of the package, to edit."""
    shutil.copytree(
        Path(cabai.__file__).parent, tmp_path / "src" / "cabai", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path / "src"


@pytest.mark.parametrize("policy", ["co", "ctas"])
def test_second_process_compiles_nothing(tmp_path, source, policy):
    first = run(COUNT.format(policy=policy), tmp_path / "cache", source).split()
    second = run(COUNT.format(policy=policy), tmp_path / "cache", source).split()
    assert int(first[0]) > 10
    assert int(second[0]) == 0
    assert first[1] == second[1]


def test_editing_a_helper_in_another_file_is_noticed(tmp_path, source):
    before = run(COUNT.format(policy="co"), tmp_path / "cache", source).split()
    evidence = source / "cabai" / "kernels" / "evidence.py"
    changed = evidence.read_text().replace("/ (2.0 * variance * n)", "/ (4.0 * variance * n)")
    assert changed != evidence.read_text()
    stamp = evidence.stat()
    evidence.write_text(changed)
    os.utime(evidence, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    after = run(COUNT.format(policy="co"), tmp_path / "cache", source).split()
    assert int(after[0]) > 10
    assert float(after[1]) > 1.3 * float(before[1])


def test_a_cache_folder_that_cannot_be_written_does_no_harm(tmp_path, source):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    count, _ = run(COUNT.format(policy="uniform"), blocked, source).split()
    assert int(count) > 10


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """A home folder, a cache folder and a folder for temporary files of the test's own."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "TMPDIR").chmod(0o1777)
    return tmp_path


def cache_folder() -> str:
    from cabai.compiling import cache_directory

    return cache_directory.__wrapped__("all")


def test_the_cache_is_closed_to_others_whatever_the_umask(homes):
    before = os.umask(0)
    try:
        folder = Path(cache_folder())
    finally:
        os.umask(before)
    assert folder.is_relative_to(homes / "XDG_CACHE_HOME" / "cabai")
    assert {place.stat().st_mode & 0o777 for place in (folder, folder.parent, folder.parent.parent)} == {0o700}
    assert cache_folder() == str(folder)


def test_compiled_code_is_never_read_from_a_folder_that_others_could_write_to(homes, monkeypatch):
    """It is a pickle, which runs as whoever reads it. A name that can be guessed can be taken first."""
    planted = homes / "TMPDIR" / f"cabai-{os.geteuid()}"
    (homes / "XDG_CACHE_HOME").chmod(0o777)  # so there is no good place but among the temporary files
    assert Path(cache_folder()).is_relative_to(planted)
    for mode in (0o777, 0o770, 0o702):
        planted.chmod(mode)
        assert cache_folder() == ""
    planted.chmod(0o700)
    inner = Path(cache_folder())
    inner.chmod(0o707)
    assert cache_folder() == ""
    inner.chmod(0o700)
    (homes / "TMPDIR").chmod(0o777)  # not sticky: others can put another folder in its place
    assert cache_folder() == ""
    (homes / "TMPDIR").chmod(0o1777)
    planted.rename(homes / "TMPDIR" / "elsewhere")
    planted.symlink_to(homes / "XDG_CACHE_HOME")  # a link is followed before it is judged
    assert cache_folder() == ""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(homes / "XDG_CACHE_HOME" / "chosen"))  # nor is a user's choice trusted
    assert cache_folder() == ""
    (homes / "XDG_CACHE_HOME").chmod(0o755)
    assert Path(cache_folder()).is_relative_to(homes / "XDG_CACHE_HOME" / "chosen")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder somebody else's")
def test_compiled_code_is_never_read_from_a_folder_of_somebody_elses(homes):
    (homes / "XDG_CACHE_HOME").chmod(0o777)
    planted = Path(cache_folder())
    for place in (planted, planted.parent, planted.parent.parent, homes / "TMPDIR"):
        os.chown(place, 65534, 65534)
        assert cache_folder() == ""
        os.chown(place, 0, 0)
    assert cache_folder() == str(planted)


def test_a_user_without_a_home_folder_has_no_cache_there(homes, monkeypatch):
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", unknown)
    assert Path(cache_folder()).is_relative_to(homes / "TMPDIR")


def test_kernels_cannot_allocate_and_release_the_gil():
    """Compiled without Numba's allocator, a kernel that allocated memory would not compile."""
    from cabai.compiling import compiled
    from cabai.kernels.allocation import allocate
    from cabai.simulation.loop import RUN_CHUNK, run_chunk

    for function in (compiled(allocate), compiled(run_chunk, RUN_CHUNK)):
        assert function.targetoptions["_nrt"] is False
        assert function.targetoptions["nogil"] is True


POLICIES = "co", "ctas", "top-two", "d-lucb"
MEANS = {"gaussian": [1.5, 1, 0.5], "bernoulli": [0.9, 0.6, 0.3], "poisson": [1.5, 1, 0], "exponential": [1.5, 1, 0.5]}


@pytest.mark.parametrize("threshold", ["paper", "evalue"])
@pytest.mark.parametrize("family", [*MEANS, "bounded"])
def test_what_is_left_out_for_a_family_is_never_called(family, threshold, monkeypatch):
    """Compiled with everything, the same trajectories come out."""
    means = MEANS.get(family, MEANS["bernoulli"])
    instance = cabai.Instance(family, means, [1, 0.1, 0.01])
    other = cabai.Instance(
        family, [12, 11.5, 3] if family == "poisson" else means, [1, 0.1, 0.01], cost_model="exponential"
    )
    cases = [*((instance, policy) for policy in POLICIES), (other, "co")]
    runs = [cabai.simulate(*case, threshold=threshold, trajectories=50) for case in cases]
    monkeypatch.setattr("cabai.compiling.features_of", lambda *given: None)
    whole = [cabai.simulate(*case, threshold=threshold, trajectories=50) for case in cases]
    for a, b in zip(runs, whole, strict=True):
        assert a.costs.tolist() == b.costs.tolist()
        assert a.pulls.tolist() == b.pulls.tolist()


def test_kernels_run_the_same_as_plain_python():
    """A trajectory driven step by step in plain Python makes the pulls that the compiled engine makes."""
    from cabai.kernels.evidence import begin, observe
    from cabai.policies import policy_of
    from cabai.state import ARM, RUN, Record, Records, record
    from cabai.thresholds import threshold_of
    from conftest import coins, drawer

    instance = cabai.Instance("bernoulli", [0.9, 0.6, 0.3], [1, 0.1, 0.01], cost_model="uniform")
    for name in ("co", "ctas", "tas", "top-two", "d-lucb", "racing", "uniform"):
        policy = policy_of(name)
        rules = Record(policy.rules(instance.family, threshold_of("evalue"), arms=3, delta=0.05))
        arms, run, draw = Records(np.zeros(3, ARM)), Record(record(RUN)), drawer(instance, 0, 0)
        coin = coins(instance, 0, 0)
        begin(arms, run)
        for a in range(3):
            observe(arms, run, rules, a, *draw(a))
        while not policy.stop(arms, run, rules):
            run.uniform = coin()
            a = policy.choose(arms, run, rules)
            observe(arms, run, rules, a, *draw(a))
        runs = cabai.simulate(instance, name, threshold="evalue", delta=0.05, trajectories=1)
        assert (arms.array["pulls"].tolist(), run.leader) == (runs.pulls[0].tolist(), runs.decisions[0])
        assert run.paid == pytest.approx(runs.costs[0], rel=1e-12)


def test_forms_of_a_function_for_different_families_have_different_names():
    """Numba looks up a function that is handed to another by its name, also where two processes have cached both."""
    from cabai.compiling import STOP, compiled
    from cabai.kernels.evidence import leader_beats_every_rival

    features = [
        frozenset(names) for names in (["gaussian"], ["gaussian", "epsilon"], ["gaussian", "evalue", "epsilon"])
    ]
    forms = [compiled(leader_beats_every_rival, STOP, each) for each in features]
    names = {form.get_compile_result(STOP).fndesc.qualname for form in forms}
    assert len(names) == len(forms)


SEVERAL = """
import sys, cabai
instances = {"gaussian": cabai.Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01]),
             "bernoulli": cabai.Instance("bernoulli", [0.9, 0.6, 0.3], [1, 0.1, 0.01])}
for family, epsilon in CASES:
    runs = cabai.simulate(instances[family], "co", threshold="evalue", epsilon=epsilon, trajectories=20, max_pulls=5000)
    print(runs.costs.mean(), end=" ")
"""


@pytest.mark.slow
def test_what_several_processes_have_compiled_can_be_used_by_one(tmp_path, source):
    cases = [("gaussian", 0.25), ("gaussian", 0.0), ("bernoulli", 0.0)]
    alone = [run(SEVERAL.replace("CASES", repr([case])), tmp_path / "cache", source).split()[0] for case in cases]
    together = run(SEVERAL.replace("CASES", repr([*cases, *cases, *cases[::-1]])), tmp_path / "cache", source).split()
    assert together == [*alone, *alone, *alone[::-1]]
