"""The engine for GPUs: without one it compiles and is simulated in Python; with one it gives what threads give."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import cabai
from cabai import policies
from cabai.core.compiling import UNCOUNTED
from cabai.core.setup import Setup
from cabai.policies import policy_of
from cabai.simulation.work import Work
from cabai.support.specialise import apart, called_apart
from cabai.thresholds import threshold_of
from conftest import differing
from shell import here

numba_cuda = pytest.importorskip("numba_cuda", reason="the extra cuda is not installed")
from cabai.simulation.engines import cuda  # noqa: E402

MEANS = {
    "gaussian": [1.5, 1, 0.5], "bernoulli": [0.9, 0.5, 0.3], "poisson": [3, 1, 0.5], "exponential": [3, 1, 0.5],
    "bounded": [0.9, 0.5, 0.3], "gaussian(variance=unknown)": [3, 1, 0],
}  # fmt: skip
POLICIES = ["top-two", "co", "ctas", "d-lucb", "racing", "tas", "uniform"]
EACH_POLICY = policies.POLICIES.names
COSTS = [1, 0.1, 0.01]


def has_gpu() -> bool:
    try:
        return len(cuda.numba_cuda().gpus) > 0
    except Exception:
        return False


def work_of(family: str, policy: object, **options: object) -> Work:
    instance = cabai.Instance(family, MEANS[family], COSTS, cost_model=options.pop("cost_model", "fixed"))
    best_of = 2 if "epsilon" in options else len(instance)
    rule, chosen = threshold_of(options.pop("threshold", None), instance.family, best_of), policy_of(policy)
    setup = Setup(instance.family, rule, chosen, arms=3, delta=0.05, budget=100 if chosen.spends_budget else np.inf,
                  **options)  # fmt: skip
    return Work([instance], [setup], 0, 2**62, np.inf)


@pytest.fixture
def no_gpu(monkeypatch):
    """Compile for an H100 or H200 without having one; a kernel is then its PTX."""
    from numba import cuda as device
    from numba.cuda import dispatcher

    jit = device.jit

    def to_ptx(*signature: object, **options: object) -> object:
        if not signature:
            return jit(**options)
        how = {"device": False, "cc": (9, 0), "output": "ptx", "abi": "numba", "opt": False}
        return lambda function: device.compile(function, *signature, **how)[0]

    here = SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: here)
    monkeypatch.setattr(device, "jit", to_ptx)
    cuda.compiled_kernel.cache_clear()
    yield
    cuda.compiled_kernel.cache_clear()


# --- Without a GPU ---------------------------------------------------------------------------------------------------


COMPILED = [("poisson", "top-two"), ("gaussian(variance=unknown)", "top-two")]  # in the default run


def is_usable(family: str, policy: str) -> bool:
    """Whether the family's default test and the policy go together."""
    try:
        return work_of(family, policy) is not None
    except cabai.InvalidInput:
        return False


EVERY = [each for each in product(MEANS, EACH_POLICY) if is_usable(*each)]


def test_every_family_and_policy_has_a_kernel():
    """With its default test for three arms; without a variance, only policies that need no divergence."""
    assert {family for family, _ in EVERY} == set(MEANS)
    assert {policy for _, policy in EVERY} == set(EACH_POLICY)
    tests = {str(work_of(family, "top-two").setup.threshold) for family in MEANS}
    assert tests == {"champion", "symmetric"}


