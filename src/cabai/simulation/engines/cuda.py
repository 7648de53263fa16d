"""GPUs of this machine, by numba-cuda: the functions that a CPU runs are compiled for the GPU as they are.

A GPU runs threads in groups of 32, in which all do the same thing or wait. So a thread that has ended a trajectory
takes the next one at once, and the full test of whether to stop, which is rare and takes long, is put off until several
threads of a group need it. Threads keep their state between launches: none takes long, however long a trajectory is.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.core.observe import observe
from cabai.core.state import Records
from cabai.families.slots import draw
from cabai.simulation.costs import draw_cost
from cabai.simulation.engines.base import Engine, EngineFailed
from cabai.simulation.steps import pulls_of_a_choice
from cabai.simulation.truth import open_streams
from cabai.simulation.work import Part, Rows, Work
from cabai.support.specialise import binding, copied, function_for, plain_functions_of
from cabai.support.validation import InvalidInput, optional

GROUP = 32  # threads that do the same thing; a block is one such group
LAUNCH = 0.3  # seconds that a launch should take
TASKS = 3  # per GPU at a time: while one ends or is summed up, the others keep the GPU busy
MOST_BYTES = 2**28  # of the results of one task
STATE_SHARE = 0.1  # of the GPU's free memory, for the trajectories that are under way in one task
NEXT, PULL, TEST, OVER = range(4)  # what a thread does: take a trajectory, make a pull, wait for a test, nothing
TAKEN, ENDED, NO_SUCH_ARM = range(3)  # counts: of trajectories, and whether a policy chose an arm that does not exist
IS_SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") != "0"  # by numba-cuda, in Python
ROW, REACHED, MARK, DOING, PLACE = range(5)  # the last words of a thread's state, and how many there are


class Tuning(NamedTuple):  # of a kernel; it changes no result
    gather: int = 12  # how many threads of a group wait for a full test before it is made
    registers: int = 128  # of a thread, at most
    local: int = 1024  # a thread's state is kept in local memory if it has at most so many words
    large: int = 250  # bytes of code: longer functions are called, not inlined, as are those marked `apart`


# What `take_turns` is made of, until `compiled_turns` puts the real things in place.
cuda = records = choose = stop = may_stop = write = None
ARM_KIND = RUN_KIND = TRUTH_KIND = np.dtype(np.uint64)
ROOM, RUN_WORDS, FEW, UNFINISHED, IS_LOCAL = 0, 0, 0, 0, True


def take_turns(
    first, truths, numbers, seed, rules, max_pulls, max_cost, grid, results, pulls, path, states, counts, turns
):
    """Let each thread continue its trajectory, or take the next one. Rows of `results` are trajectories."""
    state = states[cuda.grid(1)]
    place = len(state) - PLACE
    words = cuda.local.array(ROOM, np.uint64) if IS_LOCAL else state
    for j in range(len(state)):
        words[j] = state[j]
    run = records(words[:RUN_WORDS].view(RUN_KIND))[0]
    arms = records(words[RUN_WORDS : len(first)].view(ARM_KIND))
    truth = records(words[len(first) : place].view(TRUTH_KIND))
    row, reached = np.int64(state[place + ROW]), np.int64(state[place + REACHED])
    mark, doing = np.int64(state[place + MARK]), np.int64(state[place + DOING])
    K = len(arms)
    for _ in range(turns):
        if doing == NEXT:
            row = np.int64(cuda.atomic.add(counts, TAKEN, 1))
            reached, mark, doing = np.int64(0), np.int64(0), np.int64(OVER)
            if row < len(results):
                doing = np.int64(PULL)
                for j in range(len(first)):
                    words[j] = first[j]
                own = truths[row if len(truths) > 1 else 0]
                for j in range(len(own)):
                    words[len(first) + j] = own[j]
                number = numbers[row] if len(numbers) > 1 else numbers[0] + np.uint64(row)
                run.stream = open_streams(truth, seed, number)
        if doing == PULL:
            a = run.t if run.t < K else choose(arms, run, rules[reached])
            if a < 0 or a >= K:
                counts[NO_SUCH_ARM] = 1
                doing = np.int64(OVER)
            else:
                for _ in range(pulls_of_a_choice(run)):
                    observe(arms, run, rules[reached], a, draw(truth[a]), draw_cost(truth[a]))
                if run.t >= K:
                    while mark < len(grid) and grid[mark] <= run.t:
                        if grid[mark] == run.t:
                            for b in range(K):
                                path[row, mark, b] = arms[b].pulls
                        mark += 1
                    if run.t >= max_pulls or run.spent >= max_cost or may_stop(arms, run, rules[reached]):
                        doing = np.int64(TEST)
        if cuda.syncthreads_count(np.int32(doing == PULL)) <= FEW:
            if doing == TEST:
                doing = np.int64(PULL)
                while reached < len(rules) and stop(arms, run, rules[reached]):
                    write(arms, run, run.leader, results[row, reached], pulls[row, reached])
                    reached += 1
                if run.t >= max_pulls or run.spent >= max_cost:
                    while reached < len(rules):
                        write(arms, run, UNFINISHED, results[row, reached], pulls[row, reached])
                        reached += 1
                if reached == len(rules):
                    cuda.atomic.add(counts, ENDED, 1)
                    doing = np.int64(NEXT)
            if cuda.syncthreads_count(np.int32(doing != OVER)) == 0:
                break
    for j in range(place):
        state[j] = words[j]
    state[place + ROW], state[place + REACHED], state[place + MARK], state[place + DOING] = row, reached, mark, doing


def as_they_are(records):
    return records


def numba_cuda() -> Any:
    optional("numba_cuda")
    from numba import cuda

    return cuda


def kernel_of(work: Work, tuning: Tuning) -> tuple[Any, NDArray[np.uint64], NDArray[Any]]:
    """The kernel, run and arms before the first pull, and the rules of each level; an error names a user's own line."""
    from cabai.core.blame import unusable
    from cabai.simulation.loop import write

    setup, layout, (arms, run) = work.setup, work.setup.layout, work.start
    bound = binding([*(pair for pair in setup.test_binding if pair[0] != "draw"), *work.drawing])
    called = {slot.__name__: function_for(slot, bound) for slot in (observe, draw, draw_cost, pulls_of_a_choice)}
    called |= {"choose": setup.choose, "stop": setup.stop, "open_streams": open_streams, "write": write}
    called |= {"may_stop": setup.may_stop, "records": as_they_are}
    first = np.concatenate([np.array([run]).view(np.uint64), arms.view(np.uint64)])
    words = len(first) + work.truth.nbytes // 8 + PLACE
    room = 1 << (words - 1).bit_length()  # a power of 2, so that a kernel serves several numbers of arms
    kinds = layout.arm, layout.run, layout.rules, work.truth.dtype
    try:
        launch = compiled_turns(tuple(called.items()), kinds, room if room <= tuning.local else 0, tuning)
    except Exception as error:
        work.compiled()  # if it cannot be compiled for a CPU either, this says why
        raise unusable(setup, (setup.choose, setup.stop, called["observe"]), error) from error
    rules = np.repeat(np.array([setup.rules]), len(work.levels))
    rules["level"] = work.levels
    return launch, first, rules


