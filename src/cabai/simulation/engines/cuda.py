"""GPUs of this machine, by numba-cuda: the functions that a CPU runs are compiled for the GPU as they are.

A thread runs a trajectory to its end, then the next one that nobody has taken; a launch is a task of about a second.
GPUs run threads in groups of 32, of which all do the same thing or wait, and they wait for code that no thread has just
run. So all threads of a multiprocessor are one block and go on together: those that pull make a pull, and those whose
trajectory is over, or that want to test, wait until many of them do.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.core.state import Records
from cabai.errors import EngineFailed
from cabai.simulation.engines.base import Engine
from cabai.simulation.truth import open_streams, pull, pulls_of_a_choice
from cabai.simulation.work import Part, Rows, Work
from cabai.support.specialise import binding, called_apart, copied, function_for, plain_functions_of
from cabai.support.validation import InvalidInput, optional

TASKS = 3  # per GPU at a time: while one ends or is summed up, the others keep the GPU busy
FEW = 8  # arms: their number is then a constant of the kernel, and loops over them are written out
MOST_BYTES = 2**28  # of the results of one task
STATE_SHARE = 0.1  # of the GPU's free memory, for the trajectories that are under way in one task
NEXT, PULL, TEST, OVER = range(4)  # what a thread does: wait for a trajectory, pull, wait for a test, nothing more
TAKEN, NO_SUCH_ARM = range(2)  # counts: of trajectories, and whether a policy chose an arm that does not exist
TOOLKIT = "numba.cuda.cudadrv.", "cuda."  # modules of errors that are about the GPU or its driver, not about code
loading = threading.Lock()  # numba-cuda cannot load a kernel for two threads at the same time
IS_SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") != "0"  # by numba-cuda, in Python


class Tuning(NamedTuple):  # of a kernel; it changes no result
    threads: int = 640  # of a block, at most
    refill: int = 1  # how many eighths of them wait until they take new trajectories
    gather: int = 3  # how many eighths of those at work wait for a full test, which is rare and takes long
    registers: int | None = 96  # of a thread, at most
    large: int = 1000  # bytes of code: see `called_apart`
    local: int = 1024  # a trajectory's state is kept in local memory if it has at most this many words


# What `run_trajectories` is made of, until `compiled_kernel` puts the real things in place.
cuda = records = value = choose = stop = may_stop = write = None
ARM_KIND = RUN_KIND = TRUTH_KIND = np.dtype(np.uint64)
ARMS, RUN_WORDS, ARM_WORDS, REFILL, GATHER, UNFINISHED, IS_LOCAL = 0, 0, 0, 0, 0, 0, True


def run_trajectories(
    first_run, first_arms, truths, numbers, seed, rules, max_pulls, max_cost, grid, results, pulls, path, states, counts
):
    """Let each thread run trajectories until all are taken. Rows of `results` are trajectories."""
    if IS_LOCAL:
        runs, all_arms = cuda.local.array(1, RUN_KIND), cuda.local.array(ARMS, ARM_KIND)
        truth_here = cuda.local.array(ARMS, TRUTH_KIND)
    else:
        words, arms_end = states[cuda.grid(1)], RUN_WORDS + len(first_arms) * ARM_WORDS
        runs, all_arms = words[:RUN_WORDS].view(RUN_KIND), words[RUN_WORDS:arms_end].view(ARM_KIND)
        truth_here = words[arms_end:].view(TRUTH_KIND)
    K = ARMS if IS_LOCAL and ARMS <= FEW else len(first_arms)
    run, arms, truth = records(runs)[0], records(all_arms[:K]), records(truth_here[:K])
    row, reached, mark, doing, is_spent = np.int64(0), np.int64(0), np.int64(0), np.int64(NEXT), False
    while True:
        waiting, working = votes(doing == NEXT), votes(doing == PULL)
        if 8 * waiting >= REFILL * cuda.blockDim.x or working == 0:
            if waiting == 0 and working == 0:
                break
            if doing == NEXT:
                row = np.int64(cuda.atomic.add(counts, TAKEN, 1))
                reached, mark, doing = np.int64(0), np.int64(0), np.int64(OVER)
                if row < len(results):
                    doing, is_spent = np.int64(PULL), False
                    runs[0] = value(first_run[0])
                    for a in range(K):
                        all_arms[a] = value(first_arms[a])
                        truth_here[a] = value(truths[row if len(truths) > 1 else 0, a])
                    number = numbers[row] if len(numbers) > 1 else numbers[0] + np.uint64(row)
                    run.stream = open_streams(truth, seed, number)
        if doing == PULL:
            a = run.t if run.t < K else choose(arms, run, rules[reached])
            if a < 0 or a >= K:
                counts[NO_SUCH_ARM] = 1
                doing = np.int64(OVER)
            else:
                for _ in range(pulls_of_a_choice(run)):
                    is_spent = is_spent or pull(arms, run, rules[reached], a, truth[a])
                while run.t >= K and mark < len(grid) and grid[mark] <= run.t:
                    if grid[mark] == run.t:
                        for b in range(K):
                            path[row, mark, b] = arms[b].pulls
                    mark += 1
                is_over = run.t >= max_pulls or run.spent >= max_cost
                if is_spent or (run.t >= K and (is_over or may_stop(arms, run, rules[reached]))):
                    doing = np.int64(TEST)
        wanting, working = votes(doing == TEST), votes(doing == PULL)
        if doing == TEST and 8 * wanting >= GATHER * (wanting + working):
            doing = np.int64(PULL)
            while not is_spent and reached < len(rules) and stop(arms, run, rules[reached]):
                write(arms, run, run.leader, results[row, reached], pulls[row, reached])
                reached += 1
            if is_spent or run.t >= max_pulls or run.spent >= max_cost:
                while reached < len(rules):
                    write(arms, run, run.leader if is_spent else UNFINISHED, results[row, reached], pulls[row, reached])
                    reached += 1
            if reached == len(rules):
                doing = np.int64(NEXT)


def votes(is_so):
    """Of how many threads of the block this is so; all of them call this together, and wait for each other."""
    return np.int64(cuda.syncthreads_count(np.int32(is_so)))


def as_they_are(records):
    return records


def numba_cuda() -> Any:
    return optional("numba_cuda") and optional("numba.cuda")


def kernel_of(work: Work, tuning: Tuning) -> tuple[Any, NDArray[Any], int]:
    """The kernel, the rules of each level, words of global memory that a thread needs; errors name a user's line."""
    from cabai.core.blame import unusable
    from cabai.simulation.loop import write

    setup, layout, (arms, run) = work.setup, work.setup.layout, work.start
    bound = binding([*(pair for pair in setup.test_binding if pair[0] != "draw"), *work.drawing])
    called = {each.__name__: function_for(each, bound) for each in (pull, pulls_of_a_choice)}
    called |= {"choose": setup.choose, "stop": setup.stop, "open_streams": open_streams, "write": write}
    called |= {"may_stop": setup.may_stop, "records": as_they_are, "value": as_they_are, "votes": votes}
    kinds = layout.arm, layout.run, layout.rules, work.truths.dtype
    words = (arms.nbytes + run.nbytes + work.truths[0].nbytes) // 8
    count, words = (len(arms), 1) if words <= tuning.local else (0, words)
    try:
        launch = compiled_kernel(tuple(called.items()), kinds, count, tuning._replace(threads=0, local=0))
    except Exception as error:
        work.compiled()  # if it cannot be compiled for a CPU either, this says why
        blamed = () if type(error).__module__.startswith(TOOLKIT) else (setup.choose, setup.stop, called["pull"])
        raise unusable(setup, blamed, error) from error
    rules = np.repeat(np.array([setup.rules]), len(work.levels))
    rules["level"] = work.levels
    return launch, rules, words


