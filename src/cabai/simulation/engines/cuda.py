"""GPUs of this machine, by numba-cuda: the functions that a CPU runs are compiled for the GPU as they are.

A GPU runs its threads in groups of 32, in which all do the same thing or wait. So a thread that has ended a trajectory
takes the next one at once, and the full test of whether to stop, which is rare and takes long, is put off until several
threads of a group need it. A launch is a number of turns. Threads keep their state until the next launch, so that no
launch takes long, however long a trajectory is.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, lru_cache
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.core.observe import observe
from cabai.core.state import Records
from cabai.core.stopping import leader_beats_every_rival, may_beat_every_rival
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
ROW, REACHED, MARK, DOING, PLACE = range(5)  # the last words of a thread's state, and how many there are


class Tuning(NamedTuple):
    """What makes a kernel fast. Only `contracted` changes results."""

    gather: int = 12  # how many threads of a group wait for a full test before it is made
    registers: int = 128  # of a thread, at most
    local: int = 1024  # a thread's state is kept in local memory if it has at most so many words
    apart: bool = True  # functions marked `apart` are called, not inlined
    calls: tuple[str, ...] = ("choose", "stop")  # so are these of the kernel's
    tables_aside: bool = True  # tables are in global memory; in constant memory, threads read them one by one
    contracted: bool = False  # a * b + c is rounded once, unlike on a CPU


class Kernel(NamedTuple):
    """A compiled kernel, and what its launches have in common."""

    launch: Any
    first: NDArray[np.uint64]  # run and arms before the first pull
    rules: NDArray[Any]  # a record for each level


# What `take_turns` is made of, until `compiled_turns` puts the real things in place.
cuda: Any = None
ARM_KIND = RUN_KIND = TRUTH_KIND = np.dtype(np.uint64)
ROOM = RUN_WORDS = FEW = UNFINISHED = 0
IS_LOCAL = True
records: Any = None
choose = stop = may_stop = write = records


def take_turns(
    first, truths, numbers, seed, rules, max_pulls, max_cost, grid, results, pulls, path, states, counts, turns
):  # type: ignore[no-untyped-def]
    """Let each thread continue its trajectory, or take the next one. Rows of `results` are trajectories."""
    state = states[cuda.grid(1)]
    place = len(state) - PLACE
    words = cuda.local.array(ROOM, np.uint64) if IS_LOCAL else state
    for j in range(len(state)):
        words[j] = state[j]
    run = records(words[:RUN_WORDS].view(RUN_KIND))[0]
    arms = records(words[RUN_WORDS : len(first)].view(ARM_KIND))
    truth = records(words[len(first) : place].view(TRUTH_KIND))
    row, reached, mark = np.int64(state[place + ROW]), np.int64(state[place + REACHED]), np.int64(state[place + MARK])
    doing = np.int64(state[place + DOING])
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
    state[place + ROW], state[place + REACHED], state[place + MARK] = row, reached, mark
    state[place + DOING] = NEXT if doing == OVER else doing  # there may be more in the next task


def always(arms: Any, run: Any, rules: Any) -> bool:
    return True


def as_they_are(records: Any) -> Any:
    return records


def numba_cuda() -> Any:
    optional("numba_cuda")
    from numba import cuda

    return cuda


def is_simulated() -> bool:
    """Whether numba-cuda only simulates a GPU, in Python (NUMBA_ENABLE_CUDASIM=1)."""
    from numba.cuda.core import config

    return bool(config.ENABLE_CUDASIM)


def kernel_of(work: Work, tuning: Tuning) -> Kernel:
    """The kernel for some work. If it cannot be compiled because of a user's own code, the error names the line."""
    from cabai.core.blame import unusable
    from cabai.simulation.loop import write

    setup, layout = work.setup, work.setup.layout
    bound = binding([*(pair for pair in setup.test_binding if pair[0] != "draw"), *work.drawing])
    called = {slot.__name__: function_for(slot, bound) for slot in (observe, draw, draw_cost, pulls_of_a_choice)}
    called |= {"choose": setup.choose, "stop": setup.stop, "open_streams": open_streams, "write": write}
    by_default = setup.policy.stop is leader_beats_every_rival
    called |= {"may_stop": setup.bound(may_beat_every_rival) if by_default else always, "records": as_they_are}
    arms, run = work.start
    first = np.concatenate([np.array([run]).view(np.uint64), np.ascontiguousarray(arms).view(np.uint64)])
    words = len(first) + work.truth.nbytes // 8 + PLACE
    room = 1 << (words - 1).bit_length()  # in powers of 2, so that a kernel serves several numbers of arms
    kinds = layout.arm, layout.run, layout.rules, work.truth.dtype
    rules = np.repeat(np.array([setup.rules]), len(work.levels))
    rules["level"] = work.levels
    try:
        launch = compiled_turns(tuple(called.items()), kinds, room if room <= tuning.local else 0, tuning)
    except Exception as error:
        work.compiled()  # if a CPU cannot run it either, this explains why
        raise unusable(setup, (setup.choose, setup.stop, called["observe"]), error) from error
    return Kernel(launch, first, rules)