@lru_cache(maxsize=64)
def compiled_turns(called: tuple[tuple[str, Any], ...], kinds: tuple[Any, ...], room: int, tuning: Tuning) -> Any:
    """Compile `take_turns` with these functions for these records, or load it; `room` is 0 for global memory."""
    from numba import from_dtype, types
    from numba.cuda.core import config
    from numba.cuda.cudadrv import nvvm

    from cabai.core.compiling import _settings_changed, cache_directory, functions_in, is_ours
    from cabai.simulation.loop import RESULT, UNFINISHED

    arm, run, rules, truth = kinds
    constants: dict[str, Any] = {
        "ARM_KIND": arm, "RUN_KIND": run, "TRUTH_KIND": truth, "RUN_WORDS": run.itemsize // 8, "ROOM": room or 1,
        "IS_LOCAL": room > 0, "FEW": GROUP - tuning.gather, "UNFINISHED": UNFINISHED,
    }  # fmt: skip
    constants["cuda"] = cuda = numba_cuda()
    if IS_SIMULATED:
        return cuda.jit(copied(take_turns, dict(called) | constants | {"records": Records, "FEW": 1}))
    function = copied(take_turns, {name: on_device(each, tuning.large) for name, each in called} | constants)
    inside = [each for _, one in called for each in functions_in(one)]
    parts = repr(([f"{each.__module__}.{each.__qualname__}" for each in inside], kinds, room, tuning))
    function.__qualname__ += "_" + hashlib.sha256(parts.encode()).hexdigest()[:12]
    words, wholes, rows = types.uint64[::1], types.int64[::1], types.int64[:, :, ::1]
    signature = types.void(
        words, types.uint64[:, ::1], words, types.uint64, from_dtype(rules)[::1], types.int64, types.float64, wholes,
        from_dtype(RESULT)[:, ::1], rows, rows, types.uint64[:, ::1], wholes, types.int64,
    )  # fmt: skip
    with _settings_changed:  # they are those of the whole process, and some are private
        before = config.CACHE_DIR, nvvm.compile_ir, nvvm.ADDRSPACE_CONSTANT
        config.CACHE_DIR = cache_directory() if all(map(is_ours, inside)) else ""
        nvvm.compile_ir = lambda *code, **options: before[1](*code, **options | {"fma": False})  # rounded as on a CPU
        nvvm.ADDRSPACE_CONSTANT = nvvm.ADDRSPACE_GLOBAL  # threads would read tables there one by one
        try:
            options = {"max_registers": tuning.registers, "lto": False, "cache": bool(config.CACHE_DIR)}
            return cuda.jit(signature, **options)(function)
        finally:
            config.CACHE_DIR, nvvm.compile_ir, nvvm.ADDRSPACE_CONSTANT = before


