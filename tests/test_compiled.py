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
from cabai.core import compiling, evidence, observe, shares, stopping, within
from cabai.core.compiling import cache_directory, compiled
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.families import FAMILIES, Bernoulli, Exponential, Poisson, family_of, mirror_image, slots
from cabai.families.base import lower_end, upper_end
from cabai.policies import policy_of, top_two
from cabai.simulation.truth import open_streams, truth_of
from cabai.simulation.work import Work
from cabai.thresholds import threshold_of

COUNT = """
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    import cabai
    instance = cabai.Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01])
    runs = cabai.simulate(instance, "{policy}", threshold="paper", trajectories=5, delta=0.1)
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


def test_what_is_compiled_is_cached_until_a_helper_in_another_file_changes(tmp_path, source):
    first, second = (run(COUNT.format(policy="uniform"), tmp_path / "cache", source).split() for _ in range(2))
    assert int(first[0]) > 10
    assert int(second[0]) == 0
    assert first[1] == second[1]
    gaussian = source / "cabai" / "families" / "gaussian.py"
    changed = gaussian.read_text().replace(
        "/ (2.0 * rules.variance * (n_a + n_b))", "/ (4.0 * rules.variance * (n_a + n_b))"
    )
    assert changed != gaussian.read_text()
    stamp = gaussian.stat()
    gaussian.write_text(changed)
    os.utime(gaussian, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    after = run(COUNT.format(policy="uniform"), tmp_path / "cache", source).split()
    assert int(after[0]) > 10
    assert float(after[1]) > 1.3 * float(first[1])


def test_a_cache_folder_that_cannot_be_written_does_no_harm(tmp_path, source):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    code = "import numpy; from cabai.core.compiling import compiled; from cabai.support.streams import mix\n"
    assert run(code + "print(compiled(mix)(numpy.uint64(3)) == mix(numpy.uint64(3)))", blocked, source) == "True\n"


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
    return cache_directory.__wrapped__()


def test_the_cache_is_closed_to_others_whatever_the_umask_and_not_in_a_home_folder_that_is_not_there(
    homes, monkeypatch
):
    before = os.umask(0)
    try:
        folder = Path(cache_folder())
    finally:
        os.umask(before)
    assert folder.is_relative_to(homes / "XDG_CACHE_HOME" / "cabai")
    assert {place.stat().st_mode & 0o777 for place in (folder, folder.parent)} == {0o700}
    assert cache_folder() == str(folder)

    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", unknown)
    assert Path(cache_folder()).is_relative_to(homes / "TMPDIR")


def test_compiled_code_is_never_read_from_a_folder_of_others_or_that_they_could_write_to(homes, monkeypatch):
    """It is a pickle, which runs with the rights of its reader. A name that can be guessed can be taken first."""
    planted = homes / "TMPDIR" / f"cabai-{os.geteuid()}"
    (homes / "XDG_CACHE_HOME").chmod(0o777)  # so only temporary files are left
    assert Path(cache_folder()).is_relative_to(planted)
    for mode in (0o777, 0o770, 0o702):
        planted.chmod(mode)
        assert cache_folder() == ""
    planted.chmod(0o700)
    inner = Path(cache_folder())
    inner.chmod(0o707)
    assert cache_folder() == ""
    inner.chmod(0o700)
    for place in (inner, planted, homes / "TMPDIR") if os.geteuid() == 0 else ():  # only root can give it away
        os.chown(place, 65534, 65534)
        assert cache_folder() == ""
        os.chown(place, 0, 0)
    assert cache_folder() == str(inner)
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


def work_on(instance: cabai.Instance, policy: str, threshold: str = "paper", epsilon: float = 0.0) -> Work:
    setup = Setup(
        instance.family, threshold_of(threshold), policy_of(policy), arms=len(instance), delta=0.1, epsilon=epsilon
    )
    return Work([instance], [setup], 0, 2**62, np.inf)


@pytest.mark.skipif(not compiling.UNCOUNTED, reason="this Numba cannot compile without reference counts")
@pytest.mark.parametrize("policy", ["co", "ctas"])
def test_kernels_cannot_allocate_and_release_the_gil(policy, paper_instance):
    """Compiled without Numba's allocator, a kernel that allocated memory would not compile."""
    for function in work_on(paper_instance, policy).compiled():
        assert function.targetoptions["_nrt"] is False
        assert function.targetoptions["nogil"] is True


KINDS = {str(kind): kind for kind in map(family_of, ["gaussian(variance=0.3)", *FAMILIES.names[1:]])}
KINDS |= {kind.name: kind for kind in (mirror_image(Poisson()), mirror_image(Exponential()))}