@lru_cache(maxsize=64)
def compiled_turns(called: tuple[tuple[str, Any], ...], kinds: tuple[Any, ...], room: int, tuning: Tuning) -> Any:
    """Compile `take_turns` with these functions for these records, or load it; `room` is 0 for global memory."""
    from cabai.core.compiling import cache_directory, functions_in, is_ours

    function, signature = whole_kernel(called, kinds, room, tuning)
    if is_simulated():
        return numba_cuda().jit(function)
    folder = cache_directory() if all(is_ours(each) for _, one in called for each in functions_in(one)) else ""
    with settings(tuning, folder):
        options = {"max_registers": tuning.registers, "lto": False, "cache": bool(folder)}
        return numba_cuda().jit(signature, **options)(function)


def whole_kernel(
    called: tuple[tuple[str, Any], ...], kinds: tuple[Any, ...], room: int, tuning: Tuning
) -> tuple[Any, Any]:
    """`take_turns` as one function to compile, and the types of its arguments."""
    from numba import from_dtype, types

    from cabai.core.compiling import functions_in
    from cabai.simulation.loop import RESULT, UNFINISHED

    arm, run, rules, truth = kinds
    constants = {
        "ARM_KIND": arm, "RUN_KIND": run, "TRUTH_KIND": truth, "RUN_WORDS": run.itemsize // 8, "ROOM": room or 1,
        "IS_LOCAL": room > 0, "FEW": GROUP - tuning.gather, "UNFINISHED": UNFINISHED,
    }  # fmt: skip
    if is_simulated():
        helpers = dict(called) | {"records": Records} | constants | {"FEW": 1}
    else:
        helpers = {name: on_device(each, tuning.apart, name in tuning.calls) for name, each in called} | constants
    function = copied(take_turns, helpers | {"cuda": numba_cuda()})
    parts = [f"{each.__module__}.{each.__qualname__}" for _, one in called for each in functions_in(one)]
    function.__qualname__ += "_" + hashlib.sha256(repr((parts, constants, tuning)).encode()).hexdigest()[:12]
    words, wholes, rows = types.uint64[::1], types.int64[::1], types.int64[:, :, ::1]
    return function, types.void(
        words, types.uint64[:, ::1], words, types.uint64, from_dtype(rules)[::1], types.int64, types.float64, wholes,
        from_dtype(RESULT)[:, ::1], rows, rows, types.uint64[:, ::1], wholes, types.int64,
    )  # fmt: skip


@cache
def on_device(function: Any, apart: bool, call: bool = False) -> Any:
    """A function for the GPU, and with it every plain function that it calls."""
    helpers = {name: on_device(each, apart) for name, each in plain_functions_of(function).items()}
    found = numba_cuda().jit(device=True)(copied(function, helpers) if helpers else function)
    if call or (apart and getattr(function, "apart", False)):
        compile_device = found.compile_device

        def compile_apart(*kinds: Any) -> Any:
            made = compile_device(*kinds)
            made.library.get_function(made.fndesc.llvm_func_name).attributes.add("noinline")
            return made

        found.compile_device = compile_apart
    return found


_settings_changed = threading.RLock()


@contextmanager
def settings(tuning: Tuning, folder: str = "") -> Iterator[None]:
    """Numba's settings while it compiles, which the whole process shares: where to cache, and what Tuning says."""
    from numba.cuda.core import config
    from numba.cuda.cudadrv import nvvm

    with _settings_changed:
        compile_ir = nvvm.compile_ir
        before = config.CACHE_DIR, compile_ir, nvvm.ADDRSPACE_CONSTANT
        config.CACHE_DIR = folder
        if not tuning.contracted:
            nvvm.compile_ir = lambda *code, **options: compile_ir(*code, **options | {"fma": False})
        if tuning.tables_aside:
            nvvm.ADDRSPACE_CONSTANT = nvvm.ADDRSPACE_GLOBAL
        try:
            yield
        finally:
            config.CACHE_DIR, nvvm.compile_ir, nvvm.ADDRSPACE_CONSTANT = before