@lru_cache(maxsize=64)
def compiled_kernel(called: tuple[tuple[str, Any], ...], kinds: tuple[Any, ...], arms: int, tuning: Tuning) -> Any:
    """Compile `run_trajectories` for these functions, records and number of arms (0 is any number), or load it."""
    from numba import from_dtype, types
    from numba.cuda.core import config
    from numba.cuda.cudadrv import nvvm

    from cabai.core.compiling import _settings_changed, cache_directory, functions_in, is_ours
    from cabai.simulation.loop import RESULT, UNFINISHED

    arm, run, rules, truth = kinds
    constants: dict[str, Any] = {
        "ARM_KIND": arm, "RUN_KIND": run, "TRUTH_KIND": truth, "RUN_WORDS": run.itemsize // 8,
        "ARM_WORDS": arm.itemsize // 8, "ARMS": arms or 1, "IS_LOCAL": arms > 0, "UNFINISHED": UNFINISHED,
        "REFILL": tuning.refill, "GATHER": tuning.gather,
    }  # fmt: skip
    constants["cuda"] = cuda = numba_cuda()
    if IS_SIMULATED:
        constants |= {"records": Records, "value": lambda record: record._item._ary, "votes": int}
        return cuda.jit(copied(run_trajectories, dict(called) | constants))
    apart = called_apart(dict(called).values(), tuning.large)
    function = copied(run_trajectories, {name: on_device(each, apart) for name, each in called} | constants)
    inside = [each for _, one in called for each in functions_in(one)]
    parts = repr(([f"{each.__module__}.{each.__qualname__}" for each in inside], kinds, arms, tuning))
    function.__qualname__ += "_" + hashlib.sha256(parts.encode()).hexdigest()[:12]
    wholes, rows = types.int64[::1], types.int64[:, :, ::1]
    signature = types.void(
        from_dtype(run)[::1], from_dtype(arm)[::1], from_dtype(truth)[:, ::1], types.uint64[::1], types.uint64,
        from_dtype(rules)[::1], types.int64, types.float64, wholes, from_dtype(RESULT)[:, ::1], rows, rows,
        types.uint64[:, ::1], wholes,
    )  # fmt: skip
    with _settings_changed:  # they are those of the whole process, and some are private
        before = config.CACHE_DIR, nvvm.compile_ir, nvvm.ADDRSPACE_CONSTANT
        config.CACHE_DIR = folder = cache_directory() if all(map(is_ours, inside)) else ""
        nvvm.compile_ir = lambda *code, **options: before[1](*code, **options | {"fma": False})  # rounded as on a CPU
        nvvm.ADDRSPACE_CONSTANT = nvvm.ADDRSPACE_GLOBAL  # threads would read tables there one by one
        try:
            return cuda.jit(signature, max_registers=tuning.registers, lto=False, cache=bool(folder))(function)
        finally:
            config.CACHE_DIR, nvvm.compile_ir, nvvm.ADDRSPACE_CONSTANT = before


