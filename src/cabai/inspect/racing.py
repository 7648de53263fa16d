"""`cabai.inspect.evaluate`: every arm is one Inspect task with one log, fed by the race."""

from __future__ import annotations

import copy
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai import Epochs, Task, task_with
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log
from inspect_ai.model import Model, get_model

from cabai.core.goal import BEST
from cabai.datasets.dataset import Dataset
from cabai.errors import InvalidInput, RunFailed
from cabai.families import Family
from cabai.inspect.lanes import InspectEnded, Lane
from cabai.inspect.samples import Prices, Reader, check_scorer, is_priced, item_of, samples_of
from cabai.settings import MOST_WORKERS, WORST
from cabai.study.given import Pull
from cabai.study.run import evaluate as study_evaluation
from cabai.study.run.evaluate import keeping, open_evaluation
from cabai.study.run.loop import run
from cabai.study.run.watching import page_of
from cabai.support.validation import shown, whole

LEASE = 7 * 86400.0  # seconds: agents take long, and what a killed run had under way lapses by its process id
AT_ONCE = 10  # samples of an arm, as in Inspect
OURS = {"sample_id", "sample_shuffle", "tasks", "max_tasks", "fail_on_error", "log_samples", "score", "run_samples"}


@dataclass(frozen=True)
class Evaluation(study_evaluation.Evaluation):
    """The result of `cabai.inspect.evaluate`: that of `cabai.evaluate`, and Inspect's logs, one per arm."""

    logs: list[EvalLog] = field(default_factory=list)