class Cuda(Engine):
    where = "on the GPU"
    aim = shortest = 1.0
    pilot = 2**16

    def __init__(self, workers: int | None = None, tuning: Tuning | None = None) -> None:
        """All GPUs of this machine, or the first `workers` of them."""
        try:
            found = len(numba_cuda().gpus)
        except ModuleNotFoundError:
            raise
        except Exception as error:  # from the driver
            raise EngineFailed("engine 'cuda' needs an NVIDIA GPU, and this machine has no driver for one.") from error
        if not found:
            raise EngineFailed("engine 'cuda' needs an NVIDIA GPU, and this machine has none.")
        self.workers, self.tuning, self.stopped = workers, tuning or Tuning(), threading.Event()
        self.gpus = list(range(found))[:workers]
        self.free: SimpleQueue[int] = SimpleQueue()
        self.tasks = 1 if is_simulated() else TASKS  # per GPU
        for gpu in self.gpus * self.tasks:
            self.free.put(gpu)
        self.pool = ThreadPoolExecutor(self.cores)

    @property
    def cores(self) -> int:
        return self.tasks * len(self.gpus)

    @property
    def room(self) -> int:
        return self.cores

    def most(self, work: Work) -> int:
        return max(1, MOST_BYTES // work.row_bytes)

    def prepare(self, work: Work) -> None:
        self.share(work)

    def share(self, work: Work) -> tuple[Work, Kernel]:
        with numba_cuda().gpus[self.gpus[0]]:
            return work, kernel_of(work, self.tuning)

    def submit(self, shared: tuple[Work, Kernel], first: int, count: int) -> Future[Part]:
        return self.pool.submit(self.run, *shared, first, count)

    def run(self, work: Work, kernel: Kernel, first: int, count: int) -> Part:
        gpu = self.free.get()
        started = time.perf_counter()
        try:
            with numba_cuda().gpus[gpu]:
                rows = self.rows(work, kernel, first, count)
        finally:
            self.free.put(gpu)
        seconds = time.perf_counter() - started
        kept, sums = (rows, []) if work.keeps_rows else ((), work.sums(*rows))
        return Part(first, count, seconds, kept, sums)

    def rows(self, work: Work, kernel: Kernel, first: int, count: int) -> Rows:
        """The results, pulls and paths of these trajectories."""
        from cabai.simulation.loop import RESULT

        cuda, arms, shape = numba_cuda(), len(work.instance), (count, len(work.levels))
        stream = cuda.stream()
        truths, numbers = work.inputs(first, count)
        words = len(kernel.first) + truths.shape[1] + PLACE
        blocks, threads = self.blocks(kernel, words, count)
        path, counts = np.full((count, len(work.grid), arms), -1, np.int64), np.zeros(3, np.int64)
        results, pulls = cuda.device_array(shape, RESULT), cuda.device_array((*shape, arms), np.int64)
        sent = (cuda.to_device(each, stream) for each in (kernel.first, truths, numbers, kernel.rules, work.grid))
        first_words, truths, numbers, rules, grid = sent
        path, counts = cuda.to_device(path, stream), cuda.to_device(counts, stream)
        states = cuda.to_device(np.zeros((blocks * threads, words), np.uint64), stream)
        turns = 64
        while not self.stopped.is_set():
            started = time.perf_counter()
            kernel.launch[blocks, threads, stream](
                first_words, truths, numbers, np.uint64(work.seed), rules, work.max_pulls, work.max_cost, grid, results,
                pulls, path, states, counts, turns,
            )  # fmt: skip
            now = counts.copy_to_host(stream=stream)
            stream.synchronize()
            if now[NO_SUCH_ARM]:
                raise InvalidInput(f"policy {work.setup.policy} chose an arm that does not exist.")
            if now[ENDED] == count:
                return tuple(each.copy_to_host(stream=stream) for each in (results, pulls, path))  # type: ignore
            turns = math.ceil(turns * min(max(LAUNCH / (time.perf_counter() - started), 0.25), 4.0))
        raise CancelledError

    def blocks(self, kernel: Kernel, words: int, count: int) -> tuple[int, int]:
        """How many blocks of how many threads run at a time, as far as registers and memory allow."""
        if is_simulated():
            return 2, 2
        cuda = numba_cuda()
        registers = -(-kernel.launch.get_regs_per_thread() // 8) * 8
        there = cuda.get_current_device().MULTIPROCESSOR_COUNT * min(32, 2**16 // (GROUP * registers))
        fit = int(STATE_SHARE * cuda.current_context().get_memory_info().free) // (8 * words * GROUP)
        return max(1, min(there, fit, count)), GROUP

    def cancel(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    def explained(self, error: Exception) -> Exception:
        if type(error).__module__.startswith(("numba.", "cuda.")):
            return EngineFailed(f"the GPU cannot do this work: {str(error).strip().splitlines()[0]}")
        return error
