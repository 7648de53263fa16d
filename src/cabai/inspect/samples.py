"""What a sample is worth to the race: its score and its cost, from all its epochs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from inspect_ai import Task
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample
from inspect_ai.scorer import Score, mean_score, value_to_float

from cabai.errors import InvalidInput, RunFailed
from cabai.prices import cost, usage_cost
from cabai.study.run.loop import Failed

Prices = Any  # what `cabai.prices.cost` takes


def samples_of(task: Task, limit: int | None) -> dict[Any, Sample]:
    """Copies of a task's samples, by id; those without one are numbered from 1, as in Inspect."""
    if task.sample_source is not None:
        raise InvalidInput("the task makes its samples while it runs (SampleSource): a race needs them all beforehand.")
    found = {}
    for number, sample in enumerate(list(task.dataset)[:limit], 1):
        known = copy.copy(sample)
        known.id = number if known.id is None else known.id
        if known.id in found:
            raise InvalidInput(f"ids of samples must be unique: {known.id!r} appears twice.")
        found[known.id] = known
    return found


def item_of(sample: Sample) -> dict[str, Any]:
    """What a sample is known by: if one of these changes, it is another item."""
    text = sample.input if isinstance(sample.input, str) else [each.model_dump(mode="json") for each in sample.input]
    if isinstance(text, list):
        for message in text:
            message.pop("id", None)  # another one each time
    return {"id": sample.id, "input": text, "target": sample.target}


def check_scorer(task: Task, wanted: str | None) -> None:
    """Refuse a task whose score cannot be chosen, before anything is paid for."""
    from inspect_ai._util.registry import registry_unqualified_name

    names = [registry_unqualified_name(each) for each in task.scorer or []]
    if not names:
        raise InvalidInput("the task has no scorer, so there is nothing to compare arms by.")
    if wanted is None and len(names) > 1:
        raise InvalidInput(f"the task has several scorers: {', '.join(names)}. Choose one: scorer={names[0]!r}.")
    if wanted is not None and wanted.partition(".")[0] not in names:
        raise InvalidInput(f"the task has no scorer {wanted!r}; it has {', '.join(names)}.")


class Reader:
    """Reads the samples of one arm."""

    def __init__(self, arm: str, scorer: str | None, reducers: Any, prices: Prices, has_costs: bool) -> None:
        self.arm, self.prices, self.has_costs = arm, prices, has_costs
        self.scorer, _, self.key = (scorer or "").partition(".")
        self.reduce: Callable[[list[Score]], Score] = (reducers or [mean_score()])[0]
        self.to_float = value_to_float()

    def result(self, epochs: Sequence[EvalSample]) -> Any:
        """A score, with its cost unless costs are known; or `Failed`."""
        paid = math.fsum(map(self.cost, epochs)) if self.has_costs else None
        scores = [self.score(sample) for sample in epochs]
        failed = [each for each in scores if isinstance(each, str)]
        if failed or not scores:
            return Failed(failed[0] if failed else "the sample was cancelled", paid)
        score = scores[0] if len(scores) == 1 else self.reduce([Score(value=each) for each in scores]).as_float()
        return (score, paid) if self.has_costs else score

    def score(self, sample: EvalSample) -> float | str:
        """The score of an epoch, or why there is none."""
        if sample.error is not None:
            return str(sample.error.message)
        scores = sample.scores or {}
        name = self.scorer or next(iter(scores), "")
        if name not in scores:
            return f"the sample has no score {name!r}" if name else "the sample has no score"
        value = scores[name].value
        if isinstance(value, dict):
            if self.key not in value:
                keys = ", ".join(map(str, value))
                raise RunFailed(f"the score {name!r} has the keys {keys}: name one, as in scorer='{name}.key'.")
            value = value[self.key]
        number = self.to_float(value)
        return "the sample was not scored (NaN)" if math.isnan(number) else float(number)

    def cost(self, sample: EvalSample) -> float:
        """What all models of an epoch cost, in dollars."""
        try:
            bills = [usage_cost(model, each.model_dump(), self.prices) for model, each in sample.model_usage.items()]
            return math.fsum(bills)
        except InvalidInput as error:  # such as a judge without a price
            raise RunFailed(f"a sample of arm {self.arm!r} cannot be billed: {error}") from None


def is_priced(model: str | None, prices: Prices) -> bool:
    try:
        return model is not None and cost(model, input_tokens=1, output_tokens=1, prices=prices) >= 0
    except InvalidInput:
        return False