def evaluate(
    task: Any,
    arms: Sequence[Any] | Mapping[str, Any],
    *,
    scorer: str | None = None,
    name: str | None = None,
    storage: str | None = None,
    log_dir: str | None = None,
    delta: float = 0.05,
    epsilon: float = 0.0,
    goal: str = BEST,
    slack: float | None = None,
    running_costs: Sequence[float] | Mapping[str, float] | None = None,
    costs: Sequence[float] | Mapping[str, float] | None = None,
    prices: Prices = None,
    family: str | Family | None = None,
    direction: str = "maximize",
    seed: int | None = None,
    max_cost: float | None = None,
    reuse: Any = None,
    join: Any = None,
    race: str | None = None,
    speculate: float = 0.1,
    finish: float | None = None,
    failed: str | float = WORST,
    max_failures: int = 5,
    limit: int | None = None,
    epochs: int | Epochs | None = None,
    page: bool = False,
    **options: Any,
) -> Evaluation:
    """Find the best of several models, prompts or agents on an Inspect task, for less than running it with each.

    `arms` are models, or a mapping from names to models, solvers, agents or whole tasks (then `task` is None). The race
    is that of `cabai.evaluate`, and takes the same arguments; `options` go to `inspect_ai.eval`: `model` for arms that
    are not models, `max_samples`, `max_connections`, `display`. Each arm has one log, with the samples that it needed.

    The race is on the mean of one score: `scorer` names it, `"name.key"` if it has keys. With several epochs, an item's
    score is what the task's first reducer makes of them. Costs are in dollars: what Inspect knows, or else by
    `cabai.prices` (`prices` are your own), of all models that a sample calls. If no arm's model has a known price, each
    sample costs 1.

    A sample that fails after Inspect's retries (`retry_on_error`, here 2) counts as `failed` says. With a `name`, the
    race is stored in cabai.db in the log folder: repeat the call to continue it.
    """
    for option in OURS & options.keys():
        raise InvalidInput(f"{option} is not for a race: it chooses the samples itself, and logs them.")
    if os.environ.get("INSPECT_ASYNC_BACKEND", "").lower() == "trio":
        raise InvalidInput("a race in Inspect needs asyncio: unset INSPECT_ASYNC_BACKEND.")
    tasks = tasks_of(task, arms, options)
    reducers, count = (epochs.reducer, epochs.epochs) if isinstance(epochs, Epochs) else (None, epochs)
    most = None if limit is None else whole(limit, "limit", 1)
    samples = {arm: samples_of(each, most) for arm, each in tasks.items()}
    check_same(samples)
    for each in tasks.values():
        check_scorer(each, scorer)
    models = [str(each.model or options.get("model") or "") or None for each in tasks.values()]
    has_costs = costs is None and all_priced(models, prices)
    if name is not None and storage is None:
        folder = Path(log_folder(log_dir))
        folder.mkdir(parents=True, exist_ok=True)
        storage = f"sqlite:///{folder / 'cabai.db'}"
    study = open_evaluation(
        name, storage, reuse, join, items=Dataset.of([item_of(each) for each in next(iter(samples.values())).values()]),
        arms=list(tasks), family=family, delta=delta, epsilon=epsilon, goal=goal, slack=slack,
        running_costs=running_costs, direction=direction, costs=costs, speculate=speculate, finish=finish, seed=seed,
        failed=failed, max_cost=max_cost, race=race, lease=LEASE,
    )  # fmt: skip
    lacking = [arm for arm in study.arms if arm not in tasks]
    if lacking:
        raise InvalidInput(f"arms must have {lacking[0]!r}, the winner of the race to join: it may need more samples.")
    tasks = {arm: tasks[arm] for arm in study.arms}
    if study.stopped:
        return Evaluation(study, study.status(), study.scores())
    lanes: dict[str, Lane] = {}
    readers, fed, mark = {}, [], secrets.token_hex(8)
    for arm, each in tasks.items():
        lanes[arm] = Lane(arm, samples[arm], int(count or each.epochs or 1), lanes)
        readers[arm] = Reader(arm, scorer, reducers or each.epochs_reducer, prices, has_costs)
        about = {"cabai_arm": arm, "cabai_study": study.name, "cabai_items": len(samples[arm]), "cabai_run": mark}
        fed.append(task_with(each, dataset=lanes[arm], metadata={**(each.metadata or {}), **about}))

    def try_once(pull: Pull) -> Any:
        result = readers[pull.arm].result(lanes[pull.arm].run(pull.item))
        return (result, 1.0) if costs is None and isinstance(result, float) else result

    workers = min(len(tasks) * int(options.get("max_samples") or AT_ONCE), MOST_WORKERS)
    usual = {"retry_on_error": 2, "log_buffer": 10}  # Inspect would write the log after every sample
    with keeping(study, name), page_of(study, page):
        race_study = partial(run, study, try_once, workers=workers, max_failures=max_failures, retries=0)
        with racing(race_study, lanes) as raced:
            try:
                logs = inspect_ai.eval(
                    fed, max_tasks=len(fed), fail_on_error=False, epochs=epochs, log_dir=log_dir, **usual | options
                )
            finally:
                collect_logged(lanes, mark, log_folder(log_dir))
        try:
            raced.result()
        except InspectEnded as error:
            if not logs or any(log.status == "cancelled" for log in logs):  # what Inspect makes of Ctrl-C
                raise KeyboardInterrupt from None
            raise RunFailed(f"{error}. The study {study.name!r} is kept; run it again to go on.") from None
    return Evaluation(study, study.status(), study.scores(), logs)


@contextmanager
def racing(race: Callable[[], Any], lanes: Mapping[str, Lane]) -> Iterator[Future[Any]]:
    """A race in a thread of its own, while Inspect runs in this one."""

    raced = Future[Any]()

    def work() -> None:
        try:
            raced.set_result(race())
        except BaseException as error:
            raced.set_exception(error)
        for lane in lanes.values():
            lane.end("the race is over")

    thread = threading.Thread(target=work, name="cabai race", daemon=True)  # one that hangs does not keep the process
    thread.start()
    try:
        yield raced
    finally:
        for lane in lanes.values():
            lane.abandon()
        thread.join()


def log_folder(log_dir: str | None) -> str:
    return log_dir or os.environ.get("INSPECT_LOG_DIR") or "logs"


