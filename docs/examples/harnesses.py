"""A race with other tools: what `cabai.evaluate` needs is a function that scores one arm, here in batches or alone.

Each function is a recipe: copy it, and put your models, tasks and metrics in. The tests have stand-ins for the tools.
The recipes have run with lm-eval 0.4.13, DSPy 3.4.1, promptfoo 0.121.20, Langfuse 5.0.4 and Optuna 5.0.0, and models
that need no network.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cabai


def lm_evaluation_harness(
    models: Mapping[str, Any], task: str, metric: str, items: int, manager: Any, **race: Any
) -> Any:
    """Models of lm-evaluation-harness (`lm_eval.api.model.LM`) on one of its tasks.

    The models and the `lm_eval.tasks.TaskManager` are made once, outside; `items` is how many documents the task has.
    """
    from lm_eval import simple_evaluate

    def score_many(model: str, ids: Sequence[int]) -> dict[int, float]:
        found = simple_evaluate(
            model=models[model], tasks=[task], samples={task: list(ids)}, task_manager=manager, bootstrap_iters=0
        )
        return {sample["doc_id"]: sample[metric] for sample in found["samples"][task]}

    return cabai.evaluate(list(models), range(items), score_many, **{"batch": 32, **race})


def vllm(
    models: Mapping[str, Any], items: Sequence[Mapping[str, Any]], grade: Callable[..., float], **race: Any
) -> Any:
    """Local models (`vllm.LLM`), which answer many prompts at once."""

    def score_many(model: str, some: Sequence[Mapping[str, Any]]) -> list[float]:
        answers = models[model].generate([item["text"] for item in some])
        return [grade(item, answer.outputs[0].text) for item, answer in zip(some, answers, strict=True)]

    return cabai.evaluate(list(models), items, score_many, **{"batch": 64, **race})


def dspy(programs: Mapping[str, Any], devset: Sequence[Any], metric: Callable[..., float], **race: Any) -> Any:
    """Programs of DSPy, on examples that no optimizer has seen: tuned ones look better on those they were tuned on."""
    score = lambda name, example: metric(example, programs[name](**example.inputs()))  # noqa: E731
    return cabai.evaluate(list(programs), devset, score, **{"workers": 8, **race})


def optuna(study: Any, items: Sequence[Any], score: Callable[..., float], finalists: int = 5, **race: Any) -> Any:
    """The best trials of an Optuna study (maximizing), again, on items that its objective has not used."""
    best = sorted(study.trials, key=lambda trial: -trial.value)[:finalists]
    parameters = {f"trial {trial.number}": trial.params for trial in best}
    return cabai.evaluate(list(parameters), items, lambda name, item: score(parameters[name], item), **race)


def promptfoo(providers: Sequence[str], tests: Sequence[dict[str, Any]], config: str, **race: Any) -> Any:
    """Providers in a promptfoo configuration without tests, on these `tests`."""

    def score_many(provider: str, some: Sequence[dict[str, Any]]) -> list[float]:
        with TemporaryDirectory() as folder:
            batch, found = Path(folder, "batch.json"), Path(folder, "found.json")
            batch.write_text(json.dumps(list(some)), encoding="utf-8")
            options = ["--filter-providers", provider, "-t", str(batch), "-o", str(found), "--no-cache"]
            subprocess.run(["promptfoo", "eval", "-c", config, *options], check=False)  # 100 if some tests fail
            rows = json.loads(found.read_text(encoding="utf-8"))["results"]["results"]
        return [row["score"] for row in sorted(rows, key=lambda row: row["testIdx"])]

    return cabai.evaluate(list(providers), tests, score_many, **{"batch": 32, **race})


def langfuse(
    client: Any, items: Sequence[Any], tasks: Mapping[str, Callable[..., Any]], evaluator: Any, **race: Any
) -> Any:
    """Tasks of Langfuse experiments, one experiment per batch; the evaluator returns one evaluation with a value."""

    def score_many(name: str, some: Sequence[Any]) -> list[float]:
        found = client.run_experiment(name=name, data=list(some), task=tasks[name], evaluators=[evaluator])
        return [float(row.evaluations[0].value) for row in found.item_results]

    return cabai.evaluate(list(tasks), items, score_many, **{"batch": 32, **race})