def some_mean(rng: np.random.Generator, family: str) -> float:
    """Inside the family, near its edges and, where there is one, at its edge."""
    if "gaussian" in family:
        return float(rng.normal(0, 10 ** rng.uniform(-2, 2)))
    if family in ("bernoulli", "bounded"):
        return float(rng.choice([0.0, 1.0, 1e-9, 1 - 1e-9, *rng.uniform(0, 1, 6)]))
    mean = 0.0 if "poisson" in family and rng.uniform() < 0.1 else 10 ** rng.uniform(-3, 3)
    return float(-mean if "mirrored" in family else mean)


def some_total(rng: np.random.Generator, family: str, n: int) -> float:
    """A sum of n rewards."""
    total = n * some_mean(rng, family)
    return round(total) if family == "bernoulli" or "poisson" in family else total


def state_after_some_pulls(rng: np.random.Generator, setup: Setup, family: str) -> tuple[np.ndarray, np.void]:
    """Arms with any sums, often nearly tied, and what the policy is told of them."""
    arms, run = setup.start()
    for a, arm in enumerate(arms):
        n = int(10 ** rng.uniform(0.4, 6))
        first, total = some_total(rng, family, 1), some_total(rng, family, n - 1)
        if a > 0 and rng.uniform() < 0.4:
            first, total = arms[0]["first"], (n - 1) * (arms[0]["mean"] * (1 - 10 ** rng.uniform(-6, -1)))
        arm["pulls"], arm["first"], arm["rewards"], arm["costs"] = n, first, first + total, n * 10 ** rng.uniform(-3, 0)
        arm["mean"], arm["cost"] = arm["rewards"] / n, arm["costs"] / n
    run["t"], run["leader"] = arms["pulls"].sum(), arms["mean"].argmax()
    return arms, run


SLOW = pytest.mark.slow
TESTS = [
    ("evalue", "mirrored poisson", 0.1), ("mixture", "bernoulli", 0.0), ("contrast", "mirrored exponential", 0.1),
    *(pytest.param("evalue", family, 0.1, marks=SLOW) for family in KINDS if family != "mirrored poisson"),
    *(pytest.param(*each, 0.0, marks=SLOW) for each in (
        ("mixture", "gaussian(variance=0.3)"), ("paper", "bernoulli"), ("mixture(pairwise=false)", "bernoulli"))),
    *(pytest.param("contrast", family, epsilon, marks=SLOW) for family in KINDS for epsilon in (0.0, 0.1)),
]  # fmt: skip


@pytest.mark.parametrize(("threshold", "family", "epsilon"), TESTS)
def test_compiled_kernels_called_on_records_give_what_plain_python_gives(threshold, family, epsilon):
    """Also those that a family has in place of what holds for all; with `evalue`, some 20 kernels to compile."""
    setup = Setup(KINDS[family], threshold_of(threshold), policy_of("ctas"), arms=3, delta=0.3, epsilon=epsilon)
    rules, rng = setup.rules, np.random.default_rng(4)
    for _ in range(50):
        p, q, level = some_mean(rng, family), some_mean(rng, family), 10 ** rng.uniform(-6, 3)
        n, tilt = int(10 ** rng.uniform(0, 6)), rng.choice([-1, 1]) * 10 ** rng.uniform(-6, 0.7)
        arms, run = state_after_some_pulls(rng, setup, family)
        check_test(setup, arms, run)
        if threshold != "evalue":
            continue
        calls = [
            (slots.edges,), (stopping.has_prices,), (slots.divergence, p, p - q, q, 1.0 - q),
            (slots.variance_at, q, 1.0 - q), (slots.variance_slope, q), (upper_end, p, level), (lower_end, p, level),
            (slots.remainder, n, some_total(rng, family, n)), (within.lowered, q),
        ]  # fmt: skip
        if q != 0.0:  # no exponential law has that mean
            calls.append((slots.tilted, tilt, *setup.family.tilt(tilt), n, p - q, q))
            calls.append((slots.straightened, q, 0.5 * (p - q)))
        b, a = arms[np.argsort(-arms["mean"])[:2]]
        of_pairs = evidence.evidence, evidence.evidence_at_most, evidence.evidence_at_least, within.evidence_within
        calls += [(function, b, a) for function in (*of_pairs, top_two.coin)]
        sizes = int(b["pulls"]), float(b["mean"]), int(a["pulls"]), float(a["mean"])
        calls += [(evidence.pair_evidence, *sizes), (within.parts_within, *sizes)]
        for shift in (0.1, -0.5 * abs(sizes[1] - sizes[3])):
            calls += [(within.meeting_point_at, *sizes, shift), (within.parts_at, *sizes, shift)]
        for function, *given in calls:
            check_both_forms(setup, function, rules, *given)
        check_both_forms(setup, shares.allocate, arms, run, rules)
        if b["mean"] > a["mean"]:
            check_both_forms(setup, shares.solve_shares, arms, run, rules)