def collect_logged(lanes: Mapping[str, Lane], mark: str, folder: str) -> None:
    """Find samples that Inspect has finished and logged, but did not report because it was interrupted just then."""
    left = {arm for arm, lane in lanes.items() if lane.waiting}
    with suppress(Exception):  # what cannot be read is run again
        for each in list_eval_logs(folder) if left else []:  # the newest first
            about = read_eval_log(each, header_only=True).eval.metadata or {}
            if about.get("cabai_run") == mark and (arm := about["cabai_arm"]) in left:
                left.remove(arm)
                for sample in read_eval_log(each).samples or []:
                    if sample.error is None:
                        lanes[arm].collect(sample)
            if not left:
                break


def tasks_of(task: Any, arms: Any, options: Mapping[str, Any]) -> dict[str, Task]:
    """One task per arm. An arm is a model, a solver (a prompt, an agent), or a whole task."""
    if isinstance(arms, (str, bytes)) or not isinstance(arms, (Sequence, Mapping)):
        raise InvalidInput(f"arms must be a list of models, or a mapping from names to arms, got {shown(arms)}.")
    named = arms if isinstance(arms, Mapping) else {str(each): each for each in arms}
    found = {}
    for arm, each in named.items():
        if isinstance(each, Task):
            found[arm] = copy.copy(each)
            continue
        if task is None:
            raise InvalidInput(f"arm {arm!r} is not a task, so the task that it is tried on must be given.")
        own = copy.copy(task() if callable(task) and not isinstance(task, Task) else task)
        if not isinstance(own, Task):
            raise InvalidInput(f"task must be an Inspect task, got {shown(task)}.")
        if not isinstance(each, (str, Model)):
            found[arm] = task_with(own, solver=each)
        elif "model" in options:
            raise InvalidInput("model= is for arms that are solvers or tasks; here the arms are models.")
        else:
            found[arm] = task_with(own, model=model_of(each))
    return found


def model_of(given: str | Model) -> Model:
    try:
        return get_model(given)
    except Exception as error:  # each provider has its own, for a missing package or key
        raise InvalidInput(f"the model {given} cannot be used: {said(error)}") from None


def said(error: Exception) -> str:
    words = str(getattr(error, "message", error))
    return " ".join(re.sub(r"\[/?[a-z ]*\]", "", words).split())


def check_same(samples: Mapping[str, Mapping[Any, Any]]) -> None:
    """Refuse arms with other samples than the first one."""
    (first, ids), *others = samples.items()
    for arm, own in others:
        if list(own) != list(ids):
            odd = shown(next(iter(set(own) ^ set(ids)), "their order"))
            raise InvalidInput(
                f"a race needs the same samples: arms {first!r} and {arm!r} have different ones ({odd})."
            )


def all_priced(models: Sequence[str | None], prices: Prices) -> bool:
    """Whether the prices of all models are known; if only some are, bills cannot be compared."""
    unknown = [model for model in models if not is_priced(model, prices)]
    if unknown and len(unknown) < len(models):
        named = ", ".join(sorted(set(map(str, unknown))))
        raise InvalidInput(
            f"the prices of some models are known, but not of {named}: give all, as prices= (a mapping or a TOML file "
            "with dollars per million tokens), or what a sample of each arm costs, as costs=."
        )
    return not unknown


def load_task(spec: str, arguments: Mapping[str, Any]) -> Task:
    """The task that Inspect's own commands would find by this name: `file.py@task`, or `package/task`."""
    try:
        from inspect_ai._eval.loader import load_tasks
    except ImportError:
        raise InvalidInput(
            "this version of inspect_ai cannot find tasks by name: use cabai.inspect in Python."
        ) from None
    try:
        found = load_tasks([spec], dict(arguments))
    except Exception as error:  # anything may be wrong in a user's file
        raise InvalidInput(f"the task {spec} cannot be loaded: {type(error).__name__}: {said(error)}") from error
    if len(found) != 1:
        what = f"has {len(found)} tasks: name one of them" if found else "has no task, or does not exist: name one"
        raise InvalidInput(f"{spec} {what}, such as file.py@task.")
    return found[0]
