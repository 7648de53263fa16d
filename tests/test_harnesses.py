"""The recipes for other tools, with stand-ins that have the same calls: none of these tools is a dependency."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import cabai

ITEMS = 200
SKILLS = {"small": 60, "large": 90}


def knows(model, item):
    return float((item * 37) % 100 < SKILLS[model])


@pytest.fixture
def recipes(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "docs" / "examples")
    import harnesses

    return harnesses


def check(found):
    """The larger knows more, and what is stored is what was answered."""
    assert found.decision == "large"
    assert all(score == knows(arm, item) for arm, scores in found.scores.items() for item, score in scores.items())


def test_lm_evaluation_harness(recipes, monkeypatch):
    calls = []

    def simple_evaluate(model, tasks, samples, task_manager, bootstrap_iters):
        calls.append(len(samples["sums"]))
        rows = [{"doc_id": i, "acc": knows(model, i)} for i in sorted(samples["sums"])]  # in its own order
        return {"samples": {"sums": rows}}

    monkeypatch.setitem(sys.modules, "lm_eval", SimpleNamespace(simple_evaluate=simple_evaluate))
    found = recipes.lm_evaluation_harness({name: name for name in SKILLS}, "sums", "acc", ITEMS, None, seed=1)
    check(found)
    assert max(calls) == 32
    assert found.spent == sum(calls) < 2 * ITEMS


def test_vllm_dspy_optuna_and_langfuse(recipes):
    def model(name):
        def generate(texts):
            return [SimpleNamespace(outputs=[SimpleNamespace(text=str(knows(name, int(each))))]) for each in texts]

        return SimpleNamespace(generate=generate)

    items = [{"text": str(i)} for i in range(ITEMS)]
    models = {name: model(name) for name in SKILLS}
    assert recipes.vllm(models, items, lambda item, answer: float(answer), seed=1).decision == "large"
    devset = [SimpleNamespace(number=i, inputs=lambda i=i: {"number": i}) for i in range(ITEMS)]
    programs = {name: lambda number, name=name: knows(name, number) for name in SKILLS}
    assert recipes.dspy(programs, devset, lambda example, answer: answer, seed=1).decision == "large"
    trials = [SimpleNamespace(number=n, value=n, params={"name": name}) for n, name in enumerate(["small", *SKILLS])]
    study = SimpleNamespace(trials=trials)
    found = recipes.optuna(study, range(ITEMS), lambda given, item: knows(given["name"], item), finalists=2, seed=1)
    assert (found.decision, set(found.study.arms)) == ("trial 2", {"trial 1", "trial 2"})

    def run_experiment(name, data, task, evaluators):
        values = [evaluators[0](task(item)) for item in data]
        return SimpleNamespace(item_results=[SimpleNamespace(evaluations=[value]) for value in values])

    client = SimpleNamespace(run_experiment=run_experiment)
    tasks = {name: lambda item, name=name: knows(name, item) for name in SKILLS}
    evaluator = lambda output: SimpleNamespace(value=output)  # noqa: E731
    assert recipes.langfuse(client, range(ITEMS), tasks, evaluator, seed=1).decision == "large"


PROMPTFOO = """#!{python}
import json, sys
given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
skill = {{"small": 60, "large": 90}}[given["--filter-providers"]]
if given["-c"] == "broken.yaml":
    sys.exit(1)
tests = json.load(open(given["-t"]))
rows = [{{"testIdx": i, "score": float(each["vars"]["q"] * 37 % 100 < skill)}} for i, each in enumerate(tests)]
json.dump({{"results": {{"results": rows[::-1]}}}}, open(given["-o"], "w"))
sys.exit(100)  # some tests failed
"""


@pytest.mark.skipif(os.name != "posix", reason="a script with #!")
def test_promptfoo(recipes, tmp_path, monkeypatch):
    (tmp_path / "promptfoo").write_text(PROMPTFOO.format(python=sys.executable))
    (tmp_path / "promptfoo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    tests = [{"vars": {"q": i}} for i in range(ITEMS)]
    check(recipes.promptfoo(list(SKILLS), tests, "config.yaml", seed=1))
    with pytest.raises(cabai.RunFailed, match="FileNotFoundError"):
        recipes.promptfoo(list(SKILLS), tests, "broken.yaml", retries=0)