def check_test(setup: Setup, arms: np.ndarray, run: np.void) -> None:
    """All that a threshold says of some arms."""
    for arm in arms:
        check_both_forms(setup, observe.weigh, arm, setup.rules)
        setup.bound(observe.weigh)(Record(arm), Record(setup.rules))
    t, (b, a) = int(run["t"]), arms[np.argsort(-arms["mean"])[:2]]
    check_both_forms(setup, stopping.required, t, setup.rules)
    check_both_forms(setup, stopping.interval_level, b, t, setup.rules, 3)
    for function in (stopping.beats, stopping.is_settled, stopping.surplus):
        check_both_forms(setup, function, setup.rules, t, b, a)
    check_both_forms(setup, stopping.leader_beats_every_rival, arms, run, setup.rules)


def check_both_forms(setup: Setup, function, *given) -> None:
    """Called on copies of what they may change, both forms return the same and leave the same records behind."""
    plain, fast = (
        [value.copy() if isinstance(value, np.ndarray | np.void) else value for value in given] for _ in range(2)
    )
    with np.errstate(all="ignore"):
        expected = setup.bound(function)(*map(seen, plain))
    found = compiled(setup.bound(function))(*fast)
    found, expected = (np.array([] if each is None else each, float) for each in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=function.__name__)
    for one, other in zip(plain, fast, strict=True):
        if isinstance(one, np.ndarray | np.void):
            for name in one.dtype.names:
                np.testing.assert_allclose(other[name], one[name], rtol=1e-12, err_msg=f"{function}: {name}")


def seen(value: object) -> object:
    """What is given to compiled code, as plain Python sees it."""
    return Record(value) if isinstance(value, np.void) else Records(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("family", FAMILIES.names)
def test_compiled_draws_are_those_of_plain_python(family):
    means = {"gaussian": [-3.0, 0.5], "poisson": [0.5, 30.0], "exponential": [0.5, 30.0]}.get(family, [0.3, 0.9])
    instance = cabai.Instance(family, means, [1, 1])
    draw, seed = instance.family.drawing(means), np.uint64(3)
    plain, fast = truth_of(instance), truth_of(instance)
    with np.errstate(over="ignore"):
        assert open_streams(Records(plain), seed, seed) == compiled(open_streams)(fast, seed, seed)
        for a in (0, 1):
            expected = [draw(Record(plain[a])) for _ in range(2000)]
            assert [compiled(draw)(fast[a]) for _ in range(2000)] == pytest.approx(expected, rel=1e-12)
        setup = Setup(instance.family, threshold_of("paper"), arms=2, delta=0.3)
        mean, rules = setup.bound(slots.draw_mean), setup.rules
        expected = [mean(Record(rules), Record(plain[0]), 7, 2.0) for _ in range(200)]
        assert [compiled(mean)(rules, fast[0], 7, 2.0) for _ in range(200)] == pytest.approx(expected, rel=1e-12)
    assert plain["stream"].tolist() == fast["stream"].tolist()


def test_compiled_kernels_call_what_a_family_has_of_its_own():
    """A bound of Z that is 0 keeps any arm from being beaten, in both forms; no other family sees it."""

    def evidence_at_most(rules, b, a):
        return 0.0

    class Stubborn(Bernoulli):
        functions = (*Bernoulli.functions, evidence_at_most)

    for kind, answer in ((Bernoulli(), True), (Stubborn(), False), (Bernoulli(), True)):
        setup = Setup(kind, threshold_of("evalue"), arms=2, delta=0.1)
        arms, run = cabai.Statistics("bernoulli", [100, 100], [90, 10]).state(setup)
        assert setup.stop(Records(arms), Record(run), Record(setup.rules)) is answer
        assert compiled(setup.stop)(arms, run, setup.rules) is answer


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


WITHOUT_PRIVATE_NUMBA = """
from cabai.core import compiling
compiling.UNCOUNTED, compiling.HELPER, compiling.HELPER_COMPILER = {}, {}, {}
compiling.cache_directory = lambda: ""
"""
SOME_TRAJECTORIES = """
import cabai
instance = cabai.Instance("bernoulli", [0.9, 0.6, 0.3], [1, 0.1, 0.01])
runs = cabai.simulate(instance, "uniform", trajectories=20, workers=1)
print(repr(runs.costs.sum()), runs.pulls.sum(axis=0).tolist())
"""


@pytest.mark.slow
def test_a_numba_without_what_is_not_public_gives_the_same_trajectories(tmp_path, capsys):
    plain = run(WITHOUT_PRIVATE_NUMBA + SOME_TRAJECTORIES, tmp_path / "cache", Path(cabai.__file__).parents[1])
    exec(SOME_TRAJECTORIES, {})
    assert plain == capsys.readouterr().out != ""