OTHERS = [
    ("bernoulli", {"epsilon": 0.1}), ("gaussian", {"threshold": "evalue", "cost_model": "exponential"}),
    ("bounded", {"epsilon": 0.1, "cost_model": "beta"}), ("poisson", {"threshold": "mixture"}),
    ("exponential", {"threshold": "contrast"}), ("gaussian", {"threshold": "hedged"}),
    ("bounded", {"threshold": "bets"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "policy", "options"),
    [
        *(pytest.param(*each, {}, marks=() if each in COMPILED else pytest.mark.slow) for each in EVERY),
        *(pytest.param(family, "top-two", options, marks=pytest.mark.slow) for family, options in OTHERS),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_it_compiles_to_the_code_of_a_gpu(family, policy, options):
    """Also other tests and costs, and with an epsilon; then with arms in global memory."""
    tuning = cuda.Tuning(local=0) if options else cuda.Tuning()
    code = cuda.kernel_of(work_of(family, policy, **options), tuning)[0]
    assert ".entry" in code
    assert ".target sm_90" in code
    assert " mul.f64" not in code  # rounded like on a CPU: no product is contracted with a sum


SIMULATED = """
import json, sys
import numpy as np
import cabai
from cabai.simulation.engines import cuda

np.seterr(all="ignore")
found = []
for family, policy, deltas, options in json.loads(sys.argv[1]):
    means, model = options.pop("means"), options.pop("cost_model", "fixed")
    instance = cabai.Instance(family, means, [1, 0.1, 0.01][: len(means)], cost_model=model)
    on_gpu = cuda.Cuda(tuning=cuda.Tuning(local=options.pop("local", 1024)))
    both = [cabai.simulate(instance, policy, delta=deltas, engine=engine, **options) for engine in (None, on_gpu)]
    if options.get("keep") == "summary":
        found.append([a.to_dict() | {"seconds": 0} == b.to_dict() | {"seconds": 0} for a, b in
                      zip(*([each.summary() for each in one] for one in both))])
    else:
        found.append([bool(np.array_equal(getattr(a, name), getattr(b, name)))
                      for a, b in zip(*both) for name in ("decisions", "costs", "steps", "pulls", "path")])
json.dump(found, sys.stdout)
"""


def in_simulator(*arguments: str) -> str:
    """What a Python process with these arguments prints, where numba-cuda simulates a GPU in Python."""
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "PYTHONWARNINGS": "ignore"}
    found = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=900)
    assert found.returncode == 0, found.stderr
    return found.stdout


def simulated(*cells: tuple[object, ...]) -> list[list[bool]]:
    """For each cell, what is the same on a simulated GPU as in threads."""
    return json.loads(in_simulator("-c", SIMULATED, json.dumps(cells)))


def test_a_simulated_gpu_makes_the_trajectories_of_threads():
    """Several levels, paths and limits; more trajectories than threads; arms in local and in global memory."""
    path = {"means": [0.9, 0.4, 0.3], "trajectories": 9, "grid": [3, 7, 20], "max_pulls": 40, "seed": 3}
    few = {"means": [2.0, 0.5], "trajectories": 6, "max_cost": 12.0, "cost_model": "beta", "local": 0}
    counted = {"means": [4, 1, 0], "threshold": "champion", "trajectories": 4}
    cells = ("bernoulli", "top-two", [0.2, 0.1], path), ("gaussian", "co", [0.3], few)
    bounded = counted | {"means": [0.9, 0.4, 0.2]}
    same = simulated(*cells, ("gaussian", "top-two", [0.2, 0.1], counted), ("bounded", "top-two", [0.2, 0.1], bounded))
    assert all(map(all, same)), same


@pytest.mark.parametrize("family", MEANS)
@pytest.mark.slow
def test_a_simulated_gpu_makes_them_with_every_policy(family):
    options = {"means": MEANS[family], "trajectories": 7, "max_pulls": 300}
    cells = [(family, policy, [0.1], options) for policy in POLICIES if is_usable(family, policy)]
    same = simulated(*cells, (family, "top-two", [0.1], options | {"keep": "summary"}))
    assert all(map(all, same)), same


INTERRUPTED = """
import json
from concurrent.futures import ThreadPoolExecutor
import cabai
from cabai.simulation.engines import cuda

def stop(done):
    raise KeyboardInterrupt

def engine(workers):
    made = cuda.Cuda(workers)
    made.pool = ThreadPoolExecutor(1)  # the simulator runs one kernel at a time
    return made

device = cuda.numba_cuda()
device.gpus, used, ended, told = [device.gpus[0], device.gpus[0]], [], [], ""
rows = cuda.Cuda.run
cuda.Cuda.run = lambda self, gpu, *more: (used.append(gpu), rows(self, gpu, *more))[1]
instance, options = cabai.Instance("gaussian", [3, 0], [1, 1]), {"trajectories": 40, "delta": 0.3, "keep": "summary"}
two = cabai.simulate(instance, "co", progress=ended.append, engine=engine(None), **options).sums.trajectories
both, used[:] = sorted(set(used)), []
one = cabai.simulate(instance, "co", engine=engine(1), **options).sums.trajectories
alone = sorted(set(used))
try:
    cabai.simulate(instance, "co", progress=stop, engine=engine(None), **options)
except KeyboardInterrupt as error:
    told = error.__notes__[0]
print(json.dumps([two, one, both, alone, ended, told]))
"""


def test_several_gpus_share_the_work_and_between_launches_there_is_progress_and_ctrl_c():
    two, one, both, alone, ended, told = json.loads(in_simulator("-c", INTERRUPTED))
    assert two == one == ended[-1] == 40
    assert (both, alone) == ([0, 1], [0])
    assert len(ended) >= 3
    assert ended == sorted(set(ended))
    assert told.endswith("on the GPU were cancelled.")


IN_THE_SHELL = [
    "simulate --family gaussian --means 3,0 --costs 1,1 --delta 0.3 --trajectories 5",
    "compare --family bernoulli --means 0.9,0.1 --costs 1,1 --policies co,top-two --delta 0.3 --trajectories 4",
    "calibrate --family gaussian --costs 1,1 --policy co --delta 0.3 --max-pulls 8 --trajectories 60",
    "plan --family gaussian(variance=1) --means 2..3,0 --draws 20 --delta 0.3",
    "bench gk16 --policies uniform,top-two --quick --budget 9",
    "reproduce table1 --trajectories 20",
]


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_there_is_one_clear_sentence(paper_instance, tmp_path):
    told = "engine 'cuda' needs an NVIDIA GPU with its driver, and this machine has none."
    with pytest.raises(cabai.EngineFailed) as failed:
        cabai.simulate(paper_instance, engine="cuda")
    assert str(failed.value) == told
    for command in IN_THE_SHELL:
        done = here(*command.split(), "--engine", "cuda", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (1, f"cabai: {told}\n"), command


@pytest.mark.slow
@pytest.mark.parametrize("command", IN_THE_SHELL)
def test_commands_say_the_same_on_a_simulated_gpu(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    how = [] if "bench" in command else ["--json"]
    said = [in_simulator("-m", "cabai", *command.split(), *how, *more) for more in ([], ["--engine", "cuda"])]
    one, other = map(without_times, said)
    assert one == other


def without_times(said: str) -> object:
    if said.startswith("{"):
        return json.loads(said, object_hook=lambda each: {name: each[name] for name in each if "seconds" not in name})
    return [line.split("|")[:-2] for line in said.splitlines() if line.startswith("|")]  # of a leaderboard


def test_what_the_gpu_or_its_driver_cannot_do_is_one_sentence(monkeypatch):
    from numba.cuda.cudadrv.error import NvvmSupportError

    def missing(*_: object) -> object:
        raise NvvmSupportError("libNVVM cannot be found.\nInstall it.")

    driver = SimpleNamespace(is_available=True)
    device = SimpleNamespace(gpus=[nullcontext()], cudadrv=SimpleNamespace(driver=SimpleNamespace(driver=driver)))
    monkeypatch.setattr(cuda, "numba_cuda", lambda: device)
    monkeypatch.setattr(cuda, "compiled_kernel", missing)
    for policy in ("uniform", compares):  # not the line of a user's policy
        with pytest.raises(cabai.EngineFailed, match=r"^the GPU cannot do this work: libNVVM cannot be found\.$"):
            cabai.simulate(cabai.Instance("gaussian", [1, 0], [1, 1]), policy, engine="cuda")


@pytest.mark.parametrize(
    ("registers", "free", "words", "count", "launched"),
    [
        (96, 2**37, 1, 10**6, (132, 640)),  # one block per multiprocessor
        (168, 2**37, 1, 10**6, (132, 384)),  # with more registers, a smaller one
        (96, 2**37, 1, 10_000, (105, 96)),  # and no more threads than are needed
        (96, 2**37, 1, 5, (1, 32)),
        (96, 2**33, 10_000, 10**6, (132, 64)),  # a state of 80 kB: as many as fit into a tenth of the memory
        (96, 2**33, 10**6, 10**6, (3, 32)),
        (96, 2**30, 10**8, 10**6, (1, 32)),  # at least one; if even that does not fit, the GPU says so
    ],
)
def test_a_launch_fits_registers_memory_and_work(monkeypatch, registers, free, words, count, launched):
    context = SimpleNamespace(get_memory_info=lambda: SimpleNamespace(free=free))
    device = SimpleNamespace(MULTIPROCESSOR_COUNT=132)
    here = SimpleNamespace(get_current_device=lambda: device, current_context=lambda: context)
    monkeypatch.setattr(cuda, "numba_cuda", lambda: here)
    engine = SimpleNamespace(tuning=cuda.Tuning())
    kernel = SimpleNamespace(get_regs_per_thread=lambda: registers)
    assert cuda.Cuda.blocks(engine, kernel, words, count) == launched


def small(x):
    return x + 1


def large(x):
    return math.log(x) + math.exp(x) + math.sqrt(x) + math.log(x + 1) + math.exp(x + 1)


def twice(x):
    return large(x) + large(small(small(x)))


@apart
def once(x):
    return small(x)


def all_of_them(x):
    return twice(x) + once(x)


def test_large_functions_that_are_called_in_several_places_are_called_apart():
    assert called_apart([all_of_them], 1000) == {large, once}
    assert called_apart([all_of_them], 10**9) == {once}
    assert called_apart([all_of_them, twice], 0) == {large, small, once}


@cabai.policy
def misspelt(arms, run, rules):
    return run.leeder


@cabai.policy
def makes_a_list(arms, run, rules):
    chosen = [run.leader]
    return chosen[0]


@cabai.policy
def compares(arms, run, rules):
    if np.isclose(arms[0].mean, 1.0):
        return run.leader
    return run.t % len(arms)


@pytest.mark.usefixtures("no_gpu")
def test_what_cannot_be_compiled_is_explained_as_for_a_cpu():
    for policy in (misspelt, makes_a_list) if UNCOUNTED else (misspelt,):  # else it may make a list
        work = work_of("gaussian", policy)
        with pytest.raises(cabai.InvalidInput) as on_cpu:
            work.compiled()
        with pytest.raises(cabai.InvalidInput) as on_gpu:
            cuda.kernel_of(work, cuda.Tuning())
        assert str(on_gpu.value) == str(on_cpu.value)
    only_on_a_cpu = work_of("gaussian", compares)
    only_on_a_cpu.compiled()
    told = (
        r"^policy compares cannot be compiled: .*test_cuda.py, line \d+, `.*`: it uses <ufunc 'isinf'>, which cannot "
    )
    with pytest.raises(cabai.InvalidInput, match=told):
        cuda.kernel_of(only_on_a_cpu, cuda.Tuning())


def test_no_kernel_knows_of_gpus_and_the_engine_stays_small():
    package = Path(cabai.__file__).parent
    assert len(Path(cuda.__file__).read_text().splitlines()) <= 300
    kernels = [*(package / room for room in ("core", "families", "policies", "thresholds")), package / "simulation"]
    for file in (each for room in kernels for each in room.rglob("*.py") if each.parent.name != "engines"):
        words = file.read_text().lower()
        assert not any(word in words for word in ("cuda", "gpu", "warp")), file


# --- On a GPU --------------------------------------------------------------------------------------------------------

on_a_gpu = pytest.mark.skipif(not has_gpu(), reason="this machine has no NVIDIA GPU")


@on_a_gpu
@pytest.mark.parametrize(("family", "policy"), [each for each in EVERY if each[1] in POLICIES])
def test_a_gpu_makes_the_trajectories_of_threads(family, policy):
    instance = cabai.Instance(family, MEANS[family], COSTS, cost_model="beta")
    deltas = [0.1] if policy_of(policy).depends_on_delta else [0.1, 0.001]
    options = {"delta": deltas, "trajectories": 3000, "grid": [5, 50], "max_pulls": 10_000, "seed": 5}
    for a, b in zip(
        *(cabai.simulate(instance, policy, engine=each, **options) for each in (None, "cuda")), strict=True
    ):
        assert differing(a, b) <= (0.0 if family.startswith("gaussian") else 0.01)
    for arms in (2, 30, 300) if (family, policy) == ("gaussian", "top-two") else ():
        instance = cabai.Instance("gaussian", [3, *[0] * (arms - 1)], [1] * arms)
        some = {"delta": 0.05, "trajectories": 500, "epsilon": 0.5}
        assert differing(*(cabai.simulate(instance, engine=each, **some) for each in (None, "cuda"))) == 0


@on_a_gpu
def test_sums_and_plans_on_a_gpu_are_those_of_threads():
    instance = cabai.Instance("gaussian", MEANS["gaussian"], COSTS)
    sums = [cabai.simulate(instance, keep="summary", trajectories=200_000, engine=each).sums for each in (None, "cuda")]
    assert vars(sums[0]).keys() == vars(sums[1]).keys()
    assert all(np.array_equal(vars(sums[0])[name], vars(sums[1])[name]) for name in vars(sums[0]))
    known = {"family": "gaussian(variance=1)", "means": ["0..1", "0..1"], "draws": 100, "worth": False}
    assert repr(cabai.plan(**known)) == repr(cabai.plan(**known, engine="cuda"))