@cache
def on_device(function: Any, large: int) -> Any:
    """A function for the GPU, and with it every plain function that it calls."""
    helpers = {name: on_device(each, large) for name, each in plain_functions_of(function).items()}
    found = numba_cuda().jit(device=True)(copied(function, helpers) if helpers else function)
    if getattr(function, "apart", False) or len(function.__code__.co_code) > large:
        compile_device = found.compile_device

        def compile_apart(*kinds: Any) -> Any:
            made = compile_device(*kinds)
            made.library.get_function(made.fndesc.llvm_func_name).attributes.add("noinline")
            return made

        found.compile_device = compile_apart
    return found


class Cuda(Engine):
    where = "on the GPU"
    aim, shortest, pilot = 1.0, 1.0, 2**16

    def __init__(self, workers: int | None = None, tuning: Tuning | None = None) -> None:
        """All GPUs of this machine, or the first `workers` of them."""
        cuda = numba_cuda()
        if not IS_SIMULATED and not cuda.cudadrv.driver.driver.is_available:
            raise EngineFailed("engine 'cuda' needs an NVIDIA GPU with its driver, and this machine has none.")
        self.workers, self.tuning, self.stopped = workers, tuning or Tuning(), threading.Event()
        self.places = list(range(len(cuda.gpus)))[:workers] * (1 if IS_SIMULATED else TASKS)
        self.next_place, self.pool = cycle(self.places), ThreadPoolExecutor(self.cores)

    @property
    def cores(self) -> int:
        return len(self.places)

    def most(self, work: Work) -> int:
        return max(1, MOST_BYTES // work.row_bytes)

    def share(self, work: Work) -> Any:
        with numba_cuda().gpus[0]:
            return work, *kernel_of(work, self.tuning)

    prepare = share

    def submit(self, shared: Any, first: int, count: int) -> Future[Part]:
        return self.pool.submit(self.run, next(self.next_place), shared, first, count)

    def run(self, gpu: int, shared: Any, first: int, count: int) -> Part:
        started, work = time.perf_counter(), shared[0]
        with numba_cuda().gpus[gpu]:
            rows = self.rows(shared, first, count)
        seconds = time.perf_counter() - started
        return Part(first, count, seconds, *((rows, []) if work.keeps_rows else ((), work.sums(*rows))))

    def rows(self, shared: Any, first: int, count: int) -> Rows:
        """The results, pulls and paths of these trajectories."""
        from cabai.simulation.loop import RESULT

        work, launch, start, rules = shared
        cuda, shape, arms = numba_cuda(), (count, len(work.levels)), len(work.instance)
        truths, numbers = work.inputs(first, count)
        with loading:
            states = first_states(launch, len(start) + truths.shape[1] + PLACE)
        blocks, threads = max(1, len(states) // GROUP), min(len(states), GROUP)
        path, counts = np.full((count, len(work.grid), arms), -1, np.int64), np.zeros(3, np.int64)
        sent, stream, turns = (start, truths, numbers, rules, work.grid, path, counts, states), cuda.stream(), 64
        start, truths, numbers, rules, grid, path, counts, states = (cuda.to_device(each, stream) for each in sent)
        results, pulls = cuda.device_array(shape, RESULT), cuda.device_array((*shape, arms), np.int64)
        while not self.stopped.is_set():
            began = time.perf_counter()
            launch[blocks, threads, stream](
                start, truths, numbers, np.uint64(work.seed), rules, work.max_pulls, work.max_cost, grid, results,
                pulls, path, states, counts, turns,
            )  # fmt: skip
            now = counts.copy_to_host(None, stream)  # waits for the launch
            if now[NO_SUCH_ARM]:
                raise InvalidInput(f"policy {work.setup.policy} chose an arm that does not exist.")
            if now[ENDED] == count:
                return (
                    results.copy_to_host(None, stream),
                    pulls.copy_to_host(None, stream),
                    path.copy_to_host(None, stream),
                )
            turns = math.ceil(turns * min(max(LAUNCH / (time.perf_counter() - began), 0.25), 4.0))
        raise CancelledError

    def cancel(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    def explained(self, error: Exception) -> Exception:
        if type(error).__module__.startswith(("numba.", "cuda.")):
            return EngineFailed(f"the GPU cannot do this work: {str(error).strip().splitlines()[0]}")
        return error


loading = threading.Lock()  # numba-cuda cannot load a kernel for two threads at the same time


def first_states(launch: Any, words: int) -> NDArray[np.uint64]:
    """The state of each thread before the first launch: as many as registers and memory allow to run at a time."""
    if IS_SIMULATED:
        return np.zeros((2, words), np.uint64)
    registers = -(-launch.get_regs_per_thread() // 8) * 8
    there = numba_cuda().get_current_device().MULTIPROCESSOR_COUNT * min(32, 2**16 // (GROUP * registers))
    fit = int(STATE_SHARE * numba_cuda().current_context().get_memory_info().free) // (8 * words * GROUP)
    return np.zeros((GROUP * max(128, min(there, fit)), words), np.uint64)