@cache
def on_device(function: Any, apart: frozenset[Any]) -> Any:
    """A function for the GPU, and with it every plain function that it calls."""
    helpers = {name: on_device(each, apart) for name, each in plain_functions_of(function).items()}
    helpers |= {"cuda": numba_cuda()} if function is votes else {}
    found = numba_cuda().jit(device=True)(copied(function, helpers) if helpers else function)
    if function in apart:
        compile_device = found.compile_device

        def compile_apart(*kinds: Any) -> Any:
            made = compile_device(*kinds)
            made.library.get_function(made.fndesc.llvm_func_name).attributes.add("noinline")
            return made

        found.compile_device = compile_apart
    return found


class Cuda(Engine):
    where = "on the GPU"
    aim, shortest, pilot = 2.0, 2.0, 2**15  # seconds with waiting for the tasks before it; trajectories

    def __init__(self, workers: int | None = None, tuning: Tuning | None = None) -> None:
        """All GPUs of this machine, or the first `workers` of them."""
        cuda = numba_cuda()
        if not IS_SIMULATED and not cuda.cudadrv.driver.driver.is_available:
            raise EngineFailed("engine 'cuda' needs an NVIDIA GPU with its driver, and this machine has none.")
        self.workers, self.tuning, self.stopped = workers, tuning or Tuning(), threading.Event()
        self.gpus = range(len(cuda.gpus))[:workers]
        self.next_gpu, self.pool = cycle(self.gpus), ThreadPoolExecutor(self.room)

    cores = property(lambda self: len(self.gpus))
    room = property(lambda self: len(self.gpus) * (1 if IS_SIMULATED else TASKS))

    def most(self, work: Work) -> int:
        return max(1, MOST_BYTES // work.row_bytes)

    def share(self, work: Work) -> Any:
        try:
            with numba_cuda().gpus[0]:
                return work, *kernel_of(work, self.tuning)
        except Exception as error:
            if (explained := self.explained(error)) is error:
                raise
            raise explained from error

    prepare = share

    def submit(self, shared: Any, first: int, count: int) -> Future[Part]:
        return self.pool.submit(self.run, next(self.next_gpu), shared, first, count)

    def run(self, gpu: int, shared: Any, first: int, count: int) -> Part:
        started, work = time.perf_counter(), shared[0]
        with numba_cuda().gpus[gpu]:
            rows = self.rows(shared, first, count)
        seconds = time.perf_counter() - started
        return Part(first, count, seconds, *((rows, []) if work.keeps_rows else ((), work.sums(*rows))))

    def rows(self, shared: Any, first: int, count: int) -> Rows:
        """The results, pulls and paths of these trajectories."""
        from cabai.simulation.loop import RESULT

        work, launch, rules, words = shared
        if self.stopped.is_set():
            raise CancelledError
        cuda, shape, (arms, run) = numba_cuda(), (count, len(work.levels)), work.start
        truths, numbers = work.inputs(first, count)
        with loading:
            blocks, threads = self.blocks(launch, words, count)
        path, counts = np.full((count, len(work.grid), len(arms)), -1, np.int64), np.zeros(2, np.int64)
        sent, stream = (np.array([run]), arms, truths.view(work.truths.dtype), numbers, rules, work.grid), cuda.stream()
        runs, arms, truths, numbers, rules, grid = (cuda.to_device(each, stream) for each in sent)
        results, pulls = cuda.device_array(shape, RESULT), cuda.device_array((*shape, len(arms)), np.int64)
        path, counts = cuda.to_device(path, stream), cuda.to_device(counts, stream)
        launch[blocks, threads, stream](
            runs, arms, truths, numbers, np.uint64(work.seed), rules, work.max_pulls, work.max_cost, grid, results,
            pulls, path, cuda.device_array((blocks * threads, words), np.uint64), counts,
        )  # fmt: skip
        if counts.copy_to_host(None, stream)[NO_SUCH_ARM]:
            raise InvalidInput(f"policy {work.setup.policy} chose an arm that does not exist.")
        found = results.copy_to_host(None, stream), pulls.copy_to_host(None, stream), path.copy_to_host(None, stream)
        stream.synchronize()
        return found

    def blocks(self, launch: Any, words: int, count: int) -> tuple[int, int]:
        """How many blocks of how many threads: one for each multiprocessor, as large as registers and memory allow."""
        if IS_SIMULATED:
            return 2, 1
        cuda, registers = numba_cuda(), -(-launch.get_regs_per_thread() // 8) * 8
        many = cuda.get_current_device().MULTIPROCESSOR_COUNT
        fit = int(STATE_SHARE * cuda.current_context().get_memory_info().free) // (8 * words)  # threads in all
        most = min(self.tuning.threads, 2**16 // registers, fit // many, -(-count // many) + 31)
        threads = 32 * max(1, most // 32)
        return max(1, min(many, fit // threads, -(-count // threads))), threads

    def cancel(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    def explained(self, error: Exception) -> Exception:
        if type(error).__module__.startswith(("numba.", *TOOLKIT)):
            return EngineFailed(f"the GPU cannot do this work: {str(error).strip().splitlines()[0]}")
        return error
